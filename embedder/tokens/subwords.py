"""The trained table of subwords: where it starts, and its part in an update by XLA.

The input table has the vector v_w of each word, which is made of the rows e_s of its
subwords; only these are trained. An update composes the vectors of its words, takes
their gradients G_w as of any input table, and adds them to the rows:

    v_w = (1 / |S_w|) sum_{s in S_w} e_s                                            (94)
    G_s = n sum_w (m_sw / |S_w|) G_w;   c_s = n sum_w (m_sw / |S_w|) c_w            (95)
    e_s <- e_s - rate min(1, cap / c_s) G_s

with m_sw how often s is in S_w, and n the mean of |S_w| over the tokens of the corpus,
so that a rate means for words what it means without subwords. `vectors/subwords.py` has
the n-grams; attributes of items take their place, by `vectors/attributes.py`. The
vectors of words follow from the rows: `subword_program` composes those of all words
where a state is read.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from embedder.config.token_options import TokensOptions
from embedder.engine.compiled_step import CompiledStep
from embedder.engine.rules import ASCENDING
from embedder.engine.state import TrainState
from embedder.vectors.attributes import Attributes, rows_with_attributes
from embedder.vectors.subwords import (
    NgramRule,
    Subwords,
    composed,
    first_rows,
    subwords_of,
)

TABLE = "subwords"
"""The name of the table, [V + K, D]: rows of words, and then of buckets."""
AnyProgram = TypeVar("AnyProgram", bound=CompiledStep)
SUBWORDS_AT_ONCE = {"cpu": 8, "gpu": 128}
"""Subwords of each word that an update by XLA takes at once. Words have 15 on average.

On a GPU a step is three launches, and where one is all no rows are stored."""


class SubwordIndex(NamedTuple):
    """The subwords of all words as a placed state has them, in `TrainState.extras`."""

    starts: Any  # i32[V + 1], of each word in `rows`
    rows: Any  # i32[n]
    scale: Any  # [1], n of (95), in the dtype of the tables


class SubwordSizes(NamedTuple):
    """What a compiled update knows of the subwords."""

    num_rows: int  # V + K
    longest: int  # subwords of a word, at most
    num_bytes: int = 0  # of the index


@dataclasses.dataclass(frozen=True, eq=False)
class SubwordTable:
    """The subwords of a vocabulary, and n of (95)."""

    subwords: Subwords
    scale: float
    attributes: Attributes | None = None  # which these are of; None: n-grams

    @property
    def sizes(self) -> SubwordSizes:
        """Of the compiled update."""
        subwords = self.subwords
        num_bytes = 4 * (len(subwords.starts) + len(subwords.rows))
        return SubwordSizes(subwords.num_rows, int(subwords.lengths.max()), num_bytes)

    def with_first_rows(self, state: TrainState, seed: int) -> TrainState:
        """`state` with the rows before the first update, and the vectors of words.

        Rows of words are those of the input table, (20); of buckets (96).
        """
        words = state.params["tables"]["input"]
        buckets = first_rows(self.subwords.buckets, words.shape[1], seed, words.dtype)
        return self.with_rows(state, np.concatenate([words, buckets]))

    def with_rows(self, state: TrainState, rows: np.ndarray) -> TrainState:
        """`state` with these rows, [V + K, D], and the vectors that they make."""
        tables = state.params["tables"]
        tables = tables | {"input": composed(self.subwords, rows), TABLE: rows}
        return state._replace(params={"tables": tables})

    def begun_with(
        self,
        state: TrainState,
        rows: np.ndarray,
        num_words: int,
        attributes: Attributes | None,
    ) -> TrainState:
        """`state` with the rows of an earlier training as the first ones.

        Args:
          rows: of that training, [V' + K', D]; its words are the first of these.
          num_words: V'.
          attributes: of that training, whose rows are found by their names.
        """
        table = state.params["tables"][TABLE].copy()
        table[:num_words] = rows[:num_words]
        shared = self.subwords.num_words
        if self.attributes is None or attributes is None:
            table[shared:] = rows[num_words:]
            return self.with_rows(state, table)
        names, now = (x.names[: x.num_known] for x in (attributes, self.attributes))
        before = {name: row for row, name in enumerate(names, num_words)}
        for row, name in enumerate(now, shared):
            if name in before:
                table[row] = rows[before[name]]
        return self.with_rows(state, table)

    def index(self, dtype) -> SubwordIndex:
        """The subwords for a placed state."""
        starts = self.subwords.starts.astype(np.int32)
        return SubwordIndex(starts, self.subwords.rows, np.array([self.scale], dtype))


def ngram_rule(options: TokensOptions) -> NgramRule | None:
    """The n-grams of words; None: there are no subwords."""
    if not options.subwords:
        return None
    least, most = options.subwords
    return NgramRule(least, most, options.buckets)


def subword_table(
    tokens: list[str], counts: np.ndarray, shared: NgramRule | Attributes
) -> SubwordTable:
    """The rows that tokens share, which occur `counts` times, i64[V].

    Args:
      shared: the rule of n-grams; or attributes, of which each is one of a token.
    """
    if isinstance(shared, Attributes):
        rows, attributes = rows_with_attributes(tokens, shared), shared
    else:
        rows, attributes = subwords_of(tokens, shared), None
    mean = float(np.average(rows.lengths, weights=counts))
    return SubwordTable(rows, mean, attributes)


def subword_program(
    program: AnyProgram, table: SubwordTable | None, has_replicas: bool
) -> AnyProgram:
    """`program` over states whose vectors of words are those of the trained rows.

    Args:
      program: whose updates are those of subwords.
      table: None: there are no subwords, and the program stays what it is.
    """
    if table is None:
        return program

    def with_index(state: TrainState) -> TrainState:
        rows = state.params["tables"][TABLE]
        first = rows.shape[:-2]  # of replicas
        index = jax.tree.map(
            lambda x: np.broadcast_to(x, (*first, *x.shape)), table.index(rows.dtype)
        )
        return state._replace(extras=index)

    def with_vectors(state: TrainState) -> TrainState:
        tables = state.params["tables"]
        rows = tables[TABLE]
        if has_replicas:
            vectors = np.stack([composed(table.subwords, each) for each in rows])
        else:
            vectors = composed(table.subwords, rows)
        vectors.flags.writeable = False
        params = {"tables": tables | {"input": vectors}}
        return state._replace(params=params, extras=())

    return program.around(with_index, with_vectors)


def with_row_shapes(shapes: TrainState, num_rows: int) -> TrainState:
    """Shapes of a state, with that of V + K rows of subwords."""
    tables = shapes.params["tables"]
    words = tables["input"]
    rows = jax.ShapeDtypeStruct((num_rows, words.shape[1]), words.dtype)
    return shapes._replace(params={"tables": tables | {TABLE: rows}})


def empty_index() -> SubwordIndex:
    """As those of a state, for their structure and axes."""
    return SubwordIndex(*map(np.zeros, ((1,), (1,), (1,))))


def compose_words(index: SubwordIndex, table, words, longest: int):
    """The vectors of words, [M, D], by XLA, (94); of no word: 0.

    Args:
      table: rows of subwords, [V + K, D].
      words: ids, i32[M], distinct and ascending; out of range: no word.
      longest: subwords of a word, at most.
    """

    def add(numbers, total):
        rows = _rows_of(index, words, numbers, len(table))
        return total + table.at[rows].get(mode="fill", fill_value=0).sum(axis=1)

    shape = len(words), table.shape[1]
    total = _each_step(longest, add, jnp.zeros(shape, table.dtype))
    lengths = jnp.maximum(_lengths(index, words), 1).astype(table.dtype)
    return total / lengths[:, None]


def set_words(input, words, vectors):
    """The input table [V, D] with the vectors of some words."""
    return input.at[words].set(vectors, mode="drop", **ASCENDING)


def step_subwords(
    index: SubwordIndex,
    table,
    words,
    gradients,
    weights,
    *,
    share: Callable,
    rate,
    longest: int,
):
    """The rows [V + K, D] after an update, by XLA, (95).

    Args:
      words: as of `compose_words`.
      gradients, weights: G_w [M, D] and c_w [M] of these words.
      share: c -> min(1, cap / c).
    """
    num_rows = len(table)
    lengths = jnp.maximum(_lengths(index, words), 1).astype(table.dtype)
    shares = index.scale[0] / lengths
    scaled, weights = shares[:, None] * gradients, shares * weights

    def weigh(numbers, totals):
        rows = _rows_of(index, words, numbers, num_rows)
        each = jnp.broadcast_to(weights[:, None], rows.shape)
        return totals.at[rows].add(each, mode="drop")

    totals = _each_step(longest, weigh, jnp.zeros(num_rows, table.dtype))

    def move(numbers, table):
        rows = _rows_of(index, words, numbers, num_rows)
        factors = rate * share(totals.at[rows].get(mode="fill", fill_value=0))
        return table.at[rows].add(-factors[..., None] * scaled[:, None], mode="drop")

    return _each_step(longest, move, table)


def _each_step(longest: int, function: Callable, start):
    """`function` of some numbers of subwords, i32[n], and what it returned before."""

    def all_steps(start, at_once: int):
        def step(index, before):
            numbers = index * at_once + jnp.arange(at_once, dtype=jnp.int32)
            return function(numbers, before)

        return jax.lax.fori_loop(0, -(-longest // at_once), step, start)

    cpu, gpu = (
        functools.partial(all_steps, at_once=each) for each in SUBWORDS_AT_ONCE.values()
    )
    return jax.lax.platform_dependent(start, cpu=cpu, default=gpu)


def _lengths(index: SubwordIndex, words):
    """|S_w| of words, i32[M]; 0 of no word."""
    ends = index.starts[1:].at[words].get(mode="fill", fill_value=0)
    return ends - index.starts[:-1].at[words].get(mode="fill", fill_value=0)


def _rows_of(index: SubwordIndex, words, numbers, num_rows: int):
    """Some subwords of each word, i32[M, n]; out of range where it has none."""
    starts = index.starts.at[words].get(mode="fill", fill_value=0)
    numbers = numbers[None]
    rows = index.rows.at[starts[:, None] + numbers].get(mode="clip")
    return jnp.where(numbers < _lengths(index, words)[:, None], rows, num_rows)
