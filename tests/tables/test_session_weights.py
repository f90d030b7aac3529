"""Weights of sessions: from the column of a table to the vectors."""

import dataclasses
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest

from embedder import EmbeddingTrainer
from embedder.cli import main
from embedder.config import Config, replicas_of, resolve, with_options
from embedder.disk.digests import files_in, write_digests
from embedder.engine.bootstrap import draws_of_shards, multiplicities
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError
from embedder.tables import blocks, row_sort, sessions
from embedder.tables.blocks import BlockShape, BlockSource, block_source
from embedder.tables.chunks import Chunk
from embedder.tables.columns import Columns
from embedder.tables.corpus import Corpus, sequences_corpus
from embedder.tables.encode import encode, encode_cached
from embedder.tables.encoded import Encoded, SequenceWeights
from embedder.tables.memory import memory_needed
from embedder.tables.sessions import frame_corpus
from embedder.tables.shards import EncodedChunk, cut_shards
from embedder.tables.sources import file_corpus
from embedder.tables.training import Training
from tests.commands import error_line
from tests.tables.reruns import check_goes_on, check_loaders

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "1"]
SHAPE = BlockShape(window=3, block=8, tile=4, noise=5, blocks_per_update=2)
WEIGHTS = (0.25, 1, 2.5, 3)
COLUMNS = Columns(weights="w")
BOTH = pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
COMPILERS = pytest.mark.parametrize("backend", ["xla", "numba"])
PRECISE = {"xla": ("float64", 1e-12), "numba": ("float32", 0)}
"""dtype and tolerance of each: XLA rounds by what it fuses, and weights are another
input; the kernel has the same code for all weights."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def weight_of(session: int) -> float:
    return (0, *WEIGHTS)[session % 5]


def table(num: int = 300) -> pl.DataFrame:
    """Rows in random order; some without a weight, some with weight 0."""
    rng = random.Random(0)
    rows = [(rng.randrange(20), f"i{rng.randrange(9)}", n) for n in range(num)]
    frame = pl.DataFrame(rows, schema=["session", "item", "time"], orient="row")
    weights = [None if n % 37 == 5 else weight_of(s) for s, _, n in rows]
    return frame.with_columns(pl.Series("w", weights, pl.Float64))


def grouped(frame: pl.DataFrame) -> list[tuple[list[str], float]]:
    """The sessions and their weights, by plain Python."""
    found: dict[str, list[str]] = {}
    for session, item, _, weight in sorted(frame.rows(), key=lambda row: row[2]):
        if weight:
            found.setdefault(str(session), []).append(item)
    return [(found[key], weight_of(int(key))) for key in sorted(found)]


def read(corpus: Corpus) -> list[tuple[list[str], float]]:
    found = []
    for chunk in corpus.chunks():
        tokens, ends = chunk.tokens.to_list(), np.cumsum(chunk.lengths).tolist()
        assert chunk.weights.dtype == np.float32
        weights = chunk.weights.tolist()
        bounds = zip([0, *ends], ends, weights, strict=False)
        found += [(tokens[a:b], weight) for a, b, weight in bounds if a < b]
    return found


def one(items: list, weights: list, **columns) -> pl.LazyFrame:
    """A table with a row for each item; one session unless `session` is given."""
    columns = {"session": ["s"] * len(items)} | columns
    return pl.LazyFrame({**columns, "item": items, "w": weights}, strict=False)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_sessions_have_the_weights_of_their_rows(name):
    writer = {".parquet": "write_parquet", ".csv": "write_csv"}
    getattr(table(), writer.get(Path(name).suffix, "write_ndjson"))(name)
    assert read(file_corpus(name, columns=COLUMNS)) == grouped(table())


@pytest.mark.spread(1)
@pytest.mark.parametrize("run_rows", [1, 7, 64])
def test_sorting_in_runs_of_any_size_is_the_same(monkeypatch, run_rows):
    monkeypatch.setattr(row_sort, "RUN_ROWS", run_rows)
    monkeypatch.setattr(sessions, "_BATCH_ROWS", 5)
    table().write_parquet("a.parquet", row_group_size=10)
    assert read(file_corpus("a.parquet", columns=COLUMNS)) == grouped(table())


def test_what_is_left_out_is_logged(caplog):
    caplog.set_level(logging.INFO)
    frame = table()
    read(frame_corpus(frame.lazy(), COLUMNS, "a.csv"))
    missing = frame["w"].null_count()
    with_zero = frame.filter(pl.col("w") == 0)["session"].n_unique()
    assert with_zero == 4
    assert (
        "Corpus a.csv is read as sessions: `item` by `session`, in the order of "
        "`time`, with the weights `w`."
    ) in caplog.messages
    assert (
        "Corpus a.csv: rows without a value in session or item or time or w, left out: "
        f"{missing} of 300."
    ) in caplog.messages
    assert "Corpus a.csv: sessions with weight 0 in w, left out: 4." in caplog.messages


def test_lists_have_weights(caplog):
    baskets = [["a", None, "b"], ["c"], ["d"], None, ["e", ""], ["f"]]
    weights = [2, 0, None, 3, 0.5, 1]
    frame = pl.LazyFrame({"basket": baskets, "w": weights}, strict=False)
    expected = [(["a", "b"], 2.0), (["e"], 0.5), (["f"], 1.0)]
    assert read(frame_corpus(frame, COLUMNS, "the table")) == expected
    assert (
        "Corpus the table: sessions with weight 0 or without a weight in w, left out: "
        "2." in caplog.messages
    )
    assert "rows without a value in basket, left out: 2 of 6." in caplog.text


@pytest.mark.parametrize("cells", [["2", " 2", "2"], ["", "2", ""]])
def test_weights_of_csv_files_are_text(cells):
    corpus = frame_corpus(one(["a", "b", "c"], cells), COLUMNS)
    if " 2" not in cells:
        assert read(corpus) == [(["b"], 2.0)]
        return
    with pytest.raises(InputError, match="has ' 2'"):
        read(corpus)


def test_a_column_is_never_found_by_its_name():
    frame = one(["a", "b"], [2.0, 2.0])
    for name in ("weight", "weights"):
        corpus = frame_corpus(frame.rename({"w": name}))
        assert [chunk.weights for chunk in corpus.chunks()] == [None]


def test_a_column_of_weights_is_not_the_order():
    frame = one(["a", "b"], [2, 2]).rename({"w": "rank"})
    corpus = frame_corpus(frame, Columns(weights="rank"))
    assert read(corpus) == [(["a", "b"], 2.0)]
    (facts,) = corpus.manifest
    assert (facts["columns"]["order"], facts["columns"]["weights"]) == ("none", "rank")


@pytest.mark.row("B32")
@pytest.mark.parametrize(
    ("weights", "shown"),
    [
        ([1, -1], "-1"),
        ([1.0, float("nan")], "nan"),
        ([float("inf")] * 2, "inf"),
        ([1e-7] * 2, "1e-07"),
        ([1e7] * 2, "10000000.0"),
        (["1", "two"], "'two'"),
        (["1", "nan"], "'nan'"),
        (["-0.5", "1"], "'-0.5'"),
    ],
)
@pytest.mark.parametrize("kind", ["rows", "lists"])
def test_wrong_weights_are_refused(weights, shown, kind):
    frame = one(["a", "b"], weights)
    if kind == "lists":
        frame = pl.LazyFrame({"basket": [["a"], ["b"]], "w": weights})
    message = (
        "`weights` must be a column of numbers from 1e-06 to 1000000.0, or 0 to leave "
        f"a session out: `w` of a.csv has {shown}."
    )
    with pytest.raises(InputError) as found:
        read(frame_corpus(frame, COLUMNS, "a.csv"))
    assert str(found.value) == message


@pytest.mark.row("B32")
@pytest.mark.parametrize("second", [2.0, 0.0])
def test_two_weights_in_a_session_are_refused(second):
    session = ["s", "t", "t", "t"]
    frame = one(list("abcd"), [3.0, 1.5, 1.5, second], session=session)
    with pytest.raises(InputError) as found:
        read(frame_corpus(frame, COLUMNS, "a.csv"))
    assert str(found.value) == (
        "`weights` must be the same in all rows of a session: session 't' has 1.5 and "
        f"{second} in `w` of a.csv. Give each session one number, as the mean or the "
        "largest of its rows."
    )


@pytest.mark.row("B32")
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"weights": "v"}, "`weights` must be a column of the corpus, got 'v'"),
        ({"weights": "flag"}, "`weights` must be a column of numbers, got 'flag' of B"),
        ({"weights": "item", "item": "item"}, "`weights` must be different columns"),
        ({"items": "item", "weights": "item"}, "`weights` must be different columns"),
    ],
)
def test_wrong_columns_are_refused(columns, message):
    frame = one(["a", "b"], [1, 1], flag=[True, False])
    with pytest.raises(InputError, match=message):
        frame_corpus(frame, Columns(**columns))


@pytest.mark.row("B32")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.txt"], "sessions in tables, got 'w' for text: give --session and --item"),
        ([], "sessions in tables, got 'w' for the demo corpus"),
        (["a.tsv", "--walks", "2"], "got 'w' with `walks` = 2. The column of the "),
        (["a.txt", "--model", "encoder"], "weights"),
    ],
)
def test_what_has_no_weights_is_refused(capsys, arguments, message):
    Path("a.txt").write_text("x y z\n" * 30)
    Path("a.tsv").write_text("x\ty\ny\tz\n")
    assert main(["train", *arguments, "--weights", "w", "--workdir", "run"]) == 2
    assert message in error_line(capsys)
    assert not Path("run/config.toml").exists()


@pytest.mark.row("B32")
def test_lists_in_python_have_no_weights():
    with pytest.raises(InputError, match=r"only to tables, got \('w',\) for sequences"):
        EmbeddingTrainer().fit([["a", "b"]], weights="w")


def test_sequences_that_are_cut_keep_their_weight(monkeypatch):
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 4)
    lengths = np.array([3, 10, 0, 2, 4, 1])
    ids = np.arange(20, dtype=np.int32)
    ids[[0, 13, 14]] = -1  # so the fourth sequence is empty
    weights = np.array([1, 2, 3, 4, 5, 6], np.float32)
    found = [*cut_shards([EncodedChunk(ids, lengths, False, weights)])]
    assert [part.lengths.tolist() for part in found] == [[2], [4], [4], [2], [4], [1]]
    assert [part.weights.tolist() for part in found] == [[1], [2], [2], [2], [5], [6]]
    assert (
        np.concatenate([part.ids for part in found]).tolist() == ids[ids >= 0].tolist()
    )


def test_weights_of_open_sequences_and_of_many_chunks(monkeypatch):
    """Whole chunks, and chunks that cut sequences, give the same shards."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 9, 60)
    weights = rng.choice(np.array(WEIGHTS, np.float32), 60)
    ids = np.arange(lengths.sum(), dtype=np.int32)
    ends = np.cumsum(lengths)
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 40)

    def pieces(size: int):
        for start in range(0, len(ids), size):
            stop = min(start + size, len(ids))
            here = np.flatnonzero((ends > start) & (ends - lengths < stop))
            cut_here = np.minimum(ends[here], stop) - np.maximum(
                (ends - lengths)[here], start
            )
            is_open = bool(ends[here[-1]] > stop)
            yield EncodedChunk(ids[start:stop], cut_here, is_open, weights[here])

    whole, *others = (
        [*cut_shards(pieces(size))] for size in (len(ids), 1000, 33, 7, 1)
    )
    assert len(whole) > 4
    assert np.concatenate([part.weights for part in whole]).tolist() == (
        weights[lengths > 0].tolist()
    )
    of_token = np.concatenate([part.weights.repeat(part.lengths) for part in whole])
    for other in others:
        np.testing.assert_array_equal(
            np.concatenate([part.weights.repeat(part.lengths) for part in other]),
            of_token,
        )


def weighted_corpus(sequences, weights: Callable[[int], float] | None) -> Corpus:
    """A corpus whose i-th sequence has a weight, in chunks of 50."""
    manifest = [{"sequences": str(weights and [weights(i) for i in range(9)])}]

    def chunks():
        for first in range(0, len(sequences), 50):
            part = sequences[first : first + 50]
            found = None
            if weights is not None:
                numbers = range(first, first + len(part))
                found = np.array([weights(i) for i in numbers], np.float32)
            tokens = pl.Series([token for each in part for token in each])
            yield Chunk(tokens, np.array([*map(len, part)]), False, found)

    return Corpus("corpus", "corpus", manifest, chunks)


def by_number(number: int) -> float:
    return WEIGHTS[number % 4]


def test_a_cache_has_the_weights_that_memory_has(monkeypatch, sequences):
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 1000)
    corpus = weighted_corpus(sequences, by_number)
    expected = encode(corpus, 1)
    whole = [by_number(i) for i, each in enumerate(sequences) if each]
    for _ in range(2):  # as it is written, and as it is read
        found = encode_cached(corpus, 1, Path("cache"))
        assert (found.content, found.description) == (
            expected.content,
            expected.description,
        )
        weights = [found.weights(z) for z in range(len(found.shard_tokens))]
        assert len(weights) > 3
        assert np.concatenate(weights).tolist() == whole
        for z, each in enumerate(weights):
            assert each.dtype == np.float32
            np.testing.assert_array_equal(each, expected.weights(z))
            np.testing.assert_array_equal(found.read(z)[1], expected.read(z)[1])
    assert f"mean weight of a session {np.mean(whole):.4g}" in found.description
    assert sorted(np.load(next(Path("cache").rglob("*.npz")))) == [
        *("ids", "lengths", "weights")
    ]


def test_a_cache_without_weights_is_as_it_always_was():
    encoded = encode_cached(
        sequences_corpus([["b", "a", "b"], ["x"], [], ["a", "c", "b", "c"]]),
        1,
        Path("cache"),
    )
    (folder,) = Path("cache").iterdir()
    assert folder.name == "5650b5307a574896"
    assert sorted(np.load(folder / "shard-00000.npz")) == ["ids", "lengths"]
    assert json.loads((folder / "shards.json").read_text()) == {
        "raw_tokens": 8,
        "shard_tokens": [8],
        "dropped_types": 0,
    }
    assert not encoded.has_weights and encoded.weights(0) is None
    assert encoded.content == encoded.vocabulary.digest


WRONG: dict[str, Callable[[np.ndarray], np.ndarray | None]] = {
    "missing": lambda weights: None,
    "long": lambda weights: np.append(weights, weights[:1]),
    "double": lambda weights: weights.astype(np.float64),
    "wide": lambda weights: weights[np.newaxis],
    "negative": lambda weights: -weights,
    "zero": lambda weights: 0 * weights,
    "nan": lambda weights: weights * np.float32(np.nan),
    "inf": lambda weights: weights * np.float32(np.inf),
}


@pytest.mark.row("B32")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_cache_with_wrong_weights_is_damaged(sequences, wrong):
    corpus = weighted_corpus(sequences, by_number)
    encode_cached(corpus, 1, Path("cache"))
    (path,) = Path("cache").rglob("shard-00000.npz")
    arrays = dict(np.load(path))
    arrays["weights"] = WRONG[wrong](arrays["weights"])
    np.savez(path, **{k: x for k, x in arrays.items() if x is not None})
    write_digests(path.parent, files_in(path.parent))
    encoded = encode_cached(corpus, 1, Path("cache"))
    with pytest.raises(InputError, match="Cache file .*shard-00000.npz is damaged"):
        encoded.weights(0)


@pytest.fixture
def encoded(monkeypatch, sequences) -> Encoded:
    """Several shards of the sequences, with weights."""
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 1000)
    return encode(weighted_corpus(sequences, by_number), 1)


def with_weights(encoded: Encoded, change: Callable | None) -> Encoded:
    """`encoded` with other weights; None: with none."""
    old = encoded.sequence_weights
    new = None
    if change is not None:
        new = SequenceWeights(lambda z: change(old.read(z)), "changed", 1.0)
    return dataclasses.replace(encoded, sequence_weights=new)


def source(encoded: Encoded, **changes) -> BlockSource:
    settings = dict(sample=0.0, ns_exponent=0.75, seed=1, epochs=range(2))
    return block_source(encoded, SHAPE, **(settings | changes))


@pytest.mark.parametrize("bootstrap", [False, True])
def test_blocks_have_the_weights_times_the_multiplicities(encoded, bootstrap):
    made = source(encoded, bootstrap=bootstrap)
    draws = draws_of_shards(encoded.shard_sequences, 1)
    for index, shard in enumerate(made.shard_order(0)):
        expected = encoded.weights(shard)
        if bootstrap:
            size = len(expected), int(draws[shard])
            expected = expected * multiplicities(int(shard), *size, 1)
        found = made.updates(0, index).blocks
        assert found.weight.dtype == made.specs.blocks.weight.dtype == np.float32
        is_token = found.sequence >= 0
        weights = found.weight[is_token]
        np.testing.assert_array_equal(weights, expected[found.sequence[is_token]])
        assert {*found.sequence[is_token]} == {*np.flatnonzero(expected)}
        assert not found.weight[~is_token].any()


def test_all_but_the_weights_is_as_without_them(encoded):
    ours, theirs = (
        source(each).updates(1, 1)
        for each in (encoded, with_weights(encoded, change=None))
    )
    assert theirs.blocks.weight is None
    without = ours._replace(blocks=ours.blocks._replace(weight=None))
    jax.tree.map(np.testing.assert_array_equal, without, theirs)


@pytest.mark.slow  # TensorFlow is imported
@pytest.mark.parametrize("after", [(0, -1), (1, 4)])
def test_both_loaders_give_the_same_blocks_from_any_position(encoded, after):
    made = source(encoded)
    assert check_loaders(made, after).blocks.weight is not None


def config(**changes) -> Config:
    settings = dict(epochs=2, vector_size=8, min_count=1, mode="jit", loader="memory")
    return with_options(Config(), **(settings | {"sample": 0.01} | changes))


def trained(given: Config, encoded: Encoded) -> tuple[dict[str, np.ndarray], float]:
    """The tables after all epochs, and the loss of the last."""
    resolved = resolve(given, encoded.num_tokens)
    training = Training(resolved, encoded, range(given.run.epochs))
    end = run_epochs(training, training.initial_state())
    return end.state.params["tables"], end.position.losses[-1]


def assert_same(ours, theirs, **tolerance) -> None:
    for name, table in theirs[0].items():
        np.testing.assert_allclose(ours[0][name], table, **tolerance)
    np.testing.assert_allclose(ours[1], theirs[1], **tolerance)


@pytest.mark.slow
@COMPILERS
@BOTH
def test_weights_of_one_are_no_weights(encoded, architecture, backend):
    dtype, tolerance = PRECISE[backend]
    given = config(architecture=architecture, backend=backend, dtype=dtype)
    ones = trained(given, with_weights(encoded, np.ones_like))
    none = trained(given, with_weights(encoded, change=None))
    assert_same(ones, none, rtol=tolerance, atol=tolerance)
    other = trained(given, encoded)
    assert (other[0]["input"] != none[0]["input"]).any()


@pytest.mark.spread(1)
@COMPILERS
@BOTH
def test_integer_weights_are_multiplicities(
    monkeypatch, encoded, architecture, backend
):
    """The run with a bootstrap that draws each sequence as often as its weight is."""
    integers = with_weights(encoded, lambda weights: np.ceil(weights))
    dtype, tolerance = PRECISE[backend]
    given = config(architecture=architecture, backend=backend, dtype=dtype)
    weighted = trained(given, integers)
    monkeypatch.setattr(
        blocks,
        "multiplicities",
        lambda shard, *rest: integers.weights(shard).astype(np.uint8),
    )
    plain = with_weights(encoded, change=None)
    drawn = trained(with_options(given, bootstrap=True), plain)
    assert {*integers.weights(0)} == {1, 3}
    assert_same(weighted, drawn, rtol=tolerance, atol=tolerance)


@pytest.mark.spread(1)
@BOTH
@pytest.mark.parametrize("bootstrap", [False, True])
def test_both_compilers_agree(encoded, architecture, bootstrap):
    given = config(architecture=architecture, dtype="float64", bootstrap=bootstrap)
    by_xla = trained(with_options(given, backend="xla"), encoded)
    by_numba = trained(with_options(given, backend="numba"), encoded)
    assert_same(by_numba, by_xla, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@COMPILERS
def test_a_replica_is_the_run_of_its_seed(encoded, backend):
    given = config(backend=backend, replicas=2, bootstrap=True, epochs=1)
    together, _ = trained(given, encoded)
    for k, alone in enumerate(replicas_of(given)):
        for name, found in trained(alone, encoded)[0].items():
            np.testing.assert_array_equal(together[name][k], found)


@pytest.mark.spread(1)
@COMPILERS
def test_an_epoch_goes_on_from_a_position(encoded, backend):
    given = resolve(config(backend=backend, save_every="16"), encoded.num_tokens)
    training = Training(given, encoded, range(2))
    check_goes_on(training)


def test_memory_counts_the_weights(encoded):
    found = {}
    for name, options in {
        "none": {},
        "bootstrap": {"bootstrap": True},
        "weights": {"weights": "w"},
    }.items():
        given = resolve(config(**options), encoded.num_tokens)
        found[name] = memory_needed(given, encoded, 16)["blocks"]
    assert found["none"] < found["bootstrap"]
    ratio = (found["weights"] - found["none"]) / (found["bootstrap"] - found["none"])
    assert ratio == pytest.approx(4, rel=1e-3)


@pytest.mark.slow
def test_frames_and_paths_have_weights():
    table().write_parquet("a.parquet")
    options = {"vector_size": 4, "min_count": 1, "epochs": 1, "sample": 0}
    fitted = [
        EmbeddingTrainer(**options).fit(each, **columns)
        for each, columns in (
            (table(), {"weights": "w"}),
            (Path("a.parquet"), {"weights": "w"}),
            (table().filter(pl.col("w") > 0), {}),
        )
    ]
    np.testing.assert_array_equal(fitted[0].vectors, fitted[1].vectors)
    assert fitted[0].index_to_key == fitted[2].index_to_key
    assert (fitted[0].vectors != fitted[2].vectors).any()
    fitted[0].partial_fit(table(), weights="w")
    assert len(fitted[0].loss_history) == 2
    ensemble = EmbeddingTrainer(**options).fit_ensemble(table(), 2, weights="w")
    np.testing.assert_array_equal(ensemble.vectors, fitted[1].vectors)


@pytest.mark.slow
def test_a_run_with_weights(capsys):
    table(2000).write_parquet("a.parquet")
    run = ["train", "a.parquet", "--workdir", "run", *FAST]
    assert main([*run, "--weights", "w"]) == 0
    assert main(["train", "--workdir", "run"]) == 0
    capsys.readouterr()
    assert main(run) == 2
    assert "`weights` 'w' there, '' now" in capsys.readouterr().err
    assert main([*run, "--weights", "w", "--dry-run"]) == 0
    assert "; mean weight of a session 1." in capsys.readouterr().out
