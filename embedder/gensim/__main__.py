"""Runs a program of gensim with the classes of embedder.

python -m embedder.gensim [--trust] script.py [ARGUMENTS]
python -m embedder.gensim [--trust] -m MODULE [ARGUMENTS]

With --trust the program loads gensim's own pickles, which can run any program.
"""

import os
import runpy
import sys

from embedder.gensim.drop_in import swap_in
from embedder.gensim.saving import TRUST
from embedder.gensim.swapping import swap_in_children

_USAGE = "usage: python -m embedder.gensim [--trust] script.py [ARGUMENTS] or -m MODULE"


def main(arguments: list[str]) -> int:
    """Runs the program that `arguments` name; returns 2 if there is none."""
    is_trusting = arguments[:1] == ["--trust"]
    arguments = arguments[is_trusting:]
    is_module = arguments[:1] == ["-m"]
    words = arguments[is_module:]
    if not words or words[0].startswith("-"):
        print(_USAGE, file=sys.stderr)
        return 2
    program = words[0]
    if not is_module and not os.path.isfile(program):
        print(f"embedder.gensim: {program} does not exist.", file=sys.stderr)
        return 2
    if is_trusting:
        os.environ[TRUST] = "1"  # also of processes that the program starts
    swap_in()
    swap_in_children()
    sys.argv = words
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return 0
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
