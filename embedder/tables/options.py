"""Settings of tables, and how the open ones are resolved for a corpus."""

import dataclasses
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from embedder.errors import InputError
from embedder.settings import (
    boolean,
    integer,
    integer_or,
    integers,
    multiple,
    number,
    positive_finite,
    setting,
    text,
    validate,
)

Architecture = Literal["skipgram", "cbow"]
"""Predict the contexts from each token (skipgram), or each token from them (cbow)."""

RowUpdates = Callable[[float], float]
"""`sample` -> the updates that a row gets in an epoch."""

Repeats = Callable[[int], float]
"""`block` -> how often the node of a position of a walk is in its block."""

Window = int | Literal["session"]
"""The largest distance of a context; session: the whole sequence is the context."""

Schedule = Literal["continue", "restart"]
"""How an update with new text goes on: `tables.updating`, or as a new training does."""

MOST_DISTANCE = 127
"""The largest `window`: `Blocks.radius` is i8."""

HELD_OUT_SCORES = "held-out", "next-item"
"""Values of `best_by` that are no file, of texts."""

LINKS = "links"
"""Value of `best_by` that is no file, of graphs."""

ADAGRAD_ALPHA = 0.2
"""Learning rate of Adagrad at the start, for any corpus, ALGORITHM.md (53)."""


_BELOW_ALPHA = "a number from 0 to `alpha`"


def _below_alpha(section, name: str) -> None:
    """A number from 0 to the section's `alpha`, which is checked before.

    Of defaults it is the largest; `check_optimizer` knows which one applies.
    """
    alpha = section.alpha or max(
        rule.default_alpha(
            section.architecture, math.inf, num_summed=section.num_summed
        )
        for rule in _RULES.values()
    )
    number(_BELOW_ALPHA, lambda x: 0 <= x <= alpha)(section, name)


def _negative(section, name: str) -> None:
    """An integer >= 1, or 0 with hierarchical softmax, which does without."""
    value = getattr(section, name)
    try:
        integer(0 if section.hs is True else 1)(section, name)
    except InputError as error:
        rule = "an integer >= 1, or 0 with `hs`"
        raise type(error)(f"`{name}` must be {rule}, got {value!r}.") from None


_MOST_CHARACTERS = 50


def _ngram_lengths(section, name: str) -> None:
    """Two integers, the first not above the second; or none."""
    value = getattr(section, name)
    message = (
        f"`{name}` must be two integers, MIN and MAX, with 1 <= MIN <= MAX <= "
        f"{_MOST_CHARACTERS}, got {value!r}."
    )
    try:
        integers(1)(section, name)
    except InputError as error:
        raise type(error)(message) from None
    value = getattr(section, name)
    if value and (len(value) != 2 or not value[0] <= value[1] <= _MOST_CHARACTERS):
        raise InputError(message)


_BIAS = number("a number from 1e-06 to 1000000.0", lambda x: 1e-6 <= x <= 1e6)
_OF_WALKS = (
    *("walk_length", "directed", "p", "q", "walks_fixed"),
    *("source", "target", "weight"),
)
_NOT_OF_WALKS = "unicode_errors", "replay", "subwords"
_FILES: dict[str, tuple[str, ...]] = {
    "best_by": (*HELD_OUT_SCORES, LINKS),
    "init_from": (),
    "freeze": ("all", "known"),
}
"""Settings that name files, with their values that do not."""


@dataclass(frozen=True, kw_only=True)
class TablesOptions:
    """Vectors of tokens: vocabulary, blocks of text, objective, and updates."""

    default_optimizer: ClassVar[str] = "sgd"
    best_needs: ClassVar[str] = "best_by"
    """The option that `result` best and `patience` need."""
    scored_by: ClassVar[tuple[str, ...]] = ("holdout", "best_by")
    """The options with which vectors are evaluated."""

    min_count: int = setting(5, integer(1))
    """Ignore tokens that occur less often than this."""
    sample: float = setting(
        1e-3, number("a number from 0 to 1", lambda x: 0 <= x <= 1), is_per_model=True
    )
    """Randomly drop tokens more frequent than this share of the corpus; 0: none."""
    ns_exponent: float = setting(
        0.75, number("a finite number", math.isfinite), is_per_model=True
    )
    """Draw noise tokens in proportion to count ** ns_exponent."""
    holdout: float = setting(0.0, number("a number in [0, 1)", lambda x: 0 <= x < 1))
    """Share of the sequences (lines), or of the edges of a graph, that is held out of
    training, the same for every seed. The vectors are scored on them when they are
    evaluated."""
    unicode_errors: Literal["strict", "replace"] = setting("strict")
    """If the corpus is not UTF-8 text: refuse it, or replace wrong bytes by U+FFFD."""
    session: str = setting("", text)
    """Of a table: the column of the sessions. A row is an item of a session."""
    item: str = setting("", text)
    """Of a table: the column of the items."""
    order: str = setting("", text)
    """Of a table: the column by which the items of a session are sorted; none: the
    order of the rows."""
    items: str = setting("", text)
    """Of a table whose rows are sessions: the column of the lists of items."""
    weights: str = setting("", text)
    """Of a table: the column of the weights of sessions. Each pair of a session counts
    as often as its weight; sessions with weight 0 are left out."""
    architecture: Architecture = setting("skipgram")
    """skipgram: predict the contexts from a token. cbow: predict a token from the mean
    of its contexts, or their sum; see `cbow_mean`."""
    cbow_mean: bool = setting(True, boolean)
    """Of cbow: the mean of the vectors of contexts; without it, their sum."""
    vector_size: int = setting(100, integer(1))
    """Dimensions of the vectors."""
    window: Window = setting(
        5, integer_or("session", 1, MOST_DISTANCE), is_per_model=True
    )
    """Largest distance of a context. Each token draws its distance from 1 to this; see
    `shrink_windows`.
    session: each item of a session is a context of each other one."""
    shrink_windows: bool = setting(True, boolean)
    """Each token draws its distance from 1 to `window`; without it, each token has
    all contexts up to `window`."""
    negative: int = setting(5, _negative, is_per_model=True)
    """Negative samples per pair; 0, only with --hs: none."""
    hs: bool = setting(False, boolean)
    """Hierarchical softmax: predict a token by its path in a Huffman tree; with
    --negative 0 instead of negative sampling, else beside it."""
    subwords: tuple[int, ...] = setting((), _ngram_lengths)
    """Vectors of words from n-grams of MIN to MAX characters, as fastText, such as 3 6:
    unknown words have vectors, too. None: each word has a row of its own."""
    buckets: int = setting(2_000_000, integer(1, 2**31 - 1))
    """Of --subwords: numbers that n-grams are hashed to. Those that the vocabulary has
    take memory."""
    noise: int | None = setting(None, integer(1))
    """Noise tokens of a tile, shared by its pairs; none: 32, with window session twice
    the tokens of a block, with --negative 0 one."""
    tile: int = setting(16, integer(1))
    """Tokens that share noise tokens. It must divide the block."""
    block: int | None = setting(None, multiple(of="tile"))
    """Tokens in a block; none: 64, rounded up to a multiple of the tile; with `window`
    session 128, rounded down."""
    blocks_per_update: int | None = setting(None, integer(1))
    """Blocks whose gradients are summed in one update; none: by the size of the corpus,
    1 to 256. Larger updates keep more cores and GPUs busy."""
    alpha: float | None = setting(
        None, number("a finite number > 0", positive_finite), is_per_model=True
    )
    """Learning rate at the start; none: by the updates that rows get, and the size of
    an update, 0.025 to 0.17; of walks at most 0.025, less where they often return to
    their nodes; for cbow four times that, by sums at most once. Of adagrad 0.2.
    """
    min_alpha: float = setting(1e-4, _below_alpha, is_per_model=True)
    """Learning rate at the end. It falls linearly."""
    schedule: Schedule = setting("continue")
    """Of an update (--resume) with new text. continue: the more text a row was trained
    on, the lower its rate; alpha is that of new rows. restart: alpha for all rows, as
    in a new training; the default where --alpha is given."""
    replay: float = setting(0.0, number("a number from 0 to 1", lambda x: 0 <= x <= 1))
    """Of an update: each epoch also trains on this share of the sequences of the
    corpora that the run to resume was trained on, another one in each epoch."""
    max_pairs_per_row: float | None = setting(
        None,
        number("a number > 0", lambda x: x > 0),
        formerly="cap",
        is_per_model=True,
    )
    """Of sgd: a row moves in one update at most as far as this many pairs would move
    it; none: 1.6 / alpha, at most 128, and less with `window` session and on walks;
    inf: no limit."""
    update: Literal["rows", "dense"] = setting("rows")
    """Gradients of the gathered rows, or of whole tables (slow, for checks)."""
    backend: Literal["auto", "xla", "numba"] = setting("auto")
    """Compiler of the updates. numba is faster on a CPU, but compiles for some seconds
    once per machine. auto: numba for long runs on a CPU, else xla."""
    threads: int = setting(0, integer(0), changes_vectors=False, is_per_host=True)
    """Threads of the numba backend, at most one per block of an update; 0: one per
    core. The vectors are the same for any number."""
    table_sharding: Literal["auto", "replicated", "columns", "rows"] = setting(
        "auto", changes_vectors=False, formerly="tables"
    )
    """Placement of the tables: replicated on each device, or sharded over devices by
    columns or by rows. auto: replicated if they fit on a device, else rows."""
    table_devices: int = setting(0, integer(0), changes_vectors=False)
    """Number of devices that hold one copy of sharded tables; 0: all devices."""
    best_by: str = setting("", text)
    """The score by which the best checkpoint is kept: held-out (log likelihood of
    held-out tokens), next-item (hit rate of the last items of held-out sequences),
    links (AUC of held-out edges), or a file on which the vectors are then scored, too:
    a similarity set, analogy questions, or labels of nodes."""
    init_from: str = setting("", text)
    """Start from the vectors of this file (word2vec, GloVe, .safetensors, .npz,
    .parquet), model file or run, which may be a URL; other rows start as without it."""
    freeze: str = setting("", text)
    """Rows of the input table, whose vectors are saved, that stay as they are: all;
    known: those that start from --init-from or --resume; or a file with a key a line.
    The output table learns."""
    walks: int = setting(0, integer(0))
    """The corpus is an edge list; train on this many random walks from each node in an
    epoch. 0: the corpus is not a graph."""
    walk_length: int = setting(80, integer(2, 2_000_000))
    """Nodes of a walk."""
    directed: bool = setting(False, boolean)
    """Walks follow edges from source to target only."""
    p: float = setting(1.0, _BIAS)
    """node2vec's return parameter: above 1, walks seldom go back at once."""
    q: float = setting(1.0, _BIAS)
    """node2vec's in-out parameter: above 1, walks stay near; below 1, they go far."""
    walks_fixed: bool = setting(False, boolean)
    """Make the same walks in each epoch; without it each epoch has new ones."""
    source: str = setting("", text)
    """Column of the edge list with the sources; none: the first."""
    target: str = setting("", text)
    """Column of the edge list with the targets; none: the second."""
    weight: str = setting("", text)
    """Column of the edge list with the weights; none: the third if there are three."""

    def __post_init__(self):
        validate(self)
        self._check_walks()
        self._check_whole_sequences()
        self._check_subwords()
        if self.backend == "numba" and self.update == "dense":
            raise InputError("`update` must be 'rows' with numba, got 'dense'.")
        for name, words in _FILES.items():
            path = getattr(self, name)
            if path and path not in words and "://" not in path:
                object.__setattr__(self, name, os.path.abspath(path))

    def _check_walks(self) -> None:
        """Refuses settings of walks without walks, and of texts with walks."""
        default = {f.name: f.default for f in dataclasses.fields(self)}
        names = _NOT_OF_WALKS if self.walks else _OF_WALKS
        changed = [name for name in names if getattr(self, name) != default[name]]
        if self.walks and self.weights:
            raise InputError(
                f"`weights` applies only to sessions in tables, got {self.weights!r} "
                f"with `walks` = {self.walks}. The column of the weights of edges is "
                "`weight`."
            )
        if self.walks and self.min_count not in (1, default["min_count"]):
            changed.insert(0, "min_count")  # 1 is what the default becomes
        if changed:
            value, kind = getattr(self, changed[0]), "texts" if self.walks else "graphs"
            raise InputError(
                f"`{changed[0]}` applies only to {kind}, got {value!r} with `walks` = "
                f"{self.walks}."
            )

    def _check_subwords(self) -> None:
        """Refuses what does not go with rows that words share."""
        if not self.subwords:
            return
        values = {"update": "dense", "table_sharding": "rows", "replay": self.replay}
        values |= {name: getattr(self, name) for name in ("init_from", "freeze")}
        for name, value in values.items():
            if value and getattr(self, name) == value:
                raise InputError(f"`{name}` {value!r} does not go with `subwords`.")

    @property
    def sequence_holdout(self) -> float:
        """The share of the sequences that is held out: 0 of walks."""
        return 0.0 if self.walks else self.holdout

    def check_best(self) -> None:
        """Raises InputError for a score that lacks what it is measured on."""
        others = HELD_OUT_SCORES if self.walks else (LINKS,)
        if self.best_by in others:
            known, of = (
                (LINKS, "with `walks`")
                if self.walks
                else (" or ".join(HELD_OUT_SCORES), "without `walks`")
            )
            raise InputError(
                f"`best_by` must be {known} or a file {of}, got {self.best_by!r}."
            )
        if self.best_by in (*HELD_OUT_SCORES, LINKS) and not self.holdout:
            raise InputError(
                f"`best_by` {self.best_by} needs `holdout`, such as 0.01, got "
                f"{self.holdout}."
            )

    def _check_whole_sequences(self) -> None:
        """Refuses blocks whose distances `Blocks.radius` cannot have."""
        block = self.block_or_default
        if self.has_whole_sequences and not 2 <= block <= MOST_DISTANCE + 1:
            raise InputError(
                f"`block` must be from 2 to {MOST_DISTANCE + 1} with `window` = "
                f"{self.window!r}, got {block}"
                + ("." if self.block else f" by `tile` = {self.tile}.")
            )

    @property
    def has_whole_sequences(self) -> bool:
        """Whether the context of a token is its whole sequence, ALGORITHM.md (66)."""
        return self.window == "session"

    @property
    def block_or_default(self) -> int:
        """T, ALGORITHM.md (45) if it is not given."""
        most = MOST_DISTANCE + 1 if self.has_whole_sequences else None
        return self.block or default_block(self.tile, most)

    @property
    def num_noise(self) -> int:
        """K, ALGORITHM.md (45) if it is not given."""
        if not self.negative:  # none is used, but tiles are counted by their noise
            return 1
        of_block = 2 * self.block_or_default if self.has_whole_sequences else 32
        return self.noise or of_block

    @property
    def num_output_tables(self) -> int:
        """Rows of the output table for each token: its own if there is negative
        sampling, and one of an inner node with hierarchical softmax."""
        return bool(self.negative) + self.hs

    @property
    def num_contexts(self) -> float:
        """Contexts of a token for the default of `max_pairs_per_row`, (44).

        Of skip-gram on walks or whole sequences, whose blocks repeat tokens or relate
        all of them. Of texts 6 for any window, as the NumPy trainer has it.
        """
        if self.architecture == "cbow" or not (self.walks or self.has_whole_sequences):
            return 6
        return self.max_distance + (not self.has_whole_sequences)

    @property
    def num_summed(self) -> int:
        """Contexts in the sum of a token of CBOW, on average; 0: there is no sum."""
        if self.architecture == "skipgram" or self.cbow_mean:
            return 0
        if self.has_whole_sequences:
            return self.max_distance
        return self.max_distance + 1 if self.shrink_windows else 2 * self.max_distance

    @property
    def max_distance(self) -> int:
        """W, the largest distance of a context: of whole sequences T - 1."""
        if isinstance(self.window, int):
            return self.window
        return self.block_or_default - 1

    @property
    def update_size(self) -> tuple[int, int]:
        """Tokens of a block and blocks of an update, T and N, of resolved settings."""
        assert self.block and self.blocks_per_update, "settings must be resolved"
        return self.block, self.blocks_per_update

    def check_optimizer(self, name: str) -> None:
        """Raises InputError for an unknown optimizer, or a setting that it lacks."""
        if name not in OPTIMIZERS:
            known = " or ".join(map(repr, OPTIMIZERS))
            raise InputError(f"`optimizer` of tables must be {known}, got {name!r}.")
        rule = _RULES[name]
        alpha = self.alpha or rule.default_alpha(
            self.architecture, math.inf, num_summed=self.num_summed
        )
        if self.min_alpha > alpha:
            raise InputError(
                f"`min_alpha` must be {_BELOW_ALPHA}, got {self.min_alpha!r}."
            )
        if self.subwords and not rule.limits_pairs:
            raise InputError(
                f"`optimizer` must be 'sgd' with `subwords`, got {name!r}."
            )
        if not rule.limits_pairs and self.max_pairs_per_row is not None:
            raise InputError(
                "`max_pairs_per_row` applies only to `optimizer` = 'sgd', got "
                f"{self.max_pairs_per_row!r}."
            )


_REPEATS = 1.25
"""Times that a node is in its block from which the rate of walks falls; graphs that
lose by a lower rate have 1.08 to 1.11."""


def default_alpha(
    architecture: Architecture,
    row_updates: float,
    epochs: int = 5,
    blocks_per_update: int = 1,
    walk_repeats: float | None = None,
    num_summed: int = 0,
) -> float:
    """Learning rate at the start, ALGORITHM.md (43).

    Skip-gram of texts and sessions: 0.05 where a row gets 1,300 updates in all epochs,
    falling with their number to the power -1/4, from 0.1 to 0.025; and updates of N
    blocks: N to the power 0.1 of that. Of walks 0.025, and less where they return to
    their nodes: a node that is r times in a block takes r equal steps in one update.
    CBOW: four times that, since its gradient is divided by the number of contexts. That
    of a sum is not, and moves all of its contexts: less where they are more than 6.

    Args:
      row_updates: in an epoch, of `Vocabulary.row_updates`.
      walk_repeats: r of walks, of `Walks.repeats`; None: of a text.
      num_summed: of `TablesOptions`.
    """
    if walk_repeats is not None:
        alpha = 0.025 * min(_REPEATS / walk_repeats, 1)
    else:
        updates = max(row_updates * (epochs or 5), 1)
        alpha = min(max(0.05 * (1300 / updates) ** 0.25, 0.025), 0.1)
        alpha *= blocks_per_update**0.1
    if num_summed:
        return min(6 / num_summed, 1) * alpha
    return {"skipgram": 1, "cbow": 4}[architecture] * alpha


def default_blocks_per_update(num_tokens: float, block: int) -> int:
    """Blocks in an update for a corpus of `num_tokens`, ALGORITHM.md (54).

    The largest power of two, at most 256, with which an epoch has at least 3,000
    updates. Larger corpora stand larger updates.
    """
    most = num_tokens / (3000 * block)
    return 2 ** int(min(math.log2(max(most, 1)), 8))


class _Rule(NamedTuple):
    """The settings of an optimizer of tables."""

    default_alpha: Callable[..., float]  # as the function of this name
    limits_pairs: bool  # whether `max_pairs_per_row` applies


_RULES = {
    "sgd": _Rule(default_alpha, limits_pairs=True),
    "adagrad": _Rule(lambda *training, **kind: ADAGRAD_ALPHA, limits_pairs=False),
}

OPTIMIZERS = tuple(_RULES)
"""The choices of `optimizer` for tables."""


def default_block(tile: int, most: int | None = None) -> int:
    """Tokens in a block: 64, raised to a multiple of `tile`.

    Larger blocks are faster, and lose where words are to be told apart that are used
    alike: SimLex first. Blocks of whole sequences are as large as may be, `most`, so
    that few sequences are cut.
    """
    if most is not None:
        return max(most // tile, 1) * tile
    return -(-64 // tile) * tile


def default_max_pairs_per_row(
    alpha: float, tokens_per_update: int, num_contexts: float = 6
) -> float:
    """1.6 / alpha: above about 3 / alpha training diverges once rows reach the limit.

    Half of that, at most 128, or 64 when an update has more than 2048 tokens. Where a
    token has more than 6 contexts and many rows reach the limit together: less, by the
    square root of their number, ALGORITHM.md (44).
    """
    most = 1.6 / alpha * math.sqrt(min(6 / num_contexts, 1))
    return min(most, 128.0 if tokens_per_update <= 2048 else 64.0)


def of_large_corpora(sample: float) -> float:
    """The updates of a row in a corpus of any size: as many as matter."""
    return math.inf


def of_no_graph(block: int) -> float:
    """The repeats in a block of walks that do not return."""
    return 1.0


def resolve_options(
    options: TablesOptions,
    optimizer: str,
    num_tokens: float,
    epochs: int,
    row_updates: RowUpdates = of_large_corpora,
    repeats: Repeats = of_no_graph,
) -> TablesOptions:
    """`options` with None replaced by what it becomes for `epochs` of `num_tokens`.

    `max_pairs_per_row` stays None with an optimizer that has no such limit.
    """
    block = options.block_or_default
    num_blocks = options.blocks_per_update or default_blocks_per_update(
        num_tokens, block
    )
    rule = _RULES[optimizer]
    alpha = options.alpha or rule.default_alpha(
        options.architecture,
        row_updates(options.sample),
        epochs,
        num_blocks,
        repeats(block) if options.walks else None,
        options.num_summed,
    )
    alpha = max(alpha, options.min_alpha)  # that of walks may be below
    max_pairs = options.max_pairs_per_row
    if rule.limits_pairs:
        max_pairs = max_pairs or default_max_pairs_per_row(
            alpha, block * num_blocks, options.num_contexts
        )
    return dataclasses.replace(
        options,
        block=block,
        noise=options.num_noise,
        blocks_per_update=num_blocks,
        alpha=alpha,
        max_pairs_per_row=max_pairs,
    )
