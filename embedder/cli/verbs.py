"""The verbs of the command line, each a function here.

What computes is imported by the verb that needs it, so that `--help` answers at once.
"""

import contextlib
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from embedder.api.results import ensemble_of, labels_of, opened_run, vectors_of
from embedder.base.limits import check_program
from embedder.base.terminal import LogStream, say, say_done, showing_log, shown
from embedder.cli import arguments
from embedder.cli.parsing import settings
from embedder.config import Config
from embedder.config.run_options import RunOptions
from embedder.errors import InputError, naming

FEW = 200_000
"""Vectors below which exact search is fast enough for most uses."""

if TYPE_CHECKING:
    from embedder.encoders.new_examples import Embedded
    from embedder.engine.epochs import Status
    from embedder.run.stopping import Stop


def run_verb(verb: object) -> int:
    """Runs a verb; returns the exit code."""
    match verb:
        case arguments.Train():
            _train(verb)
        case arguments.Sweep():
            _sweep(verb)
        case arguments.Phrases():
            _phrases(verb)
        case arguments.Devices():
            _devices(verb)
        case arguments.Doctor():
            from embedder.cli.doctor import doctor_report

            say(doctor_report())
        case arguments.Neighbors():
            from embedder.cli.lookup.neighbors import neighbors

            neighbors(verb)
        case arguments.Next():
            from embedder.cli.lookup.next_items import next_items

            next_items(verb)
        case arguments.Analogy():
            from embedder.cli.lookup.neighbors import analogy

            analogy(verb)
        case arguments.Index():
            _index(verb)
        case arguments.Compare():
            from embedder.cli.lookup.compare import compare

            compare(verb)
        case arguments.Evaluate():
            from embedder.cli.evaluate.verb import evaluate

            evaluate(verb)
        case arguments.Embed():
            _embed(verb)
        case arguments.Export():
            from embedder.cli.exports import export

            export(verb)
        case arguments.Report():
            from embedder.report.verb import write_report

            write_report(verb.run, verb.to, verb.compare, verb.names, verb.label)
        case arguments.Watch():
            from embedder.report.watch.verb import watch

            watch(verb.run, verb.probe, verb.every, names=verb.names, once=verb.once)
        case arguments.Convert():
            _convert(verb)
        case arguments.Verify():
            return _verify(verb)
        case arguments.Parity():
            return _parity(verb)
    return 0


def _train(args: arguments.Train) -> None:
    check_program(_expected_loader(args.run))
    from embedder.run.progress import starting
    from embedder.run.stopping import Stop

    config, stop = settings(args), Stop()
    with stop.listening():
        with starting(stop):
            from embedder.api.train import train_run
            from embedder.engine.hosts.joining import join
            from embedder.engine.hosts.processes import is_first
            from embedder.engine.task import open_base
            from embedder.run.run_state import RestartOptions
            from embedder.run.run_training import Command
        join(args.peers)
        if args.dry_run:
            _preview(args, config)
            return
        restart = RestartOptions(args.overwrite, args.step, args.force, args.force_lock)
        base = open_base(args.resume, args.grow, args.cache)
        command = Command(
            *(config, args.workdir, args.corpus, base, args.cache),
            restart=restart,
            mirror=args.mirror,
        )
        with _shown_progress(stop, args.verbose) as on_status:
            run = train_run(command, on_status, stop)
    if is_first() and run.vectors is not None:
        before = "finished before: --overwrite starts anew"
        done = before if run.was_finished else "done"
        rows, size = run.vectors.matrix.shape
        report = f" Report: {shown(str(run.report))}" if run.report else ""
        say_done(
            f"{shown(str(run.workdir))}: {done}. {rows:,} vectors of {size:,} numbers."
            f"{report}"
        )
        if args.corpus is None and args.resume is None:  # of the demo
            word = "list" if "list" in run.vectors else run.vectors.keys[0]
            say_done(_next_steps(run.workdir, word))
    if run.behind:
        raise OSError(run.behind)


def _next_steps(run: Path, word: str) -> str:
    """What to try after the demo, in three lines."""
    name = shown(shlex.quote(str(run)))
    return "\n".join(
        [
            f"What is near a word: embedder neighbors {name} {shlex.quote(word)}",
            f"A prompt for more words: embedder neighbors {name}",
            "Your own text: embedder train FILE --workdir NAME",
        ]
    )


def _sweep(args: arguments.Sweep) -> None:
    check_program(_expected_loader(args.run))
    from embedder.run.progress import starting
    from embedder.run.stopping import Stop

    stop = Stop()
    with stop.listening(), starting(stop):
        from embedder.api.train import train_run
        from embedder.run.run_state import RestartOptions
        from embedder.run.run_training import Command
        from embedder.sweep import report
        from embedder.sweep.options import SweepOptions, preview
        from embedder.sweep.space import read_space
        from embedder.sweep.sweep import sweep

    config = settings(args)
    if args.best is not None:
        _check_best(args.best, args.workdir)
    elif args.tokens.names:
        raise InputError(
            f"`names` needs `best`, the run that keeps them, got {args.tokens.names}."
        )
    space = read_space(args.space, config)
    options = SweepOptions(
        *(args.score, args.pairs, args.trials),
        *(args.side_by_side, args.halving, args.first_epochs),
    )
    if args.dry_run:
        say(preview(config, space, args.corpus, options, cache=args.cache))
        return
    with stop.listening(), _shown_progress(stop, args.verbose) as on_status:
        outcome = sweep(
            *(config, space, args.corpus, args.workdir, options),
            cache=args.cache,
            overwrite=args.overwrite,
            force_lock=args.force_lock,
            on_status=on_status,
            stop=stop,
        )
        report.draw_picture(args.workdir, outcome)
        for line in report.lines(outcome):
            say(line)
        if args.best is not None:
            cache = args.cache or args.workdir / "cache"
            restart = RestartOptions(extend=False)
            best = outcome.config, args.best, args.corpus
            train_run(Command(*best, None, cache, restart), on_status, stop)


def _check_best(best: Path, workdir: Path) -> None:
    """Refuses, before hours of trials, a folder where no run can be written."""
    from embedder.disk.workdir import Workdir, check_free
    from embedder.engine.checkpoints import check_path

    check_path(best)
    check_free(Workdir(best), "`best`")
    here, sweep = best.resolve(), workdir.resolve()
    if here == sweep or sweep in here.parents:
        raise InputError(
            f"`best` must be outside of the sweep in {workdir}, got {best}."
        )


def _phrases(args: arguments.Phrases) -> None:
    from embedder.data.phrase_files import write_phrases
    from embedder.data.phrases import PhraseOptions
    from embedder.disk.workdir import check_target
    from embedder.vectors.vectors import check_positive_integer

    check_positive_integer("topn", args.topn)
    check_target(args.to, "`to`")
    if args.list is not None:
        check_target(args.list, "`list`")
    options = PhraseOptions(
        *(args.score, args.threshold, args.min_count),
        *(args.passes, args.delimiter, args.max_pairs),
        connectors=args.connectors,
    )
    phrases = write_phrases(
        *(args.corpus, args.to, options),
        list_to=args.list,
        unicode_errors=args.unicode_errors,
        overwrite=args.overwrite,
    )
    for phrase, score, count in phrases.head(args.topn).iter_rows():
        say(f"{count:9d}  {score:12.3f}  {shown(phrase)}")
    say_done(f"{len(phrases)} phrases; the joined text is in {shown(str(args.to))}")


def _expected_loader(run: RunOptions) -> str:
    """The loader of `run`, on a machine without GPUs and with data that fit."""
    return "memory" if run.loader == "auto" else run.loader


def _preview(args: arguments.Train, config: Config) -> None:
    from embedder.api.preview import preview
    from embedder.engine.hosts.processes import fail_together, is_first
    from embedder.engine.task import open_base

    with fail_together():
        if is_first():
            base = open_base(args.resume, args.grow, args.cache)
            say(preview(config, args.corpus, base, cache=args.cache))


def _devices(args: arguments.Devices) -> None:
    from embedder.cli.device_report import devices_report
    from embedder.engine.hosts.joining import join
    from embedder.engine.hosts.processes import is_first

    join(args.peers)
    report = devices_report(settings(args), args.vocabulary)
    if is_first():
        say(report)


def _shown_progress(
    stop: "Stop", details: bool
) -> AbstractContextManager[Callable[["Status"], None]]:
    """A function that shows the progress of a run, in the first process."""
    from embedder.engine.hosts.processes import is_first
    from embedder.run.progress import progress

    if is_first():
        return progress(stop, details)
    return contextlib.nullcontext(lambda status: None)


def _index(args: arguments.Index) -> None:
    """Writes an index and prints its memory and recall.

    Raises:
      InputError: usearch is not installed, or the arguments do not fit.
    """
    from embedder.disk.files import name_file_in_errors
    from embedder.vectors import index

    options = index.IndexOptions(
        metric=args.metric,
        recall=args.recall,
        connectivity=args.connectivity,
        expansion_add=args.expansion_add,
    )
    index.check_library()
    if ensemble_of(args.run) is not None:
        raise InputError(
            f"RUN must have no replicas, whose search is exact, got {args.run}: export "
            "their mean to a file."
        )
    vectors, log = vectors_of(args.run, args.key_errors), LogStream(sys.stderr)
    if len(vectors) < FEW:
        say(f"{len(vectors)} vectors: exact search is fast, too, below {FEW}.", log)
    folder = index.index_folder(args.run)
    with showing_log(lambda text: say(text, log)), name_file_in_errors(folder):
        about = index.build_index(vectors, args.run, options)
    if about.recall < args.recall:
        say(
            f"`recall` {args.recall:g} was not reached: try a larger --connectivity or "
            "--expansion-add.",
            log,
        )
    say_done(f"{shown(str(folder))}: {index.described(about)}")


def _embed(args: arguments.Embed) -> None:
    from embedder.disk.files import name_file_in_errors
    from embedder.disk.workdir import check_target
    from embedder.encoders.new_examples import embed_files
    from embedder.vectors.export import format_of, write_vectors

    if not args.files:
        raise InputError("FILE: give at least one image, .npy file or folder.")
    if args.to is not None:
        check_target(args.to, "`to`")
        with naming("to"):
            has_columns = format_of(args.to, by_ending=True).has_columns
    with opened_run(args.run, with_model=True) as run:
        embedded = embed_files(run, args.files)
        if args.to is None:
            _print_embedded(embedded, run, args.topn)
            return
    columns = embedded.columns if has_columns else None
    with name_file_in_errors(args.to), naming("to"):
        write_vectors(embedded.vectors, args.to, columns=columns)
    say_done(f"{len(embedded.vectors):,} vectors in {shown(str(args.to))}")


def _print_embedded(embedded: "Embedded", run: Path, topn: int) -> None:
    """Prints the predicted class of each example, and its neighbours."""
    from embedder.cli.lookup.lookup import print_ranking

    nearest: list[list[tuple[str, float]]] = [[]] * len(embedded.predictions)
    if run.is_dir():
        nearest = vectors_of(run).nearest_to(embedded.vectors.matrix, topn)
    labels = labels_of(run)
    for number, (key, label, share) in enumerate(embedded.predictions):
        if label is None:
            print_ranking(f"{key}:", nearest[number], labels)
            continue
        about = f"{share:.3f}"
        if embedded.entropies is not None:
            total, data, model = (x[number] for x in embedded.entropies[1:])
            about += f"; entropy {total:.3f} = {data:.3f} data + {model:.3f} model"
        print_ranking(f"{key}: {label} ({about})", nearest[number], labels)


def _convert(args: arguments.Convert) -> None:
    from migration.convert import model_to_run, run_to_model

    if args.source.is_dir():
        model = run_to_model(args.source, args.target, overwrite=args.overwrite)
    else:
        how = {"overwrite": args.overwrite, "force_lock": args.force_lock}
        model = model_to_run(args.source, args.target, **how)
    rows, size = model.input.shape
    target = shown(str(args.target))
    say_done(f"{target}: done. {rows:,} vectors of {size:,} numbers.")


def _verify(args: arguments.Verify) -> int:
    from embedder.run.verify import verify

    findings = []
    for finding in verify(args.run):
        say(shown(str(finding)))
        findings.append(finding)
    faults = sum(bool(finding.fault) for finding in findings)
    say(f"{shown(str(args.run))}: {len(findings) - faults} whole, {faults} not.")
    return 1 if faults else 0


def _parity(args: arguments.Parity) -> int:
    from embedder.disk.copies import local_copy
    from migration.parity.report import compare

    config = settings(args)
    if config.run.model == "tokens" and config.tables.walks:
        raise InputError("`walks` must be 0: the NumPy trainer has no graphs.")
    passed = compare(
        config,
        args.corpus and local_copy(args.corpus),
        words=args.words,
        seeds=args.seeds,
        stages=args.stages,
        pairs=args.pairs,
        analogies=args.analogies,
        as_json=args.json,
    )
    return 0 if passed else 1
