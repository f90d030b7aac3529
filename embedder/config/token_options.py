"""Settings of models of tokens, and how a corpus resolves the open ones."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from embedder.config import token_objectives
from embedder.config.settings import (
    Refusal,
    boolean,
    integer,
    integer_or,
    multiple,
    number,
    positive_finite,
    read_instance,
    read_integer,
    read_integers,
    rule,
    setting,
    text,
    validate,
)
from embedder.config.token_objectives import ARCHITECTURES, OPTIMIZERS
from embedder.errors import InputError

if TYPE_CHECKING:
    ArchitectureName = str
else:
    ArchitectureName = Literal[tuple(ARCHITECTURES)]

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

BEST_BY = {"held-out": "texts", "next-item": "texts", "links": "graphs"}
"""Values of `best_by` that are no file, and the data of which they are scores; see
`metrics.scores`."""

_BELOW_ALPHA = "a number from 0 to `alpha`"


def _below_alpha(section, name: str) -> None:
    """A number from 0 to the section's `alpha`, which is checked before.

    Of defaults it is the largest; `check_optimizer` knows which one applies.
    """
    alpha = section.alpha or max(map(section.default_alpha, OPTIMIZERS))
    number(_BELOW_ALPHA, lambda x: 0 <= x <= alpha)(section, name)


def _negative(section, name: str) -> None:
    """An integer >= 1, or 0 with hierarchical softmax, which does without."""
    low = 0 if section.hs is True else 1
    rule("an integer >= 1, or 0 with `hs`", lambda x: read_integer(x, low))(
        section, name
    )


_MOST_CHARACTERS = 50


def _file_and_columns(value: Any) -> tuple[str, ...]:
    """A file and columns, each once; or none."""
    found = tuple(read_instance(value, list | tuple))
    if not all(isinstance(each, str) for each in found):
        raise TypeError
    if not all(found) or len({*found}) < len(found):
        raise ValueError
    return found


def _ngram_lengths(value: Any) -> tuple[int, ...]:
    """Two integers, the first not above the second; or none."""
    bounds = read_integers(value, 1)
    if bounds and (len(bounds) != 2 or not bounds[0] <= bounds[1] <= _MOST_CHARACTERS):
        raise ValueError
    return bounds


_BIAS = number("a number from 1e-06 to 1000000.0", lambda x: 1e-6 <= x <= 1e6)
_GRAPHS_ONLY = Refusal(
    lambda s: not s.walks,
    "`{name}` applies only to graphs, got {value!r} with `walks` = {s.walks}: give "
    "--walks 10 for the edges of a graph.",
)
_TEXTS_ONLY = Refusal(
    lambda s: s.walks,
    "`{name}` applies only to texts, got {value!r} with `walks` = {s.walks}.",
)
_KEEPS_ALL_NODES = _TEXTS_ONLY._replace(holds=lambda s: s.walks and s.min_count != 1)
_SESSIONS_ONLY = Refusal(
    lambda s: s.walks,
    "`{name}` applies only to sessions in tables, got {value!r} with `walks` = "
    "{s.walks}. The column of the weights of edges is `weight`.",
)
_NO_SUBWORDS = Refusal(
    lambda s: s.subwords, "`{name}` {value!r} does not go with `subwords`."
)
_ROWS_ALONE = _NO_SUBWORDS._replace(
    holds=lambda s: s.subwords and s.table_sharding == "rows"
)
_ROWS_WITH_NUMBA = Refusal(
    lambda s: s.backend == "numba", "`{name}` must be 'rows' with numba, got {value!r}."
)
_SHARDED = "columns", "rows"
_WHOLE_TABLES = Refusal(
    lambda s: s.table_sharding in _SHARDED,
    "`{name}` {value} takes whole tables, got `table_sharding` = {s.table_sharding!r}.",
)
_SHARDED_ONLY = Refusal(
    lambda s: s.table_devices > 1 and s.table_sharding not in _SHARDED,
    "`{name}` needs `table_sharding` columns or rows, got {s.table_sharding!r} with "
    "`{name}` = {value}.",
)
_NO_REPLAY = [
    Refusal(
        holds, f"`{{name}}` does not go with {other}, got {{value!r}}.", of_run=True
    )
    for other, holds in (
        ("`schedule` = 'restart'", lambda s: s.schedule == "restart"),
        ("`bootstrap`", lambda s: s.bootstrap),
        ("`weights`", lambda s: s.weights),
    )
]
_SGD_ONLY = Refusal(
    lambda s: not OPTIMIZERS[s.optimizer].limits_pairs,
    "`{name}` applies only to `optimizer` = 'sgd', got {value!r}.",
    of_run=True,
)
_SGD_WITH_SUBWORDS = _SGD_ONLY._replace(
    message="`optimizer` must be 'sgd' with `subwords`, got {s.optimizer!r}."
)


def _scores_of(data: str, of: str) -> Refusal:
    """A row for the scores of other data than the corpus has."""
    known = " or ".join(name for name in BEST_BY if BEST_BY[name] == data)
    return Refusal(
        lambda s: s.data == data and BEST_BY.get(s.best_by, data) != data,
        f"`{{name}}` must be {known} or a file {of} `walks`, got {{value!r}}.",
    )


_HELD_OUT, _MOST_HELD_OUT, _FEWEST_HELD_OUT = 0.05, 20_000, 20
_SCORES = (
    _scores_of("graphs", "with"),
    _scores_of("texts", "without"),
    Refusal(
        lambda s: s.best_by in BEST_BY and not (s.holdout or s.may_hold_out),
        "`{name}` {value} needs `holdout`, such as 0.01, got {s.held_out}.",
    ),
)
FILES: dict[str, tuple[str, ...]] = {
    "best_by": (*BEST_BY,),
    "init_from": (),
    "freeze": ("all", "known"),
    "names": (),
}
"""Settings that name files, with their values that do not."""

NOISE = 32
"""Default of `noise`, but of whole sequences."""


@dataclass(frozen=True, kw_only=True)
class TokensOptions:
    """Vectors of tokens: vocabulary, blocks of text, objective, and updates."""

    groups: ClassVar = {
        "min_count": "tokens: vocabulary and held-out data",
        "session": "tokens: sessions in tables",
        "architecture": "tokens: what is learned",
        "noise": "tokens: noise and blocks",
        "alpha": "tokens: learning rate",
        "update": "tokens: speed and memory",
        "best_by": "tokens: scores and names",
        "init_from": "tokens: start from vectors",
        "walks": "tokens: graphs",
    }
    default_optimizer: ClassVar[str] = "sgd"
    scored_by: ClassVar[tuple[str, ...]] = ("holdout", "best_by")
    """The options with which vectors are evaluated; `result` best and `patience` need
    one of them."""

    min_count: int = setting(5, integer(1), refusals=(_KEEPS_ALL_NODES,))
    """Ignore tokens that occur less often than this."""
    sample: float = setting(
        1e-3, number("a number from 0 to 1", lambda x: 0 <= x <= 1), is_per_model=True
    )
    """Randomly drop tokens more frequent than this share of the corpus; 0: none.
    Equation (1)."""
    ns_exponent: float = setting(
        0.75, number("a finite number", math.isfinite), is_per_model=True
    )
    """Draw noise tokens in proportion to count ** ns_exponent. Equation (2)."""
    holdout: float | None = setting(
        None, number("a number in [0, 1)", lambda x: 0 <= x < 1)
    )
    """Share of the sequences (lines), or of the edges of a graph, that is held out of
    training, the same for every seed. The vectors are scored on them when they are
    evaluated. none: 0, but with --next-items 0.05, at most 20,000 sequences."""
    next_items: bool = setting(False, boolean, refusals=(_TEXTS_ONLY,))
    """Keep what `embedder next` needs: counts of what follows what in the sessions, the
    newest 500,000 sessions, and the weights of a mixture of them and the vectors, which
    are chosen on held-out sessions. Without --holdout the vectors are those of the
    best evaluation. Equation (101)."""
    unicode_errors: Literal["strict", "replace"] = setting(
        "strict", refusals=(_TEXTS_ONLY,)
    )
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
    weights: str = setting("", text, refusals=(_SESSIONS_ONLY,))
    """Of a table: the column of the weights of sessions. Each pair of a session counts
    as often as its weight; sessions with weight 0 are left out. Equation (67)."""
    architecture: ArchitectureName = setting("skipgram")
    """skipgram: predict the contexts from a token. cbow: predict a token from the mean
    of its contexts, or their sum; see `cbow_mean`. cbow-softmax: cbow in which near
    contexts count more, by a softmax over the token and the noise; equation (99)."""
    cbow_mean: bool = setting(True, boolean)
    """Of cbow: the mean of the vectors of contexts; without it, their sum. Equations
    (8) and (97)."""
    vector_size: int = setting(100, integer(1))
    """Dimensions of the vectors."""
    window: Window = setting(
        5, integer_or("session", 1, MOST_DISTANCE), is_per_model=True
    )
    """Largest distance of a context. Each token draws its distance from 1 to this; see
    `shrink_windows`. session: each item of a session is a context of each other one.
    Equations (3) and (66)."""
    shrink_windows: bool = setting(True, boolean)
    """Each token draws its distance from 1 to `window`; without it, each token has
    all contexts up to `window`."""
    negative: int = setting(5, _negative, is_per_model=True)
    """Negative samples per pair; 0, only with --hs: none. Equations (7) and (8)."""
    hs: bool = setting(False, boolean)
    """Hierarchical softmax: predict a token by its path in a Huffman tree; with
    --negative 0 instead of negative sampling, else beside it. Equations (89) to
    (92)."""
    subwords: tuple[int, ...] = setting(
        (),
        rule(
            f"two integers, MIN and MAX, with 1 <= MIN <= MAX <= {_MOST_CHARACTERS}",
            _ngram_lengths,
        ),
        refusals=(_TEXTS_ONLY, _SGD_WITH_SUBWORDS),
    )
    """Vectors of words from n-grams of MIN to MAX characters, as fastText, such as 3 6:
    unknown words have vectors, too. none: each word has a row of its own. Equations
    (93) to (96)."""
    buckets: int = setting(2_000_000, integer(1, 2**31 - 1))
    """Of --subwords: numbers that n-grams are hashed to. Those that the vocabulary has
    take memory."""
    attributes: tuple[str, ...] = setting(
        (), rule("a file and columns, each once", _file_and_columns)
    )
    """Table (CSV, Parquet ...) of items, and columns whose values are attributes, such
    as items.csv category brand words:title; no column: all. The vector of an item is
    made of its own row and those of its attributes, so that items without a session
    have vectors, too. words:NAME: each word of the text; list:NAME: each part between
    |. Equations (94), (95), (103)."""
    noise: int | None = setting(None, integer(1))
    """Noise tokens of a tile, shared by its pairs; none: 32, with window session twice
    the tokens of a block, with --negative 0 one."""
    tile: int = setting(16, integer(1))
    """Tokens that share noise tokens. It must divide the block. Equation (30)."""
    block: int | None = setting(None, multiple(of="tile"))
    """Tokens in a block; none: 64, rounded up to a multiple of the tile; with `window`
    session 128, rounded down. Equation (29)."""
    blocks_per_update: int | None = setting(None, integer(1))
    """Blocks whose gradients are summed in one update; none: by the size of the corpus,
    1 to 256. Larger updates keep more cores and GPUs busy. Equation (54)."""
    alpha: float | None = setting(
        None, number("a finite number > 0", positive_finite), is_per_model=True
    )
    """Learning rate at the start; none: chosen for the corpus, by the updates that rows
    get and the size of an update. It is 0.025 to 0.17 for texts, and for walks at most
    0.025, less where they often return to their nodes. For cbow it is four times that,
    for sums at most once; for adagrad it is 0.2. Equation (43)."""
    min_alpha: float = setting(1e-4, _below_alpha, is_per_model=True)
    """Learning rate at the end. It falls linearly. Equation (19)."""
    schedule: Schedule = setting("continue")
    """Of an update (--resume) with new text. continue: the more text a row was trained
    on, the lower its rate; alpha is that of new rows. restart: alpha for all rows, as
    in a new training; the default where --alpha is given. Equation (69)."""
    replay: float = setting(
        0.0,
        number("a number from 0 to 1", lambda x: 0 <= x <= 1),
        refusals=(_TEXTS_ONLY, _NO_SUBWORDS, *_NO_REPLAY),
    )
    """Of an update: each epoch also trains on this share of the sequences of the
    corpora that the run to resume was trained on, another one in each epoch. Equations
    (71) and (78)."""
    max_pairs_per_row: float | None = setting(
        None,
        number("a number > 0", lambda x: x > 0),
        formerly="cap",
        is_per_model=True,
        refusals=(_SGD_ONLY,),
    )
    """Of sgd: a row moves in one update at most as far as this many pairs would move
    it; none: 1.6 / alpha, at most 128, and less with `window` session and on walks;
    inf: no limit. Equations (18) and (44)."""
    update: Literal["rows", "dense"] = setting(
        "rows", refusals=(_ROWS_WITH_NUMBA, _NO_SUBWORDS, _WHOLE_TABLES)
    )
    """Gradients of the gathered rows, or of whole tables (slow, for checks)."""
    backend: Literal["auto", "xla", "numba"] = setting("auto")
    """Compiler of the updates. numba is faster on a CPU, but compiles for some seconds
    once per machine. auto: numba for long runs on a CPU, else xla."""
    threads: int = setting(0, integer(0), changes_vectors=False, is_per_host=True)
    """Threads of the numba backend, at most one per block of an update; 0: one per
    core. The vectors are the same for any number."""
    table_sharding: Literal["auto", "replicated", "columns", "rows"] = setting(
        "auto", changes_vectors=False, refusals=(_ROWS_ALONE,)
    )
    """Placement of the tables: replicated on each device, or sharded over devices by
    columns or by rows. auto: replicated if they fit on a device, else rows."""
    table_devices: int = setting(
        0, integer(0), changes_vectors=False, refusals=(_SHARDED_ONLY,)
    )
    """Number of devices that hold one copy of sharded tables; 0: all devices."""
    best_by: str = setting("", text, refusals=_SCORES)
    """The score by which the best checkpoint is kept: held-out (log likelihood of
    held-out tokens), next-item (hit rate of the last items of held-out sequences),
    links (AUC of held-out edges), or a file on which the vectors are then scored, too:
    a similarity set, analogy questions, or labels of nodes. none: for --patience and
    --result best next-item for items, links for graphs, else held-out."""
    names: str = setting("", text, changes_vectors=False)
    """Table (CSV, Parquet ...) whose first two columns are keys and names, or a URL of
    one. The run keeps it: neighbors, report, watch and export show these names."""
    init_from: str = setting("", text, refusals=(_NO_SUBWORDS,))
    """Start from the vectors of this file (word2vec, GloVe, .safetensors, .npz,
    .parquet), model file or run, which may be a URL; other rows start as without it."""
    key_errors: Literal["strict", "skip", "replace"] = setting("strict")
    """If --init-from is a file of word2vec or GloVe with rows whose key is repeated,
    white space or not UTF-8: refuse it, or skip them; or replace wrong bytes by U+FFFD,
    and skip the others. How many is logged."""
    freeze: str = setting("", text, refusals=(_NO_SUBWORDS,))
    """Rows of the input table, whose vectors are saved, that stay as they are: all;
    known: those that start from --init-from or --resume; or a file with a key a line.
    The output table learns. Equation (68)."""
    walks: int = setting(0, integer(0))
    """The corpus is an edge list; train on this many random walks from each node in an
    epoch. 0: the corpus is not a graph."""
    walk_length: int = setting(80, integer(2, 2_000_000), refusals=(_GRAPHS_ONLY,))
    """Nodes of a walk."""
    directed: bool = setting(False, boolean, refusals=(_GRAPHS_ONLY,))
    """Walks follow edges from source to target only."""
    p: float = setting(1.0, _BIAS, refusals=(_GRAPHS_ONLY,))
    """node2vec's return parameter: above 1, walks seldom go back at once. Equation
    (63)."""
    q: float = setting(1.0, _BIAS, refusals=(_GRAPHS_ONLY,))
    """node2vec's in-out parameter: above 1, walks stay near; below 1, they go far.
    Equation (63)."""
    walks_fixed: bool = setting(False, boolean, refusals=(_GRAPHS_ONLY,))
    """Make the same walks in each epoch; without it each epoch has new ones."""
    source: str = setting("", text, refusals=(_GRAPHS_ONLY,))
    """Column of the edge list with the sources; none: the first."""
    target: str = setting("", text, refusals=(_GRAPHS_ONLY,))
    """Column of the edge list with the targets; none: the second."""
    weight: str = setting("", text, refusals=(_GRAPHS_ONLY,))
    """Column of the edge list with the weights; none: the third if there are three."""

    def __post_init__(self):
        validate(self)
        self._check_whole_sequences()
        for name, words in FILES.items():
            path = getattr(self, name)
            if path and path not in words and "://" not in path:
                object.__setattr__(self, name, os.path.abspath(path))
        if self.attributes and "://" not in self.attributes[0]:
            path, *columns = self.attributes
            object.__setattr__(self, "attributes", (os.path.abspath(path), *columns))

    @property
    def data(self) -> str:
        """What the corpus is: "texts", of sessions, too, or "graphs"."""
        return "graphs" if self.walks else "texts"

    @property
    def sequence_holdout(self) -> float:
        """The share of the sequences that is held out: 0 of walks."""
        return 0.0 if self.walks else self.held_out

    @property
    def held_out(self) -> float:
        """`holdout` of a corpus that none is chosen for."""
        return self.holdout or 0.0

    @property
    def may_hold_out(self) -> bool:
        """Whether `holdout` is chosen for the corpus."""
        return self.next_items and self.has_token_output and self.holdout is None

    def holdout_of(self, num_sequences: int) -> float:
        """The share to hold out, where that is chosen for the corpus; 0 where it would
        be less than `_FEWEST_HELD_OUT` sequences."""
        share = min(_HELD_OUT, _MOST_HELD_OUT / max(num_sequences, 1))
        return share if share * num_sequences >= _FEWEST_HELD_OUT else 0.0

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
        whole = self.has_whole_sequences
        return self.noise or (2 * self.block_or_default if whole else NOISE)

    @property
    def has_token_output(self) -> bool:
        """Whether the first V rows of the output table are of tokens, for negative
        sampling."""
        return self.negative > 0

    @property
    def has_node_output(self) -> bool:
        """Whether the last V rows of the output table are of inner nodes of a Huffman
        tree, for hierarchical softmax."""
        return self.hs

    @property
    def num_output_tables(self) -> int:
        """Rows of the output table for each token."""
        return self.has_token_output + self.has_node_output

    @property
    def num_contexts(self) -> float:
        """Contexts of a token for the default of `max_pairs_per_row`, (44).

        Of skip-gram on walks or whole sequences, whose blocks repeat tokens or relate
        all of them. Of texts 6 for any window, as the NumPy trainer has it.
        """
        is_text = not (self.walks or self.has_whole_sequences)
        if is_text or self.architecture_facts.predicts == "token":
            return 6
        return self.max_distance + (not self.has_whole_sequences)

    @property
    def architecture_facts(self) -> token_objectives.Architecture:
        """What settings know of the architecture, of means or of sums of contexts."""
        facts = ARCHITECTURES[self.architecture]
        return facts if self.cbow_mean else facts.with_sums or facts

    def default_alpha(
        self,
        optimizer: str,
        row_updates: float = math.inf,
        epochs: int = 5,
        blocks_per_update: int = 1,
        walk_repeats: float | None = None,
    ) -> float:
        """Learning rate at the start by an optimizer; see the function of this name."""
        if alpha := OPTIMIZERS[optimizer].alpha:
            return alpha
        factor = self.architecture_facts.alpha_factor(self._mean_contexts)
        return factor * default_alpha(
            row_updates, epochs, blocks_per_update, walk_repeats
        )

    @property
    def _mean_contexts(self) -> int:
        """Contexts of a token, on average."""
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
        """Raises InputError for an unknown optimizer, or a rate that it cannot have."""
        if name not in OPTIMIZERS:
            known = " or ".join(map(repr, OPTIMIZERS))
            raise InputError(f"`optimizer` of tables must be {known}, got {name!r}.")
        if self.min_alpha > (self.alpha or self.default_alpha(name)):
            raise InputError(
                f"`min_alpha` must be {_BELOW_ALPHA}, got {self.min_alpha!r}."
            )


_REPEATS = 1.25
"""Times that a node is in its block from which the rate of walks falls; graphs that
lose by a lower rate have 1.08 to 1.11."""


def default_alpha(
    row_updates: float,
    epochs: int = 5,
    blocks_per_update: int = 1,
    walk_repeats: float | None = None,
) -> float:
    """Learning rate of skip-gram at the start, ALGORITHM.md (43).

    Of texts and sessions: 0.05 where a row gets 1,300 updates in all epochs,
    falling with their number to the power -1/4, from 0.1 to 0.025; and updates of N
    blocks: N to the power 0.1 of that. Of walks 0.025, and less where they return to
    their nodes: a node that is r times in a block takes r equal steps in one update.
    Other architectures have a factor to it, `Architecture.alpha_factor`.

    Args:
      row_updates: in an epoch, of `Vocabulary.row_updates`.
      walk_repeats: r of walks, of `Walks.repeats`; None: of a text.
    """
    if walk_repeats is not None:
        alpha = 0.025 * min(_REPEATS / walk_repeats, 1)
    else:
        updates = max(row_updates * (epochs or 5), 1)
        alpha = min(max(0.05 * (1300 / updates) ** 0.25, 0.025), 0.1)
        alpha *= blocks_per_update**0.1
    return alpha


def default_blocks_per_update(num_tokens: float, block: int) -> int:
    """Blocks in an update for a corpus of `num_tokens`, ALGORITHM.md (54).

    The largest power of two, at most 256, with which an epoch has at least 3,000
    updates. Larger corpora stand larger updates.
    """
    most = num_tokens / (3000 * block)
    return 2 ** int(min(math.log2(max(most, 1)), 8))


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
