"""Facts of a finished run for a model card."""

import json
import shlex
from pathlib import PurePosixPath
from typing import Any

from embedder import __version__
from embedder.config import (
    Config,
    changing_names,
    make_config,
    options_of,
    read_toml,
)
from embedder.disk.files import short_reason
from embedder.disk.urls import without_secrets
from embedder.errors import InputError
from embedder.evaluation.score_table import score_rows
from embedder.run.inputs import (
    START_FILES,
    base_of,
    manifest_of,
    open_settings,
    source_of,
)
from embedder.run.score_file import read_scores
from embedder.run.workdir import Workdir

_MAX_FILES = 10
_PROGRESS = {"epoch", "updates", "loss", "alpha", "learning_rate", "seconds"}
"""What a line of metrics.jsonl has besides scores and the speed."""


def facts_of(run: Workdir, num_examples: int | None = None) -> list[str]:
    """Lines about the version, the corpus, the settings and the scores of a run.

    Files are named without their folders.

    Args:
      num_examples: occurrences of the tokens in the corpus; None: not known.

    Raises:
      OSError, InputError: a file of the run is missing or damaged.
    """
    lines = [f"embedder {__version__}", *_corpus_lines(run)]
    if num_examples is not None:
        lines.append(f"occurrences of these tokens in the corpus: {num_examples:,}")
    base = base_of(run)
    if base is not None and base["path"] is not None:
        lines.append(f"started from the vectors of: {_name(base['path'])}")
    config = read_toml(run.config)
    lines += _setting_lines(run, config)
    lines.append(f"trained by: {train_command(run, config)}")
    scores = dict(score_rows(read_scores(run)))
    if config.save.result == "best":  # which line it is, metrics.jsonl does not say
        lines.append("result: the best evaluation, not the last")
    else:
        lines += _last_lines(run, {*scores})
    return lines + [f"{_kind(n)} of the vectors: {n} {x}" for n, x in scores.items()]


def _corpus_lines(run: Workdir) -> list[str]:
    source = source_of(run)
    if source is None:
        return ["corpus: the demo corpus, documentation of Python"]
    files = [
        each for each in manifest_of(run) if isinstance(each, dict) and "file" in each
    ]
    lines = [
        f"corpus: {_name(str(each['file']))}, {_size(each)}"
        for each in files[:_MAX_FILES]
    ]
    if len(files) > _MAX_FILES:
        lines.append(f"corpus: {len(files) - _MAX_FILES} more files")
    return lines or [f"corpus: {_name(source)}"]


def _size(file: dict[str, Any]) -> str:
    size = file.get("bytes")
    return f"{size:,} bytes" if isinstance(size, int) else "size not known"


def _setting_lines(run: Workdir, config: Config) -> list[str]:
    """Settings as they were given, where they change the vectors and differ from the
    defaults."""
    given = options_of(config) | open_settings(run)
    default = options_of(make_config({"model": given["model"]}))
    changed = {
        name: _name(value) if name in START_FILES and value else value
        for name, value in given.items()
        if name in changing_names() and value != default.get(name)
    }
    if not changed:
        return ["settings: the defaults"]
    return [f"setting: {name} = {value!r}" for name, value in sorted(changed.items())]


def train_command(run: Workdir, config: Config) -> str:
    """The command that trains such a run, with names of files without their folders."""
    source, base = source_of(run), base_of(run)
    given = options_of(config) | open_settings(run)
    default = options_of(make_config({"model": given["model"]}))
    words = ["embedder", "train", *([] if source is None else [_name(source)])]
    if given["model"] != make_config({}).run.model:
        words += ["--model", str(given["model"])]
    for name, value in given.items():
        if name != "model" and value not in (None, default.get(name)):
            words += _flags(name, value)
    if base is not None and base["path"] is not None:
        words += ["--resume", _name(base["path"]), *["--grow"] * bool(base["grow"])]
    return shlex.join(words)


def _flags(name: str, value: Any) -> list[str]:
    """A setting as words of a command."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, list | tuple) else [value]
    texts = (_name(x) if isinstance(x, str) and "/" in x else str(x) for x in values)
    return [f"--{flag}", *texts]


def _last_lines(run: Workdir, known: set[str]) -> list[str]:
    """The loss at the end of the training, and the scores that are not `known`."""
    if not run.metrics.exists():  # of a run of 0 epochs, or a copy
        return []
    try:
        rows = [*map(json.loads, run.metrics.read_text("utf-8").splitlines())]
        last = dict(rows[-1]) if rows else {}
    except (ValueError, TypeError) as error:
        reason = short_reason(error)
        raise InputError(f"{run.metrics} is damaged: {reason}.") from error
    speeds = {name for name in last if name.endswith("_per_second")}
    units = {name.removesuffix("_per_second") for name in speeds}
    times = {name for name in last if name.endswith("_seconds")}
    left_out = _PROGRESS | speeds | units | times | known
    values = {n: x for n, x in last.items() if isinstance(x, int | float)}
    when = f"at epoch {values.get('epoch', '?')}"
    lines = [f"loss {when}: {values['loss']:.4g}"] if "loss" in values else []
    return lines + [
        f"{_kind(name)} {when}: {name} {value:.4g}"
        for name, value in values.items()
        if name not in left_out
    ]


def _kind(name: str) -> str:
    """What a number of metrics.jsonl is."""
    if " by " in name:
        return "baseline of a score"
    return "score of training" if name.startswith("train_") else "held-out score"


def _name(path: str) -> str:
    """The last part of a path or URL, without secrets."""
    return PurePosixPath(without_secrets(path).split("?")[0]).name or path
