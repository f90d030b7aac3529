"""What a command does with the run in its folder: the one place that decides it.

    new       the folder has no run, or `overwrite` is given
    resume    its run is not finished
    extend    its run is finished, and the command has more epochs
    finished  its run is finished
    refused   InputError: the run has other settings or data, or is damaged

`decide` compares the inputs of the command with those in config.toml and corpus.json of
the run before the corpus is read. Some settings are open, such as `alpha`: `plan`
chooses them by the corpus and the epochs. An open setting is compared as it was given;
where that differs, the chosen values are compared after planning, by `confirmed`.
"""

import logging
from typing import Any, Literal, NamedTuple

from embedder.config import (
    Config,
    different_options,
    make_config,
    options_of,
    read_toml,
    with_options,
)
from embedder.disk.lock import LockedError
from embedder.disk.run_record import (
    COLUMNS,
    KEPT_FILES,
    RESOLVED,
    Manifest,
    RunInputs,
    changed_data,
    check_sound,
    read_inputs,
)
from embedder.disk.workdir import Workdir
from embedder.engine.hosts import processes
from embedder.errors import InputError

_STARTS = {
    "grow": "`resume` of another run",
    "sha256": "`resume` of another run",
    "init_from": "`init_from` of other vectors",
    "freeze": "`freeze` of other rows",
    "init_network": "`init_from` of another encoder",
    "attributes": "`attributes` of other items or columns",
}
"""What differs, by the fact of a base in which two runs differ."""

Kind = Literal["new", "resume", "extend", "finished"]
_log = logging.getLogger(__name__)


class RestartOptions(NamedTuple):
    """What to do where a run was started before."""

    overwrite: bool = False  # start anew
    step: int | None = None  # resume from this checkpoint; None: the newest
    force: bool = False  # resume although the corpus files have changed
    force_lock: bool = False  # although the lock names another host
    extend: bool = True  # a finished run goes on if it is given more epochs


class RunState(NamedTuple):
    """What a command does with the run in its folder."""

    kind: Kind
    before: RunInputs | None = None  # of the run that is there; on the first process
    unsure: list[str] = []  # differences, each of which may vanish by planning
    chosen: dict[str, Any] = {}  # what the run chose where it and the command are open

    @property
    def is_finished(self) -> bool:
        """Whether the run is finished, and nothing has to be planned to know it."""
        return self.kind == "finished" and not self.unsure

    def shared(self) -> "RunState":
        """The state of the first process, in all."""
        if processes.num_processes() == 1:
            return self
        facts = [self.kind, self.unsure, self.chosen]
        kind, unsure, chosen = processes.broadcast_facts(facts)
        return RunState(kind, self.before, unsure, chosen)

    def recorded_settings(self, command: Config, resolved: Config) -> Config:
        """The settings as the run was given them, for its record.

        Args:
          resolved: those of `command` after planning.
        """
        if self.before is None:
            return command
        return with_options(resolved, **self.before.open)

    def confirmed(
        self, run: Workdir, now: RunInputs, restart: RestartOptions
    ) -> "RunState":
        """The state after planning, which resolves what was unsure.

        Args:
          now: the inputs of the command, planned.

        Raises:
          InputError: the settings differ from those of the run.
          LockedError: another process has replaced the finished run meanwhile.
        """
        if self.before is None:
            return self
        if self.unsure:
            is_extended = self.kind == "extend"
            different = differences(self.before, now, with_epochs=not is_extended)
            _refuse(run, self.before, now, different, restart.force)
        if self.kind == "finished" and not (
            run.is_started and run.is_finished and read_inputs(run) == self.before
        ):
            raise LockedError(
                f"{run.path} was finished, and now another process writes there: "
                "give the same command again."
            )
        return self._replace(unsure=[])


def decide(run: Workdir, now: RunInputs, restart: RestartOptions) -> RunState:
    """What a command does with `run`; nothing is planned for it.

    Args:
      now: the inputs of the command, with `resolved` None.

    Raises:
      InputError: the run is damaged, or has other settings or data.
    """
    if restart.overwrite or not run.is_started:
        return RunState("new")
    check_sound(run)
    before, config = read_inputs(run), now.given
    has_more_epochs = config.run.epochs > before.given.run.epochs
    has_same_model = config.run.model == before.given.run.model
    kind: Kind = "finished" if run.is_finished else "resume"
    if kind == "finished" and has_more_epochs and has_same_model and restart.extend:
        kind = "extend"
        check_sound(run, [x for x in (run.metrics, run.model) if x.exists()])
    different = differences(before, now, with_epochs=kind != "extend")
    _refuse(run, before, now, different, restart.force)
    if different.data:
        _log.warning(
            "%s was started with another corpus: %s.", run.path, different.data
        )
    if kind == "extend":
        _check_begun(run, config)
    options = options_of(config)
    resolved = options_of(before.resolved or before.given)
    chosen = {
        name: resolved[name]
        for name, value in before.open.items()
        if name in RESOLVED and name in options and options[name] == value
    }
    try:
        with_options(config, **chosen)
    except InputError:
        _refuse(run, before, now, different._replace(certain=different.unsure), True)
        raise
    return RunState(kind, before, different.unsure, chosen)


class Differences(NamedTuple):
    """How the inputs of two runs differ, as texts."""

    certain: list[str]
    unsure: list[str]  # of settings that planning may resolve to the same
    data: str  # how the corpus differs; "": it is the same

    def refused(self, force: bool) -> str:
        """Those for which a run is refused, "" if it is not; `force` accepts another
        corpus."""
        settings = ", ".join(self.certain)
        other = f"other settings: {settings}" if settings else ""
        if not self.data or force:
            return other
        return f"another corpus ({self.data})" + f" and {other}" * bool(other)


def differences(
    before: RunInputs,
    now: RunInputs,
    *,
    with_epochs: bool = True,
    with_times: bool = True,
) -> Differences:
    """How `now` differs from the inputs `before` of a run.

    A setting is the same if it was given the same, or is resolved to the same. Settings
    that name columns are compared by the columns that were found in the data.

    Args:
      now: if it is not planned, its given settings count as resolved, but those of
        `RESOLVED` may still become what they were.
      with_epochs: whether the number of epochs counts.
      with_times: whether the times of files without a digest count; other machines
        have others.
    """
    old_files, new_files = before.manifest, now.manifest
    if not any("columns" in each for each in old_files if isinstance(each, dict)):
        # Runs of graphs had no columns once: their settings are compared then.
        new_files = [each for each in new_files if "columns" not in each]
    old_given, old = (_comparable(x or before.given, old_files) for x in before[:2])
    new_given, new = (_comparable(x or now.given, new_files) for x in now[:2])
    same = {
        name
        for name in {*old} & {*new}
        if old[name] == new[name] or old_given[name] == new_given[name]
    }

    def texts(names: set[str]) -> list[str]:
        return different_options(
            *({n: x for n, x in each.items() if n in names} for each in (old, new))
        )

    different = ({*old} | {*new}) - same
    if not with_epochs:
        different.discard("epochs")
    unsure = different & RESOLVED if now.resolved is None else set()
    if different - unsure:  # so it is refused; what was given is named, too
        defaults = options_of(make_config({"model": now.given.run.model}))
        unsure = {
            n for n in unsure if n not in new_given or new_given[n] == defaults[n]
        }
    return Differences(
        texts(different - unsure) + _different_starts(before.base, now.base),
        texts(unsure),
        changed_data(old_files, new_files, with_times=with_times),
    )


def _comparable(config: Config, manifest: Manifest) -> dict[str, Any]:
    """Settings by name, without files that have a digest. Those of columns are the
    columns that were found: one that is found and one that is named are the same."""
    described = [each for each in manifest if isinstance(each, dict)]
    columns: object = next((x["columns"] for x in described if "columns" in x), {})
    by_name = columns if isinstance(columns, dict) else {}
    by_name = {name: by_name[name] for name in COLUMNS & {*by_name}}
    options = options_of(config) | by_name
    return {name: value for name, value in options.items() if name not in KEPT_FILES}


def _different_starts(
    before: dict[str, Any] | None, now: dict[str, Any] | None
) -> list[str]:
    """A text for each difference of two bases, wherever these were."""
    none: dict[str, Any] = {"grow": False, "sha256": ""}
    before, now = none | (before or {}), none | (now or {})
    texts = (
        text for name, text in _STARTS.items() if before.get(name) != now.get(name)
    )
    return [f"{x} (--workdir alone resumes its own)" for x in dict.fromkeys(texts)]


def _refuse(
    run: Workdir, before: RunInputs, now: RunInputs, different: Differences, force: bool
) -> None:
    """Refuses to go on if anything is different."""
    what = different.refused(force)
    if not what:
        return
    epochs, wanted, about = before.given.run.epochs, now.given.run.epochs, ""
    if run.is_finished and wanted < epochs:
        about = f"It was trained for {epochs} epochs: give more to train on. "
    if wanted > epochs and not run.is_finished:
        about = f"First end it (--workdir {run.path} alone), then give more epochs. "
    forced = "" if different.certain else "--force if its content is the same, "
    raise InputError(
        f"{run.path} holds a run with {what}. {about}Give another --workdir, {forced}"
        "or --overwrite to start anew."
    )


def _check_begun(run: Workdir, config: Config) -> None:
    """Refuses to go on with an extension that has another number of epochs."""
    longer = Workdir(run.longer)
    if not longer.is_started:
        return
    check_sound(longer)
    begun = read_toml(longer.config).run.epochs
    if begun != config.run.epochs:
        raise InputError(
            f"{run.path} is being trained to {begun} epochs, got `epochs` = "
            f"{config.run.epochs}: first end that (--workdir {run.path} alone), or "
            f"delete {longer.path}."
        )
