"""Finished runs of tests of reports, which they only read."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.commands import train_runs
from tests.encoders.image_cases import write_pngs

FAST = "--loader memory --vector-size 8 --min-count 1 --sample 0 --epochs 2".split()
FAST += ["--backend", "numba"]  # also in processes that a test starts
HOSTILE = ["<script>", "a\u202eb", "\x1b[31mred", "é", "x" * 500, '"', "\\", "a\u2028b"]
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "</script>"]
WORDS += [*HOSTILE, *(f"w{n}" for n in range(43))]
ENCODER = "--model encoder --loader memory --network mlp --epochs 2 --batch-size 8"


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Of tokens, also others, of replicas, of labelled images, and their data."""
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    text = "\n".join(" ".join(rng.permutation(WORDS)) for _ in range(60))
    (folder / "text.txt").write_text(text)
    for name, least in (("dark", 0), ("<b>\tbright", 156)):
        pixels = least + rng.integers(100, size=(30, 4, 3, 3))
        write_pngs(folder / "photos" / name, pixels)
    tokens = f"text.txt {' '.join(FAST)}"
    train_runs(folder, tokens=tokens, other=f"{tokens} --window 2 --epochs 1")
    images = f"photos {ENCODER} --validation-fraction 0.5"
    train_runs(folder, replicas=f"{tokens} --replicas 3", images=images)
    return folder


@pytest.fixture
def here(runs, tmp_path, monkeypatch) -> Path:
    """A folder with the data, and a copy of the run of tokens as `run`."""
    for name in ("text.txt", "photos", "other", "replicas"):
        os.symlink(runs / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs / "tokens", "run")
    return tmp_path
