import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def run(example: str, folder: Path) -> str:
    """What an example of the README prints."""
    script = folder / "example.py"
    script.write_text(example)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        env={
            "PYTHONPATH": str(README.parent),
            "PATH": "",
            "XDG_CACHE_HOME": str(folder / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_python_examples_run_as_written(tmp_path):
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    tokens, encoder = (run(example, tmp_path) for example in examples)
    assert set(re.findall(r"'(\w+)'", tokens)) == {"hammer", "screw"}
    assert encoder == "1.0 (40, 8)\n"
