"""Several processes as one run, on loopback: equal results, one line for each fault."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from embedder.encoders.artefact import read_encoder
from embedder.hosts.joining import LOST, join
from embedder.options import PeersConfig
from embedder.tables.artefact import read_model
from embedder.vectors.ensemble_files import read_ensemble
from embedder.vectors.export import read_vectors
from tests.commands import OF_A_RUN

OPTIONS = ("--blocks-per-update", "4", "--epochs", "2", "--loader", "memory")
OPTIONS += ("--dtype", "float64", "--vector-size", "8", "--min-count", "1")


@pytest.fixture
def folder(tmp_path, text_file, monkeypatch) -> Path:
    """A working folder with corpus.txt in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


HANGING = """
import os, time
import embedder.engine.epochs
tell = embedder.engine.epochs._Reporter._status
def status(self, place, *arguments):
    if os.environ["HANG_AT"] and place.updates >= int(os.environ["HANG_AT"]):
        time.sleep(1000)
    return tell(self, place, *arguments)
embedder.engine.epochs._Reporter._status = status
from embedder.cli import program
program()
"""


def start(
    *arguments: str, devices: int = 2, cwd: str = ".", **variables: str
) -> subprocess.Popen:
    """An `embedder train` in a process with so many devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    program = ["-c", HANGING] if "HANG_AT" in variables else ["-m", "embedder.cli"]
    command = [sys.executable, *program, "train", *arguments]
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | {"XLA_FLAGS": flags} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_two(
    *arguments: str, own=((), ()), corpora=("corpus.txt",) * 2, **variables: str
):
    """Two processes of one run; `own` are arguments of each.

    With HANG_AT the second stops to go on after so many updates.
    """
    peers = f"--coordinator 127.0.0.1:{free_port()} --num-processes 2".split()
    return [
        start(
            *(corpora[i], *OPTIONS, *arguments, *own[i], *peers),
            *("--process-id", str(i)),
            **{name: value if i else "" for name, value in variables.items()},
        )
        for i in range(2)
    ]


def ends(processes, timeout: float = 60) -> list[tuple[int, list[str]]]:
    """Exit code and lines of standard error of each."""
    try:
        outputs = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
    return [
        (process.returncode, error.splitlines())
        for process, (_, error) in zip(processes, outputs, strict=True)
    ]


def vectors(workdir: Path):
    return read_vectors(workdir / "vectors.safetensors").matrix


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The vectors that one process with four devices makes of a corpus."""
    made = {}

    def train(corpus: Path):
        text = corpus.read_bytes()
        if text not in made:
            run = tmp_path_factory.mktemp("one") / "run"
            arguments = (str(corpus), *OPTIONS, "--workdir", str(run))
            ((code, lines),) = ends([start(*arguments, "--mode", "sharded", devices=4)])
            assert code == 0, lines
            made[text] = vectors(run)
        return made[text]

    return train


def assert_equal_to_one_process(folder: Path, one_process) -> None:
    assert (vectors(folder / "two") == one_process(folder / "corpus.txt")).all()


@pytest.mark.slow
def test_two_processes_train_what_one_does(folder, one_process):
    first, second = ends(start_two("--workdir", "two"))
    assert (first[0], second) == (0, (0, []))
    *data, devices, one, two = first[1]
    assert all(map(OF_A_RUN.match, data))
    assert devices.startswith("devices: 4 as 4 x 1, by sharded, tables replicated")
    assert [one[:10], two[:10]] == ["epoch 1/2:", "epoch 2/2:"]
    assert_equal_to_one_process(folder, one_process)
    shutil.rmtree("two/cache")
    again = ends(start_two("--workdir", "two"))
    assert again == [(0, []), (0, [])]
    assert not Path("two/cache").exists()  # it is known to be finished, not planned


@pytest.mark.slow
def test_accumulators_are_sharded_over_two_processes(folder):
    """By rows, as the tables are; a checkpoint of each epoch has them whole."""
    adagrad = ("--optimizer", "adagrad", "--table-sharding", "rows")
    adagrad += ("--save-every", "1epoch", "--workdir")
    one = [start("corpus.txt", *OPTIONS, *adagrad, "one", devices=4)]
    for processes in (one, start_two(*adagrad, "two")):
        assert {code for code, _ in ends(processes)} == {0}
    first, second = (read_model(folder / run / "model.npz") for run in ("one", "two"))
    np.testing.assert_array_equal(second.input, first.input)
    for name, accumulator in first.row_state.items():
        assert accumulator.shape == (len(first.tokens),) and accumulator.all()
        np.testing.assert_array_equal(second.row_state[name], accumulator)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharding", "grid"), [("replicated", "4 x 1 x 1"), ("columns", "2 x 1 x 2")]
)
def test_two_processes_train_replicas(folder, sharding, grid):
    """Each has replicas of its own; the first process writes all of them."""
    options = ["--replicas", "4", "--save-every", "1epoch", "--workdir"]
    tables = ["--table-sharding", sharding]
    tables += ["--table-devices", "2"] if sharding == "columns" else []
    two = ends(start_two(*tables, *options, "two"))
    assert [code for code, _ in two] == [0, 0], two
    assert any(f"4 as {grid}, by sharded" in line for line in two[0][1])
    one = ends([start("corpus.txt", *OPTIONS, *options, "one", devices=1)])
    assert one[0][0] == 0, one
    runs = folder / "one", folder / "two"
    found, expected = (read_ensemble(run).vectors for run in runs)
    assert expected.shape[0] == 4 and not np.array_equal(*expected[:2])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


SCORED = ("--holdout", "0.2", "--best-by", "next-item", "--result", "best")
SCORED += ("--patience", "3", "--blocks-per-update", "1", "--workdir")


@pytest.mark.slow
def test_two_processes_end_early_where_one_does(folder):
    scored = ("--eval-every", "16", "--epochs", "20", *SCORED)
    one = [start("corpus.txt", *OPTIONS, *scored, "one", devices=1)]
    for processes in (one, start_two(*scored, "two")):
        (code, lines), *others = ends(processes)
        assert code == 0 and others in ([], [(0, [])])
        assert sum("Ends early, after" in line for line in lines) == 1
    measured = [
        [(x["epoch"], x.get("updates")) for x in map(json.loads, text.splitlines())]
        for text in (Path(run, "metrics.jsonl").read_text() for run in ("one", "two"))
    ]
    assert measured[0] == measured[1]
    np.testing.assert_allclose(
        vectors(folder / "two"), vectors(folder / "one"), rtol=0, atol=1e-12
    )


@pytest.mark.slow
def test_two_processes_agree_on_the_time_of_evaluations(folder):
    """At this rate no score improves, so patience ends the run after 4 of them."""
    timed = ("--eval-every", "1s", "--epochs", "100000", "--alpha", "1e-9")
    timed += ("--min-alpha", "1e-9", *SCORED)
    (code, lines), second = ends(start_two(*timed, "two"))
    assert (code, second) == (0, (0, [])), lines
    assert any("Ends early, after" in line for line in lines)


@pytest.mark.slow
def test_slurm_starts_one_run_with_tables_between_its_processes(folder, one_process):
    job = {
        "SLURM_JOB_ID": str(free_port()),  # JAX derives a port from it
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
    }
    every = [
        start(
            *("corpus.txt", *OPTIONS, "--workdir", "two", "--table-sharding", "rows"),
            **job,
            SLURM_PROCID=rank,
            SLURM_LOCALID=rank,
        )
        for rank in "01"
    ]
    assert [code for code, _ in ends(every)] == [0, 0]
    assert_equal_to_one_process(folder, one_process)


@pytest.mark.slow
def test_two_processes_train_an_encoder(folder):
    """Sums over devices come in another order: the last bits may differ."""
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.random((301, 6)), y=rng.integers(3, size=301))
    options = "--model encoder --dtype float64 --batch-size 10 --epochs 2 --loader"
    options = ["examples.npz", *options.split(), "memory"]
    options += ["--optimizer", "adam", "--validation-fraction", "0.1", "--workdir"]
    one = start(*options, "one", "--mode", "sharded", devices=4)
    peers = f"--coordinator 127.0.0.1:{free_port()} --num-processes 2".split()
    two = [start(*options, "two", *peers, "--process-id", each) for each in "01"]
    assert [code for code, _ in ends([one, *two])] == [0, 0, 0]
    whole, shared = np.load("one/model.npz"), np.load("two/model.npz")
    for name in ("weights_0", "biases_0", "weights_1", "biases_1"):
        np.testing.assert_allclose(shared[name], whole[name], rtol=0, atol=1e-12)
    lines = [Path(run, "metrics.jsonl").read_text() for run in ("one", "two")]
    accuracies = [
        [json.loads(x)["val_accuracy"] for x in y.splitlines()] for y in lines
    ]
    assert accuracies[0] == accuracies[1]


@pytest.mark.row("F47")
@pytest.mark.slow
def test_two_processes_train_a_network_on_a_contrastive_objective(folder):
    """Moments of batch normalisation, and the examples that others are compared with,
    are those of both processes. Four devices do not divide batches of 10."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(61, 8, 8)).astype(np.uint8)
    np.savez("images.npz", X=images, y=rng.integers(3, size=61))
    options = ["images.npz", "--model", "encoder", "--network", "conv-small"]
    options += ["--network-args", "width=2", "size=6", "--objective", "supcon"]
    options += "--dtype float64 --batch-size 10 --epochs 2 --loader memory".split()
    options += ["--optimizer", "sgd", "--validation-fraction", "0.1", "--workdir"]
    one = start(*options, "one", "--mode", "jit", devices=1)
    peers = f"--coordinator 127.0.0.1:{free_port()} --num-processes 2".split()
    two = [start(*options, "two", *peers, "--process-id", each) for each in "01"]
    found = ends([one, *two], timeout=120)
    assert [code for code, _ in found] == [0, 0, 0], found
    whole, shared = (read_encoder(Path(run, "model.npz")) for run in ("one", "two"))
    names = {*whole.arrays}
    assert names == {*shared.arrays} and "averages/norm_0/mean" in names
    for name in names:
        np.testing.assert_allclose(
            shared.arrays[name], whole.arrays[name], rtol=0, atol=1e-12
        )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI's mpirun")
def test_mpirun_starts_one_run(folder, one_process):
    done = subprocess.run(
        ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
        + [sys.executable, "-m", "embedder.cli", "train", "corpus.txt", *OPTIONS]
        + ["--workdir", "two"],
        env=os.environ
        | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = "Report: two/report.html"
    assert done.stdout == f"two: done. 60 vectors of 8 numbers. {report}\n"
    assert_equal_to_one_process(folder, one_process)


@pytest.mark.row("F10")
@pytest.mark.slow
def test_different_settings_are_named_in_every_process(folder):
    own = (("--window", "4"), ("--window", "3"))
    for rank, (code, lines) in enumerate(ends(start_two("--workdir", "two", own=own))):
        assert code == 2
        here = f"process {rank} has `window` {own[rank][1]}: give all of them the same"
        (line,) = lines
        assert line.startswith(f"embedder: Processes differ in `window`; {here}")
    assert not Path("two/config.toml").exists()
    again = ends(start_two("--workdir", "two"))  # nothing stands in its way
    assert [code for code, _ in again] == [0, 0]


@pytest.mark.slow
@pytest.mark.row("F10")
def test_different_corpora_are_named(folder):
    Path("other").mkdir()
    text = Path("corpus.txt").read_text()
    Path("other/corpus.txt").write_text(text.replace("w1 ", "w2 "))
    every = start_two("--workdir", "two", corpora=("corpus.txt", "other/corpus.txt"))
    for code, (line,) in ends(every):
        assert code == 2
        assert "Processes differ in corpus;" in line


@pytest.mark.slow
def test_an_error_of_one_process_is_one_of_all(folder):
    every = start_two("--workdir", "two", corpora=("corpus.txt", "missing.txt"))
    first, second = ends(every)
    assert second == (2, ["embedder: Corpus missing.txt does not exist."])
    message = "embedder: Process 1: Corpus missing.txt does not exist."
    assert first == (2, [message])


def wait_for(workdir: str, pattern: str) -> None:
    """Until a run has such a file."""
    deadline = time.monotonic() + 60
    while not list(Path(workdir).glob(pattern)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lose(every: list[subprocess.Popen], lost: int, signal_number: int) -> None:
    """Sends the signal to one of two processes; the other ends with one line."""
    os.kill(every[lost].pid, signal_number)
    began = time.monotonic()
    other = every[1 - lost]
    try:
        _, error = other.communicate(timeout=30)
    finally:
        for process in every:
            process.kill()
            process.communicate()
    assert time.monotonic() - began < 15
    said = ("epoch", "The checkpoint before is still being written: ")
    (fault,) = [
        line
        for line in error.splitlines()
        if not (line.startswith(said) or OF_A_RUN.match(line))
    ]
    assert other.returncode == 3
    assert LOST in fault or "a process of the run hangs" in fault


@pytest.mark.slow
@pytest.mark.row("F7")
@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_that_is_halted_ends_the_other_with_one_line(folder, lost):
    """One that is killed does so, too: see `test_a_run_that_lost_a_process_goes_on`."""
    every = start_two("--workdir", "two", "--epochs", "100000", "--lost-after", "4")
    wait_for("two", "metrics.jsonl")
    lose(every, lost, signal.SIGSTOP)


MANY = ("--epochs", "40", "--save-every", "16", "--workdir", "two")
"""Of a run that takes a few seconds, and saves all the time."""


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """The vectors of such a run by one process, that nothing happened to."""
    made = {}

    def train(corpus: Path):
        if not made:
            run = tmp_path_factory.mktemp("whole") / "two"
            own = ("--mode", "sharded", *MANY, "--workdir", str(run))
            ((code, lines),) = ends([start(str(corpus), *OPTIONS, *own, devices=4)])
            assert code == 0, lines
            made["vectors"] = vectors(run)
        return made["vectors"]

    return train


def assert_goes_on(folder: Path, never_stopped) -> None:
    """Started again, the two go on, to what one makes that was never stopped."""
    (first, lines), (second, _) = ends(start_two(*MANY))
    assert (first, second) == (0, 0)
    assert re.search("Resumes after [0-9]+ updates", "".join(lines))
    assert (vectors(folder / "two") == never_stopped(folder / "corpus.txt")).all()


@pytest.mark.row("F7")
@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_run_that_lost_a_process_goes_on(folder, never_stopped, lost):
    every = start_two(*MANY, "--lost-after", "4")
    wait_for("two", "checkpoints/*/SHA256SUMS")
    lose(every, lost, signal.SIGKILL)
    assert_goes_on(folder, never_stopped)


@pytest.mark.row("F5")
@pytest.mark.slow
@pytest.mark.parametrize("told", [[1], [0, 1]], ids=["one", "both"])
def test_a_signal_to_any_ends_all_at_the_same_step(folder, never_stopped, told):
    every = start_two(*MANY)
    wait_for("two", "checkpoints/*/SHA256SUMS")
    for process in told:
        every[process].send_signal(signal.SIGTERM)
    ended = ends(every, timeout=20)
    assert [code for code, _ in ended] == [143, 143]
    (own,), (other,) = ([x for x in e if x.startswith("embedder")] for _, e in ended)
    assert own == other
    assert re.fullmatch("embedder: Stopped after [0-9]+ updates, which are saved.", own)
    assert_goes_on(folder, never_stopped)


@pytest.mark.row("F8")
@pytest.mark.slow
def test_a_process_that_hangs_ends_all(folder):
    """Its heart beats on: only its steps do not come."""
    every = start_two(*MANY, "--lost-after", "4", HANG_AT="100")
    began = time.monotonic()
    for code, lines in ends(every):
        assert code == 3
        fault = [line for line in lines if line.startswith("embedder")]
        assert len(fault) == 1
        assert "a process of the run hangs" in fault[0] or LOST in fault[0]
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_hosts_need_not_share_a_folder(folder, one_process):
    """Each process has a working folder of its own, and reads the text itself."""
    options = [*OPTIONS, "--workdir", "two", "--num-processes", "2"]
    options += ["--coordinator", f"127.0.0.1:{free_port()}"]
    corpus = folder / "corpus.txt"
    every = []
    for rank in range(2):
        (folder / f"host{rank}").mkdir()
        os.utime(corpus)  # another time of change is not another corpus
        every.append(
            start(str(corpus), *options, "--process-id", str(rank), cwd=f"host{rank}")
        )
    assert [code for code, _ in ends(every)] == [0, 0]
    assert (vectors(folder / "host0/two") == one_process(corpus)).all()
    assert not (folder / "host1/two").exists()


@pytest.mark.row("F9")
def test_a_process_alone_gives_up_in_time(folder):
    began = time.monotonic()
    port = free_port()
    peers = f"--coordinator 127.0.0.1:{port} --num-processes 2 --process-id 1".split()
    process = start("corpus.txt", *peers, "--init-timeout", "3")
    ((code, (line,)),) = ends([process])
    assert code == 2
    assert line.startswith(
        f"embedder: Process 1 could not join the others at 127.0.0.1:{port} within "
        "`init_timeout` = 3 s: "
    )
    assert time.monotonic() - began < 15


@pytest.mark.row("F9")
@pytest.mark.slow
def test_an_id_given_twice_is_an_error_of_all(folder):
    peers = f"--coordinator 127.0.0.1:{free_port()} --num-processes 3".split()
    peers += ["--init-timeout", "5"]
    every = [start("corpus.txt", *peers, "--process-id", each) for each in "011"]
    for code, (line,) in ends(every):
        assert code == 2
        assert "could not join the others" in line


@pytest.mark.row("F9")
def test_a_taken_port_is_named():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} cannot be opened here"):
            join(peers(f"127.0.0.1:{port}", 2, 0))


def peers(coordinator=None, num_processes=None, process_id=None, **limits):
    return PeersConfig(
        coordinator=coordinator,
        num_processes=num_processes,
        process_id=process_id,
        **limits,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("host:1",),
            "`coordinator` = 'host:1' needs `num_processes` and `process_id`",
        ),
        ((None, 2, 0), "`num_processes` = 2, `process_id` = 0 needs `coordinator` too"),
        (("host:1234", 0, 0), "`num_processes` must be an integer >= 1, got 0"),
        (("host:1234", 2, 2), "`process_id` must be an integer from 0 to 1, got 2"),
        (("host", 2, 1), "`coordinator` must be HOST:PORT, got 'host'"),
        (("host:0", 2, 1), "`coordinator` must be HOST:PORT, got 'host:0'"),
    ],
)
def test_wrong_arguments_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        peers(*given)


@pytest.mark.parametrize("limit", ["init_timeout", "lost_after"])
def test_wrong_limits_are_named(limit):
    with pytest.raises(ValueError, match=f"`{limit}` must be an integer >= 1, got 0"):
        peers(**{limit: 0})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"SLURM_NTASKS": "many"},
            "variable SLURM_NTASKS must be a number, got 'many'",
        ),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "names no coordinator: give --coordinator"),
    ],
)
def test_launchers_that_do_not_say_enough_are_named(monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        join(PeersConfig())


def test_one_process_joins_nobody(monkeypatch):
    monkeypatch.setattr(
        jax.distributed, "initialize", lambda *_, **options: pytest.fail("it joins")
    )
    join(PeersConfig())
    join(peers("host:1234", 1, 0))
    monkeypatch.setenv("SLURM_NTASKS", "4")  # in the script of a job, not in a step
    monkeypatch.setenv("SLURM_PROCID", "0")
    join(PeersConfig())
