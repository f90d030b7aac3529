"""A pytest plugin that runs gensim's own tests on the classes of embedder.

    python -m pytest -p tests.gensim_interface.plugin --pyargs gensim.test.test_word2vec

It deselects the tests that `exceptions.txt` lists, each with its reason.
"""

import os
from pathlib import Path

from embedder.gensim import drop_in
from embedder.gensim.saving import TRUST

_LINES = Path(__file__).with_name("exceptions.txt").read_text().splitlines()
EXCEPTIONS = dict(line.split(None, 1) for line in _LINES if line and line[0] != "#")
"""Names of tests -> why they are left out."""


def pytest_configure(config):
    os.environ[TRUST] = "1"  # the pickles that are read are those of gensim's own wheel
    drop_in.swap_in()


def pytest_collection_modifyitems(config, items):
    left_out = []
    for item in items:
        module = item.module.__name__.rpartition(".")[2]
        if f"{module}::{item.nodeid.partition('::')[2]}" in EXCEPTIONS:
            left_out.append(item)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
