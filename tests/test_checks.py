"""What runs the parts of `.ci/run` and `.ci/nightly`."""

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKS = ROOT / ".ci" / "checks.py"
FAILING = "def test_a(): pass\ndef test_b(): assert 0\n"


@pytest.fixture
def checks(tmp_path, monkeypatch):
    """The module, for a checkout with one test that fails."""
    spec = importlib.util.spec_from_file_location("checks", CHECKS)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "checks", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "test_it.py").write_text(FAILING)
    (tmp_path / "README.md").write_text("one a\none b\ntwo c\n")
    (tmp_path / "scratch" / "dev" / "bin").mkdir(parents=True)
    python = tmp_path / "scratch" / "dev" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return module


def part(checks, name, *commands, **options):
    return checks.Part(name, lambda: commands, **options)


def run(checks, *parts) -> tuple[int, dict[str, str], dict[str, list[str]]]:
    """The exit code; the result and the notes of each part."""
    runner = checks.Checks(checks.ROOT / "scratch", None)
    code = runner.run(parts)
    states = {row.part: row.state for row in runner.rows}
    return code, states, {row.part: [*row.notes] for row in runner.rows}


def test_parts_after_one_that_failed_run_and_the_exit_code_is_1(checks, capfd):
    parts = [part(checks, "bad", "echo before; false", "echo never")]
    parts += [part(checks, "good", "true")]
    code, states, notes = run(checks, *parts, part(checks, "last", "echo after"))
    assert (code, states) == (1, {"bad": "FAILED", "good": "passed", "last": "passed"})
    assert notes["bad"] == ["`echo before; false`: exit code 1"]
    printed = capfd.readouterr().out
    assert printed.index("before") < printed.index("after") < printed.index("| bad |")
    assert "\nnever" not in printed
    assert run(checks, part(checks, "good", "true"))[0] == 0


def test_a_failed_test_is_named_with_the_line_that_repeats_it(checks, capfd):
    command = "python -m pytest -p no:xdist -p no:randomly test_it.py"
    code, _, notes = run(checks, part(checks, "tests", command))
    assert code == 1
    assert notes["tests"] == [
        f"`{command}`: exit code 1",
        "python -m pytest -n 0 -m '' test_it.py::test_b",
    ]
    row = next(x for x in capfd.readouterr().out.splitlines() if "| tests |" in x)
    assert row.split(" | ")[2:] == ["1", "1", "0", "FAILED |"]


def test_a_line_that_a_document_has_not_once_fails_its_part(checks):
    parts = [
        checks.Part(start, lambda start=start: [checks.line_of("README.md", start)])
        for start in ("one", "none")
    ]
    code, states, notes = run(checks, *parts)
    assert (code, states) == (1, {"one": "FAILED", "none": "FAILED"})
    assert notes["one"] == ["README.md has 2 lines for 'one', expected one."]
    assert notes["none"] == ["README.md has 0 lines for 'none', expected one."]
    assert checks.line_of("README.md", "two") == "two c"


def test_a_part_that_does_not_end_is_stopped_and_one_without_its_program_left_out(
    checks,
):
    ends = part(checks, "hangs", "sleep 600 & wait", minutes=0)
    lacks = part(checks, "lacks", "true", programs=("a-package:no-such-program",))
    code, states, notes = run(checks, ends, lacks)
    assert (code, states) == (1, {"hangs": "FAILED", "lacks": "left out"})
    assert notes["hangs"] == ["`sleep 600 & wait`: stopped after 0 minutes"]
    assert notes["lacks"] == ["no no-such-program: apt-get install a-package"]


def test_parts_are_chosen_by_name_and_by_what_changed(checks):
    parts = [
        part(checks, "slow/run", for_files=("tests/run", "embedder/run")),
        part(checks, "oldest", for_files=("pyproject.toml",)),
    ]

    def names(*wanted, ref=None):
        return [each.name for each in checks.chosen(parts, wanted, ref)]

    assert names() == ["slow/run", "oldest"] == names("oldest", "slow")
    assert names("slow/run") == ["slow/run"]
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]
    (checks.ROOT / "embedder" / "run").mkdir(parents=True)
    (checks.ROOT / "embedder" / "run" / "x.py").touch()
    for line in ("init -q", "add embedder README.md", "commit -q -m x"):
        subprocess.run([*git, *line.split()], cwd=checks.ROOT, check=True)
    assert names(ref="HEAD") == []
    (checks.ROOT / "embedder" / "run" / "x.py").write_text("x = 1\n")
    (checks.ROOT / "README.md").write_text("other\n")
    assert names(ref="HEAD") == ["slow/run"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["slow/none"], "`PART` must be one of slow, slow/contract, "),
        (["--changed", "no-commit"], "`--changed` must be a commit of this checkout: "),
    ],
)
def test_a_wrong_name_is_one_line(arguments, line):
    command = [sys.executable, str(CHECKS), "nightly", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    (told,) = done.stderr.splitlines()
    assert told.startswith(f".ci/nightly: {line}") and arguments[-1] in told


def test_each_folder_of_tests_is_in_a_part():
    command = [sys.executable, str(CHECKS), "nightly", "--list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    files = {word for line in listed.splitlines() for word in line.split()[1:]}
    folders = {f"tests/{x.parent.name}" for x in ROOT.glob("tests/*/test_*.py")}
    assert folders - files <= {"tests/disk", "tests/refusals"}  # none of them is slow


def test_each_planted_fault_has_its_place_and_its_tests():
    faults = tomllib.loads((ROOT / "tests/mutations/faults.toml").read_text())["fault"]
    for fault in faults:
        assert (ROOT / fault["file"]).read_text().count(fault["text"]) == 1, fault
        assert fault["text"] != fault["instead"], fault
        for test in fault["tests"]:
            path, *names = test.split("::")
            name = names[-1].partition("[")[0] if names else "def test_"
            assert name in (ROOT / path).read_text(), fault
