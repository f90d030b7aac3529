"""The folder of a sweep: its files, and whether it is that of this sweep.

sweep.json     settings, space, score and corpus, by which it is recognised
trials.jsonl   a line for each trial and the epochs after which it was scored
trials.csv     the trials as a table, the best first
trials.svg     the same as a picture
best.toml      settings of the best trial
states/        with halving: trials after the epochs so far, until a bracket ends
running/       checkpoints of the trials that are being trained
cache/         the encoded corpus
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from embedder.config import Config, different_options, options_of
from embedder.disk.run_record import changed_data
from embedder.disk.workdir import Workdir
from embedder.engine.task import Task
from embedder.errors import InputError, InputExistsError
from embedder.metrics.scores import Score
from embedder.sweep.options import SweepOptions
from embedder.sweep.space import Space, is_grid


class SweepFolder:
    """Paths of a sweep."""

    def __init__(self, path: Path):
        self.path = path
        self.facts = path / "sweep.json"
        self.results = path / "trials.jsonl"
        self.table = path / "trials.csv"
        self.picture = path / "trials.svg"
        self.best = path / "best.toml"
        self.states = path / "states"
        self.running = path / "running"
        self.cache = path / "cache"

    def check_free(self) -> None:
        """Refuses a folder with files that no sweep has written."""
        path = self.path
        if not path.exists() or self.facts.exists():
            return
        if not path.is_dir():
            raise InputExistsError(f"`workdir` must be a folder, got the file {path}.")
        own = {self.cache, path / ".lock", *Workdir(path).parts}
        if {*path.iterdir()} - own:
            raise InputExistsError(
                f"`workdir` must be a sweep, or empty, or new: {path} holds other "
                "files."
            )

    @property
    def is_begun(self) -> bool:
        """Whether a sweep has trained here."""
        return self.facts.exists() and (self.results.exists() or self.running.exists())

    def clear(self) -> None:
        """Removes all but the cache."""
        for folder in (self.states, self.running):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.table, self.picture, self.best, self.results, self.facts):
            file.unlink(missing_ok=True)


def facts_of(
    config: Config, space: Space, score: Score, options: SweepOptions, task: Task[Any]
) -> dict[str, Any]:
    """What the trials of a sweep and their scores depend on, as JSON."""
    how: dict[str, Any] = {"halving": options.halving, "score": score.name}
    if options.halving:
        how["first_epochs"] = options.first_epochs
    if options.pairs is not None:
        how["pairs"] = hashlib.sha256(options.pairs.read_bytes()).hexdigest()
    if not is_grid(space):  # it is searched in brackets
        how |= {"side_by_side": options.side_by_side, "trials": options.trials}
    names = {
        name: value
        for name, value in options_of(config).items()
        if name not in ("save_every", "keep", "loader", "workers", "threads")
    }
    facts = {
        "settings": names,
        "space": {name: [type(x).__name__, *x] for name, x in space.items()},
        "search": how,
        "corpus": task.manifest,
    }
    if task.base is not None:  # by digests: names of files may have secrets
        facts["start"] = task.base
        for name in task.base.keys() & names.keys():
            names[name] = ""
    return json.loads(json.dumps(facts))


def check_same(folder: SweepFolder, facts: dict[str, Any]) -> list[int]:
    """Refuses a sweep in a folder where another one is begun.

    Returns:
      The numbers of trials of the search that `facts` continues with more; rising.

    Raises:
      InputError: names what differs.
    """
    if not folder.is_begun:
        return []
    try:
        before = json.loads(folder.facts.read_text(encoding="utf-8"))
        ends = [int(each) for each in before["search"].pop("before", [])]
        there, now = (each["search"].get("trials") for each in (before, facts))
        if there is not None and now is not None and there < now:
            ends.append(before["search"].pop("trials"))
            before["search"]["trials"] = now
        different = _differences(before, facts)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{folder.facts} is damaged: give another --workdir, or --overwrite to "
            "start anew."
        ) from error
    if different:
        raise InputError(
            f"{folder.path} holds another sweep ({', '.join(different)}): give another "
            "--workdir, or --overwrite to start anew."
        )
    return ends


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A text for each fact that differs."""
    texts = different_options(before["settings"], now["settings"])
    old, new = before["search"], now["search"]
    texts += [
        f"`{name}` {old.get(name)!r} there, {new.get(name)!r} now"
        for name in old | new
        if old.get(name) != new.get(name)
    ]
    texts += ["another space"] * (before["space"] != now["space"])
    other_start = before.get("start") != now.get("start")
    texts += ["`init_from` or `freeze` of other files"] * other_start
    data = changed_data(before["corpus"], now["corpus"])
    return texts + ([f"another corpus ({data})"] if data else [])
