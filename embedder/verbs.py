"""The verbs of the command line, each a function here.

What computes is imported by the verb that needs it, so that `--help` answers at once.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from embedder.arguments import (
    Analogy,
    Compare,
    Convert,
    Devices,
    Embed,
    Evaluate,
    Export,
    Index,
    Neighbors,
    Parity,
    Phrases,
    Report,
    Sweep,
    Train,
    Verb,
    Verify,
    Watch,
)
from embedder.config import Config
from embedder.errors import InputError, naming
from embedder.limits import check_program
from embedder.lookup.found import print_ranking
from embedder.neighbors import analogy, neighbors
from embedder.options import RunOptions
from embedder.parsing import settings
from embedder.results import labels_of, opened_run, vectors_of
from embedder.terminal import say, say_done, shown

if TYPE_CHECKING:
    from embedder.encoders.embedding import Embedded
    from embedder.engine.epochs import Status
    from embedder.run.stopping import Stop


def run_verb(verb: Verb) -> int:
    """Runs a verb; returns the exit code."""
    match verb:
        case Train():
            _train(verb)
        case Sweep():
            _sweep(verb)
        case Phrases():
            _phrases(verb)
        case Devices():
            _devices(verb)
        case Neighbors():
            neighbors(verb)
        case Analogy():
            analogy(verb)
        case Index():
            _index(verb)
        case Compare():
            _compare(verb)
        case Evaluate():
            _evaluate(verb)
        case Embed():
            _embed(verb)
        case Export():
            _export(verb)
        case Report():
            _report(verb)
        case Watch():
            _watch(verb)
        case Convert():
            _convert(verb)
        case Verify():
            return _verify(verb)
        case Parity():
            return _parity(verb)
    return 0


def _train(args: Train) -> None:
    check_program(_expected_loader(args.run))
    from embedder.run.progress import starting
    from embedder.run.stopping import Stop

    config, stop = settings(args), Stop()
    with stop.listening():
        with starting(stop):
            from embedder.hosts.joining import join
            from embedder.hosts.processes import is_first
            from embedder.problem import open_base
            from embedder.run.loop import RestartOptions
            from embedder.run.train import run_training
        join(args.peers)
        if args.dry_run:
            _preview(args, config)
            return
        restart = RestartOptions(args.overwrite, args.step, args.force, args.force_lock)
        base = open_base(args.resume, args.grow, args.cache)
        with _shown_progress(stop, args.verbose) as on_status:
            run = run_training(
                *(config, args.workdir, args.corpus, base, args.cache, restart),
                on_status=on_status,
                stop=stop,
                mirror=args.mirror,
            )
    if is_first() and run.vectors is not None:
        done = "done"
        if run.was_finished:
            done = "finished before: --overwrite starts anew"
        rows, size = run.vectors.matrix.shape
        report = f" Report: {shown(str(run.report))}" if run.report else ""
        say_done(
            f"{shown(str(run.workdir))}: {done}. {rows:,} vectors of {size:,} numbers."
            f"{report}"
        )
    if run.behind:
        raise OSError(run.behind)


def _sweep(args: Sweep) -> None:
    check_program(_expected_loader(args.run))
    from embedder.run.progress import starting
    from embedder.run.stopping import Stop

    stop = Stop()
    with stop.listening(), starting(stop):
        from embedder.run.loop import RestartOptions
        from embedder.run.train import run_training
        from embedder.sweep import report
        from embedder.sweep.options import SweepOptions, preview
        from embedder.sweep.space import read_space
        from embedder.sweep.sweep import sweep

    config = settings(args)
    if args.best is not None:
        _check_best(args.best, args.workdir)
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
            run_training(
                *(outcome.config, args.best, args.corpus, None),
                *(args.cache or args.workdir / "cache", RestartOptions(lengthen=False)),
                on_status=on_status,
                stop=stop,
            )


def _check_best(best: Path, workdir: Path) -> None:
    """Refuses, before hours of trials, a folder where no run can be written."""
    from embedder.run.checkpoints import check_path
    from embedder.run.workdir import Workdir, check_free

    check_path(best)
    check_free(Workdir(best), "`best`")
    here, sweep = best.resolve(), workdir.resolve()
    if here == sweep or sweep in here.parents:
        raise InputError(
            f"`best` must be outside of the sweep in {workdir}, got {best}."
        )


def _phrases(args: Phrases) -> None:
    from embedder.run.workdir import check_target
    from embedder.tables.phrase_files import write_phrases
    from embedder.tables.phrases import PhraseOptions
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
    found = write_phrases(
        *(args.corpus, args.to, options),
        list_to=args.list,
        unicode_errors=args.unicode_errors,
        overwrite=args.overwrite,
    )
    for phrase, score, count in found.head(args.topn).iter_rows():
        say(f"{count:9d}  {score:12.3f}  {shown(phrase)}")
    say_done(f"{len(found)} phrases; the joined text is in {shown(str(args.to))}")


def _expected_loader(run: RunOptions) -> str:
    """The loader of `run`, on a machine without GPUs and with data that fit."""
    return "memory" if run.loader == "auto" else run.loader


def _preview(args: Train, config: Config) -> None:
    from embedder.hosts.processes import fail_together, is_first
    from embedder.problem import open_base
    from embedder.run.preview import preview

    with fail_together():
        if is_first():
            base = open_base(args.resume, args.grow, args.cache)
            say(preview(config, args.corpus, base, cache=args.cache))


def _devices(args: Devices) -> None:
    from embedder.hosts.joining import join
    from embedder.hosts.processes import is_first
    from embedder.tables.device_report import devices_report

    join(args.peers)
    report = devices_report(settings(args), args.vocabulary)
    if is_first():
        say(report)


def _ignore(status: "Status") -> None:
    """Shows nothing: only the first process shows the progress."""


def _shown_progress(
    stop: "Stop", details: bool
) -> AbstractContextManager[Callable[["Status"], None]]:
    """A function that shows the progress of a run, in the first process."""
    from embedder.hosts.processes import is_first
    from embedder.run.progress import progress

    return progress(stop, details) if is_first() else contextlib.nullcontext(_ignore)


def _index(args: Index) -> None:
    from embedder.lookup.index import index

    index(args)


def _compare(args: Compare) -> None:
    from embedder.lookup.compare import compare

    compare(args)


def _evaluate(args: Evaluate) -> None:
    from embedder.scoring.verb import evaluate

    evaluate(args)


def _embed(args: Embed) -> None:
    from embedder.disk.files import name_file_in_errors
    from embedder.encoders.embedding import embed_files
    from embedder.run.workdir import check_target
    from embedder.vectors.export import format_of, write_vectors

    if not args.files:
        raise InputError("FILE: give at least one image, .npy file or folder.")
    if args.to is not None:
        check_target(args.to, "`to`")
        with naming("to"):
            has_columns = format_of(args.to, by_ending=True).has_columns
    with opened_run(args.run, with_model=True) as run:
        found = embed_files(run, args.files)
        if args.to is None:
            _print_embedded(found, run, args.topn)
            return
    columns = found.columns if has_columns else None
    with name_file_in_errors(args.to), naming("to"):
        write_vectors(found.vectors, args.to, columns=columns)
    say_done(f"{len(found.vectors):,} vectors in {shown(str(args.to))}")


def _print_embedded(found: "Embedded", run: Path, topn: int) -> None:
    """Prints the predicted class of each example, and its neighbours."""
    nearest: list[list[tuple[str, float]]] = [[]] * len(found.predictions)
    if run.is_dir():
        nearest = vectors_of(run).nearest_to(found.vectors.matrix, topn)
    labels = labels_of(run)
    for number, (key, label, share) in enumerate(found.predictions):
        if label is None:
            print_ranking(f"{key}:", nearest[number], labels)
            continue
        about = f"{share:.3f}"
        if found.entropies is not None:
            total, data, model = (x[number] for x in found.entropies[1:])
            about += f"; entropy {total:.3f} = {data:.3f} data + {model:.3f} model"
        print_ranking(f"{key}: {label} ({about})", nearest[number], labels)


def _export(args: Export) -> None:
    from embedder.exports import export

    export(args)


def _report(args: Report) -> None:
    from embedder.report.verb import write_report

    write_report(args.run, args.to, args.compare, args.names, args.label)


def _watch(args: Watch) -> None:
    from embedder.watch.verb import watch

    watch(args.run, args.probe, args.every, names=args.names, once=args.once)


def _convert(args: Convert) -> None:
    from migration.convert import model_to_run, run_to_model

    if args.source.is_dir():
        model = run_to_model(args.source, args.target, overwrite=args.overwrite)
    else:
        model = model_to_run(
            args.source,
            args.target,
            overwrite=args.overwrite,
            force_lock=args.force_lock,
        )
    rows, size = model.input.shape
    target = shown(str(args.target))
    say_done(f"{target}: done. {rows:,} vectors of {size:,} numbers.")


def _verify(args: Verify) -> int:
    from embedder.run.verify import verify

    findings = []
    for finding in verify(args.run):
        say(shown(str(finding)))
        findings.append(finding)
    faults = sum(bool(finding.fault) for finding in findings)
    say(f"{shown(str(args.run))}: {len(findings) - faults} whole, {faults} not.")
    return 1 if faults else 0


def _parity(args: Parity) -> int:
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
        rungs=args.rungs,
        pairs=args.pairs,
        analogies=args.analogies,
        as_json=args.json,
    )
    return 0 if passed else 1
