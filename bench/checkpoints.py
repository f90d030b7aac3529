"""What checkpoints cost: a training of which every other stretch has a save.

Stretches of as many updates follow each other: one that begins with a save, one
without, and so on. What a save costs is the time of its stretch beyond the mean of the
two beside it, which have none: the time in which the training waits for the call, and
that by which it is slower while a thread writes.
"""

import bisect
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.cpu import cell
from bench.results import Table, data_folder, write_results
from bench.systems import machine
from embedder.checks import Interval, read_interval
from embedder.config import Config, SaveConfig, resolve, with_options
from embedder.data.encoded import Encoded
from embedder.data.examples import open_examples
from embedder.data.vocabulary import Vocabulary
from embedder.encoder_training import EncoderTraining
from embedder.epochs import Place, Status, Trainable, run_epochs
from embedder.saving import Saver
from embedder.stopping import Stop
from embedder.tables_run import open_corpus, plan
from embedder.train.checkpoint import Checkpoints, arrays_of
from embedder.training import Training

_EPOCHS = 10_000  # more than are ever run
_ROWS = 1_000_000  # of the large tables
STRETCHES = {"wiki": 50 * 1024, "large": 350 * 1024, "encoder": 7500}
"""Updates of a stretch, in which a checkpoint becomes whole; by what is trained."""
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

    updates: int
    blocked: float  # seconds in which the training waited for the call
    whole: float  # seconds from the call until the checkpoint was whole


class _Enough(Exception):
    """All saves are measured."""


def run(names: list[str], saves: int) -> Table:
    """Measures so many saves of each training, but for the first: it imports Orbax."""
    samples = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            training = make_training(name, Path(folder))
            path = Path(folder, "checkpoints")
            samples[name] = measure(training, STRETCHES[name], saves, path)
    settings = {"saves": saves, "stretch": {n: STRETCHES[n] for n in names}}
    write_results("checkpoints", machine=machine(), settings=settings, samples=samples)
    return _table(samples)


def make_training(name: str, folder: Path) -> Trainable:
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


def measure(training: Trainable, stretch: int, saves: int, path: Path) -> dict:
    """Seconds of each save after the first, and the bytes of what is saved."""
    recorder = _Recorder(stretch, saves, path)
    state = training.initial_state()
    try:
        run_epochs(training, state, recorder)
    except _Enough:
        recorder.saver.finish()
    starts = [each.updates for each in recorder.saved]
    return {
        "bytes": sum(array.nbytes for array in arrays_of(state).values()),
        "first": recorder.saved[0]._asdict(),
        "saves": [each._asdict() for each in recorder.saved[1:]],
        "lost": lost(recorder.marks, starts, stretch)[1:],
        "stretch_seconds": statistics.median(
            stretch * without for _, without in _speeds(recorder.marks, starts, stretch)
        ),
    }


class _Recorder:
    """Saves as a run does, every two stretches, and writes down when."""

    def __init__(self, stretch: int, saves: int, path: Path):
        self._end = 2 * stretch * (saves + 2)
        self._checkpoints = Checkpoints(path)
        every = Interval(updates=2 * stretch)
        self.saver = Saver(self._checkpoints, every, Stop(), start=Place(0), facts={})
        self.marks: list[Mark] = []
        self.saved: list[Saved] = []
        self._pending: Mark | None = None  # when the checkpoint was begun

    def __call__(self, status: Status) -> None:
        mark = Mark(status.updates, time.perf_counter())
        self.marks.append(mark)
        if self._pending and self._checkpoints.is_written():
            last = self.saved.pop()
            whole = mark.seconds - self._pending.seconds
            self.saved.append(last._replace(whole=whole))
            self._pending = None
        if status.updates >= self._end:
            raise _Enough
        self.saver(status)
        if not (self._pending or self._checkpoints.is_written()):
            blocked = time.perf_counter() - mark.seconds
            self.saved.append(Saved(status.updates, blocked, whole=0))
            self._pending = mark


def lost(marks: list[Mark], starts: list[int], stretch: int) -> list[float]:
    """Seconds that each save costs, but for the first, which has no stretch before it.

    The stretch after each start has a save, the one after that has none.
    """
    speeds = _speeds(marks, starts, stretch)
    return [
        stretch * (save - (before + after) / 2)
        for (_, before), (save, after) in itertools.pairwise(speeds)
    ]


def _speeds(marks: list[Mark], starts: list[int], stretch: int):
    """Seconds of an update with a save, and without, for each start."""
    updates = [mark.updates for mark in marks]

    def seconds_of_update(start: int) -> float:
        first, last = (
            marks[bisect.bisect_left(updates, place)]
            for place in (start, start + stretch)
        )
        return (last.seconds - first.seconds) / (last.updates - first.updates)

    return [
        (seconds_of_update(start), seconds_of_update(start + stretch))
        for start in starts
    ]


def _table(samples: dict[str, dict[str, Any]]) -> Table:
    default = read_interval(SaveConfig().save_every).seconds
    rows = []
    for name, found in samples.items():
        times = [
            [each[part] for each in found["saves"]] for part in ("blocked", "whole")
        ]
        shares = [100 * seconds / default for seconds in found["lost"]]
        cells = map(cell, [*times, found["lost"], shares])
        rows.append([TITLES[name], f"{found['bytes'] / 2**20:.0f}", *cells])
    columns = ["training", "MiB saved", "s waited for the call", "s until whole"]
    return Table([*columns, "s lost", f"% at one in {default:.0f} s"], rows)
