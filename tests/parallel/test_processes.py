"""Several processes as one run, on loopback: equal results, one line for each fault."""

import itertools
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

from embedder.config.run_options import PeersConfig
from embedder.engine.hosts.joining import LOST, join
from tests.commands import OF_A_RUN, SECONDS

OPTIONS = ("--blocks-per-update", "4", "--epochs", "2", "--loader", "memory")
OPTIONS += ("--dtype", "float64", "--vector-size", "8", "--min-count", "1")
TWO = ("--workdir", "two")
MANY = (*TWO, "--epochs", "40", "--save-every", "16")
"""Of a run that saves all the time."""
ALTERED = """
import os, time, types
from embedder.engine import epochs
speed, now = float(os.environ["CLOCK_SPEED"]), time.monotonic
epochs.time = types.SimpleNamespace(monotonic=lambda: speed * now())
import embedder.api.train
def interrupted(*arguments, **options):
    raise KeyboardInterrupt
if os.environ["HANG_AT"] == "interrupt":
    embedder.api.train.open_task = interrupted
tell = epochs._Reporter._status
def status(self, place, *arguments):
    if os.environ["HANG_AT"] and place.updates >= int(os.environ["HANG_AT"]):
        for _ in range(20_000):  # 1,000 seconds
            if os.path.exists("go"):
                break
            time.sleep(0.05)
    return tell(self, place, *arguments)
epochs._Reporter._status = status
from embedder.cli.main import program
program()
"""


@pytest.fixture
def folder(own_folder, text_file) -> Path:
    """A working folder with corpus.txt in it."""
    return own_folder


NEVER_GIVEN = itertools.count(10_000 + 97 * os.getpid() % 20_000)
"""Ports below those that a system gives to who asks for any: they stay free."""


def is_free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False


def peers(num: int = 2, **options: int) -> list[str]:
    """Arguments of the processes of one run, all but which of them each is."""
    port = next(filter(is_free, NEVER_GIVEN))
    given = ["--coordinator", f"127.0.0.1:{port}", "--num-processes", str(num)]
    for name, value in options.items():
        given += [f"--{name.replace('_', '-')}", str(value)]
    return [*given, "--process-id"]


def start(
    *arguments: str, devices: int = 2, cwd: str = ".", **variables: str
) -> subprocess.Popen:
    """An `embedder train` in a process with so many devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    program = ["-c", ALTERED] if "HANG_AT" in variables else ["-m", "embedder.cli.main"]
    return subprocess.Popen(
        [sys.executable, *program, "train", *arguments],
        cwd=cwd,
        env=os.environ | {"XLA_FLAGS": flags} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_two(
    *arguments: str, own=((), ()), corpora=("corpus.txt",) * 2, hang="", clocks=(1, 1)
):
    """Two processes of one run; `own` are arguments of each, `clocks` the speeds of
    their clocks for evaluations.

    After `hang` updates the second does not go on before a file `go` is there.
    """
    given = *OPTIONS, *arguments, *peers()
    changes = [
        {"HANG_AT": hang if i else "", "CLOCK_SPEED": str(clocks[i])} for i in range(2)
    ]
    return [start(corpora[i], *given, str(i), *own[i], **changes[i]) for i in range(2)]


def ends(processes) -> list[tuple[int, list[str]]]:
    """Exit code and lines of standard error of each."""
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
    codes = [process.returncode for process in processes]
    return [*zip(codes, map(str.splitlines, errors), strict=True)]


def model(workdir: Path | str) -> dict[str, np.ndarray]:
    with np.load(Path(workdir, "model.npz")) as file:
        arrays = {name: file[name] for name in file.files}
    del arrays["loss_history"]  # sums that are added up in another order
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


@pytest.fixture(scope="module")
def assert_as_one(tmp_path_factory):
    """A function: the run has what one process with four devices makes of the text."""
    made: dict[tuple[str, ...], dict[str, np.ndarray]] = {}

    def compare(run: str, *flags: str, corpus: str = "corpus.txt") -> None:
        if flags not in made:
            one = tmp_path_factory.mktemp("one") / "run"
            own = (*OPTIONS, "--mode", "sharded", *flags, "--workdir", str(one))
            ((code, lines),) = ends([start(corpus, *own, devices=4)])
            assert code == 0, lines
            made[flags] = model(one)
        found = model(run)
        assert found.keys() == made[flags].keys()
        for name, array in made[flags].items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)

    return compare


@pytest.mark.slow
def test_two_processes_agree_on_the_time_of_evaluations(folder):
    """At this rate no score improves, so patience ends the run after 2 of them. The
    clock of the second process stands still."""
    timed = "--eval-every 1s --epochs 100000 --alpha 1e-9 --min-alpha 1e-9 --patience 1"
    timed += " --holdout 0.2 --best-by next-item --result best --blocks-per-update 1"
    (code, lines), second = ends(start_two(*timed.split(), *TWO, clocks=(9, 0)))
    assert (code, second) == (0, (0, [])), lines
    assert any("Ends early, after" in line for line in lines)


@pytest.mark.slow
def test_slurm_starts_one_run_with_tables_between_its_processes(folder, assert_as_one):
    """Rows of tables and accumulators; the model has them whole."""
    job = {"SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    # JAX takes one of its last 4,096 ports for it.
    jobs = itertools.count(os.getpid())
    job["SLURM_JOB_ID"] = str(next(x for x in jobs if is_free(61_440 + x % 4096)))
    flags = ("--optimizer", "adagrad", "--table-sharding", "rows")
    command = "corpus.txt", *OPTIONS, *flags, *TWO
    every = [
        start(*command, **job, SLURM_PROCID=rank, SLURM_LOCALID=rank) for rank in "01"
    ]
    assert [code for code, _ in ends(every)] == [0, 0]
    assert len(model("two")) == 4  # two tables, and their accumulators
    assert_as_one("two", *flags)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI's mpirun")
def test_mpirun_starts_one_run(folder, assert_as_one):
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = "mpirun --oversubscribe --bind-to none -n 2".split()
    command += [sys.executable, "-m", "embedder.cli.main", "train", "corpus.txt"]
    done = subprocess.run(
        [*command, *OPTIONS, *TWO],
        env=os.environ | flags | root,
        **{"capture_output": True, "text": True, "timeout": SECONDS},
    )
    assert done.returncode == 0, done.stderr
    report = "Report: two/report.html"
    assert done.stdout == f"two: done. 60 vectors of 8 numbers. {report}\n"
    assert_as_one("two")


@pytest.mark.slow
@pytest.mark.row("F10")
def test_what_processes_have_of_their_own_is_named_by_all(folder):
    own = ("--window", "4"), ("--window", "3")
    for rank, (code, (line,)) in enumerate(ends(start_two(*TWO, own=own))):
        here = f"process {rank} has `window` {own[rank][1]}: give all of them the same"
        assert code == 2
        assert line.startswith(f"embedder: Processes differ in `window`; {here}")
    Path("other").mkdir()
    text = Path("corpus.txt").read_text()
    Path("other/corpus.txt").write_text(text.replace("w1 ", "w2 "))
    corpora = "corpus.txt", "other/corpus.txt"
    for code, (line,) in ends(start_two(*TWO, corpora=corpora)):
        assert code == 2 and "Processes differ in corpus;" in line
    first, second = ends(start_two(*TWO, corpora=("corpus.txt", "missing.txt")))
    message = "Corpus missing.txt does not exist."
    assert second == (2, [f"embedder: {message}"])
    assert first == (2, [f"embedder: Process 1: {message}"])
    assert not Path("two/config.toml").exists()
    assert [code for code, _ in ends(start_two(*TWO))] == [0, 0]


def start_and_save(*arguments: str) -> list[subprocess.Popen]:
    """Two that have saved, and whose second waits for a file `go` after 100 updates."""
    every = start_two(*MANY, *arguments, hang="100")
    while not list(Path("two").glob("checkpoints/*/SHA256SUMS")):
        assert [process.poll() for process in every] == [None, None]
        time.sleep(0.05)
    return every


@pytest.fixture
def assert_goes_on(assert_as_one):
    """A function: started again, the two go on to what one makes without a stop."""

    def check() -> None:
        (first, lines), (second, _) = ends(start_two(*MANY))
        assert (first, second) == (0, 0)
        assert re.search("Resumes after [0-9]+ updates", "".join(lines))
        assert_as_one("two", *MANY)

    return check


@pytest.mark.row("F7")
@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_that_lost_a_process_goes_on(folder, assert_goes_on, lost, number):
    """The other one ends with one line."""
    every = start_and_save("--lost-after", "10")
    os.kill(every[lost].pid, number)
    other = every[1 - lost]
    try:
        _, error = other.communicate(timeout=SECONDS)
    finally:
        for process in every:
            process.kill()
            process.communicate()
    said = ("epoch", "The checkpoint before is still being written: ")
    lines = [x for x in error.splitlines() if not x.startswith(said)]
    (fault,) = [line for line in lines if not OF_A_RUN.match(line)]
    assert other.returncode == 3
    assert LOST in fault or "a process of the run hangs" in fault
    assert_goes_on()


@pytest.mark.row("F5")
@pytest.mark.slow
@pytest.mark.parametrize("told", [[1], [0, 1]], ids=["one", "both"])
def test_a_signal_to_any_ends_all_at_the_same_step(folder, assert_goes_on, told):
    every = start_and_save()
    for process in told:
        every[process].send_signal(signal.SIGTERM)
    Path("go").touch()
    ended = ends(every)
    assert [code for code, _ in ended] == [143, 143]
    (own,), (other,) = ([x for x in e if x.startswith("embedder")] for _, e in ended)
    assert own == other
    assert re.fullmatch("embedder: Stopped after [0-9]+ updates, which are saved.", own)
    assert_goes_on()


@pytest.mark.row("F5")
@pytest.mark.slow
def test_ctrl_c_in_one_process_before_the_first_update_ends_all(folder):
    first, second = ends(start_two(*TWO, hang="interrupt"))
    assert [first[0], second[0]] == [130, 130], (first, second)
    assert first[1] == ["embedder: Process 1: Interrupted."]
    assert second[1] == ["embedder: Interrupted."]
    assert not Path("two").exists()


@pytest.mark.row("F8")
@pytest.mark.slow
def test_a_process_that_hangs_ends_all(folder):
    """Its heart beats on: only its steps do not come."""
    every = start_two(*MANY, "--lost-after", "10", hang="100")
    for code, lines in ends(every):
        (fault,) = [line for line in lines if line.startswith("embedder")]
        assert code == 3
        assert "a process of the run hangs" in fault or LOST in fault


@pytest.mark.slow
def test_hosts_need_not_share_a_folder(folder, assert_as_one):
    """Each process has a working folder of its own, and reads the text itself. The
    first tells what is done; a finished run is known to be so."""
    corpus = folder / "corpus.txt"
    for is_done in (False, True):
        given, every = peers(), []
        for rank in "01":
            (folder / f"host{rank}").mkdir(exist_ok=True)
            if not is_done:
                os.utime(corpus)  # another time of change is not another corpus
            own = *OPTIONS, *TWO, *given, rank
            every.append(start(str(corpus), *own, cwd=f"host{rank}"))
        first, second = ends(every)
        assert (first[0], second) == (0, (0, []))
        if is_done:
            assert first[1] == []
        else:
            *_, devices, one, two = first[1]
            assert devices.startswith("devices: 4 as 4 x 1, by sharded, tables replic")
            assert [one[:10], two[:10]] == ["epoch 1/2:", "epoch 2/2:"]
    assert_as_one("host0/two")
    assert not (folder / "host1/two").exists()


@pytest.mark.row("F9")
def test_a_process_alone_gives_up_in_time(folder):
    """Not after the 300 s that JAX waits by default."""
    given = peers(init_timeout=3)
    ((code, (line,)),) = ends([start("corpus.txt", *given, "1")])
    assert code == 2
    assert line.startswith(
        f"embedder: Process 1 could not join the others at {given[1]} within "
        "`init_timeout` = 3 s: "
    )


@pytest.mark.row("F9")
@pytest.mark.slow
def test_an_id_given_twice_is_an_error_of_all(folder):
    given = peers(3, init_timeout=5)
    for code, (line,) in ends([start("corpus.txt", *given, each) for each in "011"]):
        assert code == 2 and "could not join the others" in line


@pytest.mark.row("F9")
def test_a_taken_port_is_named():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} cannot be opened here"):
            two = {"coordinator": f"127.0.0.1:{port}", "num_processes": 2}
            join(PeersConfig(**two, process_id=0))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SLURM_NTASKS", "many", "SLURM_NTASKS must be a number, got 'many'"),
        ("OMPI_COMM_WORLD_SIZE", "2", "names no coordinator: give --coordinator"),
    ],
)
def test_launchers_that_do_not_say_enough_are_named(monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        join(PeersConfig())


def test_one_process_joins_nobody(monkeypatch):
    monkeypatch.setattr(
        jax.distributed, "initialize", lambda *_, **options: pytest.fail("it joins")
    )
    join(PeersConfig())
    join(PeersConfig(coordinator="host:1234", num_processes=1, process_id=0))
    monkeypatch.setenv("SLURM_NTASKS", "4")  # in the script of a job, not in a step
    monkeypatch.setenv("SLURM_PROCID", "0")
    join(PeersConfig())
    monkeypatch.setenv("SLURM_STEP_NODELIST", "localhost")
    join(PeersConfig(num_processes=1))
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")  # an interactive step of the job
    join(PeersConfig())
