"""What a row of bad input is, and the data that its arguments can name."""

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from embedder import errors
from embedder.cli.main import main
from tests.contract.features import write_inputs

_KIND = re.compile("(?:(Input\\w+|RuntimeError): )?(.*)", re.DOTALL)
Content = str | bytes | Mapping[str, Any] | pl.DataFrame


class Refusal(NamedTuple):
    """Bad input, and the one line that names the argument and the value.

    Attributes:
      call: arguments of `embedder`, as a shell has them, or a call in Python.
      message: the whole message; of the command without "embedder: ". "…" stands for
        what another library says.
      files: what is in the current folder, beside the files and runs of `write_shared`.
      error: what a call in Python raises.
      stdin: of the command.
      rows: of the matrix of faults that this covers.
    """

    call: str | Callable[[], object]
    message: str
    files: Mapping[str, Content] = {}
    error: type[Exception] | None = None
    stdin: str = ""
    rows: tuple[str, ...] = ()


def write(path: Path, content: Content) -> None:
    """Text, bytes, arrays of an .npz, or a table by the name's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # a link to a shared file
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, pl.DataFrame):
        is_text = path.suffix == ".csv"
        (content.write_csv if is_text else content.write_parquet)(path)
    else:
        np.savez(path, **content)


def write_shared(folder: Path) -> None:
    """The inputs of `tests.contract.features`, and finished runs: `run` and, with
    counts of sessions, `shop` of text.txt, `graph` of edges.tsv, `encoder` of
    examples.npz, `replicas` of text.txt."""
    write_inputs(folder)
    tokens = "--vector-size 4 --min-count 1 --epochs 1 --loader memory --no-report"
    for run, command in {
        "run": f"text.txt {tokens}",
        "shop": f"text.txt {tokens} --next-items",
        "graph": f"edges.tsv {tokens} --walks 2 --holdout 0.1",
        "encoder": "examples.npz --model encoder --epochs 1 --loader memory "
        "--no-report --layers 6 4 3",
        "replicas": f"text.txt {tokens} --replicas 2",
    }.items():
        corpus, *flags = command.split()
        path = str(folder / corpus)
        assert main(["train", path, *flags, "--workdir", str(folder / run)]) == 0


def rows_of(text: str, words: dict[str, str], files: dict[str, Content]) -> list:
    """A row for each command of a text, below which the message is indented.

    A line `[B1 B2]` has the names of the matrix of faults of all that follow.
    """
    found: list[Refusal] = []
    covered: tuple[str, ...] = ()
    for line in text.strip("\n").split("\n"):
        if line.startswith("["):
            covered = tuple(line.strip("[]").split())
        elif line.startswith(" "):
            message = f"{found[-1].message} {line.strip()}".strip()
            found[-1] = found[-1]._replace(message=message)
        else:
            for word, meaning in reversed(words.items()):
                line = line.replace(word, meaning)
            found.append(Refusal(line, "", files, rows=covered))
    return found


def calls_of(text: str, names: Mapping[str, Any], files: Mapping[str, Content]) -> list:
    """A row for each expression of Python, as `rows_of`, with the kind of the error."""
    found = []
    for row in rows_of(text, {}, {}):
        kind, message = _KIND.fullmatch(row.message).groups()
        error = vars(errors).get(kind, RuntimeError) if kind else errors.InputError
        code = compile(row.call, row.call, "eval")
        call = functools.partial(eval, code, {**names})
        found.append(Refusal(call, message, files, error, rows=row.rows))
    return found
