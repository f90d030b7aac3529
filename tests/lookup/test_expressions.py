"""Lines of the prompt: sums and several words."""

import pytest

from embedder.cli.lookup.prompt import Expression, parse_line

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
