"""Control characters are escaped; a stream that fails ends nothing."""

import io
import logging
import os
import subprocess
import sys

import pytest

from embedder.base.terminal import (
    LogStream,
    flush_output,
    say,
    say_done,
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


@pytest.mark.row("F26")
def test_full_standard_output_is_named(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        say("a")
        with pytest.raises(OSError) as caught:
            flush_output()
        assert caught.value.filename == "standard output"
        say_done("b")  # drops it all
        flush_output()


OPEN = """
import os, sys
from embedder.base.terminal import open_standard_streams
open_standard_streams()
number = os.open(sys.argv[1], os.O_WRONLY)
for stream in (sys.stdout, sys.stderr):
    try:
        print("lost", file=stream, flush=True)
    except OSError as error:
        os.write(number, f"{error.strerror}\\n".encode())
os.write(number, b"%d" % number)
os._exit(0)
"""


@pytest.mark.row("F26")
def test_closed_streams_are_not_given_to_files(tmp_path):
    """The file gets none of what is printed."""
    path = tmp_path / "file"
    path.touch()
    command = 'exec "$@" <&- >&- 2>&-'
    subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-c", OPEN, str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    *errors, number = path.read_text().splitlines()
    assert errors == ["Bad file descriptor"] * 2 and int(number) > 2


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
