"""Runs that are killed at random moments go on to the bits of one that never was."""

import hashlib
import json
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from tests.faults.forks import Forks

SHARED = ("--save-every", "16", "--no-report")
TABLES = ("corpus.txt", "--vector-size", "5", "--min-count", "1", "--block", "32")
TABLES += ("--blocks-per-update", "2")
WALKS = ("edges.tsv", "--walks", "8", "--walk-length", "20", "--p", "0.5")
WALKS += (*TABLES[1:3], *TABLES[5:], "--alpha", "0.01")
MEMORY = ("--loader", "memory")
ENCODER = ("examples.npz", "--model", "encoder", "--optimizer", "adam")
ENCODER += ("--validation-fraction", "0.2", "--batch-size", "4")
NETWORK = ("images.npz", "--model", "encoder", "--network", "conv-small")
NETWORK += ("--network-args", "width=2", "size=6", "dropout=0.3")
NETWORK += ("--augment", "crop=1", "flip", "mixup=0.4")
NETWORK += ("--average", "0.9", "--schedule", "cosine", "--warmup", "7")
NETWORK += (*ENCODER[3:], *("--weight-decay", "0.01"))
"""A state of parameters, optimizer, statistics, seed and moving average."""
VIT = (*NETWORK[:4], "vit", "--network-args", "patch=4", "width=4", "depth=2")
VIT += ("heads=2", "dropout=0.2", "drop_path=0.5", *ENCODER[3:])
VIEWS = (*NETWORK[:9], "--augment", "crop=1", "flip", *ENCODER[3:])
VIEWS += ("--objective", "supcon", "--objective-args", "views=2")
ADAGRAD = ("--optimizer", "adagrad")  # more state than SGD
ROWS = ("--table-sharding", "rows", *ADAGRAD)
REPLICAS = ("--replicas", "2")
TWO = ("--devices", "2", "--mode")
WEIGHTED = ("--weights", "importance", "--backend", "numba")
HS = ("--hs", "--negative", "0")
SUBWORDS = ("--subwords", "2", "3", "--buckets", "100")
COLUMNS = ("--table-sharding", "columns")
FROZEN = ("--init-from", "start.txt", "--freeze", "known")
UPDATE = ("more.txt", *TABLES[1:], "--resume", "old", "--grow", "--replay", "0.1")
MODES = {
    "jit": (*TABLES, *MEMORY, "--backend", "xla"),
    "jit, tf.data": TABLES,
    "numba": (*TABLES, *MEMORY, "--backend", "numba", *ADAGRAD),
    "sharded": (*TABLES, *MEMORY, *TWO, "sharded", *ROWS),
    "pmap": (*TABLES, *MEMORY, *TWO, "pmap"),
    "encoder": (*ENCODER, *MEMORY),
    "encoder, pmap": (*ENCODER, *MEMORY, *TWO, "pmap"),
    "sessions": ("baskets.parquet", *TABLES[1:], *MEMORY, *WEIGHTED),
    "whole sessions": (*TABLES, *MEMORY, "--backend", "numba", "--window", "session"),
    "replicas": (*TABLES, *MEMORY, "--backend", "numba", *REPLICAS),
    "replicas, sharded": (*TABLES, *MEMORY, *TWO, "sharded", *REPLICAS),
    "walks": (*WALKS, *MEMORY, "--backend", "numba"),
    "encoder, replicas": (*ENCODER, *MEMORY, "--replicas", "3"),
    "network": (*NETWORK, *MEMORY),
    "network, stochastic depth": (*VIT, *MEMORY),
    "network, two views, sharded": (*VIEWS, *MEMORY, *TWO, "sharded"),
    "update": (*UPDATE, *MEMORY, "--backend", "numba"),
    "frozen rows": (*TABLES, *MEMORY, "--backend", "numba", *FROZEN),
    "hierarchical softmax": (*TABLES, *MEMORY, "--backend", "numba", *HS),
    "hierarchical softmax, sharded": (*TABLES, *MEMORY, *TWO, "sharded", *ROWS, "--hs"),
    "subwords": (*TABLES, *MEMORY, "--backend", "numba", *SUBWORDS),
    "subwords, sharded": (*TABLES, *MEMORY, *TWO, "sharded", *SUBWORDS, *COLUMNS),
}
KILLS = (4, 2, 3, 3, 2, 3, 2, 2, 2, 3, 2, 3, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2)
"""For each mode, by the code that no other mode has; TensorFlow loads slowly."""


processes: Forks


@pytest.fixture(scope="module", autouse=True)
def start_of_processes():
    global processes
    with Forks() as processes:
        yield


def embedder(
    event: int, number: int, *arguments: str, verb: str = "train", epochs: int = 3
) -> subprocess.CompletedProcess[str]:
    """`embedder train`, or another verb, that gets the signal `number` at the event."""
    command = event, number, verb, *arguments, "--epochs", epochs, "--workdir", "run"
    flags = "--xla_force_host_platform_device_count=2"
    return processes.run("tests.faults.child", *command, *SHARED, XLA_FLAGS=flags)


def digests() -> dict[str, str]:
    """Of all that is left in the run but what tells the time."""
    timed = "metrics.jsonl", "progress.jsonl", "corpus.json", "SHA256SUMS", ".lock"
    timed += ("report.html",)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path("run").iterdir()
        if path.is_file()
        and path.name not in timed
        and not path.name.startswith(".report.html.")  # of a kill after the end
    }


def kill_and_resume(options: tuple[str, ...], kills: int, seed: int) -> None:
    """A run, killed at random events and started again until it ends; `kills` times."""
    whole = embedder(-1, 0, *options)
    assert whole.returncode == 0, whole.stderr
    expected, num_events = digests(), int(whole.stdout.splitlines()[-1])
    assert num_events > 80 and "vectors.safetensors" in expected
    assert {"model.npz", "replicas.safetensors"} & {*expected}
    rng, done, left = random.Random(seed), 0, kills
    while left or not done:
        subprocess.run(["rm", "-r", "run"], check=True)
        while True:
            event = rng.randrange(1, num_events // 2) if left else -1
            process = embedder(event, 9, *options)
            assert process.returncode in (0, -9), process.stderr
            left -= process.returncode == -9
            if process.returncode == 0:
                break
        assert digests() == expected
        assert not list(Path("run/checkpoints").glob("*tmp*"))
        done += 1


@pytest.mark.slow
@pytest.mark.row("F43")
@pytest.mark.parametrize("options", [MODES["numba"], MODES["encoder"]])
def test_a_run_that_lost_its_folder_ends_as_one_that_never_did(
    tmp_path, text_file, monkeypatch, options
):
    """Killed at random events of training and copying; the mirror alone is left."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.random((300, 6)), y=rng.integers(3, size=300))
    whole = embedder(-1, 0, *options)
    assert whole.returncode == 0, whole.stderr
    expected, choice, kills = digests(), random.Random(3), 0
    for _ in range(5):
        shutil.rmtree("run")
        event = choice.randrange(1, 400)
        process = embedder(event, 9, *options, "--mirror", "mirror")
        assert process.returncode in (0, -9), process.stderr
        kills += process.returncode == -9
    shutil.rmtree("run")
    process = embedder(-1, 0, *options, "--mirror", "mirror")
    assert process.returncode == 0, process.stderr
    assert kills > 1 and digests() == expected


@pytest.mark.slow
@pytest.mark.row("F1", "F2", "F3")
@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        pytest.param(
            *each,
            marks=[
                *([pytest.mark.row("F36")] if "replicas" in each[0] else []),
                *([pytest.mark.row("F47")] if "network" in each[0] else []),
                *([pytest.mark.row("F44")] if "update" in each[0] else []),
                *([pytest.mark.row("F58")] if "softmax" in each[0] else []),
                *([pytest.mark.row("F60")] if "subwords" in each[0] else []),
            ],
        )
        for each in zip(MODES, KILLS, strict=True)
    ],
)
def test_a_killed_run_ends_as_one_that_never_was(
    tmp_path, text_file, monkeypatch, mode, kills
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ends = rng.integers(40, size=(200, 2))
    Path("edges.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in ends))
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.random((300, 6)), y=rng.integers(3, size=300))
    write_images()
    write_baskets()
    words = [f"w{i}" for i in range(20)]
    write_vectors(Vectors(words, rng.normal(size=(20, 5))), "start.txt")
    if "--resume" in MODES[mode]:
        write_base()
    kill_and_resume(MODES[mode], kills, seed=kills)


def write_images() -> None:
    """200 images of three classes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    images = rng.integers(200, size=(200, 8, 8)) + 20 * labels[:, None, None]
    np.savez("images.npz", X=images.astype(np.uint8), y=labels)


def write_base() -> None:
    """The run `old` of the corpus, and more of it with words that are new."""
    lines = Path("corpus.txt").read_text().splitlines()
    more = [f"{line} new{number % 5}" for number, line in enumerate(lines[::2])]
    Path("more.txt").write_text("\n".join(more))
    assert main(["train", *TABLES, *MEMORY, "--epochs", "1", "--workdir", "old"]) == 0


def write_baskets() -> None:
    """The corpus as a table, whose rows are shuffled, with a weight of each line."""
    lines = Path("corpus.txt").read_text().splitlines()
    rows = [
        (session, item, order)
        for session, line in enumerate(lines)
        for order, item in enumerate(line.split())
    ]
    frame = pl.DataFrame(rows, schema=["session", "item", "order"], orient="row")
    weight = (pl.col("session") % 5 / 2).alias("importance")
    frame = frame.with_columns(weight)
    frame.sample(fraction=1, shuffle=True, seed=1).write_parquet("baskets.parquet")


SWEEP = ("space.toml", "corpus.txt", *TABLES[1:3], "--min-count", "1", *MEMORY)
SWEEP += ("--backend", "numba", "--side-by-side", "2", "--halving", "2")


def trials() -> list[tuple]:
    """What a sweep found out, without the time that it took."""
    lines = Path("run/trials.jsonl").read_text().splitlines()
    timed = [json.loads(line) for line in lines]
    return [
        tuple((k, str(x)) for k, x in each.items() if k != "seconds") for each in timed
    ]


@pytest.mark.slow
@pytest.mark.row("F1", "F2", "F3")
def test_a_killed_sweep_ends_as_one_that_never_was(tmp_path, text_file, monkeypatch):
    """At random events; halving keeps the states of trials between its rungs."""
    monkeypatch.chdir(tmp_path)
    space = "alpha = [0.02, 0.05]\nwindow = [2, 5]\nvector_size = [4, 5]\n"
    Path("space.toml").write_text(space)
    whole = embedder(-1, 0, *SWEEP, verb="sweep")
    assert whole.returncode == 0, whole.stderr
    expected, num_events = trials(), int(whole.stdout.splitlines()[-1])
    assert len({trial[0] for trial in expected}) == 9 and num_events > 80
    rng, kills = random.Random(1), 0
    while kills < 4:
        subprocess.run(["rm", "-r", "run"], check=True)
        for _ in range(4):
            event = rng.randrange(1, num_events)
            process = embedder(event, 9, *SWEEP, verb="sweep")
            assert process.returncode in (0, -9), process.stderr
            kills += process.returncode == -9
        process = embedder(-1, 0, *SWEEP, verb="sweep")
        assert process.returncode == 0, process.stderr
        assert trials() == expected
        assert {path.name for path in Path("run").iterdir()} == {
            *("sweep.json", "trials.jsonl", "trials.csv", "trials.svg"),
            *("best.toml", "cache"),
        }


def verb(event: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Any verb, in a process that is killed at the event."""
    return processes.run("tests.faults.child", event, 9, *arguments)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run, which tests copy."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "corpus.txt").write_text("a b c d a c\n" * 40)
    options = [*TABLES[1:], *MEMORY, "--workdir", str(folder / "run"), "--epochs", "1"]
    assert main(["train", str(folder / "corpus.txt"), *options]) == 0
    return folder / "run"


@pytest.mark.slow
@pytest.mark.row("F1", "F2")
@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (["export", "run", "--to", "out.safetensors"], "out.safetensors"),
        (["export", "run", "--to", "out.txt.gz"], "out.txt.gz"),
        (["convert", "run", "out.npz", "--overwrite"], "out.npz"),
        pytest.param(
            ["neighbors", "run", "--from", "keys.txt", "--to", "out.parquet"],
            "out.parquet",
            marks=pytest.mark.row("F51"),
        ),
    ],
)
def test_a_killed_export_leaves_the_old_file_or_the_new_one(
    tmp_path, finished, monkeypatch, arguments, target
):
    """At every event of it in turn; what was half written is not mistaken for it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "run")
    Path("keys.txt").write_text("a\nb\nc\nunknown\n")
    whole = verb(-1, *arguments)
    assert whole.returncode == 0, whole.stderr
    new, old = Path(target).read_bytes(), b"the old one"
    num_events = int(whole.stdout.splitlines()[-1])
    assert num_events >= 2
    left = set()
    for event in range(1, num_events + 1):
        Path(target).write_bytes(old)
        assert verb(event, *arguments).returncode == -9
        assert Path(target).read_bytes() in (old, new)
        left |= {p.name for p in Path().iterdir()} - {"run", "keys.txt", target}
    assert all(name.startswith(f".{target}.") for name in left)
    assert verb(-1, *arguments).returncode == 0
    assert Path(target).read_bytes() == new


@pytest.mark.slow
@pytest.mark.row("F48")
@pytest.mark.parametrize("name", ["model2vec", "faiss"])
def test_a_killed_export_of_several_files_leaves_none_or_all(
    tmp_path, finished, monkeypatch, name
):
    """At every event of it in turn; an index is there only with its keys."""
    if name == "faiss":
        pytest.importorskip("faiss")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "run")
    target = Path("out.faiss" if name == "faiss" else "out")
    arguments = ["export", "run", "--to", str(target), "--format", name]
    whole = verb(-1, *arguments)
    assert whole.returncode == 0, whole.stderr
    new = content(target)
    assert len(new) == (2 if name == "faiss" else 5)
    num_events = int(whole.stdout.splitlines()[-1])
    assert num_events >= 2
    for event in range(1, num_events + 1):
        for path in Path().glob("out*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert verb(event, *arguments).returncode == -9
        if target.exists():
            assert content(target) == new
    for path in Path().glob("out"):
        shutil.rmtree(path)
    target.unlink(missing_ok=True)
    assert verb(-1, *arguments).returncode == 0
    assert content(target) == new


def content(target: Path) -> dict[str, bytes]:
    """The files of an export, by their names."""
    paths = [path for path in Path().glob(f"{target}*") if path.is_file()]
    paths += [path for path in target.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in {*paths}}


@pytest.mark.slow
@pytest.mark.row("F51")
def test_a_killed_index_leaves_the_old_one_or_the_new_one(
    tmp_path, finished, monkeypatch, caplog
):
    """At every event of it in turn: it is whole, and the next one removes the rest."""
    pytest.importorskip("usearch")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "run")
    command = ["index", "run", "--connectivity"]
    whole = verb(-1, *command, "8")
    assert whole.returncode == 0, whole.stderr
    num_events = int(whole.stdout.splitlines()[-1])
    assert num_events >= 4
    vectors, found = read_vectors("run/vectors.safetensors"), []
    for event in range(1, num_events + 2):  # the last removes the old graph
        assert verb(event, *command, "9").returncode == -9
        found.append(vectors.use_index("run").about.connectivity)
    assert found == sorted(found) and {*found} == {8, 9}
    assert verb(-1, *command, "8").returncode == 0
    assert len([*Path("run/index").iterdir()]) == 2 and not caplog.records
    shutil.rmtree("run/index")
    assert verb(2, *command, "9").returncode == -9
    assert vectors.use_index("run") is None and not caplog.records


SCORED = (*TABLES[:-1], "1", *MEMORY, "--backend", "numba", "--sample", "0")
SCORED += ("--holdout", "0.2", "--best-by", "next-item", "--result", "best")


def scores() -> list[tuple[object, ...]]:
    """Of each line of metrics.jsonl: epoch, updates, and what was measured."""
    lines = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    names = "epoch", "updates", "loss", "held_out", "hr@10", "ndcg@10", "mrr"
    return [tuple(line.get(name) for name in names) for line in lines]


@pytest.mark.slow
@pytest.mark.row("F45")
@pytest.mark.parametrize("patience", ["0", "4"])
def test_a_run_killed_at_evaluations_has_the_same_scores_end_and_best(
    tmp_path, text_file, monkeypatch, patience
):
    """Killed as each second one starts, or after it, before anything is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENTS", "evaluations")
    options = *SCORED, "--eval-every", "16", "--patience", patience
    whole = embedder(-1, 0, *options)
    assert whole.returncode == 0, whole.stderr
    assert ("Ends early, after" in whole.stderr) == (patience == "4")
    expected, measured = digests(), scores()
    assert "scores.json" in expected
    num_events = int(whole.stdout.splitlines()[-1])
    assert num_events > 10 and any(updates for _, updates, *_ in measured)
    shutil.rmtree("run")
    kills = 0
    for event in (3, 2, 5, 4, -1):
        process = embedder(event, 9, *options)
        assert process.returncode in (0, -9), process.stderr
        kills += process.returncode == -9
    assert kills > 2
    assert digests() == expected and scores() == measured


def cut_metrics() -> list[tuple[object, ...]]:
    """Of each line of metrics.jsonl what does not tell the time."""
    lines = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    return [(line["epoch"], line["updates"], line.get("loss")) for line in lines]


@pytest.mark.slow
@pytest.mark.row("F46")
@pytest.mark.parametrize("mode", ["numba", "sharded", "replicas, sharded", "encoder"])
def test_a_run_killed_while_it_gets_longer_is_the_old_one_or_ends_as_whole(
    tmp_path, text_file, monkeypatch, mode
):
    """What was saved of the shorter run stays, until the new files replace it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.random((300, 6)), y=rng.integers(3, size=300))
    options = *MODES[mode], "--save-every", "1epoch"
    monkeypatch.setattr(f"{__name__}.SHARED", ())
    assert embedder(-1, 0, *options, epochs=2).returncode == 0
    short, before = digests(), cut_metrics()
    shutil.copytree("run", "short")
    whole = embedder(-1, 0, *options, epochs=4)
    assert whole.returncode == 0, whole.stderr
    expected, measured = digests(), cut_metrics()
    num_events = int(whole.stdout.splitlines()[-1])
    assert num_events > 40 and expected != short and measured[:2] == before
    choice, kills, kept = random.Random(5), 0, 0
    for first in (num_events - 3, num_events - 12, num_events // 2):
        shutil.rmtree("run")
        shutil.copytree("short", "run")
        for event in (first, choice.randrange(1, num_events), -1):
            process = embedder(event, 9, *options, epochs=4)
            assert process.returncode in (0, -9), process.stderr
            kills += process.returncode == -9
            if (
                process.returncode
                and not Path("run/longer/vectors.safetensors").exists()
            ):
                assert digests() in (short, expected)
                kept += digests() == short
        assert digests() == expected and cut_metrics() == measured
        assert not Path("run/longer").exists()
        assert verb(-1, "verify", "run").returncode == 0
    assert kills >= 3 and kept
