"""The bench `composition`: what it trains, what it keeps, and its table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import composition, results
from bench.systems import Measured
from embedder import read_vectors, write_vectors
from embedder.config.token_options import default_alpha

ARGUMENTS = "--corpus {data}/corpus.txt --epochs 1"
TOKENS = 6000  # of the corpus


@pytest.fixture
def trained(small_data, monkeypatch) -> list[dict]:
    """The trainings since the start of the test; none really trains."""
    calls: list[dict] = []
    ready = read_vectors(small_data / "vectors.txt")

    def measure(program, corpus, vectors, **settings) -> Measured:
        calls.append({"program": program, **settings})
        write_vectors(ready, vectors)
        return Measured(1, len(calls), 0, TOKENS, 2**20)

    monkeypatch.setattr(composition, "measure", measure)
    monkeypatch.setattr(composition, "commit", lambda checkout: "abc")
    return calls


@pytest.fixture
def bench(run_bench, trained):
    return lambda flags: run_bench("composition", f"{ARGUMENTS} {flags}")


@pytest.fixture
def further_set(small_data) -> Iterator[Path]:
    """A similarity set `rare` beside WS-353 and SimLex."""
    path = small_data / "word-eval" / "rare.tsv"
    path.write_text("aa\tab\t3\nac\tch\t2\nad\tae\t1\n")
    yield path
    path.unlink(missing_ok=True)


def test_alpha_tiles_and_blocks_reach_the_training(bench, trained):
    bench("--blocks-per-update 1 64 --alphas 0.3")
    alphas = [(x["blocks_per_update"], x["alpha"]) for x in trained]
    default = [default_alpha(1, 5, n) for n in (1, 64)]  # rare tokens
    assert alphas == [(1, default[0]), (1, 0.3), (64, default[1]), (64, 0.3)]
    bench("--blocks-per-update 2 --tiles 64:8")
    bench("--blocks-per-update 1 --block 4096")
    shapes = [(x["tile"], x["noise"], x["block"]) for x in trained[4:]]
    assert shapes == [(64, 8, 64), (16, 32, 4096)]


def test_a_row_marks_defaults_and_has_the_range_of_its_seeds(bench):
    ran = bench("--blocks-per-update 1 16 --alphas 0.3 --tiles 16:32 32:32")
    marked = [row[2:5] for row in ran.rows if "default" in row[3]]
    assert marked == [["16:32", "1 (64), default", "0.1000"]]
    [row] = bench("--blocks-per-update 1 --seeds 1 2 3").rows
    assert row[5] == "3" and row[-1].endswith(")")


def test_further_similarity_sets_are_scored(bench, further_set):
    ran = bench("--blocks-per-update 1")
    table = composition.table(ran.results["composition"])
    assert table.columns[-5:-1] == ["WS-353", "SimLex", "analogies %", "rare"]
    [sample] = ran.results["composition"]["samples"]
    assert sample["rare"] != sample["ws353"]
    further_set.unlink()
    with pytest.raises(SystemExit, match="the same sets"):
        bench("--blocks-per-update 1 --keep")


def test_keep_trains_only_what_is_missing(bench, trained, monkeypatch):
    """Each sample is written when it is measured."""
    run_once = composition.measure

    def fail_at_the_second(*arguments, **settings) -> Measured:
        if len(trained) == 1:
            raise KeyboardInterrupt
        return run_once(*arguments, **settings)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(composition, "measure", fail_at_the_second)
        bench("--blocks-per-update 1 4")
    ran = bench("--blocks-per-update 1 4 --keep")
    assert [x["blocks_per_update"] for x in trained] == [1, 4]
    assert len(ran.rows) == 2
    assert len(bench("--blocks-per-update 4").rows) == 1 and len(trained) == 3


@pytest.mark.parametrize("now", ["def", "abc dirty", "unknown"])
def test_keep_drops_samples_of_other_commits(bench, trained, monkeypatch, now):
    warnings: list[str] = []
    monkeypatch.setattr(composition, "_warn", warnings.append)
    if now != "def":
        monkeypatch.setattr(composition, "commit", lambda checkout: now)
    bench("--blocks-per-update 1 4")
    monkeypatch.setattr(composition, "commit", lambda checkout: now)
    ran = bench("--blocks-per-update 1 --keep")
    assert len(trained) == 3 and len(ran.rows) == 1
    (dropped,) = (text for text in warnings if "dropped" in text)
    assert dropped.startswith("2 samples of composition.json")
    no_later = [text for text in warnings if "no later run" in text]
    assert len(no_later) == (0 if now == "def" else 2)


@pytest.mark.parametrize(
    ("flag", "key"), [("--architecture cbow", "architecture"), ("", "machine")]
)
def test_keep_refuses_results_of_another_kind(bench, trained, flag, key):
    bench("--blocks-per-update 1")
    path = Path(results.RESULTS, "composition.json")
    if key == "machine":
        other = json.loads(path.read_text()) | {"machine": {"cpu": "another"}}
        path.write_text(json.dumps(other))
    before = path.read_text()
    with pytest.raises(SystemExit, match=key):
        bench(f"{flag} --blocks-per-update 4 --keep")
    assert path.read_text() == before and len(trained) == 1
    with pytest.raises(SystemExit, match="`tiles` must be .* got 'a:b'"):
        bench("--tiles a:b")
