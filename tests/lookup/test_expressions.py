"""Lines of the prompt: sums, several words, commands."""

import pytest

from embedder.errors import InputError
from embedder.lookup.expressions import (
    Command,
    Expression,
    parse_command,
    parse_line,
    positive_integer,
)

KNOWN = {"king", "man", "woman", "new york", "c++", "-", "a + b"}


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
        ("unknown + other", [(("unknown", "other"), ())]),
    ],
)
def test_lines_are_keys_or_sums(line, expected):
    assert parse_line(line, KNOWN) == [Expression(*each) for each in expected]


@pytest.mark.row("B61")
@pytest.mark.parametrize("line", ["king -", "+", "king - + man", "+ - man"])
def test_a_sign_without_a_token_is_refused(line):
    with pytest.raises(InputError, match="must have a token after each sign, got '"):
        parse_line(line, KNOWN)


def test_commands():
    assert parse_command(":topn 20") == Command(":topn", "20")
    assert parse_command(":help") == Command(":help", "")
    assert parse_command(":quit") == Command(":quit", "")
    assert parse_command("king :help") is None
    assert parse_command("") is None


@pytest.mark.row("B61")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        (":top 3", "Unknown command ':top': give :help, :topn N or :quit."),
        (":topn", "`:topn` must have one number, got ''."),
        (":topn 3 4", "`:topn` must have one number, got '3 4'."),
        (":quit now", "`:quit` must have no value, got 'now'."),
    ],
)
def test_wrong_commands_are_refused(line, message):
    with pytest.raises(InputError) as error:
        parse_command(line)
    assert error.value.args == (message,)


@pytest.mark.row("B61")
@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "", "²", "٣"])
def test_numbers_of_neighbours_are_checked(text):
    with pytest.raises(InputError, match="`topn` must be an integer >= 1, got '"):
        positive_integer("topn", text)


def test_a_number_of_neighbours():
    assert positive_integer("topn", "020") == 20
