"""Errors of input are one line and 2; any other is a bug, with its traceback and 70."""

import pytest

from embedder import cli, errors
from embedder.cli import main
from tests.commands import error_line

KINDS = [value for value in vars(errors).values() if isinstance(value, type)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_input_is_one_line_and_2(capsys, monkeypatch, kind):
    def refuse(verb):
        raise kind("`window` must be an integer, got 'x'.")

    monkeypatch.setattr(cli, "run_verb", refuse)
    assert main(["neighbors", "run", "a"]) == 2
    assert error_line(capsys) == "embedder: `window` must be an integer, got 'x'."


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_input_is_what_callers_in_python_expect(kind):
    """It prints as the exception of Python that it stands for."""
    builtin, *_ = (c for c in kind.__mro__ if c.__module__ == "builtins")
    assert issubclass(kind, ValueError) and str(kind("a 'b'")) == str(builtin("a 'b'"))


@pytest.mark.parametrize("kind", [ValueError, TypeError, KeyError, RuntimeError])
def test_any_other_error_is_a_bug(capsys, monkeypatch, kind):
    def fail(verb):
        raise kind("surprise")

    monkeypatch.setattr(cli, "run_verb", fail)
    assert main(["neighbors", "run", "a"]) == 70
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("Traceback ") and "Please report the lines above" in last


def test_debug_shows_where_an_error_was_raised(capsys):
    assert main(["neighbors", "--debug", "nowhere", "a"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback ")
    assert lines[-1] == "embedder: RUN nowhere does not exist."
