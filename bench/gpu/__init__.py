"""All that concerns a GPU: `python -m bench gpu [kit | session | offline] ...`.

`gpu` alone is the session: it measures all that matters on a machine that has one.
`gpu kit` makes the folder of packages and data for that machine, and `gpu offline`
counts the kernels of updates that are compiled for a GPU that is not there.
"""

import importlib

from bench.gpu import offline

NAMES = "kit", "session", "offline"
TABLES = offline.TABLES


def main(arguments: list[str]) -> None:
    """Runs what the first argument names, else the session."""
    name, *rest = (
        arguments
        if arguments[:1] and arguments[0] in NAMES
        else ["session", *arguments]
    )
    importlib.import_module(f"bench.gpu.{name}").main(rest)
