import gc
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

from embedder.run.progress import starting
from embedder.run.stopping import Stop, Stopped
from tests.commands import SECONDS

pytestmark = pytest.mark.usefixtures("sighup")
SIGNALS = [
    signal.SIGINT,
    signal.SIGTERM,
    pytest.param(signal.SIGHUP, marks=pytest.mark.row("F27")),
]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_nobody_awaits_stops_at_once(number):
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match="Interrupted") as caught, Stop().listening():
        os.kill(os.getpid(), number)
    assert caught.value.number == number
    assert signal.getsignal(number) == before


@pytest.mark.row("F4")
@pytest.mark.parametrize("place", ["collector", "reference", "busy"])
def test_a_signal_in_a_callback_that_cannot_raise_is_not_lost(monkeypatch, place):
    """JAX has a callback of the collector; what is raised there is only printed. On a
    busy machine a thread begins late: the signal that it sends comes into the hook."""
    lost, sent, start = [], [], threading.Thread.start
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def late(thread: threading.Thread) -> None:
        start(thread)
        is_main = threading.current_thread() is threading.main_thread()
        if len(sent) == 1 and is_main:  # once
            sent.append(thread)
            time.sleep(0.1)

    def callback(*given: object) -> None:
        if sent:
            return
        sent.append(given)
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(100))  # the handler runs here

    thing = type("Thing", (), {})()
    reference = weakref.ref(thing, callback)
    if place == "busy":
        monkeypatch.setattr(threading.Thread, "start", late)
    with pytest.raises(Stopped) as caught, Stop().listening():
        if place != "reference":
            gc.callbacks.append(callback)
            try:
                gc.collect()
            finally:
                gc.callbacks.remove(callback)
        else:
            del thing
            assert reference() is None
        time.sleep(60)
    assert caught.value.number == signal.SIGTERM and sent
    assert not [each for each in lost if each.exc_type is Stopped]


@pytest.mark.row("F4")
def test_a_signal_just_before_a_sleep_ends_it():
    """Python's flag is set, and the system does not wake the main thread."""

    def other() -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    start = time.monotonic()
    with pytest.raises(Stopped), Stop().listening():
        threading.Thread(target=other).start()
        time.sleep(60)
    assert time.monotonic() - start < 50


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


@pytest.mark.row("F27")
def test_a_signal_that_is_awaited_is_kept_and_one_that_is_ignored_stays_so():
    """As `nohup` ignores SIGHUP. Nothing of it stays: no thread, no handler."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threads, stop = {*threading.enumerate()}, Stop()
    try:
        with stop.listening():
            (thread,) = {*threading.enumerate()} - threads
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            stop.is_polled = True
            os.kill(os.getpid(), signal.SIGTERM)
            stop.request(signal.SIGPIPE)  # counts as a signal; the first is kept
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert stop.number == signal.SIGTERM
    thread.join()
    assert signal.set_wakeup_fd(-1) == -1


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
    terminal, inner = pty.openpty()
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=inner)
    assert (done.returncode, done.stdout) == (128 + number, b"first\nas well\n")
    assert os.read(terminal, 100) == b"\x1b[?25h\r\n"  # a bar hides the cursor
    os.close(inner)
    os.close(terminal)


@pytest.mark.row("F6")
def test_a_signal_in_compiled_code_is_told_and_a_second_ends_at_once():
    """Handlers of Python wait for the end of such code, as when XLA compiles."""
    script = """
import hashlib
from threading import Timer
from embedder.run.stopping import Stop
from embedder.base.stages import showing_stages
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
        assert process.communicate(timeout=SECONDS) == ("", "")
    assert process.returncode == 128 + signal.SIGINT
