"""`python -m embedder`: the command `embedder`."""

from embedder.cli.main import program

program()
