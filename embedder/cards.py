"""The card of an exported file: what it holds, and the run that it is of."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from embedder.arguments import Export
from embedder.results import finished_run

_ENDING = ".README.md"


def card_path(to: Path) -> Path:
    """The card beside the exported file `to`."""
    return to.with_name(f"{to.name}{_ENDING}")


def write_card(args: Export, run: Path, about: str) -> None:
    """Writes the card of the file that was exported from `run`.

    Args:
      about: what the file holds, as "9 vectors of 12 numbers".

    Raises:
      OSError, InputError: it cannot be written, or a file of the run is damaged.
    """
    from embedder.disk.files import atomic_file, name_file_in_errors
    from embedder.vectors.model_card import file_card

    path = card_path(args.to)
    text = file_card(args.to.name, args.format, about, card_lines(args, run))
    with name_file_in_errors(path), atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


def card_lines(
    args: Export, run: Path, num_occurrences: int | None = None
) -> list[str]:
    """Lines of a card about the run, and the command that exported it.

    Args:
      num_occurrences: of the tokens in the corpus; None: as the run knows.
    """
    from embedder.run.facts import facts_of
    from embedder.run.inputs import corpus_facts_of

    lines = []
    found = finished_run(run)
    if found is not None and found.is_started:
        if num_occurrences is None and found.corpus.exists():
            known = corpus_facts_of(found).get("known_tokens")
            num_occurrences = None if known is None else int(known)
        lines = facts_of(found, num_occurrences)
    return [*lines, f"exported by: {_command(args)}"]


def _command(args: Export) -> str:
    """The command, with names of files without their folders."""
    from embedder.disk.urls import without_secrets

    words: list[str] = ["embedder", "export", Path(without_secrets(args.run)).name]
    words += ["--to", args.to.name]
    for name in ("format", "dtype", "pca", "stability"):
        value = getattr(args, name)
        words += [] if value is None else [f"--{name}", str(value)]
    if args.names is not None:
        words += ["--names", Path(without_secrets(args.names)).name]
    flags: Sequence[str] = ("replicas", "predictions", "parameters", "card")
    words += [f"--{name}" for name in flags if getattr(args, name)]
    return shlex.join(words)
