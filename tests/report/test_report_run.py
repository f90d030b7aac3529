"""Reports of runs: written when a training ends, and by the verb."""

import base64
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

from embedder import EmbeddingTrainer, FeatureEncoder, read_vectors
from embedder.cli.main import main
from embedder.errors import InputError
from tests.commands import error_line, json_lines, record_stages, run_python
from tests.contract.events import at_each_event
from tests.encoders.image_cases import write_pngs
from tests.report import parsed
from tests.report.conftest import ENCODER, FAST, WORDS
from tests.report.parsed import read as page

RESULTS = "vectors.safetensors", "model.npz", "vectors.txt"
TRAIN = ["train", "text.txt", *FAST, "--workdir"]


def written(*arguments: str) -> parsed.Element:
    """The page that the user asks for; of small runs it alone has a map."""
    assert main(["report", *arguments, "--to", "page.html"]) == 0
    return page("page.html")


def rewritten() -> parsed.Element:
    """The page of `run`, made anew."""
    assert main(["report", "run"]) == 0
    return page()


def titles(found: parsed.Element) -> list[str]:
    parts = (x for name in ("curves", "time") for x in found.every("section", id=name))
    captions = (each for part in parts for each in part.every("figcaption"))
    return [each.one("strong").text for each in captions]


def decoded(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


def assert_has_results_of(runs: Path, run: str) -> None:
    for name in RESULTS:
        assert Path(run, name).read_bytes() == (runs / "tokens" / name).read_bytes()


TITLES = ["loss", "alpha", "words_per_second", "time, % by activity"]


def test_a_training_ends_with_its_report(runs):
    found = page(runs / "tokens/report.html")
    assert found.one("h1").text == "Report of tokens"
    result = parsed.table(found, "Result")
    assert result["epochs"] == ["2 of 2"] and result["end"] == ["all epochs are done"]
    loss = json_lines(runs / "tokens/metrics.jsonl")[-1]["loss"]
    assert result["loss at the end"] == [f"{loss:.4f}"]
    facts = parsed.table(found, "Data")
    assert facts["types"] == ["60"] and facts["tokens of the vocabulary"] == ["3,600"]
    size = f"{(runs / 'text.txt').stat().st_size:,}"
    assert facts["file text.txt"][0].startswith(size)
    given = parsed.table(found, "Settings other than the defaults")
    assert given["vector_size"] == ["8", "100"] and "window" not in given
    assert "alpha" in parsed.table(found, "Settings that were left open")
    assert titles(found) == TITLES
    assert found.one("section", id="samples") and found.one("section", id="map")


def test_the_facts_of_a_corpus_are_those_of_its_text(here):
    lines = ["a a a b b c", "a b d", "a"] * 10 + ["rare words only"]
    Path("facts.txt").write_text("\n".join(lines))
    command = "facts.txt --min-count 5 --sample 0.01 --epochs 1 --vector-size 4"
    command += " --loader memory --workdir facts"
    assert main(["train", *command.split()]) == 0
    found = page("facts/report.html")
    assert not found.every("script", id="map-data")  # of few tokens
    facts = parsed.table(found, "Data")
    counts = np.array([50, 30, 10, 10])
    limits = 0.01 / (counts / 100)
    kept = (counts * np.minimum(1, limits**0.5 + limits)).sum()
    assert facts["sequences with known tokens"] == ["30"] and facts["tokens"] == ["103"]
    assert facts["tokens outside the vocabulary (min_count)"] == ["3, 2.91 %"]
    shown = [f"{kept:.4g} % of the vocabulary"]
    assert facts["tokens kept in an epoch (sample)"] == shown
    before = json.loads(Path("facts/corpus.json").read_text())
    for changed in ({}, {"tokens": "many", "kept_share": True, "sequences": -1e999}):
        Path("facts/corpus.json").write_text(json.dumps(before | {"facts": changed}))
        facts = parsed.table(written("facts"), "Data")
        assert "tokens of the vocabulary" in facts and "tokens" not in facts


def test_the_map_and_the_samples_have_the_neighbours(runs, here):
    found = written("run")
    vectors = read_vectors(runs / "tokens/vectors.safetensors")
    data = parsed.data(found, "map-data")
    places = [vectors.keys.index(word) for word in WORDS[:9]]
    assert [data["texts"][i] for i in places] == WORDS[:9]
    ids, cosines = vectors.neighbors(vectors.keys, 10)
    near = decoded(data["ids"], "<u2").reshape(len(WORDS), -1)
    np.testing.assert_array_equal(near, ids)
    similarity = decoded(data["similarity"], "<i2") / 10_000
    np.testing.assert_allclose(similarity, cosines.ravel(), atol=6e-5)
    samples = parsed.table(found, "Neighbours with their similarity")
    assert len(samples) == 6  # of five tokens


def test_a_run_of_replicas_has_intervals_and_stability(here):
    found = written("replicas")
    data = parsed.data(found, "map-data")
    assert [each["name"] for each in data["colourings"]] == ["frequency", "stability"]
    names = "similarity", "lower", "upper"
    middle, low, high = (decoded(data[name], "<i2") for name in names)
    assert (low <= middle).all() and (middle <= high).all() and (low < high).any()
    assert "interval over the replicas" in found.one("section", id="samples").text


def test_the_report_of_an_encoder_has_its_predictions(runs, here):
    found = written(str(runs / "images"))
    assert parsed.table(found, "Result")["epochs"] == ["2 of 2"]
    section = found.one("section", id="predictions")
    scores = parsed.table(section, "Of validation examples")
    assert scores["examples"] == ["30"]
    for name in ("accuracy", "negative log likelihood", "calibration error (ECE)"):
        numbers = re.fullmatch(r"([\d.]+) \[([\d.]+), ([\d.]+)\]", scores[name][0])
        value, low, high = map(float, numbers.groups())
        assert low <= high and (low <= value <= high or "ECE" in name)
    confusion, bright = parsed.table(section, "Confusion matrix"), "<b>\\tbright"
    assert confusion["label"] == [bright, "dark"]
    assert sum(int(x) for row in ("dark", bright) for x in confusion[row]) == 30
    alts = [each.attributes["alt"] for each in section.every("img")]
    assert len(alts) == 24  # of the 30 validation examples
    assert {alt.rpartition("label ")[2] for alt in alts} == {"dark", bright}
    assert parsed.data(found, "map-data")["colourings"][0]["name"] == "label"
    charts = [each.one("strong").text for each in found.every("figcaption")]
    assert "loss" in charts and charts[0] == "Accuracy by confidence"
    loss = found.one("section", id="curves").every("figure")[0]
    keys = [each.text for each in loss.every("span", **{"class": "key"})]
    assert keys == ["train_loss", "val_loss"]


def test_the_results_of_a_run_are_the_same_without_a_report(runs, here, capsys):
    """Which has no checksum, and belongs to the run for the same command."""
    assert main([*TRAIN, "new", "--no-report"]) == 0
    assert not Path("new/report.html").exists()
    assert_has_results_of(runs, "new")
    assert written("new") and not [*Path("new/tensorboard").glob("*projector*")]
    assert "report.html" not in Path("run/SHA256SUMS").read_text()
    for change in (lambda path: path.write_text("changed"), Path.unlink):
        change(Path("run/report.html"))
        capsys.readouterr()
        assert main(["verify", "run"]) == 0
        out = capsys.readouterr().out
        assert "0 not." in out and "report.html" not in out
    assert main([*TRAIN, "run"]) == 0
    assert "finished before" in capsys.readouterr().out
    Path("run/report.html").write_text("of before")
    assert main([*TRAIN, "run", "--overwrite", "--no-report"]) == 0
    assert not Path("run/report.html").exists()


def test_the_map_after_a_training_shows_groups_with_names(here):
    pytest.importorskip("openTSNE")
    groups = [[f"{letter}{i}" for i in range(20)] for letter in "abcdef"]
    order = np.random.default_rng(0).permutation
    lines = [" ".join(order(group)) for group in groups for _ in range(20)]
    Path("groups.txt").write_text("\n".join(lines))
    assert main(["train", "groups.txt", *FAST, "--workdir", "groups"]) == 0
    found = page("groups/report.html")
    assert "120 tokens by t-SNE" in found.one("section", id="map").text
    data = parsed.data(found, "map-data")
    assert len(data["groups"]) == len({*data["groups"]}) == 6


def test_a_longer_run_has_a_new_report_and_new_points(here):
    before = Path("run/tensorboard/projector_tensors.bytes").read_bytes()
    assert main([*TRAIN, "run", "--epochs", "3"]) == 0
    assert parsed.table(page(), "Result")["epochs"] == ["3 of 3"]
    after = Path("run/tensorboard/projector_tensors.bytes").read_bytes()
    matrix = read_vectors("run/vectors.safetensors").matrix
    assert after == matrix.astype("<f4").tobytes() != before
    assert main(["verify", "run"]) == 0


def test_a_mirror_has_the_report_and_the_points(here):
    assert main([*TRAIN, "one", "--mirror", "mirror"]) == 0
    points = [*Path("one/tensorboard").glob("projector_*")]
    assert len(points) == 3
    for path in (Path("one/report.html"), *points):
        copy = Path("mirror", path.relative_to("one"))
        assert copy.read_bytes() == path.read_bytes()
    report = Path("one/report.html").read_bytes()
    assert main([*TRAIN, "two", "--mirror", "mirror"]) == 0
    assert Path("two/report.html").read_bytes() == report


def test_the_verb_writes_the_report_of_a_run(here, capsys, monkeypatch):
    seen = record_stages(monkeypatch)
    Path("run/report.html").unlink()
    assert main(["report", "run"]) == 0
    printed = capsys.readouterr()
    assert "report.html: " in printed.out and printed.err == ""
    stages = ["reading run", "samples of neighbours", "writing run/report.html"]
    stages += [f"the map of 60 tokens: {part}" for part in ("neighbours", "positions")]
    assert {*stages} <= {*seen}
    assert page().one("h1").text == "Report of run"
    Path("page.html").write_text("before")
    assert written("run").one("h1").text == "Report of run"


def test_runs_are_compared(here):
    before = Path("run/report.html").read_bytes()
    assert main(["report", "--compare", "run", "other", "replicas"]) == 0
    section = page("run/compare.html").one("section", id="comparison")
    settings = parsed.table(section, "Settings that differ")
    assert settings["setting"] == ["run", "other", "replicas"]
    assert settings["window"] == ["5", "2", "5"]
    assert settings["replicas"] == ["1", "1", "3"] and "seed" not in settings
    results = parsed.table(section, "Results")
    assert results["epochs"] == ["2 of 2", "1 of 1", "2 of 2"]
    loss, *_ = section.every("figure")
    assert loss.one("strong").text == "loss"
    keys = [x.text for x in loss.every("span", **{"class": "key"})]
    assert keys == ["run", "other", "replicas"]
    again = written("run", "--compare", "other", "replicas")
    assert parsed.table(again, "Results") == results
    assert Path("run/report.html").read_bytes() == before
    assert main(["verify", "run"]) == 0


def test_names_are_shown_searched_and_colour_the_map(here):
    """And stand beside the points of TensorBoard."""
    rows = "key,name,kind\nfox,<i>Fox,animal\ndog,Dog,animal\nthe,The,word\n"
    Path("names.csv").write_text(rows)
    assert main(["report", "run", "--names", "names.csv", "--label", "kind"]) == 0
    found = page()
    data = parsed.data(found, "map-data")
    names = dict(zip(data["texts"], data["names"], strict=True))
    assert (names["fox"], names["quick"]) == ("<i>Fox", "")
    assert data["colourings"][0]["meanings"] == ["animal", "word", "other or none"]
    assert "dog Dog" in found.one("section", id="samples").text
    assert "names" in found.one("label", **{"for": "map-query"}).text
    text = Path("run/tensorboard/projector_metadata.tsv").read_text("utf-8")
    assert text.startswith("token\tcount\tname\tkind\n")
    assert "\nfox\t60\t<i>Fox\tanimal\n" in text and "\nquick\t60\t \t \n" in text
    assert main([*TRAIN, "named", "--names", "names.csv"]) == 0  # as after a training
    data = parsed.data(page("named/report.html"), "map-data")
    assert dict(zip(data["texts"], data["names"], strict=True)) == names
    text = Path("named/tensorboard/projector_metadata.tsv").read_text("utf-8")
    assert "\nfox\t60\t<i>Fox\n" in text
    Path("names.csv").write_text("key,count\nfox,many\n")
    assert main(["report", "run", "--names", "names.csv", "--label", "count"]) == 0
    text = Path("run/tensorboard/projector_metadata.tsv").read_text("utf-8")
    assert text.startswith("token\tcount\tname\tcount (label)\n")
    assert re.search("\nfox\t60\t[^\t]+\tmany\n", text)


UNFINISHED = "not finished: its process has ended"


@pytest.mark.row("B63")
@pytest.mark.parametrize(
    ("ended", "end"),
    [
        (None, f"{UNFINISHED}; the same command resumes it"),
        ('{"how": "stopped", "message": "by <b>"}', "stopped: by <b>"),
        ("[1]", UNFINISHED),
    ],
)
def test_a_run_that_is_not_finished_has_a_report_without_vectors(here, ended, end):
    Path("run/vectors.safetensors").unlink()
    if ended is not None:
        Path("run/ended.json").write_text(ended)
    found = rewritten()
    result = parsed.table(found, "Result")
    assert result["end"][0].startswith(end)
    assert result["epochs"] == ["2 of 2"] and "loss, the last" in result
    assert "it has no vectors yet" in found.one("section", id="result").text
    assert found.one("section", id="curves") and found.one("section", id="settings")
    assert not found.every("section", id="map")


@pytest.mark.spread(1)
@pytest.mark.row("B63")
@pytest.mark.parametrize("how", ["diverged", "stopped"])
def test_how_a_run_ended_is_said_until_it_is_trained_anew(here, how, capsys):
    flags = ["--alpha", "1e30", "--max-pairs-per-row", "inf", "--epochs", "20"]
    if how == "diverged":
        assert main([*TRAIN, "new", *flags]) == 3
    else:
        stop = lambda: Path("new/progress.jsonl").exists() and signal.raise_signal(15)  # noqa: E731
        with at_each_event(Path("new"), stop):
            assert main([*TRAIN, "new", *flags[4:]]) == 143
    capsys.readouterr()
    assert main(["watch", "new"]) == 0
    said = {"diverged": "diverged: The loss ", "stopped": "stopped: Stopped after "}
    assert f"\n{how.capitalize()}: {said[how].split()[1]} " in capsys.readouterr().out
    (end,) = parsed.table(written("new"), "Result")["end"]
    assert end.startswith(said[how])
    assert how == "diverged" or end.endswith(" updates, which are saved.")
    ends = parsed.table(written("new", "--compare", "run"), "Results")["end"]
    assert ends == [end, "all epochs are done"]
    again = flags[4:] if how == "stopped" else ["--overwrite"]
    assert main([*TRAIN, "new", *again]) == 0
    assert not Path("new/ended.json").exists()


def test_the_speed_of_sessions_is_of_items_as_in_the_progress(here, capsys):
    rng = np.random.default_rng(0)
    rows = [f"{i},{rng.choice(WORDS[:8])}" for i in range(40) for _ in range(6)]
    Path("sessions.csv").write_text("\n".join(["session,item", *rows]) + "\n")
    assert main(["train", "sessions.csv", *FAST, "--workdir", "items"]) == 0
    assert " items/s" in capsys.readouterr().err
    found = page("items/report.html")
    assert "items/s" in parsed.table(found, "Result")
    assert "items_per_second" in found.text and "words_per" not in found.text
    assert main(["watch", "items"]) == 0
    shown = capsys.readouterr().out
    assert "items/s" in shown and "words" not in shown
    trainer = EmbeddingTrainer(min_count=1, vector_size=8, epochs=2).fit("sessions.csv")
    assert "items/s" in parsed.table(parsed.parse(trainer.report().html), "Result")


BAD_LINES = """{"epoch": 2, "lo
[1, 2]
null
{"loss": 1.0}
{"epoch": "2"}
{"epoch": 2, "loss": [1]}
{"epoch": 2, "loss": true}
\0\0
{"epoch": 1e999, "loss": 1}
"""


@pytest.mark.row("B64")
def test_damaged_metrics_are_left_out_and_said(here):
    path = Path("run/metrics.jsonl")
    before = path.read_bytes()
    not_finite = re.sub(rb'"loss": [^,}]+', b'"loss": NaN', before)
    bad = BAD_LINES.encode() + b"\xff\xfe\n" + b"[" * 100_000 + b"\n"
    path.write_bytes(before + bad + not_finite.replace(b'"epoch": ', b'"epoch": 2'))
    found = rewritten()
    assert "11 damaged lines" in found.one("section", id="result").text
    assert titles(found) == TITLES
    path.unlink()
    Path("run/progress.jsonl").unlink()
    found = rewritten()
    assert "the run has no metrics.jsonl" in found.one("section", id="result").text
    assert not found.every("section", id="curves")


KILLED = """
import os, signal, sys
from pathlib import Path
from embedder.cli.main import main
from tests.contract.events import at_each_event
def event():
    if any(Path("new").glob(sys.argv[1])):
        os.kill(os.getpid(), signal.SIGKILL)
with at_each_event(Path("new"), event):
    sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.row("F53", "F57")
@pytest.mark.parametrize(
    "part", [".report.html*", "tensorboard/*_tensors*", "tensorboard/*_metadata*"]
)
def test_a_run_killed_within_its_report_is_finished(runs, here, capsys, part):
    """Or within the points for TensorBoard, whose config names what is there."""
    done = run_python("-c", KILLED, part, *TRAIN, "new")
    assert done.returncode == -signal.SIGKILL, done.stderr
    if "report" in part:
        assert not Path("new/report.html").exists()
    else:
        assert not Path("new/tensorboard/projector_config.pbtxt").exists()
    assert_has_results_of(runs, "new")
    assert main(["verify", "new"]) == 0
    assert main([*TRAIN, "new"]) == 0
    assert "finished before" in capsys.readouterr().out
    assert main(["report", "new"]) == 0
    assert page("new/report.html").one("h1")
    assert Path("new/tensorboard/projector_config.pbtxt").exists()
    assert not [*Path("new/tensorboard").glob(".*")]


def full(*arguments) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.row("F54", "F57")
@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("page.Report.save", full, "report.html is not written: No space left on dev"),
        ("run_page.make_report", lambda *_: 1 / 0, "is not written: division by zero."),
        (
            "projector_files.write_projector",
            full,
            "The vectors for TensorBoard are not",
        ),
    ],
)
def test_a_report_that_fails_loses_nothing(
    runs, here, monkeypatch, capsys, name, broken, message
):
    monkeypatch.setattr(f"embedder.report.{name}", broken)
    assert main([*TRAIN, "new"]) == 0
    said = capsys.readouterr()
    assert message in said.err
    assert said.out.startswith("new: done. 60 vectors of 8 numbers.")
    assert_has_results_of(runs, "new")
    assert Path("new/report.html").exists() == ("projector" in name)
    if "save" in name:
        assert main(["report", "new"]) == 3
        assert "No space left on device" in error_line(capsys)


@pytest.mark.row("B92")
def test_images_that_cannot_be_read_are_left_out_with_a_note(runs, here, monkeypatch):
    """Their folder is gone; Pillow is, with decoded images in the cache and without."""
    shutil.copytree(runs / "images", "images")
    facts = Path("images/corpus.json").read_text()
    Path("images/corpus.json").write_text(facts.replace("photos", "nowhere"))
    for note in (".*", r"python -m .*\[images\]' adds them", "The image .* needs Pill"):
        found = written("images")
        result = found.one("section", id="result").text
        assert re.search(rf"Images are left out: {note}", result)
        assert not found.every("img")
        assert found.one("ul", **{"class": "hardest"}).children
        if note != ".*":
            shutil.rmtree("images/cache", ignore_errors=True)
        Path("images/corpus.json").write_text(facts)
        monkeypatch.setitem(sys.modules, "PIL", None)


def test_a_trainer_in_python_has_the_report_of_a_run(here):
    trainer = EmbeddingTrainer(vector_size=8, min_count=1, sample=0, epochs=2)
    trainer.fit([WORDS] * 50, holdout=0.1)
    report = trainer.report(names={"fox": "<i>Fox"})
    found = parsed.parse(report.html)
    assert parsed.table(found, "Data")["types"] == ["60"]
    results = parsed.table(found, "Result")
    assert results["loss at the end"] == [f"{trainer.loss_history[-1]:.4f}"]
    assert "<i>Fox" in parsed.data(found, "map-data")["names"]
    assert 'srcdoc="&lt;!doctype html' in report._repr_html_()
    assert sorted(titles(found)) == sorted([*TITLES, "held_out"])
    of_time = parsed.table(found, "Shares of the time")
    assert {*of_time} > {"compiling, the first call", "updates"}
    assert float(results["words/s"][0].replace(",", "")) > 0
    trainer.partial_fit([WORDS] * 50)
    later = parsed.table(parsed.parse(trainer.report().html), "Result")
    assert later["epochs"] == ["3 of 3"]
    assert int(later["updates"][0]) > int(results["updates"][0])
    trainer.save("model.npz")
    loaded = EmbeddingTrainer.load("model.npz")
    assert titles(parsed.parse(loaded.report().html)) == ["loss"]
    loaded.partial_fit([WORDS] * 50)
    assert sorted(titles(parsed.parse(loaded.report().html))) == sorted(TITLES)


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
    for given, labels, message in (
        (None, y, "`y` needs `X`"),
        (X, ["c"] * 40, "`y` must have classes .* got 'c'"),
        (X, y[:3], "`y` must have 40 labels, got 3"),
    ):
        with pytest.raises(InputError, match=message):
            encoder.report(given, labels)
    monkeypatch.setitem(sys.modules, "PIL", None)
    found = parsed.parse(encoder.report(X, y).html)
    assert found.one("section", id="predictions") and not found.every("img")


@pytest.mark.slow
def test_an_encoder_without_labels_has_a_map_but_no_predictions(here):
    images = np.random.default_rng(1).integers(256, size=(20, 8, 8), dtype=np.uint8)
    write_pngs(Path("flat"), images)
    flags = f"{ENCODER} --objective simclr --augment flip --workdir new"
    assert main(["train", "flat", *flags.split()]) == 0
    found = written("new")
    assert not found.every("section", id="predictions")
    assert "no labels" in found.one("section", id="result").text
    assert len(parsed.data(found, "map-data")["texts"]) == 20
