"""Runs that are killed at random moments go on to the bits of one that never was."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPTIONS = ("--vector-size", "5", "--min-count", "1", "--block", "32", "--epochs", "3")
OPTIONS += ("--loader", "memory", "--save-every", "16", "--blocks-per-update", "2")
MODES = {
    "jit": ("--backend", "xla"),
    "numba": ("--backend", "numba"),
    "sharded": ("--mode", "sharded", "--tables", "rows", "--devices", "2"),
    "pmap": ("--mode", "pmap", "--devices", "2"),
}


def embedder(
    event: int, number: int, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """`embedder train`, that gets the signal `number` at the event."""
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.child", str(event), str(number)]
        + ["train", "corpus.txt", "--workdir", "run", *arguments],
        env=os.environ
        | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )


def digests() -> dict[str, str]:
    """Of all that is left in the run but what tells the time."""
    timed = "metrics.jsonl", "corpus.json"
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path("run").iterdir()
        if path.is_file() and path.name not in timed
    }


def kill_and_resume(options: tuple[str, ...], kills: int, seed: int) -> None:
    """A run, killed at random events and started again until it ends; `kills` times."""
    whole = embedder(-1, 0, *options)
    assert whole.returncode == 0, whole.stderr
    expected, num_events = digests(), int(whole.stdout.splitlines()[-1])
    assert num_events > 80
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


@pytest.mark.parametrize(
    ("mode", "kills"),
    [
        ("jit", 2),
        *(pytest.param(mode, 13, marks=pytest.mark.slow) for mode in MODES),
    ],
)
def test_a_killed_run_ends_as_one_that_never_was(
    tmp_path, text_file, monkeypatch, mode, kills
):
    monkeypatch.chdir(tmp_path)
    kill_and_resume((*OPTIONS, *MODES[mode]), kills, seed=kills)
