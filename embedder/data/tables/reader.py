"""Tables of rows and columns: the one reader of all of them.

Text (CSV, TSV and others), JSON lines, Parquet, Arrow and frames in memory, in parts
that may differ in the order and the types of their columns. A table is opened by what
its columns are for, and its rows are read in batches, in their order:

- Columns are found by their names. A column that is an index is none.
- Cells of text are text, so that `007` and long numbers stay as they are. As keys,
  integers that a program made floats, as where values are missing, are integers again.
- Values of partitions, folders named `key=value`, are columns of text.
"""

import contextlib
import gzip
import itertools
import logging
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import polars as pl

from embedder.base.limits import NoRoomError, gib, memory_limit
from embedder.data.tables.table_formats import CSV, TableFormat, format_of, known_format
from embedder.data.tables.text_form import (
    BLANKS,
    LINE,
    NUMBER,
    Roles,
    TextForm,
    cut_lines,
    find_form,
    is_integer,
    plain_name,
    scan_lines,
    scan_text,
    split_lines,
    text_fault,
    without_blank,
)
from embedder.disk.files import short_reason
from embedder.disk.untrusted import TooLargeError, UnreadableError, check_scan
from embedder.errors import InputError

BATCH_ROWS = 2**16
"""Rows that are read at once."""

_HEAD_ROWS = 100
_FAULTS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnreadableError)
_TEXT_BYTES = 2**30  # of memory for lines of packed text: a longer line is a bomb
_SMALL_BYTES = 2**23  # of files that are read twice rather than start two processes
_SMALL_TEXT_BYTES = 2**25  # of unpacked text that needs no process
_PIECE_BYTES = 2**18
_PACKED = b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"(\xb5/\xfd"
"""First bytes of gzip, zlib and zstd, which polars unpacks whatever the name is."""

_INDEX = re.compile(r"__index_level_\d+__")
_INDEX_OF_TEXT = re.compile(r"(Unnamed: 0(\.\d+)?)?")
_FLOAT = r"^-?\d+\.0+$"  # integers that a program made floats, in text
_EXACT = 2**53  # floats from here on stand for several integers
_log = logging.getLogger(__name__)


class Part(NamedTuple):
    """Files of a table that are read alike, or a frame."""

    paths: tuple[Path, ...]
    scan: pl.LazyFrame  # of the columns, or of lines
    schema: dict[str, pl.DataType]  # without an index
    kind: TableFormat | None = None  # None: of a frame
    form: TextForm | None = None  # of text
    constants: Mapping[str, str | None] = {}  # values of partitions
    index_columns: Sequence[str] = ()  # columns that are left out
    is_checked: bool = False  # rows were read in a process of their own
    num_checked: int = 0  # bytes that they take in memory, if that is known

    @property
    def is_lines(self) -> bool:
        """Whether `scan` has lines, which are cut as they are read."""
        return self.form is not None and not self.form.is_cells


def _open_part(path: Path, kind: TableFormat, roles: Roles) -> Part:
    """A file as a part."""
    form = find_form(path, roles) if kind.scan is None else None
    is_of_lines = kind.is_text and (form is None or not form.is_cells)
    if is_of_lines or (form is not None and form.separator == "\t"):
        _read_in_child(scan_lines(path), (path,), kind)  # lines are looked at whole
    scan = _scanned((path,), kind, form)
    if form is None:
        schema = {**scan.collect_schema()}
        index = [name for name in schema if _INDEX.fullmatch(name)]  # as pandas writes
        index += kind.index_columns(path)
        index = [name for name in dict.fromkeys(index) if name in schema]
    else:
        schema = {name: pl.String() for name in form.names}
        index = _index_of_text(form)
    usual = {name for names in roles.usual.values() for name in names}
    index = [x for x in index if x not in roles.asked and plain_name(x) not in usual]
    if len(schema) - len(index) < roles.least:
        index = []
    for name in index:
        del schema[name]
    constants = _partition_values(path)
    schema = {k: v for k, v in schema.items() if k not in constants}
    schema |= dict.fromkeys(constants, pl.String())
    return Part((path,), scan, schema, kind, form, constants, index, is_of_lines)


def _whole_part(part: Part) -> Part:
    """The part that scans all its paths."""
    assert part.kind is not None
    return part._replace(scan=_scanned(part.paths, part.kind, part.form))


def _are_alike(a: Part, b: Part) -> bool:
    """Whether files are read as one: their forms and types are equal, and all is
    decided before."""
    if a.kind is not b.kind or a.constants != b.constants:
        return False
    if a.kind is None or not a.kind.joins_files:
        return False
    if a.form is not None and b.form is not None:
        fixed = a.form.is_cells and a.form.encoding == "utf-8"
        if not fixed or a.form.separator == "\t":
            return False
        if any(_looks_of_floats(part, name) for part in (a, b) for name in part.schema):
            return False
        if a.form._replace(rows=[]) != b.form._replace(rows=[]):
            return False
    return [*a.schema.items()] == [*b.schema.items()]


def _looks_of_floats(part: Part, name: str) -> bool:
    """Whether the first cells of a column of text end in .0, or are empty."""
    if part.form is None or name in part.constants:
        return False
    column = part.form.names.index(name)
    cells = (row[column] for row in part.form.rows if len(row) > column)
    return all(not cell or re.fullmatch(_FLOAT, cell) for cell in cells)


def _numbered_rows(part: Part, name: str) -> pl.LazyFrame:
    """The column `name` of one file, with the number of each row or line."""
    if part.is_lines:
        return _cut(part).select(NUMBER, name)
    first = 1 if part.form is None else part.form.num_skipped + 1
    return part.scan.select(name).with_row_index(NUMBER, first)


def _cut(part: Part) -> pl.LazyFrame:
    """All rows of lines that are cut as they are read, numbered."""
    assert part.form is not None
    form, path = part.form, part.paths[0]
    batches = part.scan.collect_batches(maintain_order=True)
    first = cut_lines(part.scan.head(0).collect(), form, path)
    return pl.concat([first, *(cut_lines(x, form, path) for x in batches)]).lazy()


def is_of_floats(part: Part, name: str) -> bool:
    """Whether all cells of a column of text are integers with .0, or empty."""
    if not _looks_of_floats(part, name):
        return False
    rows = _cut(part) if part.is_lines else part.scan
    cell = pl.col(name)
    is_float = (cell == "") | cell.str.contains(_FLOAT)
    facts = rows.select(is_float.all(), some=cell.str.contains(_FLOAT).any())
    return all(facts.collect().row(0))


def _index_of_text(form: TextForm) -> list[str]:
    """The columns that pandas and R write as an index: without a name, of integers."""
    if not form.has_header:
        return []
    names = []
    for column, name in enumerate(form.names):
        cells = [row[column] for row in form.rows if len(row) > column]
        is_named = _INDEX.fullmatch(name) or _INDEX_OF_TEXT.fullmatch(name)
        if (is_named or (column == 0 and name == "column_1")) and all(
            map(is_integer, cells)
        ):
            names.append(name)
    return names


def _partition_values(path: Path) -> dict[str, str | None]:
    """The values of the folders `key=value` that a file is in."""
    values: dict[str, str | None] = {}
    for folder in path.parents:
        key, sign, value = folder.name.partition("=")
        if not (key and sign):
            break
        is_null = value == "__HIVE_DEFAULT_PARTITION__"
        values[unquote(key)] = None if is_null else unquote(value)
    return dict(reversed(values.items()))


def _check_part(part: Part, wanted: Sequence[str]) -> int:
    if part.is_checked or part.num_checked:
        return part.num_checked
    names = [n for n in wanted if n in part.schema and n not in part.constants]
    return _read_in_child(part.scan.select(names or pl.len()), part.paths, part.kind)


def _read_in_child(
    rows: pl.LazyFrame, paths: Sequence[Path], kind: TableFormat | None
) -> int:
    """Bytes of rows that a process with bounded memory has read; 0: of files whose size
    bounds that of their rows, which were not read."""
    packed = [path for path in paths if _is_packed(path, kind)]
    if not packed:
        return 0
    size = sum(path.stat().st_size for path in paths)
    room = memory_limit().size // 2
    if kind is not None and kind.is_text:  # few cells of text at a time
        if _is_small_gzip(packed, min(room // 4, _SMALL_TEXT_BYTES)):
            return 0
        room = min(room, _TEXT_BYTES)
    return _checked(rows, size + room, paths)


def _check_heads(paths: Sequence[Path], kinds: Sequence[TableFormat]) -> int:
    """Reads the metadata of files, or all of a small one, in a process with bounded
    memory; the bytes of all rows, or 0."""
    files = zip(paths, kinds, strict=True)
    packed = [(path, kind) for path, kind in files if kind.is_packed]
    if not packed:
        return 0
    size = sum(path.stat().st_size for path, _ in packed)
    scans = [_scanned((path,), kind, None) for path, kind in packed]
    room = size + memory_limit().size // 2
    if len(paths) == 1 and size <= _SMALL_BYTES:
        return _checked(scans[0], room, paths)
    _checked(pl.concat(scan.select(pl.len()) for scan in scans), room, paths)
    return 0


def _checked(rows: pl.LazyFrame, data_bytes: int, paths: Sequence[Path]) -> int:
    """`check_scan`, whose error about too large rows names the limit."""
    try:
        return check_scan(rows, data_bytes, paths)
    except TooLargeError as error:
        limit = memory_limit()
        raise NoRoomError(
            f"{paths[0]}: {error}, more than half the {gib(limit.size)} of "
            f"{limit.source}: give a part of it."
        ) from error


def _is_packed(path: Path, kind: TableFormat | None) -> bool:
    """Whether the size of a file does not bound that of its rows, and it is scanned."""
    if kind is None or not kind.is_text:
        return kind is not None and kind.is_packed
    with open(path, "rb") as file:
        return file.read(4).startswith(_PACKED)


def _is_small_gzip(paths: Sequence[Path], max_bytes: int) -> bool:
    """Whether files are undamaged gzip with at most `max_bytes` of text."""
    try:
        for path in paths:
            with gzip.open(path) as file:
                while piece := file.read(_PIECE_BYTES):
                    max_bytes -= len(piece)
                    if max_bytes < 0:
                        return False
    except (OSError, EOFError, zlib.error):
        return False
    return True


def _scanned(
    paths: Sequence[Path], kind: TableFormat, form: TextForm | None
) -> pl.LazyFrame:
    """The rows of files; of lines that are cut later, with their numbers."""
    if form is not None:
        return scan_text(paths, form)
    assert kind.scan is not None, "text has a form"
    return kind.scan(paths)


def key_text(name: str, dtype: pl.DataType, is_of_floats: bool = False) -> pl.Expr:
    """A column as text; integers in decimal digits, also where they are floats or
    decimals.

    Args:
      is_of_floats: the column is text, and its integers end in .0.
    """
    column = pl.col(name)
    if is_of_floats:
        return column.str.replace(r"\.0+$", "")
    if isinstance(dtype, pl.Decimal):
        return column.cast(pl.String).str.replace(r"\.0+$", "")
    if not dtype.is_float():
        return column.cast(pl.String)
    number = column.cast(pl.Float64).fill_nan(None)
    is_integer = (number == number.floor()) & (number.abs() < _EXACT)
    integer = number.cast(pl.Int64, strict=False).cast(pl.String)
    return pl.when(is_integer).then(integer).otherwise(number.cast(pl.String))


def check_integers(texts: pl.Series, option: str, name: str, where: str) -> None:
    """Refuses keys that were floats or decimals and are no exact integers.

    Args:
      option, name, where: of the setting, the column and the table, for the message.
    """
    wrong = texts.filter(~texts.str.contains(r"^-?\d+$"))
    if len(wrong):
        raise InputError(
            f"`{option}` must be a column of integers or text: `{name}` of {where} has "
            f"{wrong[0]}."
        )


def number(column: pl.Expr, dtype: pl.DataType, decimal_comma: bool = False) -> pl.Expr:
    """A column as f64; null where it has no number."""
    if dtype == pl.String:
        column = column.str.strip_chars(BLANKS)
        if decimal_comma:
            column = column.str.replace(",", ".", literal=True)
    return column.cast(pl.Float64, strict=False)


def _common_schema(schemas: Sequence[Mapping[str, pl.DataType]]) -> pl.Schema:
    """The columns of all parts, each of a type that has the values of all."""
    types_of: dict[str, list[pl.DataType]] = {}
    for schema in schemas:
        for name, dtype in schema.items():
            types_of.setdefault(name, []).append(dtype)
    return pl.Schema({name: _common_type(types) for name, types in types_of.items()})


def _common_type(types: Sequence[pl.DataType]) -> pl.DataType:
    known = [*dict.fromkeys(dtype for dtype in types if dtype != pl.Null)]
    if len(known) < 2:
        return known[0] if known else types[0]
    frames = [pl.DataFrame(schema={"x": dtype}) for dtype in known]
    try:
        return pl.concat(frames, how="vertical_relaxed").schema["x"]
    except pl.exceptions.PolarsError:
        return pl.String()


class Table:
    """A table, before its rows are read.

    Args:
      parts: in the order of the rows.
      source: what messages call the table.
    """

    def __init__(self, parts: Sequence[Part], source: str):
        self._parts = parts
        self.source = source
        """What messages call the table."""
        self.schema = _common_schema([part.schema for part in parts])
        """Columns and their types, without an index."""
        self.names = [*self.schema]
        """The names of the columns."""
        self.form = parts[0].form
        """The form of the first part, if it is text."""
        self._is_described = False

    @property
    def partitions(self) -> set[str]:
        """The columns that are values of folders `key=value`."""
        return {name for part in self._parts for name in part.constants}

    @property
    def has_names(self) -> bool:
        """Whether the columns of all parts have names of their own."""
        return all(part.form is None or part.form.has_header for part in self._parts)

    @property
    def decimal_comma(self) -> bool:
        """Whether numbers of text have commas for points."""
        forms = (part.form for part in self._parts)
        return any(form is not None and form.decimal_comma for form in forms)

    def is_integers(self, name: str) -> bool:
        """Whether a column is of integers, or of floats or decimals in place of them,
        in each part."""
        types = (part.schema[name] for part in self._parts if name in part.schema)
        return all(
            dtype.is_integer() or dtype.is_float() or isinstance(dtype, pl.Decimal)
            for dtype in types
        )

    def has_fractions(self, name: str) -> bool:
        """Whether a column is of floats or decimals in a part, whose type allows
        fractions."""
        types = (part.schema.get(name) for part in self._parts)
        return any(
            dtype is not None and (dtype.is_float() or isinstance(dtype, pl.Decimal))
            for dtype in types
        )

    def head(self, num_rows: int = _HEAD_ROWS) -> pl.DataFrame:
        """The first rows, all columns; where files are Parquet, Arrow or packed, a
        process with bounded memory has read them before."""
        frames, missing = [pl.DataFrame(schema=self.schema)], num_rows
        for part in self._parts:
            if part.paths and not (part.is_checked or part.num_checked):
                _read_in_child(part.scan.head(missing), part.paths, part.kind)
            first = part._replace(scan=part.scan.head(missing))
            frames += self._part_batches(first, self.names, (), num_rows)
            missing = num_rows - sum(map(len, frames))
            if missing <= 0:
                break
        return pl.concat(frames)

    def batches(
        self, wanted: Sequence[str], keys: Sequence[str] = (), size: int = 0
    ) -> Iterator[pl.DataFrame]:
        """The columns `wanted` of all rows, some rows at a time.

        Args:
          keys: of the columns, those that are read as text: integers, also as floats,
            in decimal digits.
          size: most rows at a time; default: BATCH_ROWS.

        Raises:
          InputError: a file lacks a column, a row has more columns than the first, or
            is not text.
          polars.exceptions.PolarsError: a file is damaged.
        """
        self._describe()
        for part in self._parts:
            for name in wanted:
                if name not in part.schema:
                    other = next(x.paths[0] for x in self._parts if name in x.schema)
                    raise InputError(
                        f"{part.paths[0]} has no column {name!r}, as {other} has; it "
                        f"has {', '.join(part.schema)}."
                    )
        for part in self._parts:
            yield from self._part_batches(part, wanted, keys, size or BATCH_ROWS)

    def read(self, wanted: Sequence[str], keys: Sequence[str] = ()) -> pl.DataFrame:
        """The columns `wanted` of all rows; see `batches`."""
        schema = {name: self.schema[name] for name in wanted}
        schema |= {name: pl.String() for name in keys}
        return pl.concat([pl.DataFrame(schema=schema), *self.batches(wanted, keys)])

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """Rows with any number of cells, and their numbers in the file; of text that is
        opened as ragged."""
        self._describe()
        for part in self._parts:
            assert part.form is not None and part.is_lines
            index = {part.form.names.index(name) for name in part.index_columns}
            for batch in self._collected(part, part.scan, BATCH_ROWS):
                batch = without_blank(batch)
                cells = split_lines(batch[LINE], part.form)
                for number, row in zip(batch[NUMBER], cells.to_list(), strict=True):
                    yield number, [x for k, x in enumerate(row) if k not in index]

    def _describe(self) -> None:
        """Logs once what is left out of the files."""
        parts = [] if self._is_described else self._parts
        self._is_described = True
        for part in parts:
            for path, name in itertools.product(part.paths, part.index_columns):
                _log.info("%s: column %r is an index, left out.", path, name)
            if part.form is not None and part.form.comments:
                text = "%s: comments above the first row: %d."
                _log.info(text, part.paths[0], len(part.form.comments))

    def place(self, name: str, is_wrong: Callable[[pl.Expr], pl.Expr]) -> str:
        """Where the first row is with a wrong value in a column: "FILE line 3".

        Args:
          is_wrong: of the column.
        """
        files = (
            _whole_part(part._replace(paths=(path,))) if len(part.paths) > 1 else part
            for part in self._parts
            if name in part.schema and name not in part.constants
            for path in part.paths or (Path(),)
        )
        for each in files:
            rows = _numbered_rows(each, name)
            try:
                wrong = rows.filter(is_wrong(pl.col(name))).head(1).collect()
            except pl.exceptions.PolarsError:  # of another type in this file
                continue
            if len(wrong):
                unit = "row" if each.form is None else "line"
                path = each.paths[0] if each.paths else self.source
                return f"{path} {unit} {wrong[NUMBER][0]}"
        return self.source

    def check_rows(self, wanted: Sequence[str]) -> int:
        """Reads the columns `wanted` in a process with bounded memory, if files are
        Parquet, Arrow or packed, and were not read so when they were opened: a small
        file can have large rows.

        Returns:
          Bytes that they take in memory; 0: nothing was read.

        Raises:
          NoRoomError: some rows take too much memory.
          UnreadableError: the files are damaged.
        """
        return sum(_check_part(part, wanted) for part in self._parts)

    def _part_batches(
        self, part: Part, wanted: Sequence[str], keys: Sequence[str], size: int
    ) -> Iterator[pl.DataFrame]:
        exprs = [self._column(part, name, name in keys) for name in wanted]
        if part.is_lines:
            assert part.form is not None
            for batch in self._collected(part, part.scan, size):
                yield cut_lines(batch, part.form, part.paths[0]).select(exprs)
        elif {*wanted} <= {*part.constants} or not {*wanted} & {*part.schema}:
            # Constants alone have no length.
            some = next(name for name in part.schema if name not in part.constants)
            line = pl.col(some).alias(LINE)
            rows = part.scan.with_columns(exprs).select(*wanted, line)
            for batch in self._collected(part, rows, size):
                yield batch.drop(LINE)
        else:
            yield from self._collected(part, part.scan.select(exprs), size)

    def _collected(
        self, part: Part, rows: pl.LazyFrame, size: int
    ) -> Iterator[pl.DataFrame]:
        try:
            yield from rows.collect_batches(chunk_size=size, maintain_order=True)
        except pl.exceptions.PolarsError as error:
            if part.form is not None:
                text = text_fault(part.paths, part.form, error)
            else:
                of_path = part.kind.fault if part.kind else lambda path: ""
                text = next(filter(None, map(of_path, part.paths)), "")
            if not text:
                raise
            raise InputError(text.removesuffix(".") + ".") from error

    def _column(self, part: Part, name: str, is_key: bool) -> pl.Expr:
        dtype = pl.String() if is_key else self.schema[name]
        if name not in part.schema:
            return pl.lit(None, dtype).alias(name)
        if name in part.constants:
            return pl.lit(part.constants[name], pl.String()).alias(name)
        if is_key:
            return key_text(name, part.schema[name], is_of_floats(part, name))
        return pl.col(name) if dtype == part.schema[name] else pl.col(name).cast(dtype)


def open_table(
    paths: Sequence[Path],
    roles: Roles = Roles(),  # noqa: B008
    source: str = "",
) -> Table:
    """The table in files.

    Args:
      roles: what its columns are for.
      source: what messages call the table; default: the first file.

    Raises:
      InputError: a file is empty, no table, or of another format than the first.
      OSError: it cannot be read.
      polars.exceptions.PolarsError: it is damaged.
    """
    for path in paths:
        if path.is_fifo():
            raise InputError(f"{path} is a pipe: write it to a file.")
    formats = [format_of(path) for path in paths]
    for path, each in zip(paths, formats, strict=True):
        if each.name != formats[0].name:
            raise InputError(
                f"The files of a table must have one format: {paths[0]} is "
                f"{formats[0].name}, {path} is {each.name}."
            )
    num_checked = _check_heads(paths, formats)
    parts: list[Part] = []
    for path, each in zip(paths, formats, strict=True):
        part = _open_part(path, each, roles)._replace(num_checked=num_checked)
        if parts and _are_alike(parts[-1], part):
            part = part._replace(paths=parts.pop().paths + part.paths)
        parts.append(part)
    parts = [part if len(part.paths) == 1 else _whole_part(part) for part in parts]
    return Table(parts, source or str(paths[0]))


def read_rows(
    path: Path, roles: Roles
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The rows of a file, with any number of cells if it is text.

    Returns:
      The names of the columns, [] if they have none; and the number of each row in the
      file, with its cells as text, "" where there is no value.

    Raises:
      OSError, InputError: see `open_table`; or the file is damaged. The iterator raises
        them, too.
    """
    is_text = (known_format(path) or CSV).scan is None
    with named_faults(path):
        table = open_table([path], roles._replace(ragged=is_text))
        table.check_rows(table.names)
    names = table.names if table.has_names else []

    def rows() -> Iterator[tuple[int, list[str]]]:
        with named_faults(path):
            if is_text:
                yield from table.lines()
                return
            batches = table.batches(names, keys=names)
            cells = (batch.fill_null("").iter_rows() for batch in batches)
            for number, row in enumerate(itertools.chain.from_iterable(cells), 1):
                yield number, [*row]

    return names, rows()


@contextlib.contextmanager
def named_faults(what: object) -> Iterator[None]:
    """Turns errors of reading a table into one InputError: `what` cannot be read."""
    try:
        yield
    except _FAULTS as error:
        raise InputError(f"{what} cannot be read: {short_reason(error)}.") from error


def table_of_frame(frame: pl.LazyFrame, source: str = "the table") -> Table:
    """The table in a frame."""
    return Table([Part((), frame, {**frame.collect_schema()})], source)
