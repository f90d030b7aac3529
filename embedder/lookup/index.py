"""The verb `index`: writes the index of a run or of a file of vectors."""

import sys

from embedder.arguments import Index
from embedder.disk.files import name_file_in_errors
from embedder.errors import InputError
from embedder.results import ensemble_of, vectors_of
from embedder.terminal import LogStream, say, say_done, showing_log, shown

FEW = 200_000
"""Vectors below which exact search is fast enough for most uses."""


def index(args: Index) -> None:
    """Writes an index and prints its memory and recall.

    Raises:
      InputError: usearch is not installed, or the arguments do not fit.
    """
    from embedder.vectors.index import (
        IndexOptions,
        build_index,
        check_library,
        described,
        index_folder,
    )

    options = IndexOptions(
        metric=args.metric,
        recall=args.recall,
        connectivity=args.connectivity,
        expansion_add=args.expansion_add,
    )
    check_library()
    if ensemble_of(args.run) is not None:
        raise InputError(
            f"RUN must have no replicas, whose search is exact, got {args.run}: export "
            "their mean to a file."
        )
    vectors = vectors_of(args.run)
    if len(vectors) < FEW:
        say(
            f"{len(vectors)} vectors: exact search is fast, too, below {FEW}.",
            LogStream(sys.stderr),
        )
    folder = index_folder(args.run)
    with (
        showing_log(lambda message: say(message, LogStream(sys.stderr))),
        name_file_in_errors(folder),
    ):
        about = build_index(vectors, args.run, options)
    if about.recall < args.recall:
        say(
            f"`recall` {args.recall:g} was not reached: try a larger --connectivity or "
            "--expansion-add.",
            LogStream(sys.stderr),
        )
    say_done(f"{shown(str(folder))}: {described(about)}")
