"""Which columns of a table are the sessions, the items and their order.

Columns that are not named are found by their names and types, if only one fits.
"""

import difflib
from typing import NamedTuple

import polars as pl

from embedder.config.token_options import TokensOptions
from embedder.data.tables.text_form import Roles
from embedder.errors import InputError

NO_ORDER = "none"
"""`order`, where the rows are in the order of the items."""


class Columns(NamedTuple):
    """Names of columns; "": not given."""

    session: str = ""
    item: str = ""
    order: str = ""  # or NO_ORDER
    items: str = ""  # lists: a row is a session
    weights: str = ""  # of sessions; never found by its name

    @property
    def of_sessions(self) -> tuple[str, ...]:
        """The columns without the weights: one that is given says that files are
        tables."""
        return self[:4]

    @property
    def facts(self) -> dict[str, str]:
        """The columns for a manifest; one without weights is as before they existed."""
        facts = self._asdict()
        return facts if self.weights else {k: facts[k] for k in facts if k != "weights"}

    def __str__(self) -> str:
        weights = f", with the weights `{self.weights}`" if self.weights else ""
        if self.items:
            return f"the lists of `{self.items}`{weights}"
        order = "the rows" if self.order in ("", NO_ORDER) else f"`{self.order}`"
        return f"`{self.item}` by `{self.session}`, in the order of {order}{weights}"


NOT_GIVEN = Columns()


def roles_of(columns: Columns) -> Roles:
    """What the columns of a table of sessions are for."""
    return _ROLES._replace(asked=tuple(x for x in columns if x not in ("", NO_ORDER)))


def columns_of(options: TokensOptions) -> Columns:
    """The columns that the settings name."""
    return Columns(*(getattr(options, name) for name in Columns._fields))


_ROLES = Roles(
    {
        "session": (
            *("session", "basket", "cart", "invoice", "transaction", "visit"),
            *("orderid", "playlist", "path", "walk", "receipt", "purchase"),
            *("sequence", "trip"),
        ),
        "item": (
            *("item", "product", "sku", "stockcode", "article", "track", "song"),
            *("movie", "book", "token", "word", "node", "page", "asin", "url"),
        ),
        "order": (
            *("order", "timestamp", "time", "datetime", "date", "position", "index"),
            *("ts", "rank", "number", "step", "created", "eventtime", "invoicedate"),
            "createdat",
        ),
    },
    needed=("session", "item"),
)
_MAX_SHOWN = 20  # columns of a message


def choose_columns(
    schema: pl.Schema, head: pl.DataFrame, columns: Columns, source: str
) -> Columns:
    """`columns` with the others found by their names and types.

    Args:
      head: the first rows, for messages.
      source: what messages call the table.

    Raises:
      InputError: a column does not exist or has a wrong type, or it is not clear which
        one to use; the message shows the columns.
    """
    about = f"Corpus {source} has the columns {_shown(head)}."
    _check_given(schema, columns, about)
    if columns.items or not (columns.session or columns.item):
        lists = [n for n, dtype in schema.items() if isinstance(dtype, pl.List)]
        if columns.items or (len(lists) == 1 and not _fitting(schema, "session")):
            chosen = Columns(items=columns.items or lists[0], weights=columns.weights)
            return _checked(schema, chosen, about)
    session, item = (
        getattr(columns, kind) or _only(schema, kind, columns, about)
        for kind in ("session", "item")
    )
    chosen = Columns(session, item, weights=columns.weights)
    order = columns.order or _order(schema, chosen, about)
    return _checked(schema, chosen._replace(order=order), about)


def _check_given(schema: pl.Schema, columns: Columns, about: str) -> None:
    for option, name in columns._asdict().items():
        if not name or name in schema or (option, name) == ("order", NO_ORDER):
            continue
        near = difflib.get_close_matches(name, schema, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        raise InputError(
            f"`{option}` must be a column of the corpus, got {name!r}.{hint} {about}"
        )
    if columns.items and any(columns[:3]):
        raise InputError(
            "`items` is a column of whole sessions: leave out `session`, `item` and "
            "`order`."
        )
    names = [name for name in columns if name]
    if len({*names}) < len(names):
        raise InputError(
            "`session`, `item`, `order`, `items` and `weights` must be different "
            f"columns, got {names}."
        )


def _fitting(schema: pl.Schema, kind: str) -> list[str]:
    """Columns that fit a kind by name and type."""
    fits = _is_order if kind == "order" else _is_key
    return [name for name in _ROLES.columns(kind, schema) if fits(schema[name])]


def _only(schema: pl.Schema, kind: str, columns: Columns, about: str) -> str:
    names = [name for name in _fitting(schema, kind) if name not in columns]
    if len(names) == 1:
        return names[0]
    reason = f"could be {' or '.join(map(repr, names))}" if names else "is not clear"
    wrong = _ROLES.columns(kind, schema)
    if not names and wrong:
        reason += f", as {wrong[0]!r} is {schema[wrong[0]]}: write it as text"
    graph = "; or --walks 10 for the edges of a graph" if len(schema) in (2, 3) else ""
    raise InputError(
        f"{about} Which one is the {kind} {reason}: give --session COLUMN and --item "
        "COLUMN, and --order COLUMN unless the rows are in order; or --items COLUMN "
        f"for lists{graph}."
    )


def _order(schema: pl.Schema, chosen: Columns, about: str) -> str:
    """The column of the order by its name, or the only one of times; or NO_ORDER."""
    named = _fitting(schema, "order")
    times = [name for name, dtype in schema.items() if dtype.is_temporal()]
    names = [name for name in named or times if name not in chosen]
    if len(names) > 1:
        raise InputError(
            f"{about} Which one is the order could be {' or '.join(map(repr, names))}: "
            "give --order COLUMN, or --order none for the order of the rows."
        )
    return names[0] if names else NO_ORDER


def _checked(schema: pl.Schema, chosen: Columns, about: str) -> Columns:
    rules = {
        "session": ("integers, text or dates", _is_key),
        "item": ("integers or text", _is_item),
        "order": ("numbers, or dates and times", _is_order),
        "items": ("lists of integers or of text", _is_list),
        # Text is, too: all cells of a CSV file are.
        "weights": ("numbers", lambda x: x.is_numeric() or x == pl.String),
    }
    for option, name in chosen._asdict().items():
        rule, fits = rules[option]
        if name in schema and not fits(schema[name]):
            raise InputError(
                f"`{option}` must be a column of {rule}, got {name!r} of "
                f"{schema[name]}. {about}"
            )
    return chosen


def _is_time(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Date | pl.Datetime)


def _is_key(dtype: pl.DataType) -> bool:
    """Floats and decimals are, too: programs turn integers into them, as where values
    are missing."""
    is_text = isinstance(dtype, pl.String | pl.Categorical | pl.Enum)
    is_number = dtype.is_integer() or dtype.is_float() or isinstance(dtype, pl.Decimal)
    return is_number or is_text or _is_time(dtype)


def _is_item(dtype: pl.DataType) -> bool:
    return _is_key(dtype) and not _is_time(dtype)


def _is_order(dtype: pl.DataType) -> bool:
    return dtype.is_numeric() or dtype.is_temporal() or dtype == pl.String


def _is_list(dtype: pl.DataType) -> bool:
    if not isinstance(dtype, pl.List | pl.Array):
        return False
    inner = dtype.inner
    return isinstance(inner, pl.DataType) and _is_item(inner)


def _shown(head: pl.DataFrame) -> str:
    """Columns with their types and first values."""
    shown = []
    for column in head.iter_columns():
        values = [str(value) for value in column.head(3).to_list()]
        cells = ", ".join(v if len(v) <= 20 else f"{v[:17]}..." for v in values)
        shown.append(f"{column.name} {column.dtype} ({cells})")
    more = f", and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
    return ", ".join(shown[:_MAX_SHOWN]) + more
