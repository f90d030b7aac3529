"""`bench gpu`: what a part costs, and all parts where there is no GPU."""

import json
import os
import subprocess
import sys
import venv

import pytest

from bench.gpu import kit as gpu_kit
from bench.gpu import main, session
from bench.gpu.session import Part

ABOUT = {"device": "1 x none", "driver": "1", "versions": {"jax": "0"}}
HANGS = "import time; print('[1]'); print('{\"x\": 1}', flush=True); time.sleep(1000)"


def part(name: str, code: str, seconds: float = 30) -> Part:
    return Part(name, ("-c", code), seconds)


@pytest.mark.slow
def test_a_part_that_fails_or_hangs_costs_itself_alone(tmp_path):
    given = [
        part("device", f"print({json.dumps(ABOUT)!r})"),
        part("hangs", HANGS, seconds=5),
        part("fails", "print('before'); 1 / 0"),
        part("killed", "import os; os.kill(os.getpid(), 9)"),
        part("good", "print('{\"y\": 2.5}')"),
    ]
    found = session.run(given, tmp_path, 600)
    failed = {x["part"]: x["failed"] for x in found if "failed" in x}
    assert failed == {
        "hangs": "stopped after 5 s",
        "fails": "exit code 1",
        "killed": "exit code -9",
    }
    (end,) = (x["end"] for x in found if x["part"] == "fails")
    assert end.startswith("before") and "ZeroDivisionError" in end
    assert {"part": "hangs", "x": 1} in found and {"part": "good", "y": 2.5} in found
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [x | ABOUT for x in found]
    assert "| 2.5 |" in (tmp_path / "table.md").read_text()


def test_a_kit_and_parts_are_checked(tmp_path, capsys):
    for arguments, message in (
        ([], f"{tmp_path}/kit is no kit: make it by `python -m bench gpu kit`."),
        (["--parts", "cpu", "gpu"], "got 'gpu'."),
    ):
        with pytest.raises(SystemExit, match="2"):
            options = ["--to", str(tmp_path), "--kit", str(tmp_path / "kit")]
            main(options + arguments)
        assert capsys.readouterr().err.splitlines()[-1].endswith(message)
        (tmp_path / "kit").mkdir(exist_ok=True)
        (tmp_path / "kit" / "corpus.npz").touch()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_each_part_has_results_with_the_kit_alone(tmp_path, data_folder):
    """In a new environment of `gpu_kit.THERE`, on a CPU."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    kit, to = tmp_path / "kit", tmp_path / "results"
    gpu_kit.run(kit, python=version, tiny=True)
    venv.create(tmp_path / "environment", with_pip=False)
    python = tmp_path / "environment" / "bin" / "python"
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONPATH"}
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, *gpu_kit.THERE], env=environment, check=True)
    command = [str(python), "-m", "bench", "gpu", "--minutes", "18", "--tiny"]
    done = subprocess.run(
        [*command, "--kit", str(kit), "--to", str(to)],
        env=environment | {"PYTHONPATH": str(kit / "packages")},
        cwd=session.CHECKOUT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(x) for x in (to / "results.jsonl").read_text().splitlines()]
    assert [x for x in found if "failed" in x] == []
    names = [each.name for each in session.parts(kit, to, is_tiny=True)]
    assert [x["part"] for x in found if "seconds" in x] == names
    assert {x["passed"] for x in found if "passed" in x} == {True}
    assert len({x["digest"] for x in found if "digest" in x}) == 1
    assert (to / "profile.trace.json.gz").stat().st_size < 2e6
