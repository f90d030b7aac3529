"""The command line: verbs, each a function here.

What computes is imported by the verb that needs it, so that `--help` answers at once.

Exit codes: 0 done, 1 `parity` found a difference or `verify` damage, 2 wrong usage or
input, 3 training failed or the result could not be written, 70 a bug of the program;
stopped after saving: 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP, 141 because the
reader of the log has gone. `--debug` shows the traceback of any error.
"""

import contextlib
import errno
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from embedder.arguments import (
    Analogy,
    Convert,
    Devices,
    Embed,
    Evaluate,
    Export,
    Neighbors,
    Parity,
    Train,
    Verb,
    Verify,
)
from embedder.errors import InputError, InputNotFoundError
from embedder.limits import check_program
from embedder.parsing import parse, settings
from embedder.terminal import (
    LogStream,
    flush_output,
    open_standard_streams,
    say,
    say_done,
    shown,
)

_DISK_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF),
    None,  # a library's own, without a number
)

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED", "can't start new thread"


def program() -> NoReturn:
    """`main`, then out at once: threads may be in the midst of importing TensorFlow."""
    open_standard_streams()
    sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal has UTF-8
    code = main()
    if code == 0 and _is_of_several():
        from embedder.hosts.joining import leave

        leave()
    LogStream(sys.stderr).flush()
    os._exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    is_debugged = "--debug" in arguments
    if is_debugged:
        arguments.remove("--debug")
    try:
        return _run_and_flush(arguments)
    except BaseException as error:
        if is_debugged:
            traceback.print_exc(file=LogStream(sys.stderr))
        return _exit_code(error)


def _exit_code(error: BaseException) -> int:
    """The exit code for an error, which is printed as one line if it is no bug."""
    match error:
        case BrokenPipeError():  # the reader of standard output has gone
            return 128 + signal.SIGPIPE
        case InputError():
            return _fail(_message(error), 2)
        case OSError():  # of the system, about a file
            is_disk = type(error) is OSError and error.errno in _DISK_ERRORS
            return _fail(_message(error), 3 if is_disk else 2)
        case FloatingPointError() | MemoryError():
            return _fail(_message(error), 3)
        case RuntimeError() if any(sign in str(error) for sign in _OUT_OF_MEMORY):
            return _fail(f"Out of memory: {_message(error)[:200]}", 3)
        case RuntimeError() if _is_of_several():
            return _fail(_fault_of_several(error), 3)
        case KeyboardInterrupt():
            number = getattr(error, "number", signal.SIGINT)
            return _fail(str(error) or "Interrupted.", 128 + number)
        case Exception():
            return _report_bug(error)
    raise error


def _report_bug(error: Exception) -> int:
    """Prints what a bug report needs."""
    traceback.print_exception(error, file=LogStream(sys.stderr))
    return _fail(
        "This is a bug of embedder, not of your input. Please report the lines above "
        "and the command to its maintainers.",
        os.EX_SOFTWARE,
    )


def _run_and_flush(arguments: list[str]) -> int:
    """The exit code, once standard output has been written.

    Raises:
      OSError: it cannot be written.
    """
    try:
        code = _run(parse(arguments))
    except SystemExit as stop:  # after --help
        code = stop.code or 0
    flush_output()
    return code


def _run(verb: Verb) -> int:
    match verb:
        case Train():
            _train(verb)
        case Devices():
            _devices(verb)
        case Neighbors():
            _neighbors(verb)
        case Analogy():
            _analogy(verb)
        case Evaluate():
            _evaluate(verb)
        case Embed():
            _embed(verb)
        case Export():
            _export(verb)
        case Convert():
            _convert(verb)
        case Verify():
            return _verify(verb)
        case Parity():
            return _parity(verb)
    return 0


def _fail(message: str, code: int) -> int:
    say(f"embedder: {message}", LogStream(sys.stderr))
    return code


def _message(error: BaseException) -> str:
    """One line; KeyError puts its message in quotes, OSError has it in parts."""
    text = str(error.args[0]) if isinstance(error, KeyError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        text = f"{where}{error.strerror}."
    return " ".join(text.split()) or type(error).__name__


def _is_of_several() -> bool:
    """Whether this process is one of several; not asked of JAX where that is unused."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def _fault_of_several(error: RuntimeError) -> str:
    """What stands for an error of what devices exchange: most often a lost process."""
    from embedder.hosts.joining import LOST

    signs = "Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination service"
    message = _message(error)
    is_lost = any(sign in message for sign in signs)
    return f"{LOST} ({message[:200]})" if is_lost else message


def _train(args: Train) -> None:
    check_program(args.run.loader)
    from embedder.families import open_problem
    from embedder.hosts import processes
    from embedder.hosts.joining import join
    from embedder.problem import open_base
    from embedder.run import train as run
    from embedder.run.stopping import Stop
    from embedder.run.workdir import Workdir

    config = settings(args)
    join(args.peers)
    if args.dry_run:
        from embedder.run.preview import preview

        with processes.together():
            if processes.is_first():
                base = open_base(args.resume, args.grow)
                say(preview(config, args.corpus, base, cache=args.cache))
        return
    workdir = args.workdir
    if workdir is None:
        with processes.together():
            base = open_base(args.resume, args.grow)
            name = open_problem(config, args.corpus, base).name
        name = name.encode(errors="ignore").decode()  # of a workdir: UTF-8
        workdir = Path(f"embedder-{name or 'corpus'}")
    was_finished = Workdir(workdir).is_finished and not args.overwrite
    stop = Stop()
    with stop.listening(), _shown_progress(stop) as on_status:
        vectors = run.train(
            config,
            workdir,
            args.corpus,
            resume=args.resume,
            grow=args.grow,
            cache=args.cache,
            overwrite=args.overwrite,
            step=args.step,
            force=args.force,
            force_lock=args.force_lock,
            on_status=on_status,
            stop=stop,
        )
    if not processes.is_first():
        return
    done = "finished before: --overwrite starts anew" if was_finished else "done"
    num_rows, size = vectors.matrix.shape
    say_done(f"{shown(str(workdir))}: {done}. {num_rows} vectors of {size} numbers.")


def _devices(args: Devices) -> None:
    from embedder.hosts.joining import join
    from embedder.hosts.processes import is_first
    from embedder.tables.device_report import devices_report

    join(args.peers)
    report = devices_report(settings(args), args.vocabulary)
    if is_first():
        say(report)


def _ignore(status) -> None:
    """The others leave it to the first process to show how far the run is."""


def _shown_progress(stop):
    """A function that shows how far a run is, in the first process."""
    from embedder.hosts.processes import is_first
    from embedder.run.progress import progress

    return progress(stop) if is_first() else contextlib.nullcontext(_ignore)


def _read(path: Path):
    """The vectors of a run, or of a file."""
    from embedder.run.workdir import Workdir
    from embedder.vectors.export import read_vectors

    if not path.exists():
        raise InputNotFoundError(f"RUN {path} does not exist.")
    if not path.is_dir():
        return read_vectors(path)
    run = Workdir(path)
    if not run.is_finished:
        raise InputNotFoundError(
            f"RUN {path} holds no finished run: {run.vectors} is missing."
        )
    return read_vectors(run.vectors)


def _neighbors(args: Neighbors) -> None:
    vectors = _read(args.run)
    if not args.words:
        raise InputError("WORD: give at least one token to look up.")
    labels = _labels(args.run)
    for word in args.words:
        _print_ranking(word, vectors.most_similar(word, topn=args.topn), labels)


def _analogy(args: Analogy) -> None:
    answers = _read(args.run).analogy(args.a, args.b, args.c, topn=args.topn)
    _print_ranking(f"{args.a} : {args.b} = {args.c} : ?", answers)


def _labels(run: Path) -> dict[str, str]:
    """What the examples of an encoder are, by their names; of tables nothing."""
    from embedder.disk.digests import check_digest, read_digests
    from embedder.disk.files import check_utf8_path
    from embedder.disk.parquet import read_table
    from embedder.run.workdir import Workdir

    path = Workdir(run).labels
    if not path.exists():
        return {}
    check_utf8_path(path, "The path of a run")
    try:
        with contextlib.suppress(FileNotFoundError):
            check_digest(path, read_digests(run).get(path.name))
        frame = read_table(path).select("key", "label")
    except ValueError as error:
        raise InputError(f"{path} is not a whole file of labels: {error}.") from error
    return dict(zip(frame["key"], frame["label"], strict=True))


def _print_ranking(
    title: str, ranking: list[tuple[str, float]], labels: dict[str, str] | None = None
) -> None:
    def named(key: str) -> str:
        label = f" ({labels[key]})" if labels and key in labels else ""
        return shown(key + label)

    say(named(title))
    for token, similarity in ranking:
        say(f"  {similarity:6.3f}  {named(token)}")


def _evaluate(args: Evaluate) -> None:
    if not args.pairs and not args.analogies:
        raise InputError("Give at least one of --pairs FILE and --analogies FILE.")
    vectors = _read(args.run)
    for path in args.pairs:
        _print_pairs(vectors, path)
    for path in args.analogies:
        _print_analogies(vectors, path, args.restrict_vocab)


def _print_pairs(vectors, path: Path) -> None:
    from embedder.vectors.evaluate import evaluate_pairs

    result = evaluate_pairs(vectors, path)
    say(
        f"{shown(path.name)}: Spearman {result.spearman:.3f}, "
        f"Pearson {result.pearson:.3f}, {result.num_used} of {result.num_pairs} pairs "
        f"({result.num_unknown} out of vocabulary)"
    )


def _print_analogies(vectors, path: Path, restrict_vocab: int) -> None:
    from embedder.vectors.evaluate import evaluate_analogies

    result = evaluate_analogies(vectors, path, restrict_vocab=restrict_vocab)
    for section in (*result.sections, result.total):
        say(
            f"{shown(path.name)}: {shown(section.name)}: "
            f"{100 * section.accuracy:.1f} %, {section.num_correct} of "
            f"{section.num_used} ({section.num_unknown} out of vocabulary)"
        )


def _embed(args: Embed) -> None:
    from embedder.disk.files import name_file_in_errors
    from embedder.encoders.embedding import embed_files
    from embedder.run.workdir import check_target
    from embedder.vectors.export import write_vectors

    if not args.files:
        raise InputError("FILE: give at least one image or .npy file.")
    if args.to is not None:
        check_target(args.to, "`to`")
    found = embed_files(args.run, args.files)
    if args.to is not None:
        with name_file_in_errors(args.to):
            write_vectors(found.vectors, args.to)
        say_done(f"{len(found.vectors)} vectors in {shown(str(args.to))}")
        return
    nearest = [[]] * len(found.predictions)
    if args.run.is_dir():
        nearest = _read(args.run).nearest_to(found.vectors.matrix, args.topn)
    labels = _labels(args.run)
    for (key, label, share), near in zip(found.predictions, nearest, strict=True):
        _print_ranking(f"{key}: {label} ({share:.3f})", near, labels)


def _export(args: Export) -> None:
    from embedder.disk.files import name_file_in_errors
    from embedder.run.workdir import check_target
    from embedder.vectors.export import write_vectors

    check_target(args.to, "`to`")
    vectors = _read(args.run)
    with name_file_in_errors(args.to):
        write_vectors(vectors, args.to)
    say_done(f"{len(vectors)} vectors in {shown(str(args.to))}")


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
    num_rows, size = model.input.shape
    say_done(f"{shown(str(args.target))}: done. {num_rows} vectors of {size} numbers.")


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
    from migration.parity.report import compare

    config = settings(args)
    passed = compare(
        config,
        args.corpus,
        words=args.words,
        seeds=args.seeds,
        rungs=args.rungs,
        pairs=args.pairs,
        analogies=args.analogies,
        as_json=args.json,
    )
    return 0 if passed else 1


if __name__ == "__main__":
    program()
