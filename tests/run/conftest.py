"""What tests of the runs of encoders share."""

from pathlib import Path

import pytest


@pytest.fixture
def runs(folder, own_folder, capsys) -> Path:
    """The folder of a module's runs, which tests only read; the working one is new."""
    capsys.readouterr()
    return folder
