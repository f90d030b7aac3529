"""`python -m bench NAME`: runs one bench and prints its table."""

import sys


def main(arguments: list[str]) -> None:
    """Runs the bench named in `arguments`."""
    if arguments[:1] == ["gpu"]:  # runs without tyro and the other benches' packages
        from bench import gpu

        gpu.main(arguments[1:])
    else:
        from bench import commands

        commands.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
