"""The verbs `neighbors` and `analogy`: keys near others, with their names."""

from collections.abc import Collection
from pathlib import Path

from embedder.arguments import Analogy, Neighbors
from embedder.errors import InputError
from embedder.lookup.expressions import Expression
from embedder.lookup.found import Keys, Lookup, Result, check_filters, ranked
from embedder.lookup.lines import answer_lines
from embedder.lookup.nearest import of_replicas, of_sum, order_of
from embedder.results import finished_run, needs_replicas, opened_run
from embedder.stages import report_stage
from embedder.terminal import say_done, shown


def neighbors(args: Neighbors) -> None:
    """Prints the neighbours of each word, or the items that come next in a session.

    Without words: of each line of a prompt or of standard input.

    Raises:
      InputError: the arguments do not fit, or a key or name is unknown.
    """
    _check(args)
    needs_model = bool(args.session) or any(map(_is_image, args.words))
    with opened_run(args.run, with_model=needs_model) as run:
        lookup = Lookup(args, run)
        is_sheet = args.to is not None and args.queries is None
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
        with lookup.among() as among:
            if args.queries is not None and args.to is not None:
                _write_batch(lookup, args, args.queries, args.to, among)
                return
            if not (args.words or args.session or args.name):
                answer_lines(lookup, args, among)
                return
            if args.to is not None:
                _write_sheet(lookup, args, args.to, among)
                return
            results = _results(lookup, args, among)
        lookup.show(results, as_json=args.json)


def _results(lookup: Lookup, args: Neighbors, among: Keys) -> list[Result]:
    if args.session:
        return [_next_items(lookup, args, among)]
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
    given = args.a, args.b, args.c
    with opened_run(args.run) as run:
        lookup = Lookup(args, run)
        unknown = [key for key in given if not lookup.vectors.has_vector(key)]
        lookup.check_known(unknown)
        with lookup.among() as among:
            found = lookup.vectors.analogy(*given, topn=args.topn, among=among)
        a, b, c = map(lookup.named, given)
        result = Result(given, {}, f"{a} : {b} = {c} : ?", ranked(found))
        lookup.show([result], as_json=args.json)


def _check(args: Neighbors) -> None:
    from embedder.vectors.vectors import check_positive_integer

    check_filters(args)
    check_positive_integer("topn", args.topn)
    if args.session and (args.words or args.name or args.stable):
        raise InputError("`session` goes with neither WORD, --name nor --stable.")
    if args.session and args.metric == "dot":
        raise InputError("`metric` dot does not go with --session.")
    if args.queries is not None:
        _check_batch(args)
    elif args.to is not None:
        _check_sheet(args, args.to)
    if args.decay is not None and not args.session:
        raise InputError("`decay` applies only with --session.")
    if args.name is not None and args.names is None:
        raise InputError("`name` needs `names`, the table of keys and names.")


def _check_batch(args: Neighbors) -> None:
    from embedder.lookup.batches import check_batch
    from embedder.run.workdir import check_target

    if args.words or args.session or args.name or args.json:
        raise InputError("`from` goes with neither WORD, --session, --name nor --json.")
    if args.to is None:
        raise InputError("`from` needs `to`, the file to write, .parquet or .csv.")
    check_target(args.to, "`to`")
    check_batch(args.to)


def _check_sheet(args: Neighbors, to: Path) -> None:
    from embedder.encoders.sheet import check_sheet
    from embedder.run.workdir import check_target

    if args.session or args.stable or args.json:
        raise InputError("`to` goes with neither --session, --stable nor --json.")
    if not args.words:
        raise InputError("WORD: give at least one token to look up with `to`.")
    check_target(to, "`to`")
    check_sheet(to, len(args.words), 1)


def _is_image(word: str) -> bool:
    """Whether `word` may be an image file."""
    from embedder.disk.kinds import IMAGES

    return word.lower().endswith(IMAGES)


def _words(args: Neighbors, lookup: Lookup, also: Collection[str] = ()) -> list[str]:
    """The tokens to look up, with those of --name; all are in the vocabulary, or `also`
    known."""
    lookup.check_known(word for word in args.words if word not in also)
    if args.name is None or lookup.names is None:
        return [*args.words]
    return [*args.words, *lookup.names.keys_named(args.name, lookup.keys)]


def _next_items(lookup: Lookup, args: Neighbors, among: Keys) -> Result:
    from embedder.evaluation.ranking import DECAY
    from embedder.tables.next_items import next_items, ranked_items

    run = finished_run(lookup.run)
    session, topn = args.session, args.topn
    decay = DECAY if args.decay is None else args.decay
    if run is not None and run.model.exists():
        scores = next_items(run.model, session, topn, among=among, decay=decay)
        found = ranked(scores, "score")
    else:
        scores = ranked_items(lookup.vectors, session, topn, among=among, decay=decay)
        found = ranked(scores)
    title = f"after {', '.join(map(lookup.named, args.session))}"
    return Result(args.session, {}, title, found)


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
    lookup: Lookup,
    args: Neighbors,
    source: str,
    to: Path,
    among: Keys,
) -> None:
    """Writes the neighbours of all keys of a file."""
    from embedder.disk.files import name_file_in_errors
    from embedder.lookup.batches import write_batch
    from embedder.lookup.tables import of_ensemble, of_vectors
    from embedder.run.progress import working

    if lookup.ensemble is not None:
        find = of_ensemble(lookup.ensemble, args.topn, order_of(args), among)
    else:
        key_type, rows = lookup.key_type(), lookup.vectors.rows_of(among)
        find = of_vectors(lookup.vectors, key_type, args.topn, rows, args.metric)
    known = lookup.known(among)
    with working(), name_file_in_errors(to):
        found = write_batch(source, to, known.__contains__, find, args.topn)
    say_done(f"{found}; in {shown(str(to))}")


def _of_files(lookup: Lookup, args: Neighbors, among: Keys) -> dict[str, Result]:
    """The result of each image file, with the class that the encoder predicts."""
    from embedder.encoders.embedding import embed_files
    from embedder.encoders.nearest import image_files

    vectors = lookup.vectors
    files = image_files(args.words, vectors)
    if not files:
        return {}
    embedded = embed_files(lookup.run, files)
    near = vectors.nearest_to(embedded.vectors.matrix, args.topn, among=among)
    results = {}
    for (key, label, share), found in zip(embedded.predictions, near, strict=True):
        about = {"predicted": label, "probability": share}
        title = f"{key}: {label} ({share:.3f})"
        if label is None:  # trained without labels
            about, title = {"predicted": None, "probability": None}, f"{key}:"
        results[key] = Result((key,), about, title, ranked(found))
    return results


def _write_sheet(lookup: Lookup, args: Neighbors, to: Path, among: Keys) -> None:
    from embedder.encoders.nearest import Nearest, write_nearest
    from embedder.run.progress import working

    with working():
        report_stage("neighbours")
        nearest = [
            Nearest(
                each.keys[0],
                # A query without it is an example; without labels it is None.
                each.query["predicted"] or "" if "predicted" in each.query else None,
                [(near.key, near.numbers["similarity"]) for near in each.found],
            )
            for each in _results(lookup, args, among)
        ]
        report_stage(f"the images of {to}")
        num = write_nearest(lookup.run, nearest, lookup.labels, to)
    say_done(f"{num} images in {shown(str(to))}")
