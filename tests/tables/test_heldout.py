"""Scores on held-out sequences, against loops and on planted corpora."""

import json

import numpy as np
import pytest

from embedder.cli import main
from embedder.config import Config, resolve, with_options
from embedder.engine.epochs import run_epochs
from embedder.evaluation.ranking import next_item
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.encoded import Encoded
from embedder.tables.heldout import (
    Sequences,
    log_likelihood,
    sequences,
)
from embedder.tables.options import TablesOptions
from embedder.tables.training import Training
from embedder.tables.vocabulary import keep_limit

ARCHITECTURES = pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
COUNTS = np.array([40, 20, 20, 5, 1])
SMALL = Sequences(np.array([0, 1, 2, 0, 3, 4, 0, 1]), np.array([5, 1, 2]))


def tables(num_rows: int, dtype: str = "float64") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(num_rows, 3)).astype(dtype) for _ in range(2)]


def split(given: Sequences) -> list[list[int]]:
    return [
        x.tolist() for x in np.split(given.ids, np.cumsum(given.lengths[:-1]).tolist())
    ]


def by_loops(
    options: TablesOptions, input, output, counts, given: Sequences, window: int
) -> tuple[float, float, int]:
    """(58), a prediction at a time."""
    share = counts / counts.sum()
    noise = counts**options.ns_exponent / (counts**options.ns_exponent).sum()
    keep = np.ones(len(counts))
    if options.sample:
        ratio = options.sample / share
        keep = np.minimum(1, np.sqrt(ratio) + ratio)
    found, baseline = [], []

    def predict(hidden: np.ndarray, target: int) -> None:
        weights = noise * np.exp(output @ hidden) / keep
        found.append(np.log(weights[target] / weights.sum()))
        baseline.append(np.log(share[target]))

    for ids in split(given):
        for t, token in enumerate(ids):
            near = [j for j in range(len(ids)) if 0 < abs(t - j) <= window]
            if options.architecture == "cbow" and near:
                combine = np.mean if options.cbow_mean else np.sum
                predict(combine([input[ids[j]] for j in near], axis=0), token)
            elif options.architecture == "skipgram":
                for j in near:
                    predict(input[token], ids[j])
    return float(np.mean(found)), float(np.mean(baseline)), len(found)


@ARCHITECTURES
@pytest.mark.parametrize("sample", [0.0, 0.01])
@pytest.mark.parametrize("ns_exponent", [0.75, 0.0, -1.0])
@pytest.mark.parametrize("window", [1, 3, 9])
def test_log_likelihood_is_that_of_loops(architecture, sample, ns_exponent, window):
    options = TablesOptions(
        architecture=architecture, sample=sample, ns_exponent=ns_exponent
    )
    assert_is_that_of_loops(options, window)


@pytest.mark.parametrize("window", [1, 3])
def test_log_likelihood_by_sums_of_contexts_is_that_of_loops(window):
    assert_is_that_of_loops(TablesOptions(architecture="cbow", cbow_mean=False), window)


def assert_is_that_of_loops(options: TablesOptions, window: int) -> None:
    given = (options, *tables(len(COUNTS)), COUNTS, SMALL, window)
    expected = by_loops(*given)
    found = log_likelihood(*given)
    assert found.num_pairs == expected[2]
    # keep_c is rounded to a multiple of 2^-32
    np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-9)


@ARCHITECTURES
def test_chunks_and_float32_change_only_the_rounding(monkeypatch, architecture):
    options = TablesOptions(architecture=architecture)
    exact = log_likelihood(options, *tables(5), COUNTS, SMALL)
    monkeypatch.setattr("embedder.tables.heldout.CHUNK_VALUES", 12)  # two rows
    chunked = log_likelihood(options, *tables(5), COUNTS, SMALL)
    single = log_likelihood(options, *tables(5, "float32"), COUNTS, SMALL)
    assert chunked.mean == pytest.approx(exact.mean, rel=1e-12)
    assert single.mean == pytest.approx(exact.mean, rel=1e-6)


def test_a_model_with_the_unigram_distribution_scores_as_the_baseline():
    """No subsampling, noise as the corpus, vectors of 0."""
    zeros = np.zeros((5, 3))
    options = TablesOptions(sample=0.0, ns_exponent=1.0)
    found = log_likelihood(options, zeros, zeros, COUNTS, SMALL)
    assert found.mean == pytest.approx(found.baseline, rel=1e-12)


def test_the_optimum_of_negative_sampling_predicts_the_text():
    """v_t.u_c = log(P_kept(c | t) / (k P_n(c))), with any `negative`, is P(c | t)."""
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.ones(5), size=5)  # P(c | t)
    given = Sequences(rng.integers(5, size=400), np.full(200, 2))
    ids = given.ids.reshape(200, 2)
    pairs = np.concatenate([ids, ids[:, ::-1]])
    expected = np.log(truth[pairs[:, 0], pairs[:, 1]]).mean()
    for sample, ns_exponent, negative in [(0.0, 0.75, 5), (0.01, 0.3, 1)]:
        keep = (keep_limit(COUNTS, sample) + 1.0) / 2**32
        kept = truth * keep / (truth * keep).sum(axis=1, keepdims=True)
        noise = COUNTS**ns_exponent / (COUNTS**ns_exponent).sum()
        options = TablesOptions(sample=sample, ns_exponent=ns_exponent)
        scores = np.log(kept / (negative * noise))
        found = log_likelihood(options, np.eye(5), scores.T, COUNTS, given, 1)
        assert found.mean == pytest.approx(expected, rel=1e-9)


@ARCHITECTURES
def test_at_most_so_many_predictions_are_drawn_the_same_for_all_models(architecture):
    options = TablesOptions(architecture=architecture)
    rng = np.random.default_rng(0)
    given = Sequences(rng.choice(5, 4000, p=COUNTS / COUNTS.sum()), np.full(400, 10))
    args = (options, *tables(5), COUNTS, given)
    whole = log_likelihood(*args, max_pairs=10**6)
    parts = [log_likelihood(*args, max_pairs=1000) for _ in range(2)]
    assert whole.num_pairs > 3000 and parts[0].num_pairs == 1000
    assert parts[0] == parts[1]
    assert parts[0].mean == pytest.approx(whole.mean, abs=4 * 2 / 1000**0.5)
    other = TablesOptions(architecture=architecture, negative=2, window=9, sample=0.0)
    assert log_likelihood(other, *args[1:], max_pairs=1000).baseline == (
        parts[0].baseline
    )


def test_sequences_without_contexts_have_no_score():
    alone = Sequences(np.array([1, 2]), np.array([1, 1]))
    found = log_likelihood(TablesOptions(), *tables(5), COUNTS, alone)
    assert found.num_pairs == 0 and np.isnan([found.mean, found.baseline]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_scores_that_are_not_finite_are_the_worst(value):
    broken = np.full((5, 3), value)
    found = log_likelihood(TablesOptions(), broken, broken, COUNTS, SMALL)
    assert found.mean == -np.inf and np.isfinite(found.baseline)


def planted(num: int = 1500) -> list[list[str]]:
    """Sequences of one of ten topics, each of ten words."""
    rng = np.random.default_rng(0)
    topics, words = rng.integers(10, size=num), rng.integers(10, size=(num, 12))
    return [
        [f"{topic}-{word}" for word in line]
        for topic, line in zip(topics, words, strict=True)
    ]


@pytest.fixture(scope="module")
def encoded() -> Encoded:
    return encode(sequences_corpus(planted()), 1)


def training(encoded: Encoded, **options) -> Training:
    small = {"vector_size": 16, "loader": "memory", "epochs": 3, "holdout": 0.1}
    small |= {"backend": "xla", "alpha": 0.2, "sample": 0.0}
    config = with_options(Config(), **small | options)
    epochs = range(config.run.epochs)
    return Training(resolve(config, encoded.num_tokens), encoded, epochs)


def score(planned: Training, state):
    found = sequences(planned.encoded, planned.config.tables.holdout)
    arrays = state.params["tables"]
    counts = planned.encoded.vocabulary.counts
    return log_likelihood(
        planned.config.tables, arrays["input"], arrays["output"], counts, found
    )


@pytest.mark.spread(1)
@ARCHITECTURES
def test_a_trained_model_beats_the_unigrams_and_an_untrained_one_does_not(
    encoded, architecture
):
    planned = training(encoded, architecture=architecture)
    start = planned.initial_state()
    end = run_epochs(planned, start)
    before, after = score(planned, start), score(planned, end.state)
    assert before.mean <= before.baseline + 0.01
    assert after.mean > after.baseline + 1.5  # at best log 10 = 2.3 more
    assert after.mean < -np.log(10) + 0.1
    assert planned.metrics == ("loss", "held_out")
    history = [metrics[1] for metrics in end.position.history]
    assert history[-1] == pytest.approx(after.mean, rel=1e-6)
    assert history == sorted(history)


@pytest.mark.slow
def test_replicas_have_the_mean(encoded):
    options = {"replicas": 2, "epochs": 1, "seed": 4}
    together = training(encoded, **options)
    end = run_epochs(together, together.initial_state())
    means = []
    for k in range(2):
        one = training(encoded, epochs=1, seed=4 + k)
        means.append(run_epochs(one, one.initial_state()).position.history[0][1])
    assert end.position.history[0][1] == pytest.approx(np.mean(means), rel=1e-5)


def test_a_score_that_is_not_finite_is_not_measured(encoded):
    alone = [[f"w{i}"] for i in range(40)] + [["a", "b"]]
    planned = training(encode(sequences_corpus(alone), 1), holdout=0.2)
    state = planned.program.place_state(planned.initial_state())
    assert planned.summary((3.0, 2.0)) == (1.5,)
    assert planned.evaluate(state) == (None,)


def test_a_run_writes_its_scores(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n".join(map(" ".join, planted(300))))
    pairs = "0-1\t0-2\t9\n0-1\t1-1\t1\n2-2\t2-3\t8\n"
    (tmp_path / "pairs.tsv").write_text(pairs)
    arguments = ["train", "text.txt", "--workdir", "run", "--epochs", "2"]
    arguments += ["--holdout", "0.1", "--best-by", "pairs.tsv", "--min-count", "1"]
    assert main(arguments) == 0
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert len(found) == 2
    shown = capsys.readouterr().err
    for line in found:
        names = ["epoch", "updates", "loss", "spearman", "held_out"]
        assert [*line][:5] == names
        assert f"held_out {line['held_out']:.4f}" in shown
    assert "holdout = 0.1" in (tmp_path / "run/config.toml").read_text()
    assert main([*arguments[:-6], "--holdout", "0.2"]) == 2
    assert "`holdout` 0.1 there, 0.2 now" in capsys.readouterr().err


def test_a_trained_model_finds_next_items_better_than_popularity(encoded):
    planned = training(encoded)
    end = run_epochs(planned, planned.initial_state())
    arrays, held = end.state.params["tables"], sequences(encoded, 0.1)
    counts = encoded.vocabulary.counts
    for output in (None, arrays["output"]):
        found = next_item(arrays["input"], counts, held, output=output)
        assert found.hit_rate > 0.9  # ten words of a topic, less those seen
        assert found.baseline.hit_rate < 0.3
        assert found.mrr > 3 * found.baseline.mrr
