"""The oracle does not change unnoticed: what parity was proved against stays."""

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "legacy"

# A change here needs a numbered entry in migration/DECISIONS.md that says why.
SHA256 = {}


def digest(path: Path) -> str:
    """Of the text, whatever its line ends."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def test_sources_are_the_frozen_ones():
    assert {path.name: digest(path) for path in FOLDER.glob("*.py")} == SHA256
