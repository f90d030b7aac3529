"""What prints nothing is shown as escapes."""

import io

import pytest

from embedder.terminal import say, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, é, 漢字, 🦊 <b>", "plain, é, 漢字, 🦊 <b>"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\rb\nc\td\0", r"a\rb\nc\td\x00"),
        ("abc\u202ecba", r"abc\u202ecba"),
        ("\u2066\u2069\u200f\u061c\ufeff", r"\u2066\u2069\u200f\u061c\ufeff"),
        ("\u2028\u0085\xa0", r"\u2028\x85\xa0"),
        ("\udc80", r"\udc80"),
        ("می\u200cخواهم 👩\u200d🔬", "می\u200cخواهم 👩\u200d🔬"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_shown(text, expected):
    assert shown(text) == expected


def test_say_keeps_its_lines():
    file = io.StringIO()
    say("a\x1b\nb", file)
    assert file.getvalue() == "a\\x1b\nb\n"
