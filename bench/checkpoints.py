"""What checkpoints cost: a training of which every other stretch has a save.

Stretches of some seconds follow each other: one that begins with a save, one without,
and so on. What a save costs is the time that its stretch would have taken less at the
mean speed of the two beside it, which have none: the time in which the training waits
for the call, and that by which it is slower while a thread writes. It cannot be more
than the time until the checkpoint is whole.
"""

import bisect
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.results import Results, Table, data_folder, spread, write_results
from embedder.config import Config, SaveOptions, resolve, with_options
from embedder.encoders.formats import open_examples
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import RunPosition, Status, run_epochs
from embedder.run.checkpoints import Checkpoints, arrays_of
from embedder.run.saving import Saver
from embedder.run.stopping import Stop
from embedder.settings import Interval
from embedder.tables.encoded import Encoded
from embedder.tables.problem import open_corpus, plan
from embedder.tables.training import Training
from embedder.tables.vocabulary import Vocabulary

_EPOCHS = 10_000  # more than are ever run
_ROWS = 1_000_000  # of the large tables
SECONDS = {"wiki": 4.0, "large": 20.0, "encoder": 4.0}
"""Of a stretch, in which a checkpoint becomes whole; by what is trained."""
TITLES = {
    "wiki": "tables, V = 68 k",
    "large": "tables, V = 1 M",
    "encoder": "encoder on MNIST",
}


class Mark(NamedTuple):
    """When an update was done."""

    updates: int
    seconds: float  # before the call that may save


class Saved(NamedTuple):
    """One save."""

    start: float  # seconds, of the clock of marks
    blocked: float  # seconds in which the training waited for the call
    whole: float  # seconds from the call until the checkpoint was whole


class _Enough(Exception):
    """All saves are measured."""


def run(names: list[str], saves: int, seconds: float | None = None) -> Table:
    """Measures so many saves of each training, but for the first: it imports Orbax.

    Stretches have so many `seconds`, or those of SECONDS.
    """
    samples = {}
    stretches = {name: seconds or SECONDS[name] for name in names}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            training = make_training(name, Path(folder))
            path = Path(folder, "checkpoints")
            samples[name] = measure(training, stretches[name], saves, path)
    settings = {"saves": saves, "seconds": stretches}
    return table(write_results("checkpoints", settings=settings, samples=samples))


def make_training(name: str, folder: Path) -> EncoderTraining | Training:
    """The training of that name, 100 dimensions where it has tables."""
    config = with_options(Config(), epochs=_EPOCHS, backend="numba")
    match name:
        case "wiki":
            corpus = open_corpus(str(data_folder() / "wiki" / "wiki17m-0.txt.gz"))
            return plan(config, corpus, folder / "cache")
        case "large":
            encoded = drawn_corpus(_ROWS, 10_000_000)
            config = resolve(config, encoded.num_tokens)
            return Training(config, encoded, range(_EPOCHS))
        case "encoder":
            config = with_options(
                config, model="encoder", backend="auto", layers=(784, 512, 10)
            )
            examples = open_examples(str(data_folder() / "mnist"), config.encoder)
            return EncoderTraining(config, examples.read(None), range(_EPOCHS))
    raise ValueError(f"`name` must be one of {', '.join(TITLES)}, got {name!r}.")


def drawn_corpus(num_rows: int, num_tokens: int) -> Encoded:
    """Ids drawn by their rank to the power -0.8, in sequences of 100, as one shard."""
    rng = np.random.default_rng(0)
    weight = np.arange(1, num_rows + 1) ** -0.8
    ids = rng.choice(num_rows, num_tokens, p=weight / weight.sum()).astype(np.int32)
    counts = np.maximum(num_tokens * weight / weight.sum(), 1).astype(np.int64)
    vocabulary = Vocabulary([f"w{row}" for row in range(num_rows)], counts)
    shards = np.split(ids, max(1, num_tokens // 2_000_000))
    lengths = np.full(len(shards[0]) // 100, 100, np.int32)
    tokens = np.array([len(shard) for shard in shards])
    return Encoded(
        vocabulary, tokens, lambda shard: (shards[shard], lengths), num_tokens
    )


def measure(
    training: EncoderTraining | Training, seconds: float, saves: int, path: Path
) -> dict:
    """What each save took after the first, and the bytes of what is saved."""
    recorder = _Recorder(seconds, saves, path)
    state = training.initial_state()
    try:
        run_epochs(training, state, recorder)
    except _Enough:
        recorder.saver.finish()
    return {
        "bytes": sum(array.nbytes for array in arrays_of(state).values()),
        "first": recorder.saved[0]._asdict(),
        "saves": [each._asdict() for each in recorder.saved[1:]],
        "lost": lost(recorder.marks, [each.start for each in recorder.saved], seconds),
    }


class _Recorder:
    """Saves as a run does, every two stretches, and writes down when."""

    def __init__(self, seconds: float, saves: int, path: Path):
        self._checkpoints = Checkpoints(path)
        every = Interval(seconds=2 * seconds)
        self.saver = Saver(
            self._checkpoints, every, Stop(), start=RunPosition(0), facts={}
        )
        self.marks: list[Mark] = []
        self.saved: list[Saved] = []
        self._num = saves + 1  # the first is not counted
        self._pending: float | None = None  # when the checkpoint was begun

    def __call__(self, status: Status) -> None:
        now = time.perf_counter()
        self.marks.append(Mark(status.updates, now))
        if self._pending and self._checkpoints.is_written():
            last = self.saved.pop()
            self.saved.append(last._replace(whole=now - self._pending))
            self._pending = None
        self.saver(status)
        if self._pending is None and not self._checkpoints.is_written():
            if len(self.saved) == self._num:  # this one ends the last stretch
                raise _Enough
            blocked = time.perf_counter() - now
            self.saved.append(Saved(now, blocked, whole=0))
            self._pending = now


def lost(marks: list[Mark], starts: list[float], seconds: float) -> list[float]:
    """Seconds that each save costs, but for the first, which has none before it.

    The stretch of so many seconds from each start on has a save, the next has none.
    """
    times = [mark.seconds for mark in marks]

    def stretch(start: float) -> tuple[float, float]:
        """Its length from mark to mark, at least one interval, and updates a second."""
        index = min(bisect.bisect_left(times, start), len(marks) - 2)
        end = bisect.bisect_left(times, start + seconds)
        first, last = marks[index], marks[min(max(end, index + 1), len(marks) - 1)]
        length = last.seconds - first.seconds
        return length, (last.updates - first.updates) / length

    found = []
    for before, start in itertools.pairwise(starts):
        length, speed = stretch(start)
        without = stretch(before + seconds)[1], stretch(start + seconds)[1]
        found.append(length * (1 - speed / statistics.mean(without)))
    return found


def table(results: Results) -> Table:
    """A row for each training; shares are of the default interval between saves."""
    default = SaveOptions().interval.seconds
    rows = []
    for name, found in results["samples"].items():
        saves = found["saves"]
        times = [[each[part] for each in saves] for part in ("blocked", "whole")]
        shares = [100 * seconds / default for seconds in found["lost"]]
        most = 100 * max(times[1]) / default
        cells = [*map(spread, [*times, found["lost"], shares]), f"{most:.2f}"]
        rows.append([TITLES[name], f"{found['bytes'] / 2**20:.0f}", *cells])
    columns = ["training", "MiB saved", "s waited for the call", "s until whole"]
    columns += ["s lost", f"% at one in {default:.0f} s", "% at most"]
    return Table(columns, rows)
