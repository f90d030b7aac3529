"""Control characters are escaped; a stream that fails ends nothing."""

import io
import logging

import pytest

from embedder.base.terminal import (
    LogStream,
    say,
    showing_log,
    shown,
)


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
    file = io.StringIO()
    say(f"{text[0]}\nb", file)  # lines stay lines
    assert file.getvalue() == f"{shown(text[0])}\nb\n"


class Failing(io.StringIO):
    """A stream that raises `error` while that is set."""

    error: Exception | None = None

    def write(self, text: str) -> int:
        if self.error:
            raise self.error
        return super().write(text)


def test_the_log_of_the_package_is_shown_and_then_as_before():
    log, seen = logging.getLogger("embedder"), []
    before = log.level, [*log.handlers], [*logging.root.handlers]
    with pytest.raises(KeyError), showing_log(seen.append):
        assert any(type(x) is logging.NullHandler for x in logging.root.handlers)
        logging.getLogger("embedder.run").info("%d vectors", 3)
        log.debug("not shown")
        logging.getLogger("another").warning("not shown")
        raise KeyError
    assert seen == ["3 vectors"]
    assert before == (log.level, log.handlers, logging.root.handlers)
    log.info("not shown")
    assert seen == ["3 vectors"]


@pytest.mark.row("F26")
def test_log_stream_drops_what_fails_and_goes_on():
    """It tells that its reader has gone, and passes on what is no error of it."""
    stream, calls = Failing(), []
    log = LogStream(stream, lambda: calls.append("gone"))
    stream.error = OSError(28, "No space left on device")
    assert log.write("lost") == 4 and calls == []
    stream.error = ValueError("I/O operation on closed file.")
    print("lost", file=log, flush=True)
    stream.error = None
    log.write("kept")
    assert stream.getvalue() == "kept"
    assert log.num_failed == 3 and log.error.errno == 28
    assert log.encoding == stream.encoding and not log.isatty()
    stream.error = BrokenPipeError(32, "Broken pipe")
    log.write("b")
    assert calls == ["gone"]
    stream.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        log.write("a")
