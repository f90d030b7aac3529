"""`embedder` in a process that kills itself, or sends itself a signal, at an event.

`python -m tests.faults.child EVENT SIGNAL ARGUMENT...`: an event is a step of the
training, or what is about to be done to a file in this folder; EVENT -1 never comes.
With EVENTS=evaluations in the environment it is the start or the end of an evaluation.
The last line of standard output is how many there were.
"""

import os
import sys
import threading
from pathlib import Path

EVENTS = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "open"}
here = str(Path.cwd())
at, number = int(sys.argv[1]), int(sys.argv[2])
count, lock = 0, threading.Lock()


def event() -> None:
    global count
    with lock:
        count += 1
        if count == at:
            os.kill(os.getpid(), number)


def watch(name: str, arguments: tuple) -> None:
    if name not in EVENTS:
        return
    path, mode = (*arguments, "")[:2]
    if name == "open" and not (isinstance(mode, str) and {*mode} & {*"wax+"}):
        return
    if isinstance(path, str | os.PathLike) and str(path).startswith((here, "run")):
        event()


def evaluate(self, *arguments):
    event()
    found = measure(self, *arguments)
    event()
    return found


import embedder.engine.epochs  # noqa: E402
from embedder import cli  # noqa: E402

tell = embedder.engine.epochs._Reporter._status


def status(self, *arguments):
    event()
    return tell(self, *arguments)


if os.environ.get("EVENTS") == "evaluations":
    measure = embedder.engine.epochs._Evaluator._evaluate
    embedder.engine.epochs._Evaluator._evaluate = evaluate
else:
    embedder.engine.epochs._Reporter._status = status
    sys.addaudithook(watch)
code = cli.main(sys.argv[3:])
print(count)
sys.stdout.flush()
os._exit(code)
