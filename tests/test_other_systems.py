"""Windows and macOS lack what only Linux or POSIX has: here it is taken away.

Nothing here runs on these systems. The rules of Windows that matter to locks are
simulated: a locked byte, and that no open file is moved or removed.
"""

import os
import signal
import sys

import pytest

from embedder.base.limits import memory_limit
from embedder.base.threads import available_cores
from embedder.disk import untrusted
from embedder.run.stopping import Stop
from tests.commands import run_python, wait_until

# Libraries, which are imported first and so keep what they need.
OF_TRAINING = "import jax, numba, orbax.checkpoint, polars, tensorboardX"
OF_COPIES = "import fsspec, fsspec.implementations.memory"
WINDOWS = """
import errno, fcntl, os, signal, sys, types

OF_OS = '''
EX_SOFTWARE O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fork getloadavg getpgid killpg
mkfifo nice posix_fadvise pread pwrite register_at_fork sched_getaffinity set_blocking
sync sysconf uname wait
'''
if hasattr(os, "process_cpu_count"):
    os.process_cpu_count = os.cpu_count
OF_SIGNAL = '''
SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2
SIGWINCH alarm pthread_kill pthread_sigmask
'''
for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
    for name in names.split():
        delattr(module, name)

locked = []

def locking(file, mode, size):
    assert os.lseek(file, 0, os.SEEK_CUR) > os.fstat(file).st_size
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None
    locked.append(file)

def refusing(call):
    def refuse(path, *others, **options):
        for number in os.listdir("/proc/self/fd"):
            if os.path.realpath(path) == os.path.realpath(f"/proc/self/fd/{number}"):
                raise PermissionError(errno.EACCES, "It is open", os.fspath(path))
        return call(path, *others, **options)
    return refuse

for name in ("unlink", "remove", "rename", "replace"):
    setattr(os, name, refusing(getattr(os, name)))
for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
"""
TRAIN = """
from embedder.cli.main import _exit_code, main
from embedder.engine import epochs

def interrupt(self, place, *rest):
    if place.epoch == 1 and place.position:
        signal.raise_signal(signal.SIGINT)
    return before(self, place, *rest)

train = ["train", "text.txt", "--workdir", "run", "--loader", "memory"]
train += ["--vector-size", "4", "--epochs", "3"]
before, epochs._Reporter._status = epochs._Reporter._status, interrupt
assert main(train) == 130
epochs._Reporter._status = before
assert main(train) == 0
assert len(locked) > 1
assert [_exit_code(each) for each in (BrokenPipeError(), Exception())] == [141, 70]
sys.exit(main(["neighbors", "run", "fox"]))
"""
LOCKS = """
import logging, threading
from pathlib import Path
from embedder.disk.copies import local_copy
from embedder.disk.lock import LockedError, hold_lock, lock_file

logging.basicConfig(level="INFO", stream=sys.stdout)
path = Path(".lock")
with hold_lock(path):
    try:
        with hold_lock(path):
            pass
    except LockedError as error:
        assert f"in use by process {os.getpid()} of host" in str(error)
        print("refused")
assert not path.exists()

with hold_lock(path):
    other = open(path)  # as of another process that looks who holds the lock
assert other.read() == path.read_text() == ""
other.close()
with hold_lock(path):
    pass
assert not path.exists()

first, second = open("part", "w"), open("part", "w")
lock_file(first)
threading.Timer(0.3, first.close).start()
lock_file(second, wait=True)
assert first.closed

fsspec.filesystem("memory").pipe("/texts/a.txt", b"a b c")
copy = local_copy("memory://texts/a.txt", Path("cache"))
assert Path(copy).read_bytes() == b"a b c"
"""


@pytest.mark.slow
def test_a_run_is_trained_interrupted_resumed_and_asked(tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over a dog\n" * 40)
    done = run_python("-c", OF_TRAINING + WINDOWS + TRAIN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Stopped after" in done.stderr and "Resumes after" in done.stderr
    assert "brown" in done.stdout
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_second_locker_is_refused_and_no_former_owner_is_left(tmp_path):
    done = run_python("-c", OF_COPIES + WINDOWS + LOCKS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "refused" in done.stdout and "has ended" not in done.stdout


def test_what_the_system_does_not_tell_has_no_limit(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.delattr(os, "sysconf")
    assert memory_limit(tmp_path).size == sys.maxsize
    untrusted._limit_memory(2**30)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert available_cores() == os.cpu_count()


def test_a_signal_comes_again_where_no_thread_can_be_signalled(monkeypatch):
    monkeypatch.delattr(signal, "pthread_kill")
    stop = Stop()
    with stop.listening():
        stop.is_polled = True
        stop._send_again(signal.SIGINT, 0.0)
        wait_until(lambda: stop.number)
    assert stop.number == signal.SIGINT
