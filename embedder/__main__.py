"""`python -m embedder`: the command `embedder`."""

from embedder.cli import program

program()
