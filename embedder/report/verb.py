"""The verb `report`: writes the report of a run, or of several."""

import os
from collections.abc import Sequence
from pathlib import Path

from embedder.base.stages import report_stage
from embedder.base.terminal import say_done, shown
from embedder.data.kept_names import keep_given, names_of
from embedder.data.names import Names
from embedder.disk.workdir import Workdir, check_target
from embedder.errors import InputError, InputIsFolderError, InputNotFoundError
from embedder.report.page import make_report
from embedder.report.points import FULL
from embedder.report.projector_files import write as write_vectors
from embedder.report.run_page import compare, run_page
from embedder.report.tokens import NO_EXTRAS, Extras, with_names
from embedder.run.progress import working
from embedder.vectors.export import read_vectors

_SUFFIXES = (".html", ".htm")
_COMPARISON = "compare.html"


def write_report(
    path: Path | None,
    to: Path | None,
    compared: Sequence[Path] = (),
    names: str | None = None,
    label: str | None = None,
) -> None:
    """Writes the report of a run, atomically, and says where it is; in the folder of a
    finished run it also writes the vectors for TensorBoard's projector.

    Args:
      path: the folder of the run; None: the first one of `compared`.
      to: the file; None: report.html in the folder of the run, with runs to compare it
        with compare.html.
      compared: runs to compare it with.
      names: table of names of keys; None: the names of the run.
      label: a column of that table to colour the map by.

    Raises:
      InputError: there is no path, one is no run, a file of one is damaged, or `to`
        is no file of HTML, or a file of a run.
      OSError: `to` cannot be written.
    """
    path, others = _runs(path, compared)
    run = _started(path, "RUN")
    for each in others:
        _started(each, "`compare`")
    default = path / _COMPARISON if others else run.report
    target = default if to is None else to
    _check_target(target, run)
    table = names_of(path, names)
    extras = _extras(table, label)
    with working():
        report_stage(f"reading {path}")
        page = run_page(path, FULL, extras)
        if others:
            page = page._replace(comparison=compare([path, *others]))
        report_stage(f"writing {target}")
        report = make_report(page)
        report.save(target)
        if target == run.report and run.is_finished:
            report_stage("writing the vectors for TensorBoard")
            write_vectors(path, read_vectors(run.vectors), extras=extras)
    size = len(report.html.encode()) / 2**20
    say_done(f"{shown(str(target))}: {size:.1f} MiB")
    keep_given(path, names, table)


def _runs(path: Path | None, compared: Sequence[Path]) -> tuple[Path, Sequence[Path]]:
    """The run that is reported on, and those to compare it with."""
    if path is not None:
        return path, compared
    if len(compared) < 2:
        raise InputError(
            "`RUN` must be the folder of a run, got none: `embedder report RUN`, or "
            "`embedder report --compare RUN RUN`."
        )
    return compared[0], compared[1:]


def _started(path: Path, argument: str) -> Workdir:
    run = Workdir(path)
    if not path.exists():
        raise InputNotFoundError(f"{argument} {path} does not exist.")
    if not run.is_started:
        raise InputError(f"{argument} must be the folder of a run, got {path}.")
    return run


def _check_target(to: Path, run: Workdir) -> None:
    if to.suffix.lower() not in _SUFFIXES:
        raise InputError(f"`to` must end in {' or '.join(_SUFFIXES)}, got {to}.")
    if to.is_dir():
        raise InputIsFolderError(f"`to` must be a file, got the folder {to}.")
    if not to.parent.is_dir():
        raise InputNotFoundError(f"`to` {to}: folder {to.parent} does not exist.")
    if os.path.realpath(to) != os.path.realpath(run.report):
        check_target(to, "`to`")


def _extras(table: Names | None, label: str | None) -> Extras:
    if table is None:
        if label is not None:
            raise InputError(f"`label` needs `names`, got {label!r}.")
        return NO_EXTRAS
    if label is not None and label not in table.columns:
        raise InputError(
            f"`label` must be a column of {table.path}, which has "
            f"{', '.join(map(repr, table.columns))}, got {label!r}."
        )

    if label is None:
        return with_names(table)

    def labels(keys: Sequence[str]) -> list[str]:
        if label == table.key:
            return [*keys]
        values = table.rows([*keys])[label]
        return ["" if value is None else str(value) for value in values]

    return with_names(table)._replace(labels=labels, label_name=label)
