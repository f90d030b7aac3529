"""What the command line takes: a dataclass for each verb, with the text of its help."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from embedder.config.encoder_options import EncoderOptions
from embedder.config.presets import Preset
from embedder.config.run_options import (
    DeviceOptions,
    PeersConfig,
    RunOptions,
    SaveOptions,
)
from embedder.config.token_options import TokensOptions
from embedder.metrics.scores import choices

_KeyErrors = Literal["strict", "skip", "replace"]

# Arguments that several verbs have, each with its text.
_Config = Annotated[
    Path | None,
    "TOML file of settings; its paths start in its folder, or else in the current one. "
    "Flags override it.",
]
_Preset = Annotated[
    Preset,
    "Defaults for a kind of data: items of sessions, words of a text, or nodes of a "
    "graph. --config and flags override it.",
]
_Cache = Annotated[
    Path | None,
    "Folder of encoded corpora and copies of remote data, which runs can share; none: "
    "cache in the workdir, for copies the cache folder of the user.",
]
_ForceLock = Annotated[
    bool, "Write to the workdir although its lock file names another host."
]
_Verbose = Annotated[
    bool, "Print details as well: the updates, memory, devices, the time to compile."
]
_Run = Annotated[
    str, "Folder of a finished run, or a file of vectors; it may be a URL."
]
_LocalRun = Annotated[Path, "Folder of a run, on this machine."]
_Names = Annotated[
    str | None,
    "Table (CSV, Parquet ...) whose first two columns are keys and names to show; "
    "none: the names of the run.",
]
_AsOfNeighbors = Annotated[_KeyErrors, "As of neighbors."]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The sections of settings of any training, as a verb takes them."""

    run: RunOptions = field(default_factory=RunOptions)
    tokens: TokensOptions = field(default_factory=TokensOptions)
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)


@dataclass(frozen=True, kw_only=True)
class Train(Settings):
    """Train embeddings of the tokens of a text (the demo corpus if none is given). With
    --model encoder: embeddings of features or images, by their labels; of images also
    without labels, by --objective simclr.

    Give the same command again, or --workdir alone, to resume a run that was stopped.
    """

    corpus: str | None = field(default=None, metadata={"positional": "[CORPUS]"})
    """A text file (.txt, .gz) with one sequence per line, a glob, or a folder; `-`:
    standard input. For an encoder: idx, npz or parquet files, or a folder of images.
    Each may be a URL: s3://, gs://, https://, hf://."""
    workdir: Path | None = None
    """Folder of the run; none: embedder-NAME in the current folder."""
    config: _Config = None
    preset: _Preset = "none"
    cache: _Cache = None
    mirror: str | None = None
    """Folder or URL, as s3://bucket/run, that gets a copy of the run: each checkpoint,
    and the results. The same command goes on from it on another machine."""
    resume: str | None = None
    """Start from the vectors of this run or model file, which may be a URL. The run's
    settings are the defaults, and so is its corpus."""
    grow: bool = False
    """With --resume: add vectors for new tokens. Without it new tokens are skipped."""
    overwrite: bool = False
    """Delete the run in the workdir and start again."""
    step: int | None = None
    """Resume from the checkpoint after this many updates instead of the newest."""
    force: bool = False
    """Resume although the corpus files have changed. Their tokens must be the same."""
    force_lock: _ForceLock = False
    dry_run: bool = False
    """Print the settings, devices and memory of the run, of a longer one also the time,
    and exit."""
    verbose: _Verbose = False
    save: SaveOptions = field(default_factory=SaveOptions)
    peers: PeersConfig = field(default_factory=PeersConfig)


@dataclass(frozen=True, kw_only=True)
class Sweep(Settings):
    """Try settings side by side, and find the best.

    SPACE is a TOML file with the values or the range of each setting to try, as
    `window = [2, 5, 10]` or `alpha = { low = 0.01, high = 0.1, scale = "log" }`. A
    range with `steps` is that many values; without, it is searched (extra: sweep).
    Trial 0 has the settings as given. Give the same command again to resume.
    """

    space: Path = field(metadata={"positional": "SPACE"})
    """TOML file of the settings to try."""
    corpus: str | None = field(default=None, metadata={"positional": "[CORPUS]"})
    """As of train."""
    workdir: Path = Path("embedder-sweep")
    """Folder of the sweep: trials.csv, best.toml, and a picture, trials.svg."""
    best: Path | None = None
    """Train the best settings once more, as an ordinary run in this folder."""
    score: str = field(default="auto", metadata={"words": lambda: ["auto", *choices()]})
    """held-out: log likelihood of sequences that are not trained on. next-item: share
    of these whose last item is among the ten that the others predict. links: AUC of
    edges that no walk takes. pairs: correlation with --pairs. val-loss, val-accuracy:
    of an encoder. auto: held-out, for walks links, for an encoder val-loss."""
    pairs: Path | None = None
    """Similarity set for --score pairs."""
    trials: int = 32
    """Number of trials, where a range is searched."""
    side_by_side: int = 8
    """Number of models to train at the same time; replicas count."""
    halving: int = 0
    """Successive halving: after --first-epochs one of this many trials goes on, for
    this many times the epochs, until --epochs. 0: all trials have all epochs."""
    first_epochs: int = 1
    """Epochs of the first rung of --halving."""
    config: _Config = None
    preset: _Preset = "none"
    cache: _Cache = None
    overwrite: bool = False
    """Delete the sweep in the workdir and start again."""
    force_lock: _ForceLock = False
    dry_run: bool = False
    """Print the trials and the memory of those side by side, and exit."""
    verbose: _Verbose = False
    save: SaveOptions = field(default_factory=SaveOptions)


@dataclass(frozen=True, kw_only=True)
class Phrases:
    """Find phrases in a text, pairs of tokens that occur together more often than
    chance, and write the text with them joined, as new_york, to train on."""

    corpus: str = field(metadata={"positional": "CORPUS"})
    """A text file (.txt, .gz) with one sequence per line, a glob, or a folder; it may
    be a URL."""
    to: Path
    """File to write the joined text to, .txt or .gz."""
    list: Path | None = None
    """Write the phrases to this file, .parquet, .csv or .tsv: columns phrase, score and
    count."""
    score: Literal["word2vec", "npmi"] = "word2vec"
    """word2vec: (count(ab) - min_count) / (count(a) count(b)) * tokens. npmi:
    normalized pointwise mutual information, from -1 to 1."""
    threshold: float | None = None
    """A pair with a score above this is a phrase; none: 100, for npmi 0.5."""
    min_count: int = 5
    """Pairs that occur less often are no phrases."""
    passes: int = 1
    """Number of passes. Each can join what the passes before it joined: 2 passes find
    phrases of up to 4 tokens."""
    delimiter: str = "_"
    """Text between the tokens of a phrase."""
    connectors: tuple[str, ...] = ()
    """Tokens that may be inside a phrase, as `of` in bank_of_america, but begin and end
    none: of the and."""
    max_pairs: int = 20_000_000
    """Number of different pairs to keep in memory, some 50 bytes each. If there are
    more, the rarest are dropped."""
    unicode_errors: Literal["strict", "replace"] = "strict"
    """If the text is not UTF-8: refuse it, or replace wrong bytes by U+FFFD."""
    topn: int = 10
    """Number of phrases to print, the most frequent first."""
    overwrite: bool = False
    """Replace the files of --to and --list."""


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Show the devices of this machine and how a run would shard its tables."""

    vocabulary: int = 100_000
    """Assumed size of the vocabulary: rows of a table."""
    config: _Config = None
    run: RunOptions = field(default_factory=RunOptions)
    tokens: TokensOptions = field(default_factory=TokensOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    peers: PeersConfig = field(default_factory=PeersConfig)


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Show what is installed, and what is missing for what."""


@dataclass(frozen=True, kw_only=True)
class Neighbors:
    """Print the tokens with the most similar vectors to each word, or the items that
    come next in a session. Without a word: a prompt, which also takes sums as
    `king - man + woman`; or each line of standard input that is no terminal.

    Of a run with replicas: the mean similarity, its interval from the 5th to the 95th
    percentile, and how many replicas have the token among their nearest.
    """

    run: _Run = field(metadata={"positional": "RUN"})
    words: tuple[str, ...] = field(metadata={"positional": "WORD..."})
    """Tokens to look up. Of a run of an encoder: keys of examples, or image files."""
    topn: int = 10
    """Number of neighbours per word."""
    queries: str | None = field(default=None, metadata={"flag": "--from"})
    """Look up all tokens of this file, to --to: a text with one token a line, or a
    table with a column `key`; it may be a URL, and - is standard input."""
    exact: bool = False
    """Compare with all vectors, although there is an index: see embedder index."""
    metric: Literal["cosine", "dot"] = "cosine"
    """dot: the product of two vectors as they are."""
    min_count: int | None = None
    """Only neighbours that occur at least so often in the corpus."""
    max_count: int | None = None
    """Only neighbours that occur at most so often."""
    stable: bool = False
    """Of a run with replicas: sort by the lower end of the interval."""
    session: tuple[str, ...] = ()
    """Items of a session, the newest last: print those expected next, by products of
    input and output vectors as in training; of a file of vectors, or replicas, by
    cosine."""
    attributes: tuple[str, ...] = ()
    """Of a run with attributes: look up the vector of an item with these, as
    category=mugs brand=acme: items most similar to it."""
    decay: float | None = None
    """With --session: weight of an item relative to the next, newer one; 1: all items
    alike; none: 0.5."""
    names: str | None = None
    """Table (CSV, Parquet ...) whose first two columns are keys and names to show, or
    a URL of one; none: the names of the run. A run without names keeps these."""
    name: str | None = None
    """With names: look up the token with this name."""
    where: tuple[str, ...] = field(default=(), metadata={"repeated": "COLUMN=VALUE"})
    """With names: only neighbours whose row has this value, as category=Kitchen, or
    title~mug (contains), or price<5, also with <= > >=. Repeat the flag: all conditions
    must be met, but of several values of a column by = only one."""
    to: Path | None = None
    """Write the columns query, key, rank and similarity, and with names query_name and
    name, to this file, .parquet or .csv: of WORD, of the tokens of --from, or of all
    tokens. With WORD, of a run of an encoder: write the images of each query and of the
    examples nearest to it, .png."""
    key_errors: _KeyErrors = "strict"
    """If RUN is a file of word2vec or GloVe with rows whose key is repeated, white
    space or not UTF-8: refuse it; or skip them, but for the first of a repeated key; or
    replace wrong bytes by U+FFFD, and skip the others. How many is printed."""
    json: bool = False
    """Print a line of JSON for each word or session, with all columns of the names."""


@dataclass(frozen=True, kw_only=True)
class Next:
    """Print the items that come next in a session, by a run that was trained with
    --next-items, as --preset items does: vectors, counts of what follows what, and the
    sessions nearest to it, in one score. With --from: after each session of a file.
    """

    run: _Run = field(metadata={"positional": "RUN"})
    items: tuple[str, ...] = field(metadata={"positional": "ITEM..."})
    """Items of the session, the newest last."""
    topn: int = 10
    """Number of items per session."""
    seen: Literal["exclude", "include"] = "exclude"
    """Whether items of the session can be the next."""
    new_items: float | None = None
    """How often sessions count for items that updates (--grow) added: the more, the
    more often these items come up; none: 2."""
    queries: str | None = field(default=None, metadata={"flag": "--from"})
    """File of sessions: a text with a session a line, or a table of sessions as for
    train. Unknown items are left out."""
    to: Path | None = None
    """With --from: write the columns session, item, rank and score to this file,
    .parquet or .csv. The session is the one of the table, else its number, from 1."""
    session: str = ""
    """With --from, of a table: column of the sessions. A row is an item of one."""
    item: str = ""
    """With --from, of a table: column of the items."""
    order: str = ""
    """With --from, of a table: column by which the items of a session are sorted; none:
    the order of the rows."""
    lists: str = field(default="", metadata={"flag": "--items"})
    """With --from, of a table whose rows are sessions: column of the lists of items."""
    min_count: int | None = None
    """Only items that occur at least so often in the corpus."""
    max_count: int | None = None
    """Only items that occur at most so often."""
    names: str | None = None
    """As of neighbors."""
    where: tuple[str, ...] = field(default=(), metadata={"repeated": "COLUMN=VALUE"})
    """As of neighbors: only items whose row of the names has this value."""
    json: bool = False
    """Print a line of JSON."""


@dataclass(frozen=True, kw_only=True)
class Analogy:
    """Answer "A is to B as C is to ?"."""

    run: _Run = field(metadata={"positional": "RUN"})
    a: str = field(metadata={"positional": "A"})
    """For example man."""
    b: str = field(metadata={"positional": "B"})
    """For example king."""
    c: str = field(metadata={"positional": "C"})
    """For example woman."""
    topn: int = 10
    """Number of answers."""
    names: _Names = None
    where: tuple[str, ...] = field(default=(), metadata={"repeated": "COLUMN=VALUE"})
    """As of neighbors: only answers whose row of names has this value."""
    min_count: int | None = None
    """Only answers that occur at least so often in the corpus."""
    max_count: int | None = None
    """Only answers that occur at most so often."""
    key_errors: _AsOfNeighbors = "strict"
    json: bool = False
    """Print a line of JSON, with all columns of the names."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """Write an index, by which `embedder neighbors` finds most of the nearest tokens
    much faster. Needs usearch, in the extra `index`.

    Its recall is measured beside exact search and printed. Other vectors make it stale;
    then it is not used.
    """

    run: Path = field(metadata={"positional": "RUN"})
    """Folder of a finished run, or a file of vectors, on this machine."""
    metric: Literal["cosine", "dot"] = "cosine"
    """Of the queries that use the index."""
    recall: float = 0.95
    """Share of the ten nearest tokens that a search should find."""
    connectivity: int = 24
    """Edges of a token in the graph. More: more memory, more recall."""
    expansion_add: int = 64
    """Tokens that are compared when one is added. More: slower, more recall."""
    key_errors: _AsOfNeighbors = "strict"


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Say whether two spaces are the same: how far they agree after the best rotation,
    how many nearest tokens they share, and which tokens moved most.

    Of two runs with replicas the intervals are over replicas, beside what replicas of
    one run differ by; else over tokens.
    """

    a: _Run = field(metadata={"positional": "A"})
    b: str = field(metadata={"positional": "B"})
    """As A."""
    topn: int = 10
    """Number of nearest tokens to compare."""
    moved: int = 10
    """Number of tokens that moved most to print; 0: none."""
    min_count: int | None = None
    """Tokens that occur less often in A or B do not count as moved; none: 100, where
    there are counts."""
    seed: int = 0
    """Of the tokens whose neighbours are compared, and of the intervals."""
    key_errors: _AsOfNeighbors = "strict"
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score vectors on held-out data, each score beside a baseline from counting and
    with a 95 % interval; or an encoder.

    Of an encoder: accuracy, negative log likelihood and calibration error, the accuracy
    of the examples that remain when the most uncertain are rejected, and how often the
    nearest examples have the same class.
    """

    run: _Run = field(metadata={"positional": "RUN"})
    sessions: str | None = None
    """Held-out sessions, in a format of training: rank the last item of each by the
    items before it, among all items. May be a URL."""
    session: str = ""
    """With --sessions: the column of sessions, as in training."""
    item: str = ""
    """With --sessions: the column of items."""
    order: str = ""
    """With --sessions: the column of the order of items; none: the order of rows."""
    items: str = ""
    """With --sessions: the column of lists of items."""
    user: str = ""
    """With --sessions: the column of users. Rank the items of the last session of each
    by those of the sessions before."""
    topn: tuple[int, ...] = field(default=(10,), metadata={"repeated": "INT"})
    """With --sessions: the number of items that count as found. Repeat the flag for
    several numbers: MRR is of these, too, then."""
    seen: Literal["exclude", "include", "excluded", "included"] = "exclude"
    """With --sessions: whether items of the query can be the next."""
    score_by: Literal["auto", "output", "cosine"] = "auto"
    """With --sessions: rank by the mean product of input and output vectors, as in
    training, or by the cosine. auto: output, where RUN has the output vectors."""
    decay: float | None = None
    """With --sessions: weight of an item of the query relative to the next, newer one;
    1: all items alike; none: 0.5, with --user 1."""
    targets: Literal["all", "new", "count"] = "all"
    """With --sessions: also scores of cases by their target. new: items that updates
    (--grow) added, and the others. count: by how often an item is in the corpus."""
    new_items: float | None = None
    """With --sessions: of the mixture, as of next."""
    edges: Path | None = None
    """Held-out edges: tell them from as many pairs of nodes without an edge."""
    source: str = ""
    """With --edges: the column of one end, in a table of more than three columns."""
    target: str = ""
    """With --edges: the column of the other end."""
    similarity: Literal["dot", "cosine"] = "cosine"
    """With --edges: the score of two nodes by their vectors."""
    non_edges: int | None = None
    """With --edges: number of pairs without an edge; none: as many as edges."""
    labels: Path | None = None
    """Labels of nodes, lines of a node and its labels: predict them from the vectors
    by logistic regression."""
    train_share: float = 0.5
    """With --labels: share of the nodes whose labels are known."""
    splits: int = 3
    """With --labels: random choices of these nodes; the scores are means."""
    pairs: tuple[Path, ...] = field(default=(), metadata={"repeated": "PATH"})
    """Similarity set: lines of word1, word2 and score, separated by tabs. Repeat the
    flag for several sets."""
    analogies: tuple[Path, ...] = field(default=(), metadata={"repeated": "PATH"})
    """Analogy questions in the format of word2vec. Repeat the flag for several sets."""
    restrict_vocab: int = 30_000
    """Use only this many of the most frequent tokens in analogies."""
    text: str | None = None
    """Held-out text, in a format of training: log likelihood of its tokens."""
    key_errors: _AsOfNeighbors = "strict"
    seed: int = 0
    """Of the intervals, of pairs without an edge, of splits, and of queries."""
    examples: str | None = None
    """Of an encoder: evaluate on these labelled examples, in a format of training;
    none: on the validation examples of the run. They may have classes that the encoder
    was not trained on."""
    picture: Path | None = None
    """Of an encoder: draw a reliability diagram, and accuracy against rejection, to
    this file, .png or .svg. Needs matplotlib, which the extra `plot` has."""
    json: bool = False
    """Print a line of JSON for each file; of an encoder, its evaluation as JSON."""


@dataclass(frozen=True, kw_only=True)
class Embed:
    """Compute vectors of new images or features with the encoder of a run."""

    run: str = field(metadata={"positional": "RUN"})
    """Folder of a run with --model encoder, or a file of FeatureEncoder.save; it may be
    a URL."""
    files: tuple[str, ...] = field(metadata={"positional": "FILE..."})
    """Images, .npy files of features, [n, ...], or data as for training, which need no
    labels: folders of images, .npz, .parquet, .tar, idx; also URLs of them."""
    to: Path | None = None
    """Write the vectors to this file (formats: see export), to .parquet with the
    predicted class of each and its probability; none: print these, and neighbours."""
    topn: int = 3
    """Number of nearest training examples to print."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write vectors to a file or folder, in the format of its suffix or of --format."""

    run: _Run = field(metadata={"positional": "RUN"})
    to: Path
    """.txt or .vec (word2vec text, also .gz), .bin (word2vec binary), .safetensors,
    .npz, .parquet, .faiss (an index, extra `faiss`), .sql (pgvector); of an encoder
    also its network: .stablehlo, or .onnx (extra `onnx`)."""
    format: str | None = None
    """sentence-transformers or model2vec: a folder that this library loads; glove: text
    without a first line of sizes; fasttext-bin: the .bin of fastText, of a run with
    --subwords. The formats of suffixes are word2vec (.txt), fasttext
    (.vec), word2vec-binary, safetensors, npz, parquet, faiss, pgvector (.sql), onnx and
    stablehlo."""
    dtype: Literal["float16", "int8"] | None = None
    """Round vectors to these values, in the formats that have them; none: as trained.
    The share of nearest neighbours that stay is printed."""
    unseen: bool = False
    """Of a run with attributes: write the vectors of items of their table that no
    session has, too, whose counts are 0."""
    pca: int | None = None
    """Write this many principal components of the vectors. The share of nearest
    neighbours that stay is printed."""
    names: str | None = None
    """Table (CSV, Parquet ...) whose first two columns are keys and names: write the
    name and its other columns, too, to .parquet; with --stability also to .csv. None:
    those of the run."""
    replicas: bool = False
    """Of a run with replicas: write the vectors of each, not their mean, to
    .safetensors or .parquet. Of an encoder they are rotated to the first."""
    stability: int | None = None
    """Of a run with replicas: write the counts and the stability of this many of the
    most frequent tokens, to .parquet or .csv."""
    predictions: bool = False
    """Of a run of an encoder: write the class probabilities and the entropies of its
    examples, to .parquet or .safetensors. Of replicas the probabilities are means."""
    parameters: bool = False
    """Of an encoder: write its parameters as arrays module/name, to .safetensors."""
    key_errors: _AsOfNeighbors = "strict"
    card: bool = False
    """Write a card, too: TO.README.md with the facts of the run, the commands that made
    it, scores and their baselines, and how to read the file. Folders have one always.
    """


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a page of HTML about a run: its settings and results, curves, a map of its
    vectors, neighbours, and of an encoder its predictions.

    The map needs Bokeh, which the extra `report` has. A run that is not finished has
    the parts that need no vectors.
    """

    run: Path | None = field(default=None, metadata={"positional": "[RUN]"})
    """Folder of a run, on this machine; it may have diverged or been stopped. None: the
    first one of --compare."""
    to: Path | None = None
    """File to write, .html; none: report.html in the folder of the run, with --compare
    compare.html."""
    compare: tuple[Path, ...] = ()
    """Runs to compare it with: settings that differ, scores and curves side by side."""
    names: str | None = None
    """Table (CSV, Parquet ...) whose first two columns are keys and names to show and
    to search, or a URL of one; none: the names of the run."""
    label: str | None = None
    """With names: a column of their table to colour the map by."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Show a run while another process trains it: curves, the latest scores, and the
    neighbours of a few words at the newest checkpoint. Nothing is written to it.

    Ends with the run, or by Ctrl-C. A run that is not started is waited for.
    """

    run: _LocalRun = field(metadata={"positional": "RUN"})
    probe: tuple[str, ...] = ()
    """Words whose neighbours are shown; none: some frequent tokens."""
    names: _Names = None
    every: float = 2.0
    """Seconds between two looks."""
    once: bool = False
    """Print what there is now, and exit; so does output that is no terminal."""


@dataclass(frozen=True, kw_only=True)
class Convert:
    """Make a run from a file of EmbeddingTrainer.save, or such a file from a run."""

    source: Path = field(metadata={"positional": "SOURCE"})
    """Model file, or folder of a run."""
    target: Path = field(metadata={"positional": "TARGET"})
    """Folder of the new run, or the model file to write."""
    overwrite: bool = False
    """Replace TARGET if it exists."""
    force_lock: bool = False
    """Write to the folder although its lock file names another host."""


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Check the files of a run against their checksums, and say how to repair damage.

    The exit code is 1 if a file is damaged or missing.
    """

    run: _LocalRun = field(metadata={"positional": "RUN"})


@dataclass(frozen=True, kw_only=True)
class Parity(Settings):
    """Compare this trainer with the NumPy trainer, stage by stage, on a corpus."""

    corpus: str | None = None
    """A text file (.txt, .gz), a glob, or a folder; none: the demo corpus. For an
    encoder: idx, npz or parquet files."""
    config: _Config = None
    words: int = 2_000_000
    """Train on this many words (encoder: examples) of the corpus; 0: all."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of the whole trainings, compared with the NumPy trainer in two processes.
    """
    stages: tuple[str, ...] = ()
    """Stages to compare; none: all. For tokens: vocabulary, distributions, blocks,
    loss, "row gradients", "one update", "100 updates", "whole epoch", replicas,
    bootstrap, "row factors", "model update", resume, converters, neighbours, workers.
    For an encoder: batches, loss, gradients, "one update", "100 updates", "whole
    epoch", replicas, bootstrap, objectives, networks, files; with --network of images:
    networks.
    """
    pairs: tuple[Path, ...] = field(default=(), metadata={"repeated": "PATH"})
    """Similarity set to score the whole trainings on. Repeat the flag for several."""
    analogies: tuple[Path, ...] = field(default=(), metadata={"repeated": "PATH"})
    """Analogy questions to score the whole trainings on. Repeat the flag for several.
    """
    json: bool = False
    """Print JSON."""


VERBS_BY_PURPOSE = {
    "Train": (Train, Sweep, Phrases),
    "Look at a run": (Watch, Report, Verify),
    "Use vectors": (Neighbors, Next, Analogy, Index, Embed, Export, Convert),
    "Measure": (Evaluate, Compare, Parity),
    "This machine": (Doctor, Devices),
}
"""The verbs as `embedder --help` shows them."""
VERBS: dict[str, type] = {
    verb.__name__.lower(): verb for verbs in VERBS_BY_PURPOSE.values() for verb in verbs
}
"""Each verb by its name on the command line."""
