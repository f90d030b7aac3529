import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_python_example_runs_as_written(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(README.parent),
            "PATH": "",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    nearest = re.findall(r"'(\w+)'", done.stdout)
    assert set(nearest) == {"hammer", "screw"}
