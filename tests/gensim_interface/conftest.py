"""Without gensim, which has no wheel for the newest Python, one line for each file."""

import importlib.util

import pytest


class NotCompared(pytest.Module):
    """A file of tests that compare with gensim, which is not installed."""

    def collect(self):
        raise pytest.skip.Exception("gensim is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    if importlib.util.find_spec("gensim") is None:
        return NotCompared.from_parent(parent, path=module_path)
    return None
