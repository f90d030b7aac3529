"""`neighbors` without words: lines of standard input, and the prompt."""

import io
import json
import os
import sys

import numpy as np
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from embedder import Vectors, write_vectors
from embedder.base.terminal import shown
from embedder.cli.lookup import neighbors, prompt
from embedder.cli.lookup.prompt import (
    Completions,
    Expression,
    make_completer,
    parse_line,
)
from embedder.cli.main import main
from embedder.vectors.export import read_vectors
from tests.commands import run_python

pytestmark = pytest.mark.usefixtures("here")


KNOWN = {"king", "man", "woman", "new york", "c++", "-", "a + b"}
KNOWN |= {"New\u00a0York", "東京\u3000都", "km\u00a0", " mug", "red  mug"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("king", [(("king",), ())]),
        ("  king  man ", [(("king",), ()), (("man",), ())]),
        ("king - man + woman", [(("king", "woman"), ("man",))]),
        ("- man + king", [(("king",), ("man",))]),
        ("+ man", [(("man",), ())]),
        ("- man - king", [((), ("man", "king"))]),
        ("new york", [(("new york",), ())]),
        ("king + new york - man", [(("king", "new york"), ("man",))]),
        ("c++ king-man", [(("c++",), ()), (("king-man",), ())]),
        ("-", [(("-",), ())]),
        ("a + b", [(("a + b",), ())]),
        ("a + b + king", [(("a", "b", "king"), ())]),
        (
            "New\u00a0York - king + 東京\u3000都",
            [(("New\u00a0York", "東京\u3000都"), ("king",))],
        ),
        ("New\u00a0York\tkm\u00a0", [(("New\u00a0York",), ()), (("km\u00a0",), ())]),
        ("km\u00a0", [(("km\u00a0",), ())]),
        (" mug", [((" mug",), ())]),
        ("red  mug - new  york", [(("red  mug",), ("new york",))]),
        ("unknown + other", [(("unknown", "other"), ())]),
    ],
)
def test_lines_are_keys_or_sums(line, expected):
    assert parse_line(line, KNOWN) == [Expression(*each) for each in expected]


def piped(monkeypatch, text: str, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return main(["neighbors", *arguments])


def printed(title: str, found) -> list[str]:
    return [title, *(f"  {x:6.3f}  {key}" for key, x in found)]


def test_lines_of_standard_input_are_answered_without_a_prompt(capsys, monkeypatch):
    text = "a1\n\nb3 b4\nb1 - a2 + a3\n:topn 2\n- b1\n:quit\nb5\n"
    assert piped(monkeypatch, text, "run") == 0
    vectors = read_vectors("run/vectors.safetensors")
    done = capsys.readouterr()
    assert not done.err
    assert done.out.splitlines() == [
        *printed("a1", vectors.most_similar("a1")),
        *printed("b3", vectors.most_similar("b3")),
        *printed("b4", vectors.most_similar("b4")),
        *printed("b1 + a3 - a2", vectors.most_similar(["b1", "a3"], ["a2"])),
        *printed("- b1", vectors.most_similar(None, ["b1"], topn=2)),
    ]


def test_white_space_is_that_of_ascii_and_a_mark_is_no_key(capsys, monkeypatch):
    keys = ["New\u00a0York", "東京\u3000都", "km\u00a0", "Paris"]
    vectors = Vectors(keys, np.eye(4, 3, dtype="f4"))
    write_vectors(vectors, "blanks.txt")
    text = "\ufeffkm\u00a0 New\u00a0York\nNew\u00a0York - Paris + 東京\u3000都\n"
    assert piped(monkeypatch, text, "blanks.txt") == 0
    out = capsys.readouterr().out
    expected = [
        *printed("km\u00a0", vectors.most_similar(keys[2])),
        *printed("New\u00a0York", vectors.most_similar(keys[0])),
        *printed(
            "New\u00a0York + 東京\u3000都 - Paris",
            vectors.most_similar(keys[:2], keys[3:]),
        ),
    ]
    assert out.rstrip("\n").split("\n") == [*map(shown, expected)]


def test_arguments_apply_to_lines(capsys, monkeypatch):
    names = ["--names", "names.csv", "--where", "kind=x"]
    assert piped(monkeypatch, "b1 - a2\n", "run", *names, "--json", "--topn", "3") == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    among = {"a1", "a4", "b2", "b5"}
    vectors = read_vectors("run/vectors.safetensors")
    expected = vectors.most_similar("b1", "a2", topn=3, among=among)
    assert [(x["key"], x["similarity"]) for x in found["found"]] == expected
    assert (found["positive"], found["negative"]) == (["b1"], ["a2"])
    assert [x["names"]["name"] for x in found["query"]] == ["the b1", "the a2"]
    assert piped(monkeypatch, "b1\n", "run", "--metric", "dot", "--topn", "1") == 0
    ((key, product),) = vectors.most_similar("b1", topn=1, metric="dot")
    assert capsys.readouterr().out.splitlines() == ["b1", f"  {product:6.3f}  {key}"]


def test_replicas_have_intervals_and_sums_are_of_the_mean(capsys, monkeypatch):
    assert piped(monkeypatch, "b1\nb1 - a2\n", "two", "--topn", "1") == 0
    answer = capsys.readouterr().out.splitlines()
    assert main(["neighbors", "two", "b1", "--topn", "1"]) == 0
    assert answer[:2] == capsys.readouterr().out.splitlines()
    mean = read_vectors("two/vectors.safetensors")
    assert answer[2:] == printed("b1 - a2", mean.most_similar("b1", "a2", topn=1))


WRONG = {
    "A1": "'A1' is not in the vocabulary: did you mean 'a1'?",
    ":top 3": "Unknown command ':top': give :help, :topn N or :quit.",
    ":topn": "`:topn` must have one number, got ''.",
    ":topn 3 4": "`:topn` must have one number, got '3 4'.",
    ":topn 0": "`topn` must be an integer >= 1, got '0'.",
    ":topn 1.5": "`topn` must be an integer >= 1, got '1.5'.",
    ":topn ²": "`topn` must be an integer >= 1, got '²'.",
    ":quit now": "`:quit` must have no value, got 'now'.",
    "b1 -": "A sum must have a token after each sign, got 'b1 -'.",
    "+": "A sum must have a token after each sign, got '+'.",
    "b1 - + a1": "A sum must have a token after each sign, got 'b1 - + a1'.",
}


@pytest.mark.row("B61")
def test_lines_without_an_answer_are_named_and_the_others_answered(capsys, monkeypatch):
    text = "\n".join(["a1", *WRONG, ":help", "b2"])
    assert piped(monkeypatch, text, "run", "--topn", "1") == 2
    done = capsys.readouterr()
    last = "embedder: Standard input: 11 of 14 lines have no answer."
    assert done.err.splitlines() == [*WRONG.values(), last]
    titles = [line for line in done.out.splitlines() if line in ("a1", "b2")]
    assert titles == ["a1", "b2"] and ":topn 20" in done.out


@pytest.mark.row("B61")
def test_standard_input_that_is_closed_or_not_text(runs):
    program = ["-m", "embedder.cli.main", "neighbors", f"{runs}/run"]
    done = run_python(*program, stdin=os.open(os.devnull, os.O_WRONLY))
    assert done.returncode == 2
    assert done.stderr.startswith("embedder: Standard input cannot be read: ")
    script = runs / "bytes.txt"
    script.write_bytes(b"a1\n\xff\n")
    environment = os.environ | {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:strict"}
    with open(script, "rb") as file:
        done = run_python(*program, stdin=file, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith("embedder: Standard input cannot be read: ")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """Answers to what is typed on a terminal, keys as the terminal sends them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(neighbors, "is_interactive", lambda: True)

    def answers(text: str, *arguments: str) -> int:
        with create_pipe_input() as pipe:
            pipe.send_text(text)
            with create_app_session(input=pipe, output=DummyOutput()):
                return main(["neighbors", "run", "--topn", "1", *arguments])

    return answers


def answer(key: str) -> list[str]:
    vectors = read_vectors("run/vectors.safetensors")
    return printed(key, vectors.most_similar(key, topn=1))


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("a1\r\rA1\rb2\r\x04", ["a1", "'A1' is not …", "b2"]),  # Ctrl-D ends
        ("a1\x03b2\r:quit\ra3\r", ["b2"]),  # Ctrl-C drops a line
        ("a2 + b1\t\r\x04", ["a2 + b1"]),  # the only key that begins so
    ],
)
def test_the_prompt_answers_until_the_end(typed, capsys, text, titles):
    assert typed(text) == 0
    done = capsys.readouterr()
    assert [x for x in done.out.splitlines() if x[0] != " "] == [
        WRONG["A1"] if "A1" in title else title for title in titles
    ]
    assert not done.err


def test_lines_are_kept_for_the_next_prompt(typed, capsys, monkeypatch, tmp_path):
    assert typed("a1\r\x04") == 0
    assert "a1" in (tmp_path / "embedder" / "history").read_text()
    capsys.readouterr()
    assert typed("\x1b[A\r\x04") == 0  # arrow up
    assert capsys.readouterr().out.splitlines() == answer("a1")
    (tmp_path / "file").write_text("")  # where there is no folder for it
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert typed("a1\r\x04") == 0
    assert capsys.readouterr().out.splitlines() == answer("a1")


@pytest.mark.row("B92")
def test_without_prompt_toolkit_the_prompt_is_plain(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.setattr(neighbors, "is_interactive", lambda: True)
    assert piped(monkeypatch, "a1\nb2\n", "run", "--topn", "1") == 0
    hint, *found = capsys.readouterr().out.split(prompt.PROMPT)
    assert hint.endswith(": python -m pip install 'embedder-jax[prompt]'.\n")
    assert [each.splitlines() for each in found] == [answer("a1"), answer("b2"), []]


def completions(text: str, keys: list[str]) -> list[str]:
    found = make_completer(lambda: keys).get_completions(
        Document(text), CompleteEvent(completion_requested=True)
    )
    return [each.text for each in found]


def test_completions_are_the_most_frequent_keys_with_the_start():
    keys = ["whale", "a", "whaling", "wha", "zebra", "whales", "żaba"]
    assert completions("wha", keys) == ["whale", "whaling", "wha", "whales"]
    assert completions("a - whal", keys) == ["whale", "whaling", "whales"]
    assert completions("ż", keys) == ["żaba"]
    assert completions("q", keys) == completions("a ", keys) == []
    assert completions(":t", keys) == [":topn"]
    assert completions("a :t", keys) == []
    many = Completions(f"k{i:05d}" for i in range(10_000))
    assert many.of("k") == [f"k{i:05d}" for i in range(50)]


def test_a_terminal_has_a_prompt_and_a_pipe_has_none(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stdin, stdout, expected in (
        (Terminal(), Terminal(), True),
        (io.StringIO(), Terminal(), False),
        (Terminal(), io.StringIO(), False),
        (None, Terminal(), False),
    ):
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(prompt.sys, "stdout", stdout)
        assert prompt.is_interactive() is expected
