"""Where tables start: the vectors of `init_from`, and the rows that `freeze` names.

A run keeps what it has read of both files, as start.npz, so that it resumes without
them.
"""

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from embedder.disk.arrays import pack_strings, read_stored_array, unpack_strings
from embedder.disk.files import atomic_file, short_reason
from embedder.errors import InputError, InputNotFoundError
from embedder.tables.artefact import ModelFile, read_model
from embedder.tables.row_factors import RowFactors
from embedder.tables.vocabulary import Vocabulary
from embedder.vectors.export import endings, read_vectors
from embedder.vectors.vectors import Vectors

_FORMAT = b"embedder-start 1"
_MOST_KEY_BYTES = 2**30  # of a file of keys


class FirstVectors(NamedTuple):
    """Vectors that rows of the tables start from."""

    keys: list[str]
    input: np.ndarray  # [n, D]
    output: np.ndarray | None  # [n, D]; None: those rows start as they would without
    shown: str  # the file, for messages
    sha256: str  # of the keys and vectors of the whole file

    @property
    def num_bytes(self) -> int:
        """Bytes of the vectors."""
        output = 0 if self.output is None else self.output.nbytes
        return self.input.nbytes + output


class FrozenKeys(NamedTuple):
    """Keys whose input rows take no step."""

    keys: list[str]
    shown: str
    sha256: str


class Starting(NamedTuple):
    """What `init_from` and `freeze` name."""

    vectors: FirstVectors | None = None
    frozen: FrozenKeys | None = None  # of a file
    freeze: str = ""  # all, known, or a file; empty: no row

    @property
    def facts(self) -> dict[str, str]:
        """Digests by which a run recognises other vectors and other frozen rows."""
        facts = {}
        if self.vectors is not None:
            facts["init_from"] = self.vectors.sha256
        if self.freeze:
            facts["freeze"] = self.frozen.sha256 if self.frozen else self.freeze
        return facts

    def check_size(self, vector_size: int) -> None:
        """Raises InputError if the vectors have another size."""
        if self.vectors is None:
            return
        size = self.vectors.input.shape[1]
        if size != vector_size:
            raise InputError(
                f"`init_from` {self.vectors.shown} has vectors of {size} numbers, and "
                f"`vector_size` is {vector_size}: give --vector-size {size}."
            )


NO_START = Starting()
"""All rows start as they are drawn, and all learn."""


class FirstRows(NamedTuple):
    """The rows of tables that start from vectors, and what else follows from them."""

    ids: np.ndarray  # i64[n]
    rows: Mapping[str, np.ndarray]  # table -> [n, D]
    lines: tuple[str, ...] = ()  # about them, for the log
    num_bytes: int = 0  # of all vectors that were read

    def begin(self, tables: dict[str, np.ndarray]) -> None:
        """Replaces rows of `tables` by those that they start from."""
        for name, rows in self.rows.items():
            tables[name] = tables[name].copy()
            tables[name][self.ids] = rows


NO_ROWS = FirstRows(np.empty(0, np.int64), MappingProxyType({}))
"""No row starts from vectors."""


def check_freeze(freeze: str, has_start: bool) -> None:
    """Raises InputError for `freeze` known where no row is known."""
    if freeze == "known" and not has_start:
        raise InputError(
            "`freeze` known needs vectors to start from: give --init-from or --resume."
        )


def read_first_vectors(path: Path, shown: str) -> FirstVectors:
    """The vectors in a file of vectors, a model file, or a file that a run has kept.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it is damaged, or has another format.
    """
    kind = _npz_format(path)
    if kind == _FORMAT:
        found = _read_start(path).vectors
        if found is None:
            raise InputError(f"`init_from` {shown} has no vectors.")
        return found._replace(shown=shown)
    if kind is not None:
        return of_model(read_model(path), shown)
    return of_vectors(read_vectors(path), shown)


def of_vectors(vectors: Vectors, shown: str) -> FirstVectors:
    """`vectors` as those of the input table."""
    digest = _digest(vectors.keys, vectors.matrix)
    return FirstVectors(vectors.keys, vectors.matrix, None, shown, digest)


def of_model(model: ModelFile, shown: str) -> FirstVectors:
    """The input and output table of a model."""
    digest = _digest(model.tokens, model.input, model.output)
    return FirstVectors(model.tokens, model.input, model.output, shown, digest)


def read_frozen_keys(path: Path, shown: str) -> FrozenKeys:
    """The keys in a UTF-8 text file with one a line, or in a file that a run has kept.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it is no UTF-8 text, or has no key.
    """
    if not path.is_file():
        raise InputNotFoundError(
            "`freeze` must be all, known, or a file with a key a line, got "
            f"{shown!r}, which does not exist."
        )
    if _npz_format(path) == _FORMAT:
        found = _read_start(path).frozen
        if found is None:
            raise InputError(f"`freeze` {shown} has no keys.")
        return found._replace(shown=shown)
    if path.stat().st_size > _MOST_KEY_BYTES:
        raise InputError(f"`freeze` {shown} has more than {_MOST_KEY_BYTES} bytes.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"`freeze` {shown} is not UTF-8 text: {error}.") from None
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return of_keys(filter(None, lines), shown)


def of_keys(keys, shown: str) -> FrozenKeys:
    """`keys`, each once, in their order; InputError if there are none."""
    found = [*dict.fromkeys(keys)]
    if not found:
        raise InputError(f"`freeze` {shown} has no key.")
    return FrozenKeys(found, shown, _digest(found))


def first_rows(starting: Starting, vocabulary: Vocabulary, dtype: str) -> FirstRows:
    """The rows of a vocabulary that start from the vectors of `starting`.

    Raises:
      InputError: no token has a vector, or one is not finite in `dtype`.
    """
    given = starting.vectors
    if given is None:
        return NO_ROWS
    ids, found = _common_ids(vocabulary.tokens, given.keys)
    if not len(ids):
        raise InputError(
            f"`init_from` {given.shown} has no token of the corpus: its first keys are "
            f"{', '.join(map(repr, given.keys[:3]))}, those of the corpus "
            f"{', '.join(map(repr, vocabulary.tokens[:3]))}."
        )
    rows = {"input": _cast(given.input[found], dtype, given.shown)}
    if given.output is not None:
        rows["output"] = _cast(given.output[found], dtype, given.shown)
    share = vocabulary.counts[ids].sum() / vocabulary.counts.sum()
    line = (
        f"start: {len(ids):,} of {len(vocabulary.tokens):,} rows ({share:.1%} of the "
        f"corpus's tokens) start from {given.shown}"
    ).replace("%", " %")
    return FirstRows(ids, rows, (line,), given.num_bytes)


def with_frozen_rows(
    starting: Starting, vocabulary: Vocabulary, known: np.ndarray, rows: FirstRows
) -> tuple[RowFactors | None, FirstRows]:
    """The factors of rows that `freeze` freezes, None: of none; and `rows` with a line
    about them.

    Args:
      known: ids of the rows that start from vectors.

    Raises:
      InputError: no key of a file is in the vocabulary.
    """
    num_rows, unknown = len(vocabulary.tokens), ""
    match starting:
        case Starting(freeze=""):
            return None, rows
        case Starting(freeze="all"):
            ids = np.arange(num_rows)
        case Starting(freeze="known"):
            ids = known
        case _:
            assert starting.frozen is not None, "`freeze` names a file, which is read"
            keys, shown = starting.frozen.keys, starting.frozen.shown
            ids, _ = _common_ids(vocabulary.tokens, keys)
            if not len(ids):
                raise InputError(
                    f"`freeze` {shown} has no token of the vocabulary: its first keys "
                    f"are {', '.join(map(repr, keys[:3]))}."
                )
            if missing := len(keys) - len(ids):
                unknown = f"; {missing:,} of {len(keys):,} keys of {shown} are unknown"
    factors = np.ones(num_rows, np.float32)
    factors[ids] = 0
    line = f"frozen: {len(ids):,} of {num_rows:,} rows of the input table{unknown}"
    return RowFactors(input=factors), rows._replace(lines=(*rows.lines, line))


def _common_ids(
    tokens: Sequence[str], keys: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the tokens that are keys, ascending, and their numbers among `keys`."""
    numbers = {key: number for number, key in enumerate(keys)}
    found = [(i, numbers[x]) for i, x in enumerate(tokens) if x in numbers]
    ids = np.array(found, np.int64).reshape(-1, 2)
    return ids[:, 0], ids[:, 1]


def _cast(rows: np.ndarray, dtype: str, shown: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        cast = rows.astype(dtype)
    if not np.isfinite(cast).all():
        raise InputError(
            f"`init_from` {shown} has a value that {dtype} cannot hold, "
            f"{rows[~np.isfinite(cast)][0]}: give --dtype float64."
        )
    return cast


def write_start(path: Path, starting: Starting, vocabulary: Vocabulary) -> None:
    """Writes what a run with this vocabulary needs of `starting`, atomically."""
    members = {"format": np.frombuffer(_FORMAT, np.uint8)}
    if (given := starting.vectors) is not None:
        _, found = _common_ids(vocabulary.tokens, given.keys)
        keys = [given.keys[number] for number in found.tolist()]
        members |= _packed("keys", keys) | {"input": given.input[found]}
        if given.output is not None:
            members["output"] = given.output[found]
        members["sha256"] = _text(given.sha256)
    if starting.frozen is not None:
        members |= _packed("frozen", starting.frozen.keys)
        members["frozen_sha256"] = _text(starting.frozen.sha256)
    with atomic_file(path) as part, open(part, "wb") as file:
        np.savez(file, **members)  # type: ignore[arg-type]  # none is `allow_pickle`


def _read_start(path: Path) -> Starting:
    """What `write_start` wrote; InputError if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            members = {name: read_stored_array(archive, name) for name in names}
        return _starting(members, str(path))
    except Exception as error:  # a damaged zip raises nearly anything
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole start file: {reason}.") from error


def _starting(members: dict[str, np.ndarray], shown: str) -> Starting:
    vectors = frozen = None
    if "input" in members:
        keys = _unpacked("keys", members)
        checked = Vectors(keys, members["input"]).matrix
        output = members.get("output")
        if output is not None:
            output = Vectors(keys, output).matrix
        digest = members["sha256"].tobytes().decode()
        vectors = FirstVectors(keys, checked, output, shown, digest)
    if "frozen" in members:
        digest = members["frozen_sha256"].tobytes().decode()
        frozen = FrozenKeys(_unpacked("frozen", members), shown, digest)
    return Starting(vectors, frozen)


def is_vectors_file(path: Path) -> bool:
    """Whether a file has vectors alone: no .npz is of a model then."""
    name = path.name.lower()
    if name.endswith(".npz"):
        return _npz_has(path, "vectors")
    return name.endswith(tuple(endings()))


def _npz_has(path: Path, member: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{member}.npy" in archive.namelist()
    except Exception:  # a damaged zip raises nearly anything; its reader tells what
        return False


def _npz_format(path: Path) -> bytes | None:
    """The member `format` of an .npz file; None: it has none, or is another file."""
    if path.suffix.lower() != ".npz":
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            if "format.npy" not in archive.namelist():
                return None
            return read_stored_array(archive, "format").tobytes()
    except Exception:  # a damaged zip raises nearly anything; its reader tells what
        return None


def _packed(name: str, keys: Sequence[str]) -> dict[str, np.ndarray]:
    text, ends = pack_strings(keys)
    return {name: text, f"{name}_ends": ends}


def _unpacked(name: str, members: dict[str, np.ndarray]) -> list[str]:
    return unpack_strings(members[name], members[f"{name}_ends"])


def _text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def _digest(keys: Sequence[str], *arrays: np.ndarray) -> str:
    text, ends = pack_strings(keys)
    digest = hashlib.sha256()
    for array in (text, ends, *arrays):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
