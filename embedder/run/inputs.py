"""config.toml and corpus.json: the settings and the data that a run was started with.

corpus.json has the path or URL of the corpus, its manifest (name, size, time and digest
of each file), the run that was resumed, and the settings that were left open: those
that `plan` resolves, as `alpha`, by the corpus and the epochs. config.toml has them
resolved. Of a run that was made longer it has the epochs of each part, such as [5, 3];
of a run of tables numbers about its corpus.
"""

import json
import logging
import math
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from embedder.config import (
    Config,
    different_options,
    options_of,
    read_toml,
    to_toml,
    with_options,
)
from embedder.disk.digests import check_digest, read_digests, write_digests
from embedder.disk.files import short_reason
from embedder.disk.urls import is_url, without_secrets
from embedder.errors import InputError
from embedder.run.workdir import Workdir, write_text

_log = logging.getLogger(__name__)

CORPUS_FACTS = ("sequences", "tokens", "known_tokens", "kept_share")
"""Numbers about a corpus: sequences that have a token of the vocabulary, tokens, those
of the vocabulary, and the share of these that subsampling keeps in an epoch, expected.
"""

COLUMNS = frozenset(
    {"session", "item", "order", "items", "weights", "source", "target", "weight"}
)
"""Settings that name columns; the manifest has those that were found, too."""

START_FILES = frozenset({"init_from", "freeze", "init_network"})
"""Settings that name what a run starts from; the base has digests of it, and a run
that has moved reads what it kept."""

Manifest = list[dict[str, Any]]
"""Facts about each file of a corpus, by which a changed one is recognised."""


def write_settings(
    workdir: Workdir,
    config: Config,
    source: str | None,
    manifest: Manifest,
    base: dict[str, Any] | None = None,
    *,
    given: Config | None = None,
    parts: list[int] | None = None,
    facts: dict[str, float] | None = None,
) -> None:
    """Writes config.toml and corpus.json.

    Args:
      config: resolved settings.
      given: the settings before `plan` resolved them; None: `config` itself.
      parts: the epochs of each part of a run that was made longer.
      facts: numbers about the data, of `CORPUS_FACTS`.
    """
    corpus = {
        "source": _absolute(source),
        "manifest": manifest,
        "resume": base,
        "open": _open(given or config, config),
        **({"epochs": parts} if parts else {}),
        **({"facts": facts} if facts else {}),
    }
    write_text(workdir.corpus, json.dumps(corpus, indent=2) + "\n")
    write_text(workdir.config, to_toml(config))


def _absolute(source: str | None) -> str | None:
    """The path or URL that names the data also in other folders, without secrets."""
    if source is None:
        return None
    return without_secrets(source) if is_url(source) else os.path.abspath(source)


def _open(given: Config, resolved: Config) -> dict[str, Any]:
    """Settings that were open, with their values as given."""
    after = options_of(resolved)
    return {
        name: value
        for name, value in options_of(given).items()
        if value != after.get(name) and name not in START_FILES  # they may have secrets
    }


def without_file_secrets(config: Config) -> Config:
    """`config` with the URLs of `START_FILES` as they may be written down."""
    options = options_of(config)
    files = {name: options[name] for name in START_FILES & {*options}}
    shown = {name: without_secrets(path) for name, path in files.items()}
    return config if shown == files else with_options(config, **shown)


def check_same(
    workdir: Workdir,
    config: Config,
    manifest: Manifest,
    base: dict[str, Any] | None = None,
    *,
    given: Config | None = None,
    force: bool = False,
) -> None:
    """Refuses settings or data other than those that the run was started with.

    Args:
      config: resolved settings.
      given: these before they were resolved: what follows from others is not named.
      force: accept another corpus, with a warning.

    Raises:
      InputError: names what differs.
    """
    before = _corpus(workdir, "manifest", (list,))
    manifest = _as_before(manifest, before)
    open_now = {} if given is None else still_open(workdir, given)
    found = _different_settings(workdir, config, manifest, without=open_now)
    found = found or _different_settings(workdir, config, manifest)
    found += [
        f"{each} (--workdir alone resumes its own)"
        for each in _different_starts(workdir, base)
    ]
    if before != manifest:
        if force:
            _log.warning("%s was started with another corpus.", workdir.path)
        else:
            found.append("another corpus")
    if found:
        raise InputError(
            f"{workdir.path} holds a run with other settings: "
            f"{', '.join(found)}. {_about_epochs(workdir, config)}Give another "
            "--workdir, or --overwrite to start anew."
        )


def _about_epochs(workdir: Workdir, config: Config) -> str:
    """What to do about other epochs, as a sentence; "": they are the same."""
    before, now = read_toml(workdir.config).run.epochs, config.run.epochs
    if workdir.is_finished and now < before:
        return f"It was trained for {before} epochs: give more to train on. "
    if now > before and not workdir.is_finished:
        return f"First end it (--workdir {workdir.path} alone), then give more epochs. "
    return ""


def data_differences(
    workdir: Workdir,
    config: Config,
    manifest: Manifest,
    base: dict[str, Any] | None = None,
    *,
    force: bool = False,
) -> list[str]:
    """`check_same` of the run of another machine: times of files may differ there.

    Returns a text for each difference.
    """
    before = _corpus(workdir, "manifest", (list,))
    manifest = _as_before(manifest, before)
    found = _different_settings(workdir, config, manifest)
    found += _different_starts(workdir, base)
    if not force and _without_times(before) != _without_times(manifest):
        found.append("another corpus")
    return found


def _different_settings(
    workdir: Workdir,
    config: Config,
    manifest: Manifest,
    without: Collection[str] = (),
) -> list[str]:
    """A text for each setting that differs, but for those `without`; of columns by what
    they are in the data."""
    before = _corpus(workdir, "manifest", (list,))
    there = _comparable(options_of(read_toml(workdir.config)), before)
    now = _comparable(options_of(config), manifest)
    for name in without:
        there.pop(name, None)
        now.pop(name, None)
    return different_options(there, now)


def _as_before(manifest: Manifest, before: Manifest) -> Manifest:
    """`manifest`, without columns if `before` has none: runs of graphs had none once.

    Their settings are compared then.
    """
    if any("columns" in each for each in before if isinstance(each, dict)):
        return manifest
    return [each for each in manifest if "columns" not in each]


def _comparable(options: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """`options` with the columns that were found, without files that have a digest."""
    known = _with_columns(options, manifest).items()
    return {name: value for name, value in known if name not in START_FILES}


def _without_times(manifest: Manifest) -> Manifest:
    return [
        {**file, "mtime_ns": None} if isinstance(file, dict) else file
        for file in manifest
    ]


def replace_data(workdir: Workdir, source: str | None, manifest: Manifest) -> None:
    """Gives the run of another machine the path and the times of its data here."""
    corpus = json.loads(workdir.corpus.read_text(encoding="utf-8"))
    corpus |= {"source": _absolute(source), "manifest": manifest}
    text = json.dumps(corpus, indent=2) + "\n"
    if text == workdir.corpus.read_text(encoding="utf-8"):
        return
    write_text(workdir.corpus, text)
    if workdir.sums.exists():
        paths = [workdir.path / name for name in read_digests(workdir.path)]
        write_digests(workdir.path, [path for path in paths if path.exists()])


def is_same(
    workdir: Workdir,
    given: Config,
    manifest: Manifest,
    base: dict[str, Any] | None = None,
) -> bool:
    """Whether the run was started with these settings and data, told without planning.

    False also where only planning tells: a setting is open now, and was given then. A
    setting that was open then and is open now became what it would become again.
    """
    before = _corpus(workdir, "manifest", (list,))
    manifest = _as_before(manifest, before)
    resolved = _comparable(options_of(read_toml(workdir.config)), before)
    now = _comparable(options_of(given), manifest) | still_open(workdir, given)
    return (
        not different_options(resolved, now)
        and not _different_starts(workdir, base)
        and before == manifest
    )


def still_open(workdir: Workdir, given: Config) -> dict[str, Any]:
    """The settings that were open in the run and are open in `given`, with the values
    that they had in the run."""
    resolved, now = options_of(read_toml(workdir.config)), options_of(given)
    return {
        name: resolved[name]
        for name, value in open_settings(workdir).items()
        if name in now and json.dumps(now[name]) == json.dumps(value)
    }


def _with_columns(options: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """`options` with the columns of a file that were found, which the manifest has.

    A column that is found and one that is named are the same.
    """
    described = [each for each in manifest if isinstance(each, dict)]
    found: object = next(
        (each["columns"] for each in described if "columns" in each), {}
    )
    columns = found.items() if isinstance(found, dict) else ()
    return options | {name: value for name, value in columns if name in COLUMNS}


def source_of(workdir: Workdir) -> str | None:
    """Path or URL of the corpus of the run; None: the demo corpus."""
    return _corpus(workdir, "source", (str, type(None)))


def manifest_of(workdir: Workdir) -> Manifest:
    """The manifest of the corpus of the run."""
    return _corpus(workdir, "manifest", (list,))


def corpus_facts_of(workdir: Workdir) -> dict[str, float]:
    """Numbers about the corpus of the run, of `CORPUS_FACTS`; {}: there are none, as in
    runs of earlier versions and of encoders."""
    found = _corpus(workdir, "facts", (dict, type(None))) or {}
    return {
        name: x
        for name in CORPUS_FACTS
        if isinstance(x := found.get(name), int | float)
        and not isinstance(x, bool)
        and math.isfinite(x)
    }


def noun_of(workdir: Workdir) -> str:
    """What messages call the tokens of the run, "items" of sessions; "": as its files
    do, "words" or "nodes"."""
    if not workdir.corpus.exists():
        return ""
    columns = (
        each.get("columns") for each in manifest_of(workdir) if isinstance(each, dict)
    )
    tables = (each for each in columns if isinstance(each, dict))
    return "items" if any({"item", "items"} & {*each} for each in tables) else ""


def has_integer_keys(workdir: Workdir) -> bool:
    """Whether the corpus of the run is a table whose items are integers."""
    if not workdir.corpus.exists():
        return False
    manifest = _corpus(workdir, "manifest", (list,))
    return any(isinstance(x, dict) and x.get("keys") == "integer" for x in manifest)


def open_settings(workdir: Workdir) -> dict[str, Any]:
    """The settings that the run was not given and has resolved, as they were given."""
    if not workdir.corpus.exists():
        return {}
    return _corpus(workdir, "open", (dict, type(None))) or {}


def parts_of(workdir: Workdir) -> list[int]:
    """The epochs of each part of the run; it has one if it was not made longer."""
    found = _corpus(workdir, "epochs", (list, type(None)))
    return found or [read_toml(workdir.config).run.epochs]


def base_of(workdir: Workdir) -> dict[str, Any] | None:
    """The run whose vectors were the start: path, grow, and sha256 of its model; and
    digests of the files of `START_FILES`. Without such a run the path is None."""
    found = _corpus(workdir, "resume", (dict, type(None)))
    if found is not None and not {"path", "grow", "sha256"} <= {*found}:
        raise _damaged(workdir, f"`resume` is {found!r}")
    return found


_STARTS = {
    "grow": "`resume` of another run",
    "sha256": "`resume` of another run",
    "init_from": "`init_from` of other vectors",
    "freeze": "`freeze` of other rows",
    "init_network": "`init_from` of another encoder",
}
"""What differs, by the fact of a base in which two runs differ."""


def _different_starts(workdir: Workdir, base: dict[str, Any] | None) -> list[str]:
    """A text for each difference of what the run started from and `base`, wherever
    these were."""
    before, now = base_of(workdir) or {}, base or {}
    none: dict[str, Any] = {"grow": False, "sha256": ""}
    before, now = none | before, none | now
    found = (
        text for name, text in _STARTS.items() if before.get(name) != now.get(name)
    )
    return [*dict.fromkeys(found)]


def check_apart(workdir: Workdir, base: Path) -> None:
    """Refuses a base in the folder of the run, which would overwrite it.

    Raises:
      InputError: it is there.
    """
    path, folder = base.resolve(), workdir.path.resolve()
    if folder in (path, *path.parents) and path != workdir.base.resolve():
        raise InputError(
            "`workdir` must be another folder than that of the run to resume, "
            f"{base}: give --workdir NEW."
        )


def _corpus(workdir: Workdir, key: str, kinds: tuple[type, ...]) -> Any:
    try:
        value = json.loads(workdir.corpus.read_text(encoding="utf-8")).get(key)
        if not isinstance(value, kinds):
            raise InputError(f"`{key}` is {value!r}")
        return value
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise _damaged(workdir, short_reason(error)) from error


def _damaged(workdir: Workdir, reason: str) -> InputError:
    return InputError(
        f"{workdir.corpus} is damaged ({reason}): give another --workdir, or the "
        "corpus and --overwrite to start anew."
    )


def check_has_one_model(workdir: Workdir, argument: str) -> None:
    """Refuses a run with replicas where one model is needed.

    Raises:
      InputError: it names `argument` and the number of replicas.
    """
    if not workdir.config.exists() or workdir.model.exists():
        return
    num_replicas = read_toml(workdir.config).run.replicas
    if num_replicas > 1:
        raise InputError(
            f"{argument} must be a run of a single model, got {workdir.path}, which "
            f"has {num_replicas} replicas."
        )


def check_sound(workdir: Workdir, also: Sequence[Path] = ()) -> None:
    """Refuses to resume a run whose settings or inputs were changed or damaged.

    Args:
      also: more of its files to check.

    Raises:
      InputError: a file differs from its checksum.
    """
    try:
        sums = read_digests(workdir.path)
        read = workdir.base, workdir.start, workdir.vocabulary
        for path in (workdir.config, workdir.corpus, *read, *also):
            if path.name in sums:
                check_digest(path, sums[path.name])
    except FileNotFoundError:
        return  # it was killed before it had written them
    except ValueError as error:
        raise InputError(
            f"{workdir.path} is damaged: {error}. `embedder verify` tells more; give "
            "another --workdir, or --overwrite to start anew."
        ) from error
