"""`embedder` in a process that kills itself, or sends itself a signal, at an event.

`python -m tests.faults.child EVENT SIGNAL ARGUMENT...`: an event is a step of the
training, or what is about to be done to a file in this folder; EVENT -1 never comes.
The last line of standard output is how many there were.
"""

import os
import sys
import threading
from pathlib import Path

from embedder.cli import main as cli
from embedder.engine import epochs
from tests.contract.events import at_each_event

at, number = int(sys.argv[1]), int(sys.argv[2])
count, lock = 0, threading.Lock()


def event() -> None:
    global count
    with lock:
        count += 1
        if count == at:
            os.kill(os.getpid(), number)


def status(self, *arguments):
    event()
    return tell(self, *arguments)


tell = epochs._Reporter._status
epochs._Reporter._status = status
with at_each_event(Path.cwd(), event):
    code = cli.main(sys.argv[3:])
print(count, flush=True)
os._exit(code)
