import gc
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from embedder.run.progress import starting
from embedder.run.stopping import Stop, Stopped

SIGNALS = [
    signal.SIGINT,
    signal.SIGTERM,
    pytest.param(signal.SIGHUP, marks=pytest.mark.row("F27")),
]


@pytest.fixture(autouse=True)
def sighup():
    """SIGHUP ends processes, also those of tests under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_nobody_awaits_stops_at_once(number):
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match="Interrupted") as caught, Stop().listening():
        os.kill(os.getpid(), number)
    assert caught.value.number == number
    assert signal.getsignal(number) == before


@pytest.mark.row("F4")
def test_a_signal_while_garbage_is_collected_is_not_lost(monkeypatch):
    """JAX has a callback of the collector; what is raised there is only printed."""
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def callback(phase: str, info: object) -> None:
        if phase == "start":
            os.kill(os.getpid(), signal.SIGTERM)
            sum(range(100))  # the handler runs here

    gc.callbacks.append(callback)
    try:
        with pytest.raises(Stopped) as caught, Stop().listening():
            gc.collect()
            gc.callbacks.remove(callback)
            time.sleep(5)
    finally:
        if callback in gc.callbacks:
            gc.callbacks.remove(callback)
    assert caught.value.number == signal.SIGTERM
    assert lost == []


@pytest.mark.row("F4")
def test_a_signal_while_libraries_are_loaded_stops_after_them():
    stop, done = Stop(), []
    with pytest.raises(Stopped) as caught, stop.listening():
        with starting(stop):
            os.kill(os.getpid(), signal.SIGINT)
            done.append("loaded")
        done.append("more")
    assert caught.value.number == signal.SIGINT and done == ["loaded"]
    assert not stop.is_polled


def test_a_signal_that_is_awaited_is_kept():
    stop = Stop()
    with stop.listening():
        stop.is_polled = True
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.number == signal.SIGTERM


@pytest.mark.row("F27")
def test_an_ignored_signal_stays_ignored():
    """As `nohup` ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop().listening():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_request_counts_as_a_signal_and_keeps_the_first():
    stop = Stop()
    with stop.listening():
        stop.request(signal.SIGPIPE)
        stop.request(signal.SIGTERM)
    assert stop.number == signal.SIGPIPE


@pytest.mark.row("F4")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_the_process(number):
    """But for one that comes with the first, as GNU timeout sends two."""
    script = f"""
import os
from embedder.run import stopping
from embedder.run.progress import starting
from embedder.run.stopping import Stop
stopping.time.monotonic = iter([100.0, 100.1, 100.3]).__next__
stop = Stop()
with stop.listening():
    stop.is_polled = True
    os.kill(os.getpid(), {int(number)})
    print("first", flush=True)
    os.kill(os.getpid(), {int(number)})
    print("as well", flush=True)
    os.kill(os.getpid(), {int(number)})
    print("second", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert (done.returncode, done.stdout) == (128 + number, b"first\nas well\n")


@pytest.mark.row("F6")
def test_a_signal_in_compiled_code_is_told_and_a_second_ends_at_once():
    """Handlers of Python wait for the end of such code, as when XLA compiles."""
    script = """
import hashlib
from threading import Timer
from embedder.run.stopping import Stop
from embedder.stages import showing_stages
with showing_stages(lambda text: print(text, flush=True)), Stop().listening():
    Timer(0.5, print, ["within"], {"flush": True}).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # some minutes
"""
    command = [sys.executable, "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "within\n"
        process.send_signal(signal.SIGINT)
        line = process.stdout.readline()
        assert line == "stopping; Ctrl-C again ends at once\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=10) == ("", "")
    assert process.returncode == 128 + signal.SIGINT


def test_a_second_signal_shows_the_cursor_again():
    """A bar hides it."""
    script = """
import os, signal, time
from embedder.run.stopping import Stop
stop = Stop()
with stop.listening():
    stop.is_polled = True
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""
    terminal, inner = pty.openpty()
    done = subprocess.run([sys.executable, "-c", script], stderr=inner)
    assert done.returncode == 128 + signal.SIGINT
    assert os.read(terminal, 100) == b"\x1b[?25h\r\n"
    os.close(inner)
    os.close(terminal)


def test_listening_leaves_no_thread_and_no_wakeup():
    before = threading.active_count()
    with Stop().listening():
        assert threading.active_count() == before + 1
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert signal.set_wakeup_fd(-1) == -1
