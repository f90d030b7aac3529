"""What a program does to the files of a folder, as events of Python's audit hooks.

`python -m tests.contract.events EVENT SIGNAL FOLDER ARGUMENT...` is
`embedder ARGUMENT...` that sends itself the signal at this event in the folder, or of
the training, whose steps count, too. They are counted from 1; 0 never comes. The last
line of standard output is how many there were.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

NAMES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "open"}

_folder = ""
_call: Callable[[], None] | None = None
_is_hooked = False


def _watch(name: str, arguments: tuple) -> None:
    if _call is None or name not in NAMES:
        return
    path, mode = (*arguments, "")[:2]
    if name == "open" and not (isinstance(mode, str) and {*mode} & {*"wax+"}):
        return
    if isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(
        _folder
    ):
        _call()


@contextlib.contextmanager
def at_each_event(folder: Path, call: Callable[[], None]) -> Iterator[None]:
    """Calls `call` before each change of a file in the folder."""
    global _folder, _call, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_watch)  # there is no way to remove it
        _is_hooked = True
    _folder, _call = str(folder.absolute()), call
    try:
        yield
    finally:
        _call = None


def main(at: int, number: int, folder: str, *arguments: str) -> int:
    from embedder.cli.main import main as embedder
    from embedder.engine import epochs

    count, lock, tell = 0, threading.Lock(), epochs._Reporter._status

    def event() -> None:
        nonlocal count
        with lock:
            count += 1
            if count == at:
                os.kill(os.getpid(), number)

    epochs._Reporter._status = lambda *given: event() or tell(*given)
    with at_each_event(Path(folder), event):
        code = embedder(list(arguments))
    print(count, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
