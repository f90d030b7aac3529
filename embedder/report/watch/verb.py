"""The verb `watch`: shows a run while it trains, and never writes to it."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from embedder.base.terminal import say
from embedder.errors import InputError, InputNotFoundError
from embedder.report.watch.frame import Space, frame
from embedder.report.watch.probes import Probes
from embedder.report.watch.run_status import State, read_state
from embedder.run.stopping import Stop

_LONGEST = 86_400  # seconds between two looks


def watch(
    path: Path,
    words: Sequence[str],
    every: float,
    *,
    once: bool,
    names: str | None = None,
) -> None:
    """Shows the run at `path` every `every` seconds, until it is finished.

    It prints one frame where standard output is no terminal, or with `once`.

    Args:
      names: table of names of keys; None: the names of the run.

    Raises:
      InputNotFoundError: one frame is asked for, and `path` does not exist.
      InputError: `path` is no run and not new, a word is not in the vocabulary, or
        the table cannot be read.
      KeyboardInterrupt: a signal ended it.
    """
    if not 0 < every <= _LONGEST:
        raise InputError(f"`every` must be > 0 and <= {_LONGEST} seconds, got {every}.")
    if len({*words}) < len(words):
        raise InputError(f"`probe` must have each word once, got {' '.join(words)}.")
    probes, console = Probes(words), Console()
    named = _named(path, names)
    is_once = once or not console.is_terminal
    if is_once and not path.exists():
        raise InputNotFoundError(f"RUN {path} does not exist.")
    if is_once:
        _print(console, path, probes, named)
        return
    # A signal ends it at once, and Live shows the cursor again.
    with Stop().listening(), Live(console=console, auto_refresh=False) as live:
        while True:
            state = read_state(path)
            named = named or _named(path, None)  # a new run may have some by now
            live.update(_frame(console, path, state, probes, named), refresh=True)
            if state.phase == "finished":
                return
            time.sleep(every)


def _named(path: Path, names: str | None) -> Mapping[str, str]:
    """Names of keys, of the table `names` or, if None, of the run."""
    from embedder.data.kept_names import kept_names
    from embedder.data.names import read_names

    table = kept_names(path) if names is None else read_names(names)
    return {} if table is None else table.of_key


def _print(
    console: Console, path: Path, probes: Probes, named: Mapping[str, str]
) -> None:
    shown = _frame(console, path, read_state(path), probes, named, is_whole=True)
    if console.is_terminal:
        console.print(shown)
        return
    with console.capture() as text:
        console.print(shown)
    say("\n".join(line.rstrip() for line in text.get().rstrip("\n").split("\n")))


def _frame(
    console: Console,
    path: Path,
    state: State,
    probes: Probes,
    named: Mapping[str, str],
    *,
    is_whole: bool = False,
) -> RenderableType:
    neighbors, notes = None, []
    if state.config is not None:
        if state.config.run.model == "encoder":
            notes.append("Neighbours are not shown: they are of runs of tokens.")
        else:
            neighbors = probes.read(state.run, is_finished=state.phase == "finished")
            notes += [probes.fault] if probes.fault else []
        if neighbors is None and not notes and state.phase == "training":
            notes.append("Neighbours come with the first checkpoint (--save-every).")
        if state.metrics.num_damaged > 1:  # the last one may be half written
            num = state.metrics.num_damaged
            notes.append(f"{num} damaged lines of metrics.jsonl are left out.")
        is_within = neighbors is not None and neighbors.updates is not None
        if is_within and state.config.run.replicas > 1:
            notes.append("Neighbours are those of the first replica.")
    width, height = console.size
    dots = console.encoding.lower().startswith("utf")
    at = Space(max(20, width), None if is_whole else height - 1, dots)
    return frame(str(path), state, neighbors, notes, at, named)
