"""Held-out sequences: which they are, that no training sees them, and their scores."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.cli.main import main
from embedder.config import Config, resolve, with_options
from embedder.config.token_options import TokensOptions
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.data.encoded import Encoded
from embedder.data.huffman import codes_and_points, huffman_tree
from embedder.data.split import Sequences, held_out, sequence_hashes
from embedder.data.split import sequences as held_out_sequences
from embedder.data.vocabulary import keep_limit
from embedder.engine.epochs import run_epochs
from embedder.metrics.ranking import next_item
from embedder.tokens import eval_sets as module
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.trainer import TokensTrainer
from embedder.tokens.training_scores import TrainingScores, training_scores
from tests.commands import json_lines
from tests.held_out import log_likelihood

ARCHITECTURES = pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
COUNTS = np.array([40, 20, 20, 5, 1])
SMALL = Sequences(np.array([0, 1, 2, 0, 3, 4, 0, 1]), np.array([5, 1, 2]))


def tables(dtype: str = "float64", num_output: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(5 * num, 3)).astype(dtype) for num in (1, num_output)]


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


def by_loops(
    options: TokensOptions, input, output, counts, given: Sequences, window: int
) -> tuple[float, float, int]:
    """(58), a prediction at a time."""
    share = counts / counts.sum()
    noise = counts**options.ns_exponent / (counts**options.ns_exponent).sum()
    keep = (keep_limit(counts, options.sample) + 1.0) / 2**32
    found, baseline = [], []

    def predict(hidden: np.ndarray, target: int) -> None:
        if options.hs:
            whole = np.array([by_branches(hidden, output[-5:], i) for i in range(5)])
            assert whole.sum() == pytest.approx(1, rel=1e-12)
        else:
            whole = noise * np.exp(output @ hidden)
        weights = whole / keep
        found.append(np.log(weights[target] / weights.sum()))
        baseline.append(np.log(share[target]))

    for ids in np.split(given.ids, np.cumsum(given.lengths)[:-1]):
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
@pytest.mark.parametrize(
    "options", [{}, {"cbow_mean": False}, {"hs": True}, {"hs": True, "negative": 0}]
)
@pytest.mark.parametrize("sample", [0.0, 0.01])
@pytest.mark.parametrize("ns_exponent", [0.75, 0.0, -1.0])
@pytest.mark.parametrize("window", [1, 3, 9])
def test_log_likelihood_is_that_of_loops(
    monkeypatch, architecture, options, sample, ns_exponent, window
):
    """Also in chunks, and in float32 about."""
    found_for = TokensOptions(
        architecture=architecture, sample=sample, ns_exponent=ns_exponent, **options
    )
    num_output = found_for.num_output_tables
    given = (found_for, *tables("float64", num_output), COUNTS, SMALL, window)
    expected = by_loops(*given)
    single = log_likelihood(found_for, *tables("float32", num_output), *given[3:])
    assert single.mean == pytest.approx(expected[0], rel=1e-6)
    for chunk_values in (10**6, 12):  # all, and two rows
        monkeypatch.setattr("embedder.tokens.heldout.CHUNK_VALUES", chunk_values)
        found = log_likelihood(*given)
        assert found.num_pairs == expected[2]
        np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-12)


@ARCHITECTURES
def test_at_most_so_many_predictions_are_drawn_the_same_for_all_models(architecture):
    options = TokensOptions(architecture=architecture)
    rng = np.random.default_rng(0)
    given = Sequences(rng.choice(5, 4000, p=COUNTS / COUNTS.sum()), np.full(400, 10))
    args = (options, *tables(), COUNTS, given)
    whole = log_likelihood(*args, max_pairs=10**6)
    parts = [log_likelihood(*args, max_pairs=1000) for _ in range(2)]
    assert whole.num_pairs > 3000 and parts[0].num_pairs == 1000
    assert parts[0] == parts[1]
    assert parts[0].mean == pytest.approx(whole.mean, abs=4 * 2 / 1000**0.5)
    other = TokensOptions(architecture=architecture, negative=2, window=9, sample=0.0)
    assert log_likelihood(other, *args[1:], max_pairs=1000).baseline == (
        parts[0].baseline
    )


def test_the_hash_is_uniform_and_depends_on_the_position_alone():
    for share in (0.01, 0.3, 0.9):
        drawn = np.array([held_out(shard, 5000, share) for shard in range(4)])
        error = (share * (1 - share) / drawn.size) ** 0.5
        assert abs(drawn.mean() - share) < 4 * error
        assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 4 * 5000**-0.5
    many, few = held_out(3, 1000, 0.2), held_out(3, 10, 0.2)
    np.testing.assert_array_equal(many[:10], few)
    assert not (many & ~held_out(3, 1000, 0.3)).any()  # a larger share has them too


@pytest.mark.parametrize("limit", [1, 100, 777])
def test_a_limit_keeps_the_first_tokens_of_any_larger_one(
    monkeypatch, sequences, limit
):
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 1000)
    encoded = encode(sequences_corpus(sequences), 1)
    whole = held_out_sequences(encoded, 0.25)
    part = held_out_sequences(encoded, 0.25, limit)
    assert len(part.ids) == part.lengths.sum() == limit < len(whole.ids)
    np.testing.assert_array_equal(part.ids, whole.ids[:limit])
    num = len(part.lengths)
    np.testing.assert_array_equal(part.lengths[:-1], whole.lengths[: num - 1])
    larger = held_out_sequences(encoded, 0.5, limit)
    np.testing.assert_array_equal(larger.ids, part.ids)


def test_training_leaves_the_rows_of_held_out_tokens_as_they_were():
    """No two lines have a token in common."""
    lines = [[f"{i}-{j}" for j in range(6)] for i in range(40)]
    options = {"vector_size": 6, "min_count": 1, "sample": 0.0}
    one, two = (
        EmbeddingTrainer(**options, epochs=epochs).fit(lines, holdout=0.25)
        for epochs in (1, 2)
    )
    is_same = (one.vectors == two.vectors).all(axis=1)
    same = {key for key, each in zip(one.index_to_key, is_same, strict=True) if each}
    out = np.flatnonzero(held_out(0, 40, 0.25))
    assert same == {token for number in out for token in lines[number]} != set()


def test_a_run_says_what_is_held_out(own_folder, capsys):
    Path("text.txt").write_text("a b c d\n" * 40)
    num = held_out(0, 40, 0.25).sum()
    for flags, kept in (("", "sample and"), ("--bootstrap", "sample, bootstrap and")):
        command = f"train text.txt --dry-run --min-count 1 --holdout 0.25 {flags}"
        assert main(command.split()) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f"held out: {num} of 40 sequences" in shown
        assert re.search(rf"{kept} holdout keep \d", shown)
    assert main(["train", "text.txt", "--dry-run", "--min-count", "1"]) == 0
    assert "held out" not in capsys.readouterr().out


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


def training(encoded: Encoded, **options) -> TokensTrainer:
    small = {"vector_size": 16, "loader": "memory", "epochs": 3, "holdout": 0.1}
    small |= {"backend": "xla", "alpha": 0.2, "sample": 0.0}
    config = with_options(Config(), **small | options)
    epochs = range(config.run.epochs)
    return TokensTrainer(
        TrainingPlan(resolve(config, encoded.num_tokens), encoded, epochs)
    )


def score(planned: TokensTrainer, state):
    found = held_out_sequences(planned.encoded, planned.config.tables.holdout)
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
    if architecture == "skipgram":
        arrays, held = end.state.params["tables"], held_out_sequences(encoded, 0.1)
        for output in (None, arrays["output"]):
            counts = encoded.vocabulary.counts
            found = next_item(arrays["input"], counts, held, output=output)
            assert found.hit_rate > 0.9  # ten words of a topic, less those seen
            assert found.baseline.hit_rate < 0.3
            assert found.mrr > 3 * found.baseline.mrr


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


def test_the_trainer_has_the_scores_of_each_epoch():
    options = {"vector_size": 6, "min_count": 1, "epochs": 3, "sample": 0.0}
    words = np.random.default_rng(0).integers(9, size=(200, 12))
    text = [[f"w{i}" for i in line] for line in words]
    trainer = EmbeddingTrainer(**options).fit(text, holdout=0.1)
    assert len(trainer.held_out_history) == 3
    np.testing.assert_allclose(trainer.held_out_history, -np.log(9), atol=0.1)
    scores = [{"held_out": score} for score in trainer.held_out_history]
    assert trainer.score_history == scores
    trainer.fit_ensemble(text, 2, holdout=0.1)
    assert len(trainer.held_out_history) == 3
    whole = EmbeddingTrainer(**options).fit(text)
    assert whole.held_out_history == whole.score_history == []
    alone = [[f"w{i}"] for i in range(40)] + [["a", "b"]]
    whole.fit(alone, holdout=0.2)  # no held-out token has a context
    assert whole.held_out_history == [None] * 3


def test_a_run_writes_its_scores(own_folder, capsys):
    Path("text.txt").write_text("\n".join(map(" ".join, planted(300))))
    Path("pairs.tsv").write_text("0-1\t0-2\t9\n0-1\t1-1\t1\n2-2\t2-3\t8\n")
    arguments = ["train", "text.txt", "--workdir", "run", "--epochs", "2"]
    arguments += ["--holdout", "0.1", "--best-by", "pairs.tsv", "--min-count", "1"]
    assert main(arguments) == 0
    found = json_lines("run/metrics.jsonl")
    assert len(found) == 2
    shown = capsys.readouterr().err
    for line in found:
        names = ["epoch", "updates", "loss", "spearman", "held_out"]
        assert [*line][:5] == names
        assert f"held_out {line['held_out']:.4f}" in shown
    assert "holdout = 0.1" in Path("run/config.toml").read_text()


TRAINED = ["b c"] + ["b d"] * 2 + ["c b"] * 6 + ["c a e"] * 8 + ["e d"] * 17


def query_score(*, of_c: float) -> tuple[dict[str, float | None], TrainingScores]:
    """The scores of a model for which d is 1, e 0, c `of_c`, whatever the query is."""
    hashes = sequence_hashes(0, len(TRAINED) + 3)
    order, sessions = np.argsort(hashes), [""] * len(hashes)
    for position, session in zip(order, ["a b c"] * 3 + TRAINED, strict=True):
        sessions[position] = session  # those to hold out where the hash wants them
    share = (int(hashes[order[2]]) + 1) / 2**32
    encoded = encode(sequences_corpus([x.split() for x in sessions]), 1)
    options = with_options(Config(), holdout=share, best_by="next-item").tables
    found = training_scores(options, encoded)
    values = {"a": 5.0, "b": 5.0, "c": of_c, "d": 1.0, "e": 0.0}
    rows = [values[token] for token in encoded.vocabulary.tokens]
    tables = {"input": np.ones((5, 1)), "output": np.array(rows)[:, np.newaxis]}
    return dict(zip(found.names, found.means([tables]), strict=True)), found


@pytest.mark.parametrize(
    ("of_c", "ndcg", "mrr"),
    [(2.0, 1, 1), (0.5, 1 / np.log2(3), 1 / 2), (-1.0, 1 / 2, 1 / 3)],
)
def test_the_rank_of_the_last_item_by_hand(of_c, ndcg, mrr):
    """a and b are in the query: c is first, second or third of c, d and e."""
    found, each = query_score(of_c=of_c)
    assert each.best and each.best.names[0] == "hr@10"
    assert [found["hr@10"], found["ndcg@10"], found["mrr"]] == [1, ndcg, mrr]


def test_baselines_of_next_items_by_hand(caplog):
    """By counts, the held-out c included: e 25, d 19, c 18. After b came d twice and c
    once. In sessions with b was c 7 times and d twice, with a c as often as e."""
    caplog.set_level("INFO")
    found = query_score(of_c=2.0)[1].baselines
    ranks = {"popularity": 3, "followed most often": 2, "same session": 1}
    for model, rank in ranks.items():
        assert found[f"hr@10 by {model}"] == 1
        assert found[f"ndcg@10 by {model}"] == pytest.approx(1 / np.log2(1 + rank))
        assert found[f"mrr by {model}"] == pytest.approx(1 / rank)
    assert "mrr 0.3333 (popularity)" in caplog.text


def test_a_long_count_is_left_out_with_a_line(monkeypatch, caplog):
    """8 sessions of 3 items, 26 of 2; three queries a b for 5 items."""
    caplog.set_level("INFO")
    num = 8 * 3**2 + 26 * 2**2 + 6 * 5
    monkeypatch.setattr(module, "_MOST_PRODUCTS", num)
    assert "mrr by same session" in query_score(of_c=2.0)[1].baselines
    assert "is left out" not in caplog.text
    monkeypatch.setattr(module, "_MOST_PRODUCTS", num - 1)
    found = query_score(of_c=2.0)[1].baselines
    assert "mrr by same session" not in found and "mrr by followed most often" in found
    assert 'baseline "same session" is left out' in caplog.text
