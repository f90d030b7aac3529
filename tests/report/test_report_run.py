"""Reports of runs: written when a training ends, and by the verb."""

import errno
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from embedder import EmbeddingTrainer, FeatureEncoder
from embedder.cli import main
from embedder.config import make_config
from embedder.disk.digests import DIGESTS_FILE
from embedder.errors import InputError
from embedder.report.page import Report
from embedder.run.stopping import Stop, Stopped
from embedder.run.train import train
from embedder.vectors.export import read_vectors
from tests.commands import error_line, record_stages, run_python
from tests.report import parsed

FAST = ["--loader", "memory", "--vector-size", "8", "--min-count", "1", "--sample", "0"]
FAST += ["--epochs", "2"]
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "</script>"]
RESULTS = "vectors.safetensors", "model.npz", "vectors.txt"


def write_text(path: Path) -> str:
    rng = np.random.default_rng(0)
    path.write_text("\n".join(" ".join(rng.permutation(WORDS)) for _ in range(60)))
    return str(path)


def write_images(folder: Path) -> str:
    rng = np.random.default_rng(0)
    for name, least in (("dark", 0), ("<b>bright", 156)):
        (folder / name).mkdir(parents=True)
        for number in range(20):
            pixels = least + rng.integers(100, size=(4, 3, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(
                folder / name / f"{number}.png"
            )
    return str(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Finished runs: of tokens, of replicas, of images. Tests only read them."""
    folder = tmp_path_factory.mktemp("runs")
    text, images = write_text(folder / "text.txt"), write_images(folder / "photos")
    encoder = ["--model", "encoder", "--loader", "memory", "--network", "mlp"]
    encoder += ["--epochs", "2", "--batch-size", "8", "--validation-fraction", "0.5"]
    for name, command in {
        "tokens": [text, *FAST],
        "other": [text, *FAST, "--window", "2", "--epochs", "1"],
        "replicas": [text, *FAST, "--replicas", "3"],
        "images": [images, *encoder],
    }.items():
        assert main(["train", *command, "--workdir", str(folder / name)]) == 0
    return folder


@pytest.fixture
def run(runs, tmp_path) -> Path:
    """A copy of the run of tokens, which a test may change."""
    return shutil.copytree(runs / "tokens", tmp_path / "run")


def written(run: Path, folder: Path) -> parsed.Element:
    """The page that the user asks for; of small runs it alone has a map."""
    path = folder / "page.html"
    assert main(["report", str(run), "--to", str(path)]) == 0
    return page(path)


def page(path: Path) -> parsed.Element:
    return parsed.parse(path.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_training_ends_with_its_report(runs):
    found = page(runs / "tokens" / "report.html")
    assert found.one("h1").text == "Report of tokens"
    result = parsed.table(found, "Result")
    assert result["epochs"] == ["2 of 2"] and result["end"] == ["all epochs are done"]
    lines = (runs / "tokens" / "metrics.jsonl").read_text().splitlines()
    assert result["loss at the end"] == [f"{json.loads(lines[-1])['loss']:.4f}"]
    facts = parsed.table(found, "Data")
    assert facts["types"] == ["9"] and facts["tokens of the vocabulary"] == ["540"]
    assert facts["file text.txt"][0].startswith(
        f"{(runs / 'text.txt').stat().st_size:,}"
    )
    given = parsed.table(found, "Settings other than the defaults")
    assert given["vector_size"] == ["8", "100"] and "window" not in given
    assert "alpha" in parsed.table(found, "Settings that were left open")
    titles = [each.one("strong").text for each in found.every("figcaption")]
    assert titles == ["loss", "alpha", "words_per_second", "time, % by activity"]


def test_the_facts_of_a_corpus_are_those_of_its_text(tmp_path):
    text, run = tmp_path / "text.txt", tmp_path / "run"
    lines = ["a a a b b c", "a b d", "a"] * 10 + ["rare words only"]
    text.write_text("\n".join(lines))
    command = ["train", str(text), "--min-count", "5", "--sample", "0.01"]
    command += ["--loader", "memory", "--epochs", "1", "--vector-size", "4"]
    assert main([*command, "--workdir", str(run)]) == 0
    facts = parsed.table(page(run / "report.html"), "Data")
    counts = {"a": 50, "b": 30, "c": 10, "d": 10}
    limits = [0.01 / (count / 100) for count in counts.values()]
    kept = sum(
        count * min(1, limit**0.5 + limit)
        for count, limit in zip(counts.values(), limits, strict=True)
    )
    assert facts["sequences with known tokens"] == ["30"] and facts["tokens"] == ["103"]
    assert facts["tokens outside the vocabulary (min_count)"] == ["3, 2.91 %"]
    assert facts["tokens kept in an epoch (sample)"] == [
        f"{kept:.4g} % of the vocabulary"
    ]
    before = json.loads((run / "corpus.json").read_text())
    for changed in ({}, {"tokens": "many", "kept_share": True, "sequences": -1e999}):
        (run / "corpus.json").write_text(json.dumps(before | {"facts": changed}))
        assert main(["report", str(run)]) == 0
        facts = parsed.table(page(run / "report.html"), "Data")
        assert "tokens of the vocabulary" in facts and "tokens" not in facts


@pytest.mark.slow
def test_a_training_of_few_tokens_ends_with_no_map(runs):
    found = page(runs / "tokens" / "report.html")
    assert not found.every("script", id="map-data")
    assert found.one("section", id="samples")


def test_the_map_and_the_samples_have_the_neighbours(runs, tmp_path):
    found = written(runs / "tokens", tmp_path)
    vectors = read_vectors(runs / "tokens" / "vectors.safetensors")
    data = parsed.data(found, "map-data")
    assert sorted(data["texts"]) == sorted(WORDS)
    near = decoded(data["ids"], "<u2").reshape(len(WORDS), -1)
    ids, cosines = vectors.neighbors(data["texts"], 10)
    assert [data["texts"][i] for i in near[0]] == [vectors.keys[i] for i in ids[0]]
    similarity = decoded(data["similarity"], "<i2") / 10_000
    np.testing.assert_allclose(similarity, cosines.ravel(), atol=6e-5)
    samples = parsed.table(found, "Neighbours with their similarity")
    assert len(samples) == 6 and "the" in str(samples)


def decoded(text: str, dtype: str) -> np.ndarray:
    import base64

    return np.frombuffer(base64.b64decode(text), dtype)


def test_a_run_of_replicas_has_intervals_and_stability(runs, tmp_path):
    found = written(runs / "replicas", tmp_path)
    data = parsed.data(found, "map-data")
    assert [each["name"] for each in data["colourings"]] == ["frequency", "stability"]
    middle, low, high = (
        decoded(data[name], "<i2") for name in ("similarity", "lower", "upper")
    )
    assert (low <= middle).all() and (middle <= high).all() and (low < high).any()
    assert "interval over the replicas" in found.one("section", id="samples").text


def test_the_report_of_an_encoder_has_its_predictions(runs, tmp_path):
    found = written(runs / "images", tmp_path)
    assert parsed.table(found, "Result")["epochs"] == ["2 of 2"]
    section = found.one("section", id="predictions")
    scores = parsed.table(section, "Of validation examples")
    assert scores["examples"] == ["20"]
    for name in ("accuracy", "negative log likelihood", "calibration error (ECE)"):
        numbers = re.fullmatch(r"([\d.]+) \[([\d.]+), ([\d.]+)\]", scores[name][0])
        value, low, high = map(float, numbers.groups())
        assert low <= high and (low <= value <= high or "ECE" in name)
    confusion = parsed.table(section, "Confusion matrix")
    assert confusion["label"] == ["<b>bright", "dark"]
    counts = [int(x) for row in ("dark", "<b>bright") for x in confusion[row]]
    assert sum(counts) == 20
    images = section.every("img")
    assert len(images) == 20  # all of the validation examples, which are few
    assert {"dark", "<b>bright"} == {
        each.attributes["alt"].rpartition("label ")[2] for each in images
    }
    assert parsed.data(found, "map-data")["colourings"][0]["name"] == "label"
    titles = [each.one("strong").text for each in found.every("figcaption")]
    assert titles[0] == "loss" and "Accuracy by confidence" in titles


def test_no_report_if_it_is_not_wanted(runs, tmp_path):
    folder = tmp_path / "run"
    command = ["train", str(runs / "text.txt"), *FAST, "--workdir", str(folder)]
    assert main([*command, "--no-report"]) == 0
    assert not (folder / "report.html").exists()
    for name in RESULTS:
        assert (folder / name).read_bytes() == (runs / "tokens" / name).read_bytes()


def test_no_checksum_is_of_the_report(run, capsys):
    assert "report.html" not in (run / DIGESTS_FILE).read_text()
    for change in (lambda p: p.write_text("changed"), Path.unlink):
        change(run / "report.html")
        assert main(["verify", str(run)]) == 0
        out = capsys.readouterr().out
        assert "0 not." in out and "report.html" not in out


def test_the_same_command_takes_a_folder_with_a_report_for_a_run(runs, run, capsys):
    text = str(runs / "text.txt")
    assert main(["train", text, *FAST, "--workdir", str(run)]) == 0
    assert "finished before" in capsys.readouterr().out
    (run / "report.html").write_text("of before")
    command = ["train", text, *FAST, "--workdir", str(run), "--overwrite"]
    assert main([*command, "--no-report"]) == 0
    assert not (run / "report.html").exists()


def test_a_longer_run_has_a_new_report(runs, run):
    command = ["train", str(runs / "text.txt"), *FAST, "--workdir", str(run)]
    assert main([*command, "--epochs", "3"]) == 0
    assert parsed.table(page(run / "report.html"), "Result")["epochs"] == ["3 of 3"]


def test_a_mirror_has_the_report(runs, tmp_path):
    command = ["train", str(runs / "text.txt"), *FAST]
    mirror = ["--mirror", str(tmp_path / "mirror")]
    assert main([*command, "--workdir", str(tmp_path / "one"), *mirror]) == 0
    report = (tmp_path / "one" / "report.html").read_bytes()
    assert (tmp_path / "mirror" / "report.html").read_bytes() == report
    assert main([*command, "--workdir", str(tmp_path / "two"), *mirror]) == 0
    assert (tmp_path / "two" / "report.html").read_bytes() == report


def test_the_verb_writes_the_report_of_a_run(run, tmp_path, capsys, monkeypatch):
    seen = record_stages(monkeypatch)
    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    printed = capsys.readouterr()
    assert "report.html: " in printed.out and printed.err == ""
    for stage in (
        f"reading {run}",
        "samples of neighbours",
        "the map of 9 tokens: neighbours",
        "the map of 9 tokens: positions",
        f"writing {run / 'report.html'}",
    ):
        assert stage in seen
    assert page(run / "report.html").one("h1").text == "Report of run"
    to = tmp_path / "elsewhere.html"
    assert main(["report", str(run), "--to", str(to)]) == 0
    assert page(to).one("h1").text == "Report of run"


def test_runs_are_compared(runs, tmp_path):
    to, others = tmp_path / "all.html", [str(runs / "other"), str(runs / "replicas")]
    command = ["report", str(runs / "tokens"), "--to", str(to), "--compare", *others]
    assert main(command) == 0
    section = page(to).one("section", id="comparison")
    settings = parsed.table(section, "Settings that differ")
    assert settings["setting"] == ["tokens", "other", "replicas"]
    assert settings["window"] == ["5", "2", "5"]
    assert settings["replicas"] == ["1", "1", "3"] and "seed" not in settings
    results = parsed.table(section, "Results")
    assert results["epochs"] == ["2 of 2", "1 of 1", "2 of 2"]
    (loss,) = (
        each for each in section.every("figure") if each.one("strong").text == "loss"
    )
    names = [each.text for each in loss.every("span", **{"class": "key"})]
    assert names == ["tokens", "other", "replicas"]


def test_a_comparison_does_not_replace_the_report(runs, tmp_path):
    run = shutil.copytree(runs / "tokens", tmp_path / "run")
    before = (run / "report.html").read_bytes()
    assert main(["report", "--compare", str(run), str(runs / "other")]) == 0
    assert (run / "report.html").read_bytes() == before
    assert page(run / "compare.html").one("section", id="comparison")
    assert main(["verify", str(run)]) == 0


def test_names_are_shown_searched_and_colour_the_map(run, tmp_path):
    table = tmp_path / "names.csv"
    table.write_text("key,name,kind\nfox,<i>Fox,animal\ndog,Dog,animal\nthe,The,word\n")
    command = ["report", str(run), "--names", str(table)]
    assert main([*command, "--label", "kind"]) == 0
    found = page(run / "report.html")
    data = parsed.data(found, "map-data")
    names = dict(zip(data["texts"], data["names"], strict=True))
    assert (names["fox"], names["quick"]) == ("<i>Fox", "")
    assert data["colourings"][0]["meanings"] == ["animal", "word", "other or none"]
    assert "<i>Fox" in found.one("section", id="samples").text
    assert "names" in found.one("label", **{"for": "map-query"}).text


@pytest.mark.row("B63")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "RUN .*missing does not exist"),
        ("vectors.txt", "RUN must be the folder of a run, got .*vectors.txt"),
        ("bare", "RUN must be the folder of a run, got .*bare"),
    ],
)
def test_what_is_no_run_is_refused(run, tmp_path, capsys, name, message):
    (tmp_path / "bare").mkdir()
    for each, folder in (("vectors.txt", tmp_path), ("vectors.safetensors", "bare")):
        shutil.copy(run / each, tmp_path / folder / each)
    assert main(["report", str(tmp_path / name)]) == 2
    assert re.search(message, error_line(capsys))
    others = ["--to", str(tmp_path / "x.html"), "--compare", str(tmp_path / name)]
    assert main(["report", str(run), *others]) == 2
    found = error_line(capsys)
    assert name in found and not (tmp_path / "x.html").exists()


@pytest.mark.row("B63")
@pytest.mark.parametrize(
    ("written", "end"),
    [
        (None, "not finished: its process has ended; the same command resumes it"),
        ('{"how": "stopped", "message": "by <b>"}', "stopped: by <b>"),
        ('{"how": "won", "message": "x"}', "not finished: its process has ended"),
        ('{"how": "failed"', "not finished: its process has ended"),
        ("[1]", "not finished: its process has ended"),
    ],
)
def test_a_run_that_is_not_finished_has_a_report_without_vectors(run, written, end):
    (run / "vectors.safetensors").unlink()
    if written is not None:
        (run / "ended.json").write_text(written)
    assert main(["report", str(run)]) == 0
    found = page(run / "report.html")
    result = parsed.table(found, "Result")
    assert result["end"][0].startswith(end)
    assert result["epochs"] == ["2 of 2"] and "loss, the last" in result
    assert "it has no vectors yet" in found.one("section", id="result").text
    assert found.one("section", id="curves") and found.one("section", id="settings")
    assert not found.every("section", id="map")


@pytest.mark.row("B63")
def test_a_run_that_diverged_says_so_until_it_is_trained_anew(runs, tmp_path, capsys):
    folder = tmp_path / "run"
    command = ["train", str(runs / "text.txt"), *FAST, "--workdir", str(folder)]
    wild = ["--alpha", "1e30", "--max-pairs-per-row", "inf"]
    assert main([*command, *wild]) == 3
    capsys.readouterr()
    assert main(["watch", str(folder)]) == 0
    assert "\nDiverged: The loss " in capsys.readouterr().out
    assert main(["report", str(folder)]) == 0
    result = parsed.table(page(folder / "report.html"), "Result")
    assert result["end"][0].startswith("diverged: The loss ")
    both = ["--to", str(tmp_path / "both.html"), "--compare", str(runs / "tokens")]
    assert main(["report", str(folder), *both]) == 0
    section = page(tmp_path / "both.html").one("section", id="comparison")
    ends = parsed.table(section, "Results")["end"]
    assert ends[0].startswith("diverged: ") and ends[1] == "all epochs are done"
    assert main([*command, "--overwrite"]) == 0
    assert not (folder / "ended.json").exists()


def test_a_run_that_was_stopped_says_so_until_it_resumes(runs, tmp_path, capsys):
    """By the first signal, after the first line of progress.jsonl."""
    folder = tmp_path / "run"
    config = make_config({"vector_size": 8, "min_count": 1, "epochs": 20})
    stop, source = Stop(), str(runs / "text.txt")

    def request(status):
        if status.updates:
            stop.request(signal.SIGTERM)

    with pytest.raises(Stopped):
        train(config, folder, source, on_status=request, stop=stop)
    assert main(["watch", str(folder)]) == 0
    assert "\nStopped: Stopped after " in capsys.readouterr().out
    assert main(["report", str(folder)]) == 0
    result = parsed.table(page(folder / "report.html"), "Result")
    assert result["end"][0].startswith("stopped: Stopped after ")
    assert result["end"][0].endswith(" updates, which are saved.")
    train(config, folder, source)
    assert not (folder / "ended.json").exists()


def write_sessions(path: Path) -> str:
    """A table of 40 sessions of 6 items."""
    rng = np.random.default_rng(0)
    rows = [f"{i},{rng.choice(WORDS[:-1])}" for i in range(40) for _ in range(6)]
    path.write_text("\n".join(["session,item", *rows]) + "\n")
    return str(path)


def test_the_speed_of_sessions_is_of_items_as_in_the_progress(tmp_path, capsys):
    source = write_sessions(tmp_path / "sessions.csv")
    run = tmp_path / "run"
    assert main(["train", source, *FAST, "--workdir", str(run)]) == 0
    assert " items/s" in capsys.readouterr().err
    found = page(run / "report.html")
    assert "items/s" in parsed.table(found, "Result")
    assert "items_per_second" in found.text and "words_per" not in found.text
    assert main(["watch", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "items/s" in shown and "words" not in shown
    trainer = EmbeddingTrainer(min_count=1, vector_size=8, epochs=2)
    page_of_trainer = parsed.parse(trainer.fit(source).report().html)
    assert "items/s" in parsed.table(page_of_trainer, "Result")


@pytest.mark.row("B63")
def test_damaged_vectors_are_refused(run, capsys):
    path = run / "vectors.safetensors"
    before = (run / "report.html").read_bytes()
    path.write_bytes(path.read_bytes()[:-5])
    assert main(["report", str(run)]) == 2
    assert "vectors.safetensors" in error_line(capsys)
    assert (run / "report.html").read_bytes() == before


@pytest.mark.row("B64")
def test_a_run_without_metrics_has_a_report_that_says_so(run):
    (run / "metrics.jsonl").unlink()
    (run / "progress.jsonl").unlink()
    assert main(["report", str(run)]) == 0
    found = page(run / "report.html")
    assert "the run has no metrics.jsonl" in found.one("section", id="result").text
    assert not found.every("section", id="curves")


@pytest.mark.row("B64")
def test_damaged_metrics_are_left_out_and_said(run):
    path = run / "metrics.jsonl"
    path.write_bytes(b'{"epoch": 1, "los\n\xff\n' + path.read_bytes())
    assert main(["report", str(run)]) == 0
    found = page(run / "report.html")
    assert "2 damaged lines" in found.one("section", id="result").text
    assert parsed.table(found, "Result")["epochs"] == ["2 of 2"]


@pytest.mark.row("B65")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--label", "kind"], "`label` needs `names`, got 'kind'"),
        (["--names", "names.csv", "--label", "sort"], "`label` must be a column of"),
        (["--names", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_wrong_names_are_refused(run, tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    Path("names.csv").write_text("key,name,kind\nfox,Fox,animal\n")
    assert main(["report", str(run), *flags]) == 2
    assert message in error_line(capsys)


@pytest.mark.row("B66")
def test_targets_that_are_no_file_of_html_are_refused(run, tmp_path, capsys):
    (tmp_path / "folder.html").mkdir()
    vectors = (run / "vectors.txt").read_bytes()
    for to, message in (
        (tmp_path / "folder.html", "`to` must be a file, got the folder"),
        (tmp_path / "report.txt", "`to` must end in .html or .htm, got"),
        (run / "vectors.txt", "`to` must end in .html or .htm, got"),
        (tmp_path / "none" / "x.html", "does not exist"),
    ):
        assert main(["report", str(run), "--to", str(to)]) == 2
        assert message in error_line(capsys)
    assert (run / "vectors.txt").read_bytes() == vectors


@pytest.mark.row("B66")
def test_the_report_of_another_run_is_no_target(runs, run, capsys):
    other = runs / "other" / "report.html"
    before = other.read_bytes()
    assert main(["report", str(run), "--to", str(other)]) == 2
    assert "`to` must not be a file of a run" in error_line(capsys)
    assert other.read_bytes() == before


@pytest.mark.row("B66")
def test_a_file_that_exists_is_replaced(run, tmp_path):
    to = tmp_path / "report.html"
    to.write_text("before")
    assert main(["report", str(run), "--to", str(to)]) == 0
    assert page(to).one("h1")


KILLED = """
import os, signal, sys
from contextlib import contextmanager
from embedder.cli import main
from embedder.report import page

@contextmanager
def killed(path):
    with open(path.with_name(f".{path.name}.01234567.tmp"), "w") as part:
        part.write("<!doc")
        part.flush()
        os.kill(os.getpid(), signal.SIGKILL)
        yield path

page.atomic_file = killed
main(sys.argv[1:])
"""


@pytest.mark.row("F53")
def test_a_run_killed_within_its_report_is_finished(runs, tmp_path, capsys):
    folder = tmp_path / "run"
    command = ["train", str(runs / "text.txt"), *FAST, "--workdir", str(folder)]
    done = run_python("-c", KILLED, *command)
    assert done.returncode == -signal.SIGKILL
    assert not (folder / "report.html").exists()
    for name in RESULTS:
        assert (folder / name).read_bytes() == (runs / "tokens" / name).read_bytes()
    assert main(["verify", str(folder)]) == 0
    assert main(command) == 0
    assert "finished before" in capsys.readouterr().out
    assert main(["report", str(folder)]) == 0
    assert page(folder / "report.html").one("h1")


@pytest.mark.row("F54")
def test_a_full_disk_for_the_report_loses_nothing(runs, tmp_path, monkeypatch, capsys):
    def full(self, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Report, "save", full)
    folder = tmp_path / "run"
    command = ["train", str(runs / "text.txt"), *FAST, "--workdir", str(folder)]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "report.html is not written: No space left on device." in said.err
    assert said.out.endswith("done. 9 vectors of 8 numbers.\n")
    assert not (folder / "report.html").exists()
    for name in RESULTS:
        assert (folder / name).read_bytes() == (runs / "tokens" / name).read_bytes()
    assert main(["report", str(folder)]) == 3
    assert "report.html: No space left on device." in error_line(capsys)


@pytest.mark.row("F54")
def test_a_bug_of_the_report_loses_nothing(runs, tmp_path, monkeypatch, capsys):
    def fail(page):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("embedder.report.of_run.make_report", fail)
    command = ["train", str(runs / "text.txt"), *FAST, "--workdir", str(tmp_path / "r")]
    assert main(command) == 0
    assert "is not written: division by zero." in capsys.readouterr().err


def test_images_that_are_gone_are_left_out_with_a_note(runs, tmp_path):
    run = shutil.copytree(runs / "images", tmp_path / "run")
    facts = json.loads((run / "corpus.json").read_text())
    (run / "corpus.json").write_text(json.dumps(facts | {"source": "/nowhere"}))
    assert main(["report", str(run)]) == 0
    found = page(run / "report.html")
    assert "Images are left out" in found.one("section", id="result").text
    assert not found.every("img") and len(
        found.one("ul", **{"class": "hardest"}).children
    )


@pytest.mark.row("B92")
def test_without_pillow_images_are_left_out_with_a_note(runs, tmp_path, monkeypatch):
    """With decoded images in the cache of the run, then without."""
    run = shutil.copytree(runs / "images", tmp_path / "run")
    monkeypatch.setitem(sys.modules, "PIL", None)
    for note in (r"python -m .*\[images\]' adds them", "The image .* needs Pillow, .*"):
        found = written(run, tmp_path)
        result = found.one("section", id="result").text
        assert re.search(rf"Images are left out: {note}\.", result)
        assert not found.every("img") and found.every("ul", **{"class": "hardest"})
        shutil.rmtree(run / "cache", ignore_errors=True)


def test_a_trainer_in_python_has_a_report():
    trainer = EmbeddingTrainer(vector_size=8, min_count=1, sample=0, epochs=3)
    trainer.fit([WORDS] * 50)
    found = parsed.parse(trainer.report(names={"fox": "<i>Fox"}).html)
    assert parsed.table(found, "Data")["types"] == ["9"]
    losses = parsed.table(found, "Result")["loss at the end"]
    assert losses == [f"{trainer.loss_history[-1]:.4f}"]
    assert "<i>Fox" in parsed.data(found, "map-data")["names"]
    assert 'srcdoc="&lt;!doctype html' in trainer.report()._repr_html_()


TITLES = ["loss", "alpha", "words_per_second", "time, % by activity"]


def titles(report) -> list[str]:
    found = parsed.parse(report.html).one("section", id="curves")
    return [each.one("strong").text for each in found.every("figcaption")]


def test_the_report_of_a_trainer_has_what_that_of_a_run_has(tmp_path):
    trainer = EmbeddingTrainer(vector_size=8, min_count=1, sample=0, epochs=2)
    trainer.fit([WORDS] * 50, holdout=0.1)
    assert sorted(titles(trainer.report())) == sorted([*TITLES, "held_out"])
    results = parsed.table(parsed.parse(trainer.report().html), "Result")
    of_time = {name for name in results if name.startswith("time: ")}
    assert of_time > {"time: compiling, the first call", "time: updates"}
    updates = int(results["updates"][0])
    assert float(results["words/s"][0].replace(",", "")) > 0
    trainer.partial_fit([WORDS] * 50)
    results = parsed.table(parsed.parse(trainer.report().html), "Result")
    assert results["epochs"] == ["3 of 3"] and int(results["updates"][0]) > updates
    trainer.save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    assert titles(loaded.report()) == ["loss"]
    loaded.partial_fit([WORDS] * 50)
    assert sorted(titles(loaded.report())) == sorted(TITLES)


def test_a_trainer_that_is_not_trained_has_none():
    with pytest.raises(RuntimeError, match="not trained yet"):
        EmbeddingTrainer().report()


def test_an_encoder_in_python_has_a_report(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.array(["a", "b"] * 20)
    X = rng.normal(size=(40, 4, 4)) + (y == "a")[:, None, None]
    encoder = FeatureEncoder(epochs=2).fit(X, y)
    found = parsed.parse(encoder.report(X, y).html)
    assert len(found.every("img")) == 24
    matrix = parsed.table(found, "Confusion matrix")
    right = int(matrix["a"][0]) + int(matrix["b"][1])
    assert right == int((encoder.predict(X) == y).sum())
    assert parsed.parse(encoder.report().html).one("section", id="curves")
    assert not parsed.parse(encoder.report(X).html).every("section", id="predictions")
    with pytest.raises(InputError, match="`y` needs `X`"):
        encoder.report(None, y)
    with pytest.raises(InputError, match="`y` must have classes .* got 'c'"):
        encoder.report(X, ["c"] * 40)
    with pytest.raises(InputError, match="`y` must have 40 labels, got 3"):
        encoder.report(X, y[:3])
    monkeypatch.setitem(sys.modules, "PIL", None)
    found = parsed.parse(encoder.report(X, y).html)
    assert found.one("section", id="predictions") and not found.every("img")


@pytest.mark.slow
def test_an_encoder_without_labels_has_a_map_but_no_predictions(tmp_path):
    folder, run = tmp_path / "flat", tmp_path / "run"
    folder.mkdir()
    images = np.random.default_rng(1).integers(256, size=(20, 8, 8), dtype=np.uint8)
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number:02}.png")
    command = ["train", str(folder), "--model", "encoder", "--loader", "memory"]
    command += ["--objective", "simclr", "--augment", "flip", "--network", "mlp"]
    command += ["--epochs", "1", "--batch-size", "8", "--workdir", str(run)]
    assert main(command) == 0
    found = written(run, tmp_path)
    assert not found.every("section", id="predictions")
    assert "no labels" in found.one("section", id="result").text
    assert len(parsed.data(found, "map-data")["texts"]) == 20
