"""Finished runs of tests of reports, which they only read."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from embedder.cli.main import main
from tests.encoders.image_cases import write_pngs

FAST = "--loader memory --vector-size 8 --min-count 1 --sample 0 --epochs 2".split()
HOSTILE = ["<script>", "a\u202eb", "\x1b[31mred", "é", "x" * 500, '"', "\\", "a\u2028b"]
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "</script>"]
WORDS += [*HOSTILE, *(f"w{n}" for n in range(43))]
ENCODER = "--model encoder --loader memory --network mlp --epochs 2 --batch-size 8"


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Of tokens, also others, of replicas, of labelled images, and their data."""
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    text = folder / "text.txt"
    text.write_text("\n".join(" ".join(rng.permutation(WORDS)) for _ in range(60)))
    for name, least in (("dark", 0), ("<b>\tbright", 156)):
        pixels = least + rng.integers(100, size=(30, 4, 3, 3))
        write_pngs(folder / "photos" / name, pixels)
    encoder = [*ENCODER.split(), "--validation-fraction", "0.5"]
    for name, command in {
        "tokens": [str(text), *FAST],
        "other": [str(text), *FAST, "--window", "2", "--epochs", "1"],
        "replicas": [str(text), *FAST, "--replicas", "3"],
        "images": [str(folder / "photos"), *encoder],
    }.items():
        assert main(["train", *command, "--workdir", str(folder / name)]) == 0
    return folder


@pytest.fixture
def here(runs, tmp_path, monkeypatch) -> Path:
    """A folder with the data, and a copy of the run of tokens as `run`."""
    for name in ("text.txt", "photos", "other", "replicas"):
        os.symlink(runs / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs / "tokens", "run")
    return tmp_path
