"""The bench `composition`: what it trains, what it keeps, and its table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import composition, cpu, results
from bench.systems import Measured
from embedder import read_vectors
from embedder.tables.options import default_alpha
from embedder.vectors.export import write_vectors

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
def further_set(small_data) -> Iterator[None]:
    """A similarity set `rare` beside WS-353 and SimLex."""
    path = small_data / "word-eval" / "rare.tsv"
    path.write_text("aa\tab\t3\nac\tch\t2\nad\tae\t1\n")
    yield
    path.unlink()


def test_alpha_is_the_default_of_the_blocks_and_those_asked_for(run_bench, trained):
    run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 64 --alphas 0.3")
    alphas = [(x["blocks_per_update"], x["alpha"]) for x in trained]
    default = [default_alpha("skipgram", 1, 5, n) for n in (1, 64)]  # rare tokens
    assert alphas == [(1, default[0]), (1, 0.3), (64, default[1]), (64, 0.3)]
    assert default[1] > default[0]


def test_a_default_is_marked_in_the_table(run_bench, trained):
    ran = run_bench(
        "composition",
        f"{ARGUMENTS} --blocks-per-update 1 16 --alphas 0.3 --tiles 16:32 32:32",
    )
    marked = [row[2:5] for row in ran.rows if "default" in row[3]]
    assert marked == [["16:32", "1 (64), default", "0.1000"]]


def test_tiles_and_blocks_reach_the_training(run_bench, trained):
    run_bench("composition", f"{ARGUMENTS} --blocks-per-update 2 --tiles 64:8")
    run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 --block 4096")
    shapes = [(x["tile"], x["noise"], x["block"]) for x in trained]
    assert shapes == [(64, 8, 64), (16, 32, 4096)]


def test_a_row_has_the_median_and_the_range_of_its_seeds(run_bench, trained):
    ran = run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 --seeds 1 2 3")
    [row] = ran.rows
    assert row[5] == "3"
    assert row[-1] == "2.00 (1.00 to 3.00)"


def test_rows_of_other_programs_follow_those_of_equal_epochs(run_bench, trained):
    ran = run_bench(
        "composition",
        "--corpus {data}/corpus.txt --epochs 2 1 --blocks-per-update 1 "
        "--programs gensim",
    )
    first = [(row[0], row[1]) for row in ran.rows]
    gensim = cpu.BASELINE
    assert first == [("embedder", "1"), (gensim, "1"), ("embedder", "2"), (gensim, "2")]
    assert [x["program"] for x in trained] == ["port", "port", "gensim", "gensim"]


@pytest.mark.usefixtures("further_set")
def test_further_similarity_sets_are_scored(run_bench, trained):
    ran = run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1")
    table = composition.table(ran.results["composition"])
    assert table.columns[-5:-1] == ["WS-353", "SimLex", "analogies %", "rare"]
    assert -1 <= float(ran.rows[0][-2]) <= 1
    [sample] = ran.results["composition"]["samples"]
    assert sample["rare"] != sample["ws353"]


def test_keep_trains_only_what_is_missing(run_bench, trained):
    run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1")
    ran = run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 4 --keep")
    assert [x["blocks_per_update"] for x in trained] == [1, 4]
    assert len(ran.rows) == 2
    ran = run_bench("composition", f"{ARGUMENTS} --blocks-per-update 4")
    assert len(trained) == 3 and len(ran.rows) == 1


def test_keep_has_each_sample_written_when_it_is_measured(
    run_bench, trained, monkeypatch
):
    run_once = composition.measure

    def fail_at_the_second(*arguments, **settings) -> Measured:
        if len(trained) == 1:
            raise KeyboardInterrupt
        return run_once(*arguments, **settings)

    monkeypatch.setattr(composition, "measure", fail_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 4")
    monkeypatch.setattr(composition, "measure", run_once)
    ran = run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 4 --keep")
    assert [x["blocks_per_update"] for x in trained] == [1, 4]
    assert len(ran.rows) == 2


@pytest.mark.parametrize("now", ["def", "abc dirty", "unknown"])
def test_keep_drops_samples_of_other_commits(run_bench, trained, monkeypatch, now):
    warnings: list[str] = []
    monkeypatch.setattr(composition, "_warn", warnings.append)
    if now != "def":
        monkeypatch.setattr(composition, "commit", lambda checkout: now)
    run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 4")
    monkeypatch.setattr(composition, "commit", lambda checkout: now)
    ran = run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 --keep")
    assert len(trained) == 3 and len(ran.rows) == 1
    dropped = [text for text in warnings if "dropped" in text]
    assert len(dropped) == 1 and dropped[0].startswith("2 samples of composition.json")
    no_later = [text for text in warnings if "no later run" in text]
    assert len(no_later) == (0 if now == "def" else 2)


@pytest.mark.usefixtures("trained")
def test_keep_refuses_results_with_other_sets(run_bench, further_set, small_data):
    run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1")
    further = small_data / "word-eval" / "rare.tsv"
    further.rename(further.with_name("other.tsv"))
    try:
        with pytest.raises(SystemExit, match="the same sets"):
            run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1 --keep")
    finally:
        further.with_name("other.tsv").rename(further)


@pytest.mark.parametrize(
    ("flag", "key"), [("--architecture cbow", "architecture"), ("", "machine")]
)
def test_keep_refuses_results_of_another_kind(run_bench, trained, flag, key):
    run_bench("composition", f"{ARGUMENTS} --blocks-per-update 1")
    path = Path(results.RESULTS, "composition.json")
    if key == "machine":
        other = json.loads(path.read_text()) | {"machine": {"cpu": "another"}}
        path.write_text(json.dumps(other))
    before = path.read_text()
    with pytest.raises(SystemExit, match=key):
        run_bench("composition", f"{ARGUMENTS} {flag} --blocks-per-update 4 --keep")
    assert path.read_text() == before
    assert len(trained) == 1


@pytest.mark.parametrize("tile", ["16", "16:", "a:b", "16:32:8"])
def test_a_malformed_tile_is_refused(run_bench, trained, tile):
    with pytest.raises(SystemExit, match=f"`tiles` must be .* got '{tile}'"):
        run_bench("composition", f"{ARGUMENTS} --tiles {tile}")
    assert not trained
