"""`python -m bench NAME`: runs one bench and prints its table."""

import sys

from bench import gpu
from bench.registry import OWN_COMMANDS


def main(arguments: list[str]) -> None:
    """Runs the bench named in `arguments`."""
    if arguments and arguments[0] in OWN_COMMANDS:
        _, *part = arguments[0].split("-")  # gpu-kit is gpu kit
        gpu.main([*part, *arguments[1:]])
    else:
        from bench import commands

        commands.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
