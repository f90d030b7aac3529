import json
from pathlib import Path

import pytest

from tests.commands import run_python

PROGRAM = Path(__file__).with_name("old_program.py")


def run(*arguments, ok=True) -> str:
    """What a new interpreter prints: on standard output, or of its error."""
    done = run_python("-W", "error", *arguments)
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout if ok else done.stderr


def close(value):
    """The same with every float to be compared within the parity of an epoch."""
    if isinstance(value, dict):
        return {key: close(each) for key, each in value.items()}
    if isinstance(value, list):
        return [close(each) for each in value]
    return pytest.approx(value, rel=1e-9, abs=1e-9) if type(value) is float else value


@pytest.mark.slow
def test_an_old_program_does_the_same_with_the_port(tmp_path, text_file):
    arguments = PROGRAM, text_file, tmp_path
    desired = json.loads(run(*arguments))
    actual = json.loads(run("-m", "migration.dropin", *arguments))
    assert list(actual) == list(desired)
    for name, value in desired.items():
        assert actual[name] == close(value), name
    assert "no error" not in desired["errors"]


EVERY_IMPORT = """
import migration.dropin, legacy, sys, importlib.util
assert "jax" not in sys.modules and importlib.util.find_spec("legacy")
from legacy import *
from legacy import EmbeddingTrainer as name, FeatureEncoder as encoder
import legacy
for each in (EmbeddingTrainer, name, legacy.EmbeddingTrainer, encoder):
    print(each.__module__)
print(legacy.FeatureEncoder((2, 3, 2)).__class__.__module__)
"""


@pytest.mark.slow
def test_every_import_gives_the_port():
    trainers = 3 * ["embedder.api.token_estimator"]
    encoders = 2 * ["embedder.api.encoder_estimator"]
    assert run("-c", EVERY_IMPORT).splitlines() == [*trainers, *encoders]


def test_the_script_sees_its_own_arguments_and_folder(tmp_path):
    (tmp_path / "beside.py").write_text("x = 5")
    script = tmp_path / "script.py"
    script.write_text("import sys, beside; print(__name__, sys.argv, beside.x)")
    printed = run("-m", "migration.dropin", script, "--flag", "b")
    assert printed == f"__main__ {[str(script), '--flag', 'b']} 5\n"


INTERNAL = "is internal to the NumPy trainer"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import legacy\nimport migration.dropin",
            "`legacy` was imported before migration.dropin: import migration.dropin "
            "first.",
        ),
        (
            "import migration.dropin\nimport legacy.blocks",
            f"`legacy.blocks` {INTERNAL}",
        ),
        (
            "import migration.dropin, legacy\nlegacy.Trainer",
            f"`legacy.Trainer` {INTERNAL}, or does not exist",
        ),
        (
            "import migration.dropin\nfrom legacy import blocks",
            f"`legacy.blocks` {INTERNAL}",
        ),
    ],
    ids=["late", "internal", "unknown", "from"],
)
def test_unsupported_imports_are_refused(code, message):
    assert message in run("-c", code, ok=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["no such script.py"], "Script no such script.py does not exist."), ([], "")],
)
def test_wrong_usage(arguments, message):
    assert message in run("-m", "migration.dropin", *arguments, ok=False)
