"""`python -m bench NAME`: runs one bench and prints its table."""

import importlib
import sys

from bench.registry import OWN_COMMANDS


def main(arguments: list[str]) -> None:
    """Runs the bench named in `arguments`."""
    if arguments and arguments[0] in OWN_COMMANDS:
        name = arguments[0].replace("-", "_")
        importlib.import_module(f"bench.{name}").main(arguments[1:])
    else:
        from bench import commands

        commands.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
