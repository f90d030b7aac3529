"""What `kill -9` leaves at any moment is whole, and the same command goes on from it.

Runs of each feature: tests/contract. Here is what has more than a run and its folder.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from embedder import read_vectors
from embedder.cli.main import main
from tests.commands import json_lines
from tests.contract.features import write_inputs
from tests.contract.test_features import digests
from tests.faults.forks import Forks

pytestmark = pytest.mark.slow
TOKENS = "--vector-size 5 --min-count 1 --block 32 --blocks-per-update 2"
TABLES = f"train text.txt --loader memory {TOKENS} --backend numba --optimizer adagrad"
ENCODER = "train examples.npz --model encoder --optimizer adam --batch-size 4 "
ENCODER += "--loader memory --validation-fraction 0.2"
REPLICAS = f"train text.txt --loader memory {TOKENS} --backend xla --replicas 2 "
REPLICAS += "--devices 2 --mode sharded"
SAVED = "--save-every 16 --no-report --workdir run --epochs 3"
RUN = Path("run")


@pytest.fixture(scope="module")
def processes():
    with Forks() as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    """Data, and the finished run `old`."""
    folder = tmp_path_factory.mktemp("shared")
    write_inputs(folder)
    return folder


@pytest.fixture
def killed(processes, shared, own_folder) -> Callable:
    """A function: any verb, in a process that is killed at the event; 0 never comes.

    Its result is how many events there were, or 0 where it was killed.
    """
    shutil.copytree(shared, own_folder, dirs_exist_ok=True)
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}

    def run(event: int, command: str) -> int:
        arguments = event, 9, ".", *command.split()
        done = processes.run("tests.contract.events", *arguments, **flags)
        assert done.returncode in (0, -9), done.stderr
        assert event or done.returncode == 0, done.stderr
        return 0 if done.returncode else int(done.stdout.splitlines()[-1])

    return run


def lines(name: str) -> list[dict]:
    """Of a file of the run, without what tells the time."""
    found = json_lines(RUN / name)
    return [{k: x for k, x in each.items() if "second" not in k} for each in found]


@pytest.mark.row("F2", "F43")
@pytest.mark.parametrize("command", [TABLES, ENCODER], ids=["tables", "encoder"])
def test_a_run_that_lost_its_folder_ends_as_one_that_never_did(killed, command):
    """Killed at random events of training and copying; the mirror alone is left."""
    assert killed(0, f"{command} {SAVED}")
    expected, choice, kills = digests(RUN), random.Random(3), 0
    for _ in range(5):
        shutil.rmtree("run")
        event = choice.randrange(1, 400)
        kills += not killed(event, f"{command} {SAVED} --mirror mirror")
    shutil.rmtree("run")
    assert killed(0, f"{command} {SAVED} --mirror mirror")
    assert kills > 1 and digests(RUN) == expected


def test_a_killed_sweep_ends_as_one_that_never_was(killed):
    """At random events; halving keeps the states of trials between its rungs."""
    space = "alpha = [0.02, 0.05]\nwindow = [2, 5]\nvector_size = [4, 5]\n"
    Path("space.toml").write_text(space)
    command = "sweep space.toml text.txt --min-count 1 --block 32 --loader memory "
    command += f"--backend numba --side-by-side 2 --halving 2 {SAVED}"
    num_events = killed(0, command)
    expected = lines("trials.jsonl")
    assert len(expected) > 9 and num_events > 80
    rng, kills = random.Random(1), 0
    names = {"sweep.json", "trials.jsonl", "trials.csv", "trials.svg", "best.toml"}
    while kills < 4:
        shutil.rmtree("run")
        kills += sum(not killed(rng.randrange(1, num_events), command) for _ in "1234")
        assert killed(0, command)
        assert lines("trials.jsonl") == expected
        assert {path.name for path in RUN.iterdir()} == names | {"cache"}


def content(target: str) -> dict[str, bytes]:
    """The files of an export, by their names."""
    paths = [*Path().glob(f"{target}*"), *Path(target).rglob("*")]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.row("F48", "F51")
@pytest.mark.parametrize(
    ("command", "target", "number"),
    [
        ("export old --to out.safetensors", "out.safetensors", 1),
        ("export old --to out.txt.gz", "out.txt.gz", 1),
        ("convert old out.npz --overwrite", "out.npz", 1),
        ("neighbors old --from keys.txt --to out.parquet", "out.parquet", 1),
        ("export old --to out --format model2vec", "out", 5),
        ("export old --to out.faiss --format faiss", "out.faiss", 2),
    ],
)
def test_a_killed_export_leaves_what_was_there_or_all_that_is_new(
    killed, command, target, number
):
    """At every event of it in turn; an index is there only with its keys."""
    if target == "out.faiss":
        pytest.importorskip("faiss")
    Path("keys.txt").write_text("w1\nw2\nw3\nunknown\n")
    there = {path.name for path in Path().iterdir()}
    num_events = killed(0, command)
    new, left = content(target), set()
    assert len(new) == number and num_events >= 2
    for event in range(1, num_events + 1):
        for path in Path().glob("out*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if number == 1:
            Path(target).write_bytes(b"the old one")
        assert not killed(event, command)
        if number == 1 or Path(target).exists():
            assert content(target) in (new, {target: b"the old one"})
        left |= {path.name for path in Path().iterdir()} - there
    assert number > 1 or all(x.startswith(f".{target}.") for x in left - {target})
    for path in Path().glob("out"):
        shutil.rmtree(path)
    if number > 1:
        Path(target).unlink(missing_ok=True)
    assert killed(0, command)
    assert content(target) == new


@pytest.mark.row("F51")
def test_a_killed_index_leaves_the_old_one_or_the_new_one(killed, caplog):
    """At every event of it in turn: it is whole, and the next one removes the rest."""
    pytest.importorskip("usearch")
    command = "index old --connectivity"
    num_events = killed(0, f"{command} 8")
    assert num_events >= 4
    vectors, found = read_vectors("old/vectors.safetensors"), []
    for event in range(1, num_events + 2):  # the last removes the old graph
        assert not killed(event, f"{command} 9")
        found.append(vectors.use_index("old").about.connectivity)
    assert found == sorted(found) and {*found} == {8, 9}
    assert killed(0, f"{command} 8")
    assert len([*Path("old/index").iterdir()]) == 2 and not caplog.records
    shutil.rmtree("old/index")
    assert not killed(2, f"{command} 9")
    assert vectors.use_index("old") is None and not caplog.records


@pytest.mark.row("F46")
@pytest.mark.parametrize("command", [ENCODER, REPLICAS], ids=["encoder", "replicas"])
def test_a_run_killed_while_it_gets_longer_is_the_old_one_or_ends_as_whole(
    killed, command
):
    """What was saved of the shorter run stays, until the new files replace it."""
    command += " --save-every 1epoch --no-report --workdir run --epochs"
    assert killed(0, f"{command} 2")
    short, before = digests(RUN), lines("metrics.jsonl")
    shutil.copytree("run", "short")
    num_events = killed(0, f"{command} 4")
    expected, measured = digests(RUN), lines("metrics.jsonl")
    assert num_events > 40 and expected != short and measured[:2] == before
    choice, kills, kept = random.Random(5), 0, 0
    for first in (num_events - 3, num_events - 12, num_events // 2):
        shutil.rmtree("run")
        shutil.copytree("short", "run")
        for event in (first, choice.randrange(1, num_events), 0):
            is_killed = not killed(event, f"{command} 4")
            kills += is_killed
            if is_killed and not Path("run/longer/vectors.safetensors").exists():
                assert digests(RUN) in (short, expected)
                kept += digests(RUN) == short
        assert digests(RUN) == expected and lines("metrics.jsonl") == measured
        assert not Path("run/longer").exists()
        assert main(["verify", "run"]) == 0
    assert kills >= 3 and kept
