"""The verbs `neighbors` and `analogy`: keys near others, with their names."""

import dataclasses
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from embedder.api.results import finished_run, needs_replicas, opened_run
from embedder.base.stages import report_stage
from embedder.base.terminal import LogStream, flush_output, say, say_done, shown
from embedder.cli.arguments import Analogy, Neighbors
from embedder.cli.lookup.lookup import (
    Keys,
    Lookup,
    Result,
    check_filters,
    of_replicas,
    of_sum,
    order_of,
    ranked,
)
from embedder.cli.lookup.prompt import (
    HELP,
    Expression,
    is_interactive,
    parse_command,
    parse_line,
    piped_lines,
    positive_integer,
    prompted_lines,
)
from embedder.disk.files import IMAGES, name_file_in_errors
from embedder.disk.workdir import check_target
from embedder.errors import InputError
from embedder.run.progress import working
from embedder.vectors.vectors import check_positive_integer
from embedder.vectors.white_space import strip


def neighbors(args: Neighbors) -> None:
    """Prints the neighbours of each word, or the items that come next in a session.

    Without words: of each line of a prompt or of standard input.

    Raises:
      InputError: the arguments do not fit, or a key or name is unknown.
    """
    _check(args)
    needs_model = bool(args.session or args.attributes) or any(
        word.lower().endswith(IMAGES) for word in args.words
    )
    with opened_run(args.run, with_model=needs_model) as run:
        lookup = Lookup(args, run)
        is_sheet = args.to is not None and args.queries is None and not _is_table(args)
        if is_sheet and not lookup.is_encoder:
            raise InputError(
                f"`to` applies only with --from, or to a run of an encoder, got {run}."
            )
        if args.stable and lookup.ensemble is None:
            raise needs_replicas("`stable`", run)
        if args.metric == "dot" and lookup.ensemble is not None:
            raise InputError(
                f"`metric` dot applies only to a run without replicas, got {run}."
            )
        _answer(lookup, args)


def _answer(lookup: Lookup, args: Neighbors) -> None:
    with lookup.among() as among:
        if args.to is not None and (args.queries is not None or _is_table(args)):
            source: str | list[str] = args.queries or lookup.keys
            if args.words or args.name:
                source = _words(args, lookup)
            _write_batch(lookup, args, source, args.to, among)
            return
        if not (args.words or args.session or args.name or args.attributes):
            _answer_lines(lookup, args, among)
            return
        if args.to is not None:
            _write_sheet(lookup, args, args.to, among)
            return
        results = _results(lookup, args, among)
    lookup.show(results, as_json=args.json)


def _results(lookup: Lookup, args: Neighbors, among: Keys) -> list[Result]:
    if args.session:
        return [_next_items(lookup, args, among)]
    if args.attributes:
        return [_of_attributes(lookup, args, among)]
    if lookup.ensemble is not None:
        words = _words(args, lookup)
        return of_replicas(lookup, lookup.ensemble, words, args, among)
    return _of_vectors(lookup, args, among)


def analogy(args: Analogy) -> None:
    """Prints the answers to "A is to B as C is to ?".

    Raises:
      InputError: the arguments do not fit, or a key is unknown.
    """
    check_filters(args)
    keys = args.a, args.b, args.c
    with opened_run(args.run) as run:
        lookup = Lookup(args, run)
        unknown = [key for key in keys if not lookup.vectors.has_vector(key)]
        lookup.check_known(unknown)
        with lookup.among() as among:
            answers = lookup.vectors.analogy(*keys, topn=args.topn, among=among)
        a, b, c = map(lookup.named, keys)
        result = Result(keys, {}, f"{a} : {b} = {c} : ?", ranked(answers))
        lookup.show([result], as_json=args.json)


def _check(args: Neighbors) -> None:
    check_filters(args)
    check_positive_integer("topn", args.topn)
    if args.session and (args.words or args.name or args.stable):
        raise InputError("`session` goes with neither WORD, --name nor --stable.")
    if args.attributes and (args.words or args.name or args.stable or args.session):
        raise InputError(
            "`attributes` goes with neither WORD, --name, --stable nor --session."
        )
    if args.session and args.metric == "dot":
        raise InputError("`metric` dot does not go with --session.")
    if args.queries is not None:
        from embedder.cli.lookup.batches import check_batch

        if args.words or args.session or args.name or args.attributes or args.json:
            raise InputError(
                "`from` goes with neither WORD, --session, --name, --attributes nor "
                "--json."
            )
        check_batch(args.to)
    elif args.to is not None and _is_table(args):
        check_target(args.to, "`to`")
    elif args.to is not None:
        _check_sheet(args, args.to)
    if args.decay is not None and not args.session:
        raise InputError("`decay` applies only with --session.")


def _is_table(args: Neighbors) -> bool:
    """Whether the neighbours of words, or of all tokens, are written to a table."""
    is_table = args.to is not None and args.to.suffix.lower() in (".parquet", ".csv")
    return is_table and not (args.session or args.attributes or args.json)


def _check_sheet(args: Neighbors, to: Path) -> None:
    from embedder.encoders.sheet import check_sheet

    if args.session or args.stable or args.json:
        raise InputError("`to` goes with neither --session, --stable nor --json.")
    if not args.words:
        raise InputError("WORD: give one or more to look up with `to`.")
    check_target(to, "`to`")
    check_sheet(to, len(args.words), 1)


def _words(args: Neighbors, lookup: Lookup, also: Collection[str] = ()) -> list[str]:
    """The tokens to look up, with those of --name; all are in the vocabulary, or `also`
    known."""
    lookup.check_known(word for word in args.words if word not in also)
    if args.name is None or lookup.names is None:
        return [*args.words]
    return [*args.words, *lookup.names.keys_named(args.name, lookup.keys)]


def _next_items(lookup: Lookup, args: Neighbors, among: Keys) -> Result:
    from embedder.metrics.ranking import DECAY, known_items, ranked_items
    from embedder.tokens.artefact import read_model
    from embedder.vectors.vectors import Vectors

    run = finished_run(lookup.run)
    vectors, output, column = lookup.vectors, None, "similarity"
    if run is not None and run.model.exists():
        model, column = read_model(run.model), "score"
        vectors, output = Vectors(model.tokens, model.input), model.token_output
    decay = DECAY if args.decay is None else args.decay
    known, _ = known_items(args.session, vectors.key_to_index)
    session = tuple(known) or args.session
    query = vectors, session, args.topn
    scores = ranked_items(*query, output=output, among=among, decay=decay)
    title = f"after {', '.join(map(lookup.named, session))}"
    return Result(session, {}, title, ranked(scores, column))


def _of_attributes(lookup: Lookup, args: Neighbors, among: Keys) -> Result:
    vectors = lookup.vectors
    if lookup.ensemble is not None or vectors.attributes is None:
        raise InputError(
            "`attributes` applies only to a run of one model that was trained with "
            f"--attributes, got {lookup.run}."
        )
    query = vectors.attributes().vector_of(args.attributes)
    (ranking,) = vectors.nearest_to(
        query[None], args.topn, among=among, metric=args.metric
    )
    name = "similarity" if args.metric == "cosine" else "product"
    about = {"attributes": [*args.attributes]}
    return Result((), about, " ".join(args.attributes), ranked(ranking, name))


def _of_vectors(lookup: Lookup, args: Neighbors, among: Keys) -> list[Result]:
    vectors = lookup.vectors
    of_files = _of_files(lookup, args, among) if lookup.is_encoder else {}

    def result(word: str) -> Result:
        if word in of_files:
            return of_files[word]
        return of_sum(lookup, Expression((word,)), args, among)

    also = {*of_files, *filter(vectors.has_vector, args.words)}
    return [result(word) for word in _words(args, lookup, also)]


def _write_batch(
    lookup: Lookup, args: Neighbors, source: str | list[str], to: Path, among: Keys
) -> None:
    """Writes the neighbours of all keys of a file, or of given ones."""
    from embedder.cli.lookup import batches

    is_known: Callable[[str], bool] = lookup.known(among).__contains__
    if lookup.ensemble is not None:
        find = batches.of_ensemble(lookup.ensemble, args.topn, order_of(args), among)
    else:
        key_type, rows = lookup.key_type(), lookup.vectors.rows_of(among)
        find = batches.of_vectors(
            lookup.vectors, key_type, args.topn, rows, args.metric
        )
        if key_type == "text" or lookup.vectors.attributes is not None:
            is_known = lookup.vectors.has_vector
    if lookup.names is not None:
        find = batches.with_names(find, lookup.names.of_key)
    with working(), name_file_in_errors(to):
        batch = batches.write_batch(source, to, is_known, find, args.topn)
    say_done(f"{batch}; in {shown(str(to))}")


def _of_files(lookup: Lookup, args: Neighbors, among: Keys) -> dict[str, Result]:
    """The result of each image file, with the class that the encoder predicts."""
    from embedder.encoders.new_examples import embed_files
    from embedder.encoders.sheet import image_files

    vectors = lookup.vectors
    files = image_files(args.words, vectors)
    if not files:
        return {}
    embedded = embed_files(lookup.run, files)
    near = vectors.nearest_to(embedded.vectors.matrix, args.topn, among=among)
    results = {}
    for (key, label, share), ranking in zip(embedded.predictions, near, strict=True):
        about = {"predicted": label, "probability": share}
        title = f"{key}: {label} ({share:.3f})"
        if label is None:  # trained without labels
            about, title = {"predicted": None, "probability": None}, f"{key}:"
        results[key] = Result((key,), about, title, ranked(ranking))
    return results


def _write_sheet(lookup: Lookup, args: Neighbors, to: Path, among: Keys) -> None:
    from embedder.encoders.sheet import Nearest, write_nearest

    with working():
        report_stage("neighbours")
        nearest = [
            Nearest(
                each.keys[0],
                # A query without it is an example; without labels it is None.
                each.query["predicted"] or "" if "predicted" in each.query else None,
                [(near.key, near.numbers["similarity"]) for near in each.nearest],
            )
            for each in _results(lookup, args, among)
        ]
        report_stage(f"the images of {to}")
        num = write_nearest(lookup.run, nearest, lookup.labels, to)
    say_done(f"{num} images in {shown(str(to))}")


def _answer_lines(lookup: Lookup, args: Neighbors, among: Keys) -> None:
    """Answers the lines of a prompt, or of standard input that is no terminal.

    Raises:
      InputError: there is no line, or one of standard input has no answer.
    """
    is_prompt = is_interactive()
    lines = prompted_lines(lambda: lookup.keys) if is_prompt else piped_lines()
    known, num_lines, num_failed = lookup.known(among), 0, 0
    for line in filter(strip, lines):
        num_lines += 1
        try:
            is_key = line in known or strip(line) in known
            command = None if is_key else parse_command(line)
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
        raise InputError("WORD: give one or more to look up, or lines on stdin.")
    if num_failed:
        raise InputError(
            f"Standard input: {num_failed} of {num_lines} lines have no answer."
        )


def _of_line(
    lookup: Lookup, line: str, args: Neighbors, among: Keys, known: Collection[str]
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
