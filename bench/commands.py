"""The command line of the benches, parsed by tyro."""

import tyro

from bench.registry import OWN_COMMANDS, collected
from bench.render import render_tables

BENCHES = collected("BENCHES")
"""All benches but those of `OWN_COMMANDS`, by name."""


def main(arguments: list[str]) -> None:
    """Runs the bench named in `arguments`, and prints its table."""
    table = tyro.extras.subcommand_cli_from_dict(
        BENCHES | {"render": render_tables},
        prog="python -m bench",
        description=f"Benches; {', '.join(OWN_COMMANDS)} have their own --help.",
        args=arguments,
    )
    if table is not None:
        print(table.markdown())
