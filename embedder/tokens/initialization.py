"""Where tables start: rows that start from vectors of a file, and rows that are frozen.

`pretrained` reads the files.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from embedder.data.vocabulary import Vocabulary
from embedder.errors import InputError
from embedder.tokens.row_lr_multipliers import RowLrMultipliers
from embedder.vectors.vectors import short_repr


class PretrainedVectors(NamedTuple):
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


class Initialization(NamedTuple):
    """What `init_from` and `freeze` name."""

    vectors: PretrainedVectors | None = None
    frozen: FrozenKeys | None = None  # of a file
    freeze: str = ""  # all, known, or a file; empty: no row

    def for_model(self, has_token_output: bool) -> "Initialization":
        """What a model starts from whose output table has rows of tokens or not."""
        if self.vectors is None or has_token_output:
            return self
        return self._replace(vectors=self.vectors._replace(output=None))

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
                f"`vector_size` is {vector_size}: set it to {size}."
            )


NO_START = Initialization()
"""All rows start as they are drawn, and all learn."""


class InitialRows(NamedTuple):
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


NO_ROWS = InitialRows(np.empty(0, np.int64), MappingProxyType({}))
"""No row starts from vectors."""


def plan_start(
    start: Initialization,
    vocabulary: Vocabulary,
    dtype: str,
    num_old: int | None = None,
) -> tuple[InitialRows, RowLrMultipliers | None]:
    """The rows that start from the vectors of `start`, and the factors of the rows
    that it freezes; None: of none.

    Args:
      num_old: of a training that starts from a model: the number of its tokens, which
        are the first; None: there is none.

    Raises:
      InputError: no token has a vector, or is to be frozen; or a vector does not fit.
    """
    rows = _first_rows(start.vectors, vocabulary, dtype)
    old = rows.ids if num_old is None else np.arange(num_old)
    return _with_frozen_rows(start, vocabulary, old, rows)


def _first_rows(
    vectors: PretrainedVectors | None, vocabulary: Vocabulary, dtype: str
) -> InitialRows:
    """The rows of a vocabulary that start from vectors."""
    if vectors is None:
        return NO_ROWS
    shown = vectors.shown
    ids, numbers = common_ids(vocabulary.tokens, vectors.keys)
    if not len(ids):
        raise InputError(
            f"`init_from` {shown} has no token of the corpus: its first keys are "
            f"{_first(vectors.keys)}, those of the corpus {_first(vocabulary.tokens)}."
        )
    rows = {"input": _cast(vectors.input[numbers], dtype, shown)}
    if vectors.output is not None:
        rows["output"] = _cast(vectors.output[numbers], dtype, shown)
    share = 100 * vocabulary.counts[ids].sum() / vocabulary.counts.sum()
    line = (
        f"start: {len(ids):,} of {len(vocabulary.tokens):,} rows ({share:.1f} % of the "
        f"corpus's tokens) start from {shown}"
    )
    return InitialRows(ids, rows, (line,), vectors.num_bytes)


def _with_frozen_rows(
    start: Initialization,
    vocabulary: Vocabulary,
    known: np.ndarray,
    rows: InitialRows,
) -> tuple[InitialRows, RowLrMultipliers | None]:
    """`rows` with a line about the rows that `freeze` freezes, and their factors; None:
    there are none.

    Args:
      known: ids of the rows that start from vectors.
    """
    num_rows, unknown = len(vocabulary.tokens), ""
    match start:
        case Initialization(freeze=""):
            return rows, None
        case Initialization(freeze="all"):
            ids = np.arange(num_rows)
        case Initialization(freeze="known"):
            ids = known
        case _:
            assert start.frozen is not None, "`freeze` names a file, which is read"
            keys, shown = start.frozen.keys, start.frozen.shown
            ids, _ = common_ids(vocabulary.tokens, keys)
            if not len(ids):
                raise InputError(
                    f"`freeze` {shown} has no token of the vocabulary: its first keys "
                    f"are {_first(keys)}."
                )
            if missing := len(keys) - len(ids):
                unknown = f"; {missing:,} of {len(keys):,} keys of {shown} are unknown"
    factors = np.ones(num_rows, np.float32)
    factors[ids] = 0
    line = f"frozen: {len(ids):,} of {num_rows:,} rows of the input table{unknown}"
    return rows._replace(lines=(*rows.lines, line)), RowLrMultipliers(input=factors)


def _first(keys: Sequence[str]) -> str:
    """The first three keys, for a message."""
    return ", ".join(map(short_repr, keys[:3]))


def common_ids(
    tokens: Sequence[str], keys: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the tokens that are keys, ascending, i64[n], and their numbers among
    `keys`, i64[n]."""
    numbers = {key: number for number, key in enumerate(keys)}
    pairs = [(i, numbers[x]) for i, x in enumerate(tokens) if x in numbers]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _cast(rows: np.ndarray, dtype: str, shown: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        cast = rows.astype(dtype)
    if not np.isfinite(cast).all():
        raise InputError(
            f"`init_from` {shown} has a value that {dtype} cannot hold, "
            f"{rows[~np.isfinite(cast)][0]}: give --dtype float64."
        )
    return cast
