"""config.toml and corpus.json of a run: its settings, its data, its base.

config.toml has the settings, resolved. corpus.json has the path or URL of the corpus,
its manifest (name, size, time and digest of each file), the run that was resumed, and
the settings that were open, as they were given: `plan` resolves these, such as `alpha`,
by the corpus and the epochs. An extended run also has the epochs of each part, such as
[5, 3]; a run of tokens has numbers about its corpus.
"""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from embedder.config import (
    Config,
    changing_names,
    options_of,
    read_toml,
    to_toml,
    with_options,
)
from embedder.disk.digests import check_digest, read_digests, write_digests
from embedder.disk.files import short_reason
from embedder.disk.urls import is_url, without_secrets
from embedder.disk.workdir import Workdir, write_text
from embedder.errors import InputError

CORPUS_FACTS = ("sequences", "tokens", "known_tokens", "kept_share")
"""Numbers about a corpus: sequences that have a token of the vocabulary, tokens, those
of the vocabulary, and the share of these that subsampling keeps in an epoch, expected.
"""

COLUMNS = frozenset(
    {"session", "item", "order", "items", "weights", "source", "target", "weight"}
)
"""Settings that name columns; the manifest has those that were found, too."""

KEPT_FILES = frozenset({"init_from", "freeze", "init_network", "attributes", "names"})
"""Settings that name files of which a run keeps what it needs, so that it may move
without them. The base has digests of all but the names."""

RESOLVED = frozenset(
    {
        *("block", "noise", "blocks_per_update", "alpha", "max_pairs_per_row"),
        *("network", "network_args", "layers", "embedding_size"),
        *("learning_rate", "rate_schedule", "holdout"),
        "min_count",  # 1 of walks
    }
)
"""Settings that may be open: `plan` then resolves them by the data and the others."""

Manifest = list[dict[str, Any]]
"""Facts about each file of a corpus, by which a changed one is recognised."""


def changed_data(before: Manifest, now: Manifest, *, with_times: bool = True) -> str:
    """The first difference of two manifests as a text, "" if they are of the same data.

    A file with the same size and the same digest of its ends is the same at any time.
    Columns do not count: they are settings, or found in the content.

    Args:
      with_times: whether the time of a file without a digest counts.
    """
    if not all(isinstance(each, dict) for each in [*before, *now]):
        return "" if before == now else "its record is damaged"
    names, new_names = ([_shown(each) for each in files] for files in (before, now))
    if names != new_names:
        gone = [x for x in names if x not in new_names]
        added = [x for x in new_names if x not in names]
        if gone and added:
            return f"{gone[0]} there, {added[0]} now"
        if gone or added:
            return f"{(gone or added)[0]} is {'missing' if gone else 'new'}"
        return "its files in another order"
    for name, old, new in zip(names, before, now, strict=True):
        has_time = with_times and "ends_sha256" not in new
        ignored = {"columns"} if has_time else {"columns", "mtime_ns"}
        facts = [x for x in {**old, **new} if old.get(x) != new.get(x)]
        facts = [x for x in facts if x not in ignored]
        if "bytes" in facts:
            return f"{name} of {old.get('bytes')} bytes there, {new.get('bytes')} now"
        if "mtime_ns" in facts:
            return f"{name} was written at another time"
        if {"ends_sha256", "sha256"} & {*facts}:
            return f"other content of {name}"
        if facts:
            fact = facts[0]
            return f"{fact} {old.get(fact)} there, {new.get(fact)} now"
    return ""


def _shown(fact: dict[str, Any]) -> str:
    """What an entry of a manifest is of."""
    return fact.get("file") or fact.get("sequences") or "what was found in the data"


class RunInputs(NamedTuple):
    """The settings and the data of a run, by which it is told from others."""

    given: Config
    resolved: Config | None  # None: `plan` has not resolved what `given` leaves open
    manifest: Manifest
    base: dict[str, Any] | None = None  # see `base_of`
    source: str | None = None  # path or URL of the corpus; None: the demo corpus

    @property
    def open(self) -> dict[str, Any]:
        """The settings that `plan` resolved, with their values as given."""
        after = options_of(self.resolved or self.given)
        return {
            name: value
            for name, value in options_of(self.given).items()
            if value != after[name] and name not in KEPT_FILES  # may have secrets
        }


def read_inputs(run: Workdir) -> RunInputs:
    """What `write_inputs` wrote; InputError if it is damaged."""
    resolved = read_toml(run.config)
    return RunInputs(
        given=with_options(resolved, **open_settings(run)),
        resolved=resolved,
        manifest=manifest_of(run),
        base=base_of(run),
        source=source_of(run),
    )


def write_inputs(
    run: Workdir,
    inputs: RunInputs,
    *,
    parts: list[int] | None = None,
    facts: dict[str, float] | None = None,
) -> None:
    """Writes config.toml and corpus.json.

    Args:
      inputs: those of a planned run.
      parts: the epochs of each part of a run that was extended.
      facts: numbers about the data, of `CORPUS_FACTS`.
    """
    assert inputs.resolved is not None, "it is planned"
    assert {*inputs.open} & changing_names() <= RESOLVED
    corpus = {
        "source": _absolute(inputs.source),
        "manifest": inputs.manifest,
        "resume": inputs.base,
        "open": inputs.open,
        **({"epochs": parts} if parts else {}),
        **({"facts": facts} if facts else {}),
    }
    write_text(run.corpus, json.dumps(corpus, indent=2) + "\n")
    write_text(run.config, to_toml(inputs.resolved))


def _absolute(source: str | None) -> str | None:
    """The path or URL that names the data also in other folders, without secrets."""
    if source is None:
        return None
    return without_secrets(source) if is_url(source) else os.path.abspath(source)


def replace_data(run: Workdir, here: RunInputs) -> None:
    """Gives the run of another machine the path and the times of its data here."""
    before = run.corpus.read_text(encoding="utf-8")
    data = {"source": _absolute(here.source), "manifest": here.manifest}
    text = json.dumps(json.loads(before) | data, indent=2) + "\n"
    if text == before:
        return
    write_text(run.corpus, text)
    if run.sums.exists():
        paths = [run.path / name for name in read_digests(run.path)]
        write_digests(run.path, [path for path in paths if path.exists()])


def without_file_secrets(config: Config) -> Config:
    """`config` with the URLs of `KEPT_FILES` as they may be written down."""
    options = options_of(config)
    files = {name: options[name] for name in KEPT_FILES & {*options}}
    shown = {
        name: without_secrets(path)
        if isinstance(path, str)
        else (*map(without_secrets, path[:1]), *path[1:])
        for name, path in files.items()
    }
    return config if shown == files else with_options(config, **shown)


def source_of(workdir: Workdir) -> str | None:
    """Path or URL of the corpus of the run; None: the demo corpus."""
    return corpus_value(workdir, "source", (str, type(None)))


def manifest_of(workdir: Workdir) -> Manifest:
    """The manifest of the corpus of the run."""
    return corpus_value(workdir, "manifest", (list,))


def corpus_facts_of(workdir: Workdir) -> dict[str, float]:
    """Numbers about the corpus of the run, of `CORPUS_FACTS`; {}: there are none, as in
    runs of earlier versions and of encoders."""
    facts = corpus_value(workdir, "facts", (dict, type(None))) or {}
    return {
        name: x
        for name in CORPUS_FACTS
        if isinstance(x := facts.get(name), int | float)
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
    files = (x for x in manifest_of(workdir) if isinstance(x, dict))
    return any(file.get("keys") == "integer" for file in files)


def open_settings(workdir: Workdir) -> dict[str, Any]:
    """The settings that the run was not given and has resolved, as they were given."""
    if not workdir.corpus.exists():
        return {}
    return corpus_value(workdir, "open", (dict, type(None))) or {}


def parts_of(workdir: Workdir) -> list[int]:
    """The epochs of each part of the run; it has one if it was not made longer."""
    epochs = corpus_value(workdir, "epochs", (list, type(None)))
    return epochs or [read_toml(workdir.config).run.epochs]


def base_of(workdir: Workdir) -> dict[str, Any] | None:
    """The run whose vectors were the start: path, grow, and sha256 of its model; and
    digests of the files of `KEPT_FILES`. Without such a run the path is None."""
    base = corpus_value(workdir, "resume", (dict, type(None)))
    if base is not None and not {"path", "grow", "sha256"} <= {*base}:
        raise damaged_record(workdir, f"`resume` is {base!r}")
    return base


def corpus_value(workdir: Workdir, key: str, kinds: tuple[type, ...]) -> Any:
    try:
        value = json.loads(workdir.corpus.read_text(encoding="utf-8")).get(key)
        if not isinstance(value, kinds):
            raise InputError(f"`{key}` is {value!r}")
        return value
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise damaged_record(workdir, short_reason(error)) from error


def damaged_record(workdir: Workdir, reason: str) -> InputError:
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
        read = workdir.base, workdir.start, workdir.attributes, workdir.vocabulary
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
