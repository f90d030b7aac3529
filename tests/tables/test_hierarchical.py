"""Hierarchical softmax around its updates: scores, files, refusals, updates by text."""

import json
import math

import numpy as np
import polars as pl
import pytest

import embedder
import legacy
from embedder.cli import main
from embedder.config import Config, resolve, with_options
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError
from embedder.run.train import train
from embedder.sweep.space import Choices, with_settings
from embedder.sweep.sweep import sweep
from embedder.tables import updating
from embedder.tables.artefact import read_model, write_model
from embedder.tables.corpus import sequences_corpus
from embedder.tables.cpu import kernel
from embedder.tables.encode import BaseVocabulary, encode
from embedder.tables.heldout import Sequences, log_likelihood
from embedder.tables.huffman import codes_and_points, huffman_tree, node_sums
from embedder.tables.options import TablesOptions
from embedder.tables.training import Training, make_program, pick_backend
from embedder.tables.vocabulary import Vocabulary, keep_limit, write_vocabulary
from tests.commands import error_line

COUNTS = np.array([40, 20, 20, 5, 1])
SMALL = Sequences(np.array([0, 1, 2, 0, 3, 4, 0, 1]), np.array([5, 1, 2]))
HS = {"hs": True, "vector_size": 8, "min_count": 1, "epochs": 2, "block": 32}
negatives = pytest.mark.parametrize("negative", [0, 5])


def training(sequences, **options) -> Training:
    config = with_options(Config(), loader="memory", **HS | options)
    encoded = encode(sequences_corpus(sequences), 1)
    row_updates = encoded.vocabulary.row_updates
    config = resolve(config, encoded.num_tokens, None, row_updates)
    return Training(config, encoded, range(config.run.epochs))


def by_branches(hidden: np.ndarray, nodes: np.ndarray, token: int) -> float:
    """P'(token | hidden), (92), a branch at a time."""
    found = codes_and_points(huffman_tree(COUNTS))
    end = found.lengths[: token + 1].sum()
    path = slice(end - found.lengths[token], end)
    p = 1.0
    for code, node in zip(found.codes[path], found.points[path], strict=True):
        first = 1 / (1 + math.exp(-(nodes[node] @ hidden)))
        p *= 1 - first if code else first
    return p


@negatives
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize("sample", [0.0, 0.01])
def test_log_likelihood_is_that_of_the_branches(
    monkeypatch, architecture, sample, negative
):
    options = TablesOptions(
        architecture=architecture, sample=sample, negative=negative, hs=True
    )
    rng = np.random.default_rng(0)
    input = rng.normal(size=(5, 3))
    output = rng.normal(size=(5 * options.num_output_tables, 3))
    nodes, keep = output[-5:], (keep_limit(COUNTS, sample) + 1.0) / 2**32
    found = []

    def predict(hidden: np.ndarray, target: int) -> None:
        whole = np.array([by_branches(hidden, nodes, i) for i in range(5)])
        assert whole.sum() == pytest.approx(1, rel=1e-12)
        found.append(math.log(whole[target] / keep[target] / (whole / keep).sum()))

    ends = np.cumsum(SMALL.lengths)
    for ids in np.split(SMALL.ids, ends[:-1]):
        for t, token in enumerate(ids):
            near = [j for j in range(len(ids)) if j != t]
            if architecture == "cbow" and near:
                predict(input[ids[near]].mean(axis=0), token)
            elif architecture == "skipgram":
                for j in near:
                    predict(input[token], ids[j])
    for chunk in (2**20, 25):  # all rows, two rows
        monkeypatch.setattr("embedder.tables.heldout.CHUNK_VALUES", chunk)
        score = log_likelihood(options, input, output, COUNTS, SMALL, 9)
        assert score.num_pairs == len(found)
        assert score.mean == pytest.approx(np.mean(found), rel=1e-12)


def test_vectors_of_zero_predict_halves():
    """Each branch has probability 1/2."""
    options = TablesOptions(hs=True, negative=0, sample=0.0)
    zeros = np.zeros((5, 3))
    lengths = codes_and_points(huffman_tree(COUNTS)).lengths
    given = Sequences(np.array([0, 4]), np.array([2]))
    found = log_likelihood(options, zeros, zeros, COUNTS, given)
    assert found.mean == pytest.approx(-math.log(2) * (lengths[0] + lengths[4]) / 2)


@pytest.mark.spread(1)
@negatives
def test_the_first_loss_is_that_of_the_start(sequences, negative):
    """Whose scores are 0: `start_loss` is the mean over the tokens that are kept."""
    given = training(sequences, negative=negative, alpha=1e-9, min_alpha=0.0)
    end = run_epochs(given, given.initial_state())
    assert end.position.losses[0] == pytest.approx(given.start_loss, rel=0.05)


@negatives
def test_any_number_of_threads_gives_the_same_bits(sequences, negative):
    ends = []
    for threads in (1, 2, 3):
        given = training(
            sequences,
            negative=negative,
            backend="numba",
            threads=threads,
            dtype="float64",
        )
        ends.append(run_epochs(given, given.initial_state()).state.params["tables"])
    for other in ends[1:]:
        for name, table in ends[0].items():
            assert table.tobytes() == other[name].tobytes()


def test_the_kernel_is_picked_for_long_runs(monkeypatch):
    config = with_options(Config(), hs=True, negative=0, backend="auto")
    given = training([["a", "b"]] * 9)
    assert pick_backend(config, 10**9, given.layout) == "numba"
    assert pick_backend(config, 1000, given.layout) == "xla"
    assert kernel._kind(make_program(4, 1, given.config, depth=3).model.objective) == (
        *(True, True, True, 3),
    )


def test_the_vocabulary_file_has_codes_and_points(tmp_path):
    paths = codes_and_points(huffman_tree(COUNTS))
    vocabulary = Vocabulary([*"abcde"], COUNTS)
    write_vocabulary(vocabulary, tmp_path / "vocab.parquet", paths)
    frame = pl.read_parquet(tmp_path / "vocab.parquet")
    assert frame.schema["code"] == pl.List(pl.UInt8)
    assert frame.schema["point"] == pl.List(pl.Int32)
    ends = np.cumsum(paths.lengths)[:-1]
    for name, whole in (("code", paths.codes), ("point", paths.points)):
        assert frame[name].to_list() == [x.tolist() for x in np.split(whole, ends)]
    write_vocabulary(
        Vocabulary(["a"], np.array([3])),
        tmp_path / "one.parquet",
        codes_and_points(huffman_tree(np.array([3]))),
    )
    assert pl.read_parquet(tmp_path / "one.parquet")["code"].to_list() == [[]]


@pytest.mark.slow
@negatives
def test_a_trainer_goes_on_from_its_file(sequences, tmp_path, negative):
    trained = embedder.EmbeddingTrainer(negative=negative, **HS).fit(sequences)
    trained.save(tmp_path / "model.npz")
    num_rows = len(trained.index_to_key)
    model = read_model(tmp_path / "model.npz")
    assert model.output.shape == (num_rows * (2 if negative else 1), 8)
    assert not model.output[-1].any()  # there is one inner node less than tokens
    loaded = embedder.EmbeddingTrainer.load(tmp_path / "model.npz")
    for schedule in ("restart", "continue"):
        for each in (trained, loaded):
            each.partial_fit(sequences[:20], schedule=schedule)
        assert trained.vectors.tobytes() == loaded.vectors.tobytes()


@pytest.mark.spread(1)
@pytest.mark.row("F59")
@negatives
def test_a_file_with_the_tables_of_another_objective_is_refused(
    sequences, tmp_path, negative
):
    trained = embedder.EmbeddingTrainer(negative=negative, **HS).fit(sequences)
    model, path = trained._model(), tmp_path / "model.npz"
    other = model.settings | {"negative": 5 - negative}
    write_model(path, model._replace(settings=other))
    with pytest.raises(InputError, match="model.npz is not a whole model .*`output`"):
        read_model(path)
    with pytest.raises(ValueError, match="model.npz is not a whole model .*`output`"):
        legacy.EmbeddingTrainer.load(path)


@negatives
def test_nodes_move_by_the_text_below_them(sequences, negative):
    """An update moves inner nodes less than new ones, those without text not at all."""
    config = with_options(Config(), negative=negative, **HS)
    base = embedder.EmbeddingTrainer(negative=negative, **HS).fit(sequences)._model()
    tree, known = huffman_tree(base.counts), Vocabulary(base.tokens, base.counts)
    new = encode(
        sequences_corpus([base.tokens[:2] * 3]), 1, BaseVocabulary(known, False)
    )
    text = np.zeros(len(base.tokens), np.int64)
    text[:2] = 3
    found = updating.plan_update(base, new, [], config.tables)
    nodes = found.output_factors[-len(base.tokens) :]
    old, below = node_sums(tree, base.counts), node_sums(tree, text)
    np.testing.assert_allclose(nodes, below / np.maximum(10 * old + below, 1))
    assert (nodes == 0).any() and nodes[len(nodes) - 2] > 0  # the root
    assert len(found.output_factors) == len(base.output)


@pytest.mark.row("B82")
def test_a_model_does_not_grow(sequences):
    trained = embedder.EmbeddingTrainer(negative=0, **HS).fit(sequences)
    with pytest.raises(ValueError, match="`grow` does not go with `hs`"):
        trained.partial_fit([["new", "tokens"]] * 5, grow=True)


@pytest.mark.row("B84")
def test_attributes_that_are_not_those_of_the_tables_are_refused(sequences, tmp_path):
    trained = embedder.EmbeddingTrainer(negative=0, **HS).fit(sequences)
    trained.hs, trained.negative = False, 5
    message = "`hs` must be True and `negative` 0, as when .* got False and 5"
    with pytest.raises(ValueError, match=message):
        trained.save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=message):
        trained.partial_fit(sequences)


@pytest.mark.spread(1)
@pytest.mark.parametrize("negative", [0, 5])
def test_vectors_to_start_from_give_output_rows_of_tokens_alone(sequences, negative):
    sampled = embedder.EmbeddingTrainer(**HS | {"hs": False}).fit(sequences)
    trained = embedder.EmbeddingTrainer(**HS | {"epochs": 0}, negative=negative)
    trained.fit(sequences, init_from=sampled)
    num_rows = len(sampled.vectors)
    np.testing.assert_array_equal(trained.vectors, sampled.vectors)
    output = trained._table("output")
    assert not output[-num_rows:].any()
    if negative:
        np.testing.assert_array_equal(output[:num_rows], sampled._table("output"))


@pytest.fixture
def corpus(tmp_path, sequences):
    path = tmp_path / "corpus.txt"
    path.write_text("".join(" ".join(each) + "\n" for each in sequences))
    return path


def run(corpus, workdir, *arguments: str) -> int:
    return main(
        [
            *("train", str(corpus), "--workdir", str(workdir), "--min-count", "1"),
            *("--vector-size", "8", "--epochs", "1", *arguments),
        ]
    )


@pytest.mark.slow
@pytest.mark.row("B81", "B82", "B83")
def test_runs_say_what_does_not_go_together(corpus, tmp_path, capsys):
    assert run(corpus, tmp_path / "a", "--hs", "--negative", "0") == 0
    assert run(corpus, tmp_path / "b") == 0
    for arguments, line in (
        (["--negative", "0"], "`negative` must be an integer >= 1, or 0 with `hs`"),
        (["--resume", str(tmp_path / "b"), "--hs"], "`hs` must be that of the run"),
        (
            ["--resume", str(tmp_path / "a"), "--hs", "--negative", "5"],
            "`negative` must be 0, as that of the run to start from, 0, got 5",
        ),
        (
            ["--resume", str(tmp_path / "a"), "--hs", "--negative", "0", "--grow"],
            "`grow` does not go with `hs`",
        ),
        (
            ["--hs", "--negative", "0", "--holdout", "0.2", "--best-by", "next-item"],
            "`best_by` next-item needs output rows of items, which `hs` alone has not",
        ),
    ):
        capsys.readouterr()
        assert run(corpus, tmp_path / "c", *arguments) == 2
        assert line in error_line(capsys)


@pytest.mark.slow
def test_a_run_goes_on_and_is_scored(corpus, tmp_path, capsys):
    flags = "--hs", "--negative", "0", "--holdout", "0.2"
    assert run(corpus, tmp_path / "a", *flags) == 0
    resumed = "--resume", str(tmp_path / "a")
    assert run(corpus, tmp_path / "b", "--hs", "--negative", "0", *resumed) == 0
    frame = pl.read_parquet(tmp_path / "a" / "vocab.parquet")
    assert frame.columns == ["token", "count", "code", "point"]
    assert run(corpus, tmp_path / "c", *flags[:3], "--dry-run") == 0
    assert "Huffman tree" in "".join(capsys.readouterr())


@pytest.mark.row("B84")
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numba", "xla"])
def test_a_sweep_has_models_of_one_objective_side_by_side(corpus, tmp_path, backend):
    """Others are in other groups, since they draw other numbers of noise ids."""
    config = with_options(Config(), loader="memory", backend=backend, **HS)
    space = {"negative": Choices((0, 5)), "window": Choices((2, 5))}
    outcome = sweep(config, space, str(corpus), tmp_path / "one")
    assert len(outcome.results) == 4
    for number, settings in (result.trial for result in outcome.results):
        alone = tmp_path / str(number)
        train(
            with_settings(with_options(config, holdout=0.05), settings),
            alone,
            str(corpus),
        )
        last = json.loads((alone / "metrics.jsonl").read_text().splitlines()[-1])
        score = {x.trial.number: x.score for x in outcome.results}[number]
        assert score == pytest.approx(last["held_out"], rel=1e-5)
