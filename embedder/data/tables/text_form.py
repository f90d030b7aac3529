"""The form of a table in text: how lines are cut into cells, and the names of columns.

It is found in the first 64 KiB: the encoding, the ends of lines, comments above the
first row, the separator, and whether the first row is a header.
"""

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import itertools
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl

from embedder.base.limits import NoRoomError, memory_limit
from embedder.disk.files import name_file_in_errors, short_reason
from embedder.errors import InputError
from embedder.vectors.vectors import short_repr

MISSING_WORDS = "NULL", "null", "NA", "N/A", "nan", "NaN", "None", "none", r"\N"
"""Text that programs write where they have no value."""

_UNPACKED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
"""How files are unpacked, by their first bytes."""

_OWN_OPENERS = bz2.open, lzma.open  # of what polars does not unpack

HEAD_BYTES = 2**16
"""Bytes of a file by which its form is found."""

_MAX_ROWS = 1000  # of the head, by which the form is found
_SEPARATORS = "\t,;|"
LINE, NUMBER = "\0line", "\0number"
"""The columns of lines that are not cut yet, and of their numbers; no header has such
names."""

_MARKS = {  # those of UTF-32 first: one begins as that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SEP_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # as Excel reads it
_COMMENT = re.compile(r"[#%]+(\s.*)?")  # "# text" and "%%", but not "#name"
_ATTRIBUTES = re.compile(r"\{.*\}")
_ATTRIBUTES_LINE = re.compile(r".*\{.*\}[ \t\r]*")
BLANKS = " \t\v\f\r"
"""White space within a line: that of ASCII."""

_MANY_BLANKS = re.compile(r"[ \t\v\f\r]+")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?(nan|inf|infinity)")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_INTEGER = re.compile(r"[-+]?\d+")


class Roles(NamedTuple):
    """What the columns of a table are for."""

    usual: Mapping[str, Collection[str]] = {}
    """Role -> usual names of its column, in the form of `plain_name`."""

    needed: tuple[str, ...] = ()
    """Roles: a first row with usual names for all of them is a header."""

    asked: tuple[str, ...] = ()
    """Names of columns that a user gives: a first row with one of them is a header."""

    is_header: Callable[[list[list[str]]], bool] = lambda rows: are_names(rows)
    """Whether the first of rows is a header, where its names do not say so."""

    least: int = 2
    """Columns that a table has; one that is an index is kept where there are fewer."""

    blanks: bool = False
    """Whether white space may separate columns."""

    ragged: bool = False
    """Whether rows may have any number of cells."""

    separators: str = _SEPARATORS
    """Characters that may separate columns of ragged rows, besides white space."""

    def columns(self, role: str, names: Iterable[str]) -> list[str]:
        """Those of `names` that are usual for a role."""
        return [name for name in names if plain_name(name) in self.usual[role]]


class TextForm(NamedTuple):
    """How the text of a table is cut into rows and columns."""

    encoding: str  # "utf-8", "utf-16" or "utf-32"
    end: str  # of lines
    separator: str  # a character, "::", or " ": any white space
    num_skipped: int  # lines above the first row, with the header
    comments: tuple[str, ...]  # among them
    names: tuple[str, ...]  # of the columns; of ragged rows of the first ones
    header: int  # its line, from 1; 0: there is none
    rows: list[list[str]]  # of the head, without the header
    is_ragged: bool = False
    attributes: bool = False  # the last column is a dict of Python, as of networkx

    @property
    def has_header(self) -> bool:
        """Whether the columns have names of their own."""
        return self.header > 0

    @property
    def is_cells(self) -> bool:
        """Whether polars cuts the lines; else `cut_lines` does."""
        whole = self.is_ragged or self.attributes
        return not whole and self.separator not in (" ", "::")

    @property
    def decimal_comma(self) -> bool:
        """Whether a cell of the head is a number with a comma."""
        cells = (cell for row in self.rows for cell in row)
        return self.separator != "," and any(map(_DECIMAL_COMMA.fullmatch, cells))


def plain_name(name: str) -> str:
    """A name of a column in lower case, without `_`, `-`, blanks and `id`.

    `order_id` stays `orderid`: it is a session.
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for ending in ("id", "no", "key"):
        if plain.endswith(ending) and plain not in ("orderid", "orderno"):
            return plain.removesuffix(ending) or plain
    return plain.replace("orderno", "orderid")


def is_number(cell: str) -> bool:
    """Whether a cell is a number, also one with a decimal comma."""
    text = cell.strip(BLANKS).lower()
    return bool(_NUMBER.fullmatch(text) or _DECIMAL_COMMA.fullmatch(text))


def is_integer(cell: str) -> bool:
    """Whether a cell is an integer."""
    return bool(_INTEGER.fullmatch(cell.strip(BLANKS)))


def is_missing(cell: str) -> bool:
    """Whether a cell is empty, or says that there is no value."""
    return cell.strip(BLANKS) in ("", *MISSING_WORDS)


def are_names(rows: list[list[str]]) -> bool:
    """Whether the first of rows has names: no cell is empty, a number or there twice,
    or a column has numbers in all rows below it but not in it."""
    first, below = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    if len({*first}) == len(first) and not any(
        is_missing(cell) or is_number(cell) for cell in first
    ):
        return True
    columns = zip(first, *below, strict=True)
    return len(below) > 1 and any(
        not is_missing(name) and not is_number(name) and all(map(is_number, cells))
        for name, *cells in columns
    )


def head_of(path: Path, num_bytes: int) -> bytes:
    """The first bytes of a file, unpacked where it is gzip, bzip2 or xz.

    Raises:
      InputError: it is not a whole packed file.
      OSError: it cannot be read.
    """
    opener = _opener(path)
    if opener is open and path.name.lower().endswith(".gz"):
        is_empty = not path.stat().st_size
        fault = "it is empty" if is_empty else "it does not begin as gzip"
        raise InputError(f"{path} is not a whole .gz file: {fault}.")
    try:
        with name_file_in_errors(path), opener(path, "rb") as file:
            return file.read(num_bytes)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        kind = "packed" if opener in _OWN_OPENERS else ".gz"
        raise InputError(f"{path} is not a whole {kind} file: {error}.") from error


def marked_encoding(head: bytes) -> str:
    """The encoding that the first bytes of a file name; "utf-8" if they name none."""
    return next(
        (name for mark, name in _MARKS.items() if head.startswith(mark)), "utf-8"
    )


def find_form(path: Path, roles: Roles) -> TextForm:
    """The form of the text in a file.

    Raises:
      InputError: it has no rows, or columns that `roles` asks for twice.
      OSError: it cannot be read.
    """
    head = head_of(path, HEAD_BYTES)
    encoding = marked_encoding(head)
    text = head.decode(encoding, "replace").removeprefix("\ufeff")
    end = "\n" if "\n" in text or "\r" not in text else "\r"
    lines = [line.removesuffix("\r") for line in text.split(end)]
    if len(head) == HEAD_BYTES and len(lines) > 1:
        lines.pop()  # the head may have cut it
    if not any(map(str.strip, lines)):
        raise InputError(f"{path} has no rows.")
    sep = _SEP_LINE.fullmatch(lines[0])
    num_sep_lines = int(bool(sep))
    lines = lines[num_sep_lines:]
    num_above = next((k for k, x in enumerate(lines) if not _is_above(x)), len(lines))
    below = [line for line in lines[num_above:] if line.strip(BLANKS)]
    below = below or [x for x in lines if x.strip(BLANKS) and not _is_comment(x)]
    if not below:
        raise InputError(f"{path} has no rows: all its lines are comments.")
    is_tabs = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    default = "\t" if is_tabs else " " if roles.blanks else ","
    separator = sep[1] if sep else _separator(below[:_MAX_ROWS], roles, default)
    width = len(split_line(below[0], separator))

    def is_row(line: str) -> bool:
        """Whether a line that begins with # or % has the cells of a row."""
        return not _is_comment(line) and len(split_line(line, separator)) == width

    above = [*itertools.takewhile(lambda line: not is_row(line), lines[:num_above])]
    comments = tuple(line for line in above if line.strip(BLANKS))
    skipped = num_sep_lines + len(above)
    lines = lines[len(above) :]
    blank = len([*itertools.takewhile(lambda line: not line.strip(BLANKS), lines)])
    skipped, lines = skipped + blank, lines[blank:]
    rows = [line for line in lines if line.strip(BLANKS)][:_MAX_ROWS]
    form = TextForm(encoding, end, separator, skipped, comments, (), 0, [])
    form = _named(form, rows, roles, path)
    if not form.has_header:
        return form
    more = [*itertools.takewhile(lambda x: _is_above(x) and not is_row(x), lines[1:])]
    comments += tuple(line for line in more if line.strip(BLANKS))
    return form._replace(num_skipped=form.num_skipped + len(more), comments=comments)


def _is_above(line: str) -> bool:
    """Whether a line may stand above the first row: it is blank, or begins with # or
    %."""
    return not line.strip(BLANKS) or line[0] in "#%"


def _is_comment(line: str) -> bool:
    return bool(_COMMENT.fullmatch(line.strip(BLANKS)))


def _named(form: TextForm, lines: list[str], roles: Roles, path: Path) -> TextForm:
    """`form` with the names of columns, from the first of the rows or by number."""
    rows = [split_line(line, form.separator) for line in lines]
    thirds = [split_line(line, form.separator, most=3)[2:] for line in lines]
    attributes = roles.blanks and all(
        third and _ATTRIBUTES.fullmatch(third[0]) for third in thirds
    )
    if attributes:
        rows = [split_line(line, form.separator, most=3) for line in lines]
    has_header = not attributes and _has_header(rows, roles)
    names = [f"column_{k}" for k in range(1, len(rows[0]) + 1)]
    if has_header:
        names = _unique(rows[0], roles.asked, path)
        rows = rows[1:]
    return form._replace(
        num_skipped=form.num_skipped + has_header,
        names=tuple(names),
        header=form.num_skipped + 1 if has_header else 0,
        rows=rows,
        is_ragged=roles.ragged,
        attributes=attributes,
    )


def _has_header(rows: list[list[str]], roles: Roles) -> bool:
    """Whether the first row has names: those that are asked for; usual ones of all
    roles that are needed; or by `roles.is_header`."""
    first = rows[0]
    if any(name in first for name in roles.asked):
        return True
    if roles.needed and all(roles.columns(role, first) for role in roles.needed):
        return True
    return roles.is_header(rows)


def _unique(cells: list[str], user_columns: Collection[str], path: Path) -> list[str]:
    """Names of columns: those of a header, by number where it has none, and with a
    number where it has one twice."""
    times = Counter(cells)
    for name in user_columns:
        if times[name] > 1:
            raise InputError(
                f"{path} has {times[name]} columns {name!r}: rename one of them in its "
                "header."
            )
    names: list[str] = []
    for number, cell in enumerate(cells, 1):
        name = cell.lstrip("#% ") if number == 1 and len(cells) > 1 else cell
        name = name or f"column_{number}"
        while name in names:
            name = f"{name}_{number}"
        names.append(name)
    return names


def _separator(lines: list[str], roles: Roles, default: str) -> str:
    """What separates the cells of most lines, into the most cells."""
    if roles.ragged:
        times = {s: sum(s in line for line in lines) for s in roles.separators}
        return next((s for s, n in times.items() if n > len(lines) / 2), " ")
    if all(map(_ATTRIBUTES_LINE.fullmatch, lines)):
        lines = [line.partition("{")[0] for line in lines]
    shares = {s: _width(lines, s) for s in (*_SEPARATORS, "::")}
    best = max(shares, key=lambda each: shares[each])
    if shares["\t"][0] == 1.0:  # other signs are letters beside tabs
        best = "\t"
    share, width = shares[best]
    if roles.blanks:
        by_blanks = _width(lines, " ")
        cells = (cell for line in lines for cell in split_line(line, " "))
        if width < 2 or (by_blanks > shares[best] and all(map(is_number, cells))):
            return " "
    return best if width > 1 and share >= 0.5 else default


def _width(lines: list[str], separator: str) -> tuple[float, int]:
    """The share of lines with the most frequent number of cells, and that number; of
    one cell the share is 0."""
    sizes = Counter(len(split_line(line, separator)) for line in lines)
    width, times = max(sizes.items(), key=lambda item: item[1], default=(1, 0))
    return (times / sizes.total(), width) if width > 1 else (0.0, 1)


def split_line(line: str, separator: str, most: int = 0) -> list[str]:
    """The cells of a line, without white space around them.

    Args:
      most: cells; the last has the rest of the line. 0: any number.
    """
    text = line if separator == "\t" else line.strip(BLANKS)
    if separator == " ":
        return _MANY_BLANKS.split(text, most - 1 if most else 0)
    cells = text.split(separator, most - 1)
    if '"' in text and len(separator) == 1 and not most:
        with contextlib.suppress(csv.Error):  # a cell of 128 KiB
            cells = next(csv.reader([text], delimiter=separator), [])
    return [cell.strip(BLANKS) for cell in cells]


def scan_text(paths: Sequence[Path], form: TextForm) -> pl.LazyFrame:
    sources: Any = [*paths]
    if form.encoding != "utf-8" or any(_opener(path) in _OWN_OPENERS for path in paths):
        sources = [io.BytesIO(_text_of(path, form.encoding)) for path in paths]

    def scan(separator: str, quote: str | None, names: Sequence[str]) -> pl.LazyFrame:
        return pl.scan_csv(
            sources,
            has_header=False,
            separator=separator,
            quote_char=quote,
            skip_lines=form.num_skipped,
            eol_char=form.end,
            schema=dict.fromkeys(names, pl.String),
            raise_if_empty=False,
            missing_columns="insert",
            glob=False,
        )

    lines = scan("\0", None, [LINE])
    if not form.is_cells:
        return lines.with_row_index(NUMBER, form.num_skipped + 1)
    if form.separator == "\t" and _has_letters(lines, len(form.names)):
        return scan("\t", None, form.names).with_columns(_unquoted(pl.all()))
    return scan(form.separator, '"', form.names)


def scan_lines(path: Path) -> pl.LazyFrame:
    """The lines of a file of text, as one column."""
    names = {LINE: pl.String}
    form: dict[str, Any] = {"separator": "\0", "quote_char": None, "has_header": False}
    return pl.scan_csv([path], schema=names, raise_if_empty=False, glob=False, **form)


def _has_letters(lines: pl.LazyFrame, width: int) -> bool:
    """Whether the lines of a table with tabs have quotes, and each line is a row: then
    a quote within a cell is a letter, and cells in quotes have no tabs or ends of
    lines."""
    line = pl.col(LINE)
    quotes = line.str.contains('"', literal=True).any()
    is_row = line.str.count_matches("\t", literal=True) == width - 1
    return all(lines.select(quotes, rows=is_row.all()).collect().row(0))


def _unquoted(cells: pl.Expr) -> pl.Expr:
    inner = cells.str.slice(1, cells.str.len_chars() - 2)
    is_quoted = cells.str.contains('(?s)^".*"$') & ~inner.str.replace_all(
        '""', "", literal=True
    ).str.contains('"', literal=True)
    whole = inner.str.replace_all('""', '"', literal=True)
    return pl.when(is_quoted).then(whole).otherwise(cells).name.keep()


def _opener(path: Path) -> Callable[..., Any]:
    """What opens a file and unpacks it, by its first bytes."""
    with name_file_in_errors(path), open(path, "rb") as file:
        start = file.read(6)
    return next((o for m, o in _UNPACKED.items() if start.startswith(m)), open)


def opened(path: Path) -> IO[bytes]:
    """A file to read, unpacked where it is gzip, bzip2 or xz."""
    return _opener(path)(path, "rb")


def _text_of(path: Path, encoding: str) -> bytes:
    """The text of a file, in UTF-8."""
    most = memory_limit().size // 8
    try:
        with name_file_in_errors(path), _opener(path)(path, "rb") as file:
            data = file.read(most + 1)
    except (EOFError, lzma.LZMAError) as error:
        raise InputError(f"{path} is not a whole packed file: {error}.") from error
    if len(data) > most:
        raise NoRoomError(
            f"{path} does not fit in memory: it is read whole. Write it as UTF-8, "
            "packed by gzip if at all, which is read in pieces."
        )
    try:
        return data if encoding == "utf-8" else data.decode(encoding).encode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not {encoding} text: {error}.") from error


def cut_lines(batch: pl.DataFrame, form: TextForm, path: Path) -> pl.DataFrame:
    """Lines with their numbers as rows with the same numbers. Raises InputError if a
    line has more or fewer cells."""
    batch, names = without_blank(batch), form.names
    cells = split_lines(batch[LINE], form)
    sizes = cells.list.len()
    if (sizes != len(names)).any():
        row = int((sizes != len(names)).arg_true()[0])
        raise InputError(
            f"{path}: all lines must have {len(names)} columns as the first, "
            f"got {sizes[row]} in line {batch[NUMBER][row]}."
        )
    columns = [cells.list.get(k).alias(name) for k, name in enumerate(names)]
    return batch.select(NUMBER).with_columns(columns)


def without_blank(lines: pl.DataFrame) -> pl.DataFrame:
    return lines.filter(pl.col(LINE).str.strip_chars(BLANKS) != "")


def split_lines(lines: pl.Series, form: TextForm) -> pl.Series:
    """Lists of the cells of lines, as `split_line` cuts them."""
    most = len(form.names) if form.attributes else 0
    is_quoted = len(form.separator) == 1 and form.separator != " "
    if most or (is_quoted and lines.str.contains('"', literal=True).any()):
        rows = [split_line(line, form.separator, most) for line in lines]
        return pl.Series("cells", rows, dtype=pl.List(pl.String))
    if form.separator == " ":
        lines = lines.str.strip_chars(BLANKS)
        one_blank = lines.str.replace_all(_MANY_BLANKS.pattern, " ")
        return one_blank.str.split(" ").alias("cells")
    cells = lines.str.split(form.separator).alias("cells")
    return cells.list.eval(pl.element().str.strip_chars(BLANKS))


def text_fault(paths: Sequence[Path], form: TextForm, error: Exception) -> str:
    """What is wrong with text, with the first line that shows it."""
    width = len(form.names)
    for path in paths:
        inner = re.compile(
            f'[^"{re.escape(form.separator)}]"[^"{re.escape(form.separator)}]'
        )
        try:
            data = _text_of(path, form.encoding)
            data.decode()
        except UnicodeDecodeError as wrong:
            byte, where = data[wrong.start], data.count(b"\n", 0, wrong.start) + 1
            return (
                f"{path} is not UTF-8 text: byte {byte:#04x} in line {where}: save it "
                "as UTF-8."
            )
        if b"\0" in data:
            return f"{path} is not text: it has a NUL byte."
        lines = data.decode().split(form.end)
        opened = 0  # the line of a quote that is not closed
        for number, line in enumerate(lines, 1):
            if number <= form.num_skipped:
                continue
            cells = len(split_line(line, form.separator))
            if cells > width and not opened:
                return (
                    f"{path}: all lines must have {width} columns as the first, got "
                    f"{cells} in line {number}."
                )
            if inner.search(line):
                return (
                    f"{path}: line {number} has a quote within a cell: "
                    f"{short_repr(line)}. Write the quote twice and the cell in "
                    "quotes; or separate columns by tabs: then quotes are letters."
                )
            if line.count('"') % 2:
                opened = 0 if opened else number
        if opened:
            return f"{path}: line {opened} has a quote that is not closed."
    return f"{paths[0]} cannot be read: {short_reason(error)}."
