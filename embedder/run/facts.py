"""Facts of a finished run for a model card."""

import json
import shlex
from pathlib import PurePosixPath
from typing import Any

from embedder import __version__
from embedder.config import changing_names, make_config, options_of, read_toml
from embedder.disk.files import short_reason
from embedder.disk.run_record import (
    KEPT_FILES,
    base_of,
    manifest_of,
    open_settings,
    source_of,
)
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import Workdir
from embedder.errors import InputError
from embedder.metrics.score_table import read_scores, score_rows

_MAX_FILES = 10
_PROGRESS = {"epoch", "updates", "loss", "alpha", "learning_rate", "seconds"}
"""Names in a line of metrics.jsonl that are neither scores nor speeds."""


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
    base, config = base_of(run), read_toml(run.config)
    if base is not None and base["path"] is not None:
        lines.append(f"started from the vectors of: {_name(base['path'])}")
    options = options_of(config) | open_settings(run)
    default = options_of(make_config({"model": options["model"]}))
    others = {n: x for n, x in options.items() if x != default.get(n)}
    changed = {
        name: _shown_file(value) if name in KEPT_FILES and value else value
        for name, value in others.items()
        if name in changing_names()
    }
    settings = (f"setting: {name} = {value!r}" for name, value in changed.items())
    lines += sorted(settings) if changed else ["settings: the defaults"]
    lines.append(f"trained by: {_train_command(run, options['model'], others)}")
    scores = dict(score_rows(read_scores(run)))
    if config.save.result == "best":  # metrics.jsonl does not say which line it is
        lines.append("result: the best evaluation, not the last")
    else:
        lines += _last_lines(run, {*scores})
    return lines + [f"{_kind(n)} of the vectors: {n} {x}" for n, x in scores.items()]


def _corpus_lines(run: Workdir) -> list[str]:
    source = source_of(run)
    if source is None:
        return ["corpus: the demo corpus, documentation of Python"]
    files = [x for x in manifest_of(run) if isinstance(x, dict) and "file" in x]
    lines = [
        f"corpus: {_name(str(each['file']))}, "
        + (f"{size:,} bytes" if isinstance(size, int) else "size not known")
        for each in files[:_MAX_FILES]
        for size in [each.get("bytes")]
    ]
    if len(files) > _MAX_FILES:
        lines.append(f"corpus: {len(files) - _MAX_FILES} more files")
    return lines or [f"corpus: {_name(source)}"]


def _train_command(run: Workdir, model: str, others: dict[str, Any]) -> str:
    """The command that trains such a run, with names of files without their folders.

    Args:
      others: settings other than the defaults.
    """
    source, base = source_of(run), base_of(run)
    words = ["embedder", "train", *([] if source is None else [_name(source)])]
    if model != make_config({}).run.model:
        words += ["--model", model]
    for name, value in others.items():
        if name != "model" and value is not None:
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
    rows = metrics_lines(run)
    last = rows[-1] if rows else {}
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


def metrics_lines(run: Workdir) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; []: there is none, as of 0 epochs, or in a copy.

    Raises:
      InputError: it is damaged.
    """
    try:
        text = run.metrics.read_text(encoding="utf-8")
        return [dict(json.loads(line)) for line in text.splitlines()]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        reason = short_reason(error)
        raise InputError(f"{run.metrics} is damaged: {reason}.") from error


def _kind(name: str) -> str:
    """What kind of number of metrics.jsonl `name` is."""
    if " by " in name:
        return "baseline of a score"
    return "score of training" if name.startswith("train_") else "held-out score"


def _shown_file(value: Any) -> Any:
    """A setting that names a file first, without its folder."""
    return _name(value) if isinstance(value, str) else (_name(value[0]), *value[1:])


def _name(path: str) -> str:
    """The last part of a path or URL, without secrets."""
    return PurePosixPath(without_secrets(path).split("?")[0]).name or path
