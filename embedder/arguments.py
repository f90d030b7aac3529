"""What the command line takes: a dataclass for each verb, with the text of its help."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from embedder.encoders.options import EncoderOptions
from embedder.options import DeviceOptions, PeersConfig, RunOptions, SaveOptions
from embedder.presets import Preset
from embedder.tables.options import TablesOptions

_Text = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="CORPUS")]
_Corpus = Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[CORPUS]")]
_Run = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
_LocalRun = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
_Source = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")]
_Target = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TARGET")]
_Words = Annotated[
    tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="WORD...")
]

_From = Annotated[str | None, tyro.conf.arg(name="from")]
_Where = tyro.conf.UseAppendAction[
    Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN=VALUE")]
]


@dataclass(frozen=True)
class Train:
    """Train embeddings of the tokens of a text (the demo corpus if none is given). With
    --model encoder: embeddings of features or images, by their labels; of images also
    without labels, by --objective simclr.

    Give the same command again, or --workdir alone, to resume a run that was stopped.
    """

    corpus: _Corpus = None
    """A text file (.txt, .gz) with one sequence per line, a glob, or a folder; `-`:
    standard input. For an encoder: idx, npz or parquet files, or a folder of images.
    Each may be a URL: s3://, gs://, https://, hf://."""
    workdir: Path | None = None
    """Folder of the run; none: embedder-NAME in the current folder."""
    config: Path | None = None
    """TOML file of settings. Flags override it."""
    preset: Preset = "none"
    """Defaults for a kind of data: items of sessions, words of a text, or nodes of a
    graph. --config and flags override it."""
    cache: Path | None = None
    """Folder of encoded corpora and copies of remote data, which runs can share; none:
    cache in the workdir, for copies the cache folder of the user."""
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
    force_lock: bool = False
    """Write to the workdir although its lock file names another host."""
    dry_run: bool = False
    """Print the settings, devices and memory of the run, and exit."""
    verbose: bool = False
    """Print details as well: the updates, memory, devices, the time to compile."""
    peers: PeersConfig = field(default_factory=PeersConfig)
    run: RunOptions = field(default_factory=RunOptions)
    tokens: TablesOptions = field(default_factory=TablesOptions)
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    save: SaveOptions = field(default_factory=SaveOptions)


@dataclass(frozen=True)
class Sweep:
    """Try settings side by side, and find the best.

    SPACE is a TOML file with the values or the range of each setting to try, as
    `window = [2, 5, 10]` or `alpha = { low = 0.01, high = 0.1, scale = "log" }`. A
    range with `steps` is that many values; without, it is searched (extra: sweep).
    Trial 0 has the settings as given. Give the same command again to resume.
    """

    space: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SPACE")]
    """TOML file of the settings to try."""
    corpus: _Corpus = None
    """As of train."""
    workdir: Path = Path("embedder-sweep")
    """Folder of the sweep: trials.csv, best.toml, and a picture, trials.svg."""
    best: Path | None = None
    """Train the best settings once more, as an ordinary run in this folder."""
    score: Literal[
        "auto", "held-out", "next-item", "pairs", "val-loss", "val-accuracy"
    ] = "auto"
    """held-out: log likelihood of sequences that are not trained on. next-item: share
    of these whose last item is among the ten that the others predict. pairs:
    correlation with --pairs. val-loss, val-accuracy: of an encoder. auto: held-out,
    for an encoder val-loss."""
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
    config: Path | None = None
    """TOML file of settings. Flags override it."""
    preset: Preset = "none"
    """Defaults for a kind of data: items of sessions, words of a text, or nodes of a
    graph. --config and flags override it."""
    cache: Path | None = None
    """Folder of encoded corpora and copies of remote data, which runs can share; none:
    cache in the workdir, for copies the cache folder of the user."""
    overwrite: bool = False
    """Delete the sweep in the workdir and start again."""
    force_lock: bool = False
    """Write to the workdir although its lock file names another host."""
    dry_run: bool = False
    """Print the trials and the memory of those side by side, and exit."""
    verbose: bool = False
    """Print details as well: the updates, memory, devices, the time to compile."""
    run: RunOptions = field(default_factory=RunOptions)
    tokens: TablesOptions = field(default_factory=TablesOptions)
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    save: SaveOptions = field(default_factory=SaveOptions)


@dataclass(frozen=True)
class Phrases:
    """Find phrases in a text, pairs of tokens that occur together more often than
    chance, and write the text with them joined, as new_york, to train on."""

    corpus: _Text
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


@dataclass(frozen=True)
class Devices:
    """Show the devices of this machine and how a run would shard its tables."""

    vocabulary: int = 100_000
    """Assumed size of the vocabulary: rows of a table."""
    peers: PeersConfig = field(default_factory=PeersConfig)
    config: Path | None = None
    """TOML file of settings. Flags override it."""
    run: RunOptions = field(default_factory=RunOptions)
    tokens: TablesOptions = field(default_factory=TablesOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)


@dataclass(frozen=True)
class Neighbors:
    """Print the tokens with the most similar vectors to each word, or the items that
    come next in a session. Without a word: a prompt, which also takes sums as
    `king - man + woman`; or each line of standard input that is no terminal.

    Of a run with replicas: the mean similarity, its interval from the 5th to the 95th
    percentile, and how many replicas have the token among their nearest.
    """

    run: _Run
    """Folder of a finished run, or a file of vectors; it may be a URL."""
    words: _Words
    """Tokens to look up. Of a run of an encoder: keys of examples, or image files."""
    topn: int = 10
    """Number of neighbours per word."""
    queries: _From = None
    """Look up all tokens of this file, to --to: a text with one token a line, or a
    table with a column `key`; it may be a URL."""
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
    decay: float | None = None
    """With --session: weight of an item relative to the next, newer one; 1: all items
    alike; none: 0.5."""
    names: str | None = None
    """Table (CSV, Parquet ...) whose first two columns are keys and names to show; it
    may be a URL."""
    name: str | None = None
    """With --names: look up the token with this name."""
    where: _Where = ()
    """With --names: only neighbours whose row has this value, as category=Kitchen, or
    title~mug (contains), or price<5, also with <= > >=. Repeat the flag: all conditions
    must be met, but of several values of a column by = only one."""
    to: Path | None = None
    """With --from: write the columns query, key, rank and similarity to this file,
    .parquet or .csv. Else of a run of an encoder: write the images of each query and of
    the examples nearest to it, .png."""
    json: bool = False
    """Print a line of JSON for each word or session, with all columns of --names."""


@dataclass(frozen=True)
class Analogy:
    """Answer "A is to B as C is to ?"."""

    run: _Run
    """Folder of a finished run, or a file of vectors; it may be a URL."""
    a: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="A")]
    """For example man."""
    b: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="B")]
    """For example king."""
    c: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="C")]
    """For example woman."""
    topn: int = 10
    """Number of answers."""
    names: str | None = None
    """Table (CSV, Parquet ...) whose first two columns are keys and names to show."""
    where: _Where = ()
    """As of neighbors: only answers whose row in --names has this value."""
    min_count: int | None = None
    """Only answers that occur at least so often in the corpus."""
    max_count: int | None = None
    """Only answers that occur at most so often."""
    json: bool = False
    """Print a line of JSON, with all columns of --names."""


@dataclass(frozen=True)
class Index:
    """Write an index, by which `embedder neighbors` finds most of the nearest tokens
    much faster. Needs usearch, in the extra `index`.

    Its recall is measured beside exact search and printed. Other vectors make it stale;
    then it is not used.
    """

    run: _LocalRun
    """Folder of a finished run, or a file of vectors, on this machine."""
    metric: Literal["cosine", "dot"] = "cosine"
    """Of the queries that use the index."""
    recall: float = 0.95
    """Share of the ten nearest tokens that a search should find."""
    connectivity: int = 24
    """Edges of a token in the graph. More: more memory, more recall."""
    expansion_add: int = 64
    """Tokens that are compared when one is added. More: slower, more recall."""


@dataclass(frozen=True)
class Compare:
    """Say whether two spaces are the same: how far they agree after the best rotation,
    how many nearest tokens they share, and which tokens moved most.

    Of two runs with replicas the intervals are over replicas, beside what replicas of
    one run differ by; else over tokens.
    """

    a: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="A")]
    """Folder of a finished run, or a file of vectors; it may be a URL."""
    b: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="B")]
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
    json: bool = False
    """Print JSON."""


@dataclass(frozen=True)
class Evaluate:
    """Score vectors on held-out data, each score beside a baseline from counting and
    with a 95 % interval; or an encoder.

    Of an encoder: accuracy, negative log likelihood and calibration error, the accuracy
    of the examples that remain when the most uncertain are rejected, and how often the
    nearest examples have the same class.
    """

    run: _Run
    """Folder of a finished run, or a file of vectors; it may be a URL."""
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
    topn: int = 10
    """With --sessions: the number of items that count as found."""
    seen: Literal["excluded", "included"] = "excluded"
    """With --sessions: whether items of the query can be the next."""
    score_by: Literal["auto", "output", "cosine"] = "auto"
    """With --sessions: rank by the mean product of input and output vectors, as in
    training, or by the cosine. auto: output, where RUN has the output vectors."""
    decay: float | None = None
    """With --sessions: weight of an item of the query relative to the next, newer one;
    1: all items alike; none: 0.5, with --user 1."""
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
    pairs: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Similarity set: lines of word1, word2 and score, separated by tabs. Repeat the
    flag for several sets."""
    analogies: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Analogy questions in the format of word2vec. Repeat the flag for several sets."""
    restrict_vocab: int = 30_000
    """Use only this many of the most frequent tokens in analogies."""
    text: str | None = None
    """Held-out text, in a format of training: log likelihood of its tokens."""
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


@dataclass(frozen=True)
class Embed:
    """Compute vectors of new images or features with the encoder of a run."""

    run: _Run
    """Folder of a run with --model encoder, or a file of FeatureEncoder.save; it may be
    a URL."""
    files: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE...")
    ]
    """Images, .npy files of features, [n, ...], or data as for training, which need no
    labels: folders of images, .npz, .parquet, .tar, idx; also URLs of them."""
    to: Path | None = None
    """Write the vectors to this file (formats: see export), to .parquet with the
    predicted class of each and its probability; none: print these, and neighbours."""
    topn: int = 3
    """Number of nearest training examples to print."""


@dataclass(frozen=True)
class Export:
    """Write vectors to a file or folder, in the format of its suffix or of --format."""

    run: _Run
    """Folder of a finished run, or a file of vectors; it may be a URL."""
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
    pca: int | None = None
    """Write this many principal components of the vectors. The share of nearest
    neighbours that stay is printed."""
    names: str | None = None
    """Table (CSV, Parquet ...) whose first two columns are keys and names: write the
    name and its other columns, too, to .parquet; with --stability also to .csv."""
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
    card: bool = False
    """Write a card, too: TO.README.md with the facts of the run, the commands that made
    it, scores and their baselines, and how to read the file. Folders have one always.
    """


@dataclass(frozen=True)
class Report:
    """Write a page of HTML about a run: its settings and results, curves, a map of its
    vectors, neighbours, and of an encoder its predictions.

    The map needs Bokeh, which the extra `report` has. A run that is not finished has
    the parts that need no vectors.
    """

    run: Annotated[
        tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN]")
    ] = None
    """Folder of a run, on this machine; it may have diverged or been stopped. None: the
    first one of --compare."""
    to: Path | None = None
    """File to write, .html; none: report.html in the folder of the run, with --compare
    compare.html."""
    compare: tuple[Path, ...] = ()
    """Runs to compare it with: settings that differ, scores and curves side by side."""
    names: str | None = None
    """Table (CSV, Parquet ...) whose first two columns are keys and names to show and
    to search; it may be a URL."""
    label: str | None = None
    """With --names: a column of it to colour the map by."""


@dataclass(frozen=True)
class Watch:
    """Show a run while another process trains it: curves, the latest scores, and the
    neighbours of a few words at the newest checkpoint. Nothing is written to it.

    Ends with the run, or by Ctrl-C. A run that is not started is waited for.
    """

    run: _LocalRun
    """Folder of a run, on this machine."""
    probe: tuple[str, ...] = ()
    """Words whose neighbours are shown; none: some frequent tokens."""
    names: str | None = None
    """Table (CSV, Parquet ...) whose first two columns are keys and names to show."""
    every: float = 2.0
    """Seconds between two looks."""
    once: bool = False
    """Print what there is now, and exit; so does output that is no terminal."""


@dataclass(frozen=True)
class Convert:
    """Make a run from a file of EmbeddingTrainer.save, or such a file from a run."""

    source: _Source
    """Model file, or folder of a run."""
    target: _Target
    """Folder of the new run, or the model file to write."""
    overwrite: bool = False
    """Replace TARGET if it exists."""
    force_lock: bool = False
    """Write to the folder although its lock file names another host."""


@dataclass(frozen=True)
class Verify:
    """Check the files of a run against their checksums, and say how to repair damage.

    The exit code is 1 if a file is damaged or missing.
    """

    run: _LocalRun
    """Folder of a run, on this machine."""


@dataclass(frozen=True)
class Parity:
    """Compare this trainer with the NumPy trainer, stage by stage, on a corpus."""

    corpus: str | None = None
    """A text file (.txt, .gz), a glob, or a folder; none: the demo corpus. For an
    encoder: idx, npz or parquet files."""
    config: Path | None = None
    """TOML file of settings. Flags override it."""
    words: int = 2_000_000
    """Train on this many words (encoder: examples) of the corpus; 0: all."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Seeds of the whole trainings, compared with the NumPy trainer in two processes.
    """
    rungs: tuple[str, ...] = ()
    """Stages to compare; none: all. For tokens: vocabulary, distributions, blocks,
    loss, "row gradients", "one update", "100 updates", "whole epoch", replicas,
    bootstrap, "row factors", "model update", resume, converters, neighbours, workers.
    For an encoder: batches, loss, gradients, "one update", "100 updates", "whole
    epoch", replicas, bootstrap, objectives, networks, files; with --network of images:
    networks.
    """
    pairs: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Similarity set to score the whole trainings on. Repeat the flag for several."""
    analogies: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Analogy questions to score the whole trainings on. Repeat the flag for several.
    """
    json: bool = False
    """Print JSON."""
    run: RunOptions = field(default_factory=RunOptions)
    tokens: TablesOptions = field(default_factory=TablesOptions)
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)


Verb = (
    Train
    | Sweep
    | Phrases
    | Devices
    | Neighbors
    | Analogy
    | Index
    | Compare
    | Evaluate
    | Embed
    | Export
    | Report
    | Watch
    | Convert
    | Verify
    | Parity
)
VERBS = {verb.__name__.lower(): verb for verb in Verb.__args__}
"""Each verb by its name on the command line."""
