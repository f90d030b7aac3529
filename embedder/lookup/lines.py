"""Answers to the lines of a prompt or of standard input."""

import dataclasses
import sys
from collections.abc import Collection

from embedder.arguments import Neighbors
from embedder.errors import InputError
from embedder.lookup.expressions import (
    HELP,
    parse_command,
    parse_line,
    positive_integer,
)
from embedder.lookup.found import Keys, Lookup, Result
from embedder.lookup.nearest import of_replicas, of_sum
from embedder.lookup.prompt import is_interactive, piped_lines, prompted_lines
from embedder.terminal import LogStream, flush_output, say


def answer_lines(lookup: Lookup, args: Neighbors, among: Keys) -> None:
    """Answers the lines of a prompt, or of standard input that is no terminal.

    Raises:
      InputError: there is no line, or one of standard input has no answer.
    """
    is_prompt = is_interactive()
    lines = prompted_lines(lambda: lookup.keys) if is_prompt else piped_lines()
    known, num_lines, num_failed = lookup.known(among), 0, 0
    for line in filter(None, map(str.strip, lines)):
        num_lines += 1
        try:
            command = None if line in known else parse_command(line)
            if command is None:
                results = _of_line(lookup, line, args, among, known)
                lookup.show(results, as_json=args.json)
                flush_output()
            elif command.name == ":quit":
                break
            elif command.name == ":help":
                say(HELP)
            else:
                topn = positive_integer("topn", command.value)
                args = dataclasses.replace(args, topn=topn)
        except InputError as error:
            num_failed += 1
            say(str(error.args[0]), None if is_prompt else LogStream(sys.stderr))
    if is_prompt:
        return
    if not num_lines:
        raise InputError("WORD: give at least one token to look up, or lines on stdin.")
    if num_failed:
        raise InputError(
            f"Standard input: {num_failed} of {num_lines} lines have no answer."
        )


def _of_line(
    lookup: Lookup,
    line: str,
    args: Neighbors,
    among: Keys,
    known: Collection[str],
) -> list[Result]:
    results: list[Result] = []
    for query in parse_line(line, known):
        unknown = [key for keys in query for key in keys if key not in known]
        if unknown:
            if lookup.ensemble is None:
                unknown = [x for x in unknown if not lookup.vectors.has_vector(x)]
            lookup.check_known(unknown)
        if query.is_key and lookup.ensemble is not None:
            results += of_replicas(lookup, lookup.ensemble, query.positive, args, among)
        else:
            results.append(of_sum(lookup, query, args, among))
    return results
