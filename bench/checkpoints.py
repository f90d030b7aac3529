"""Cost of checkpoints: a training in which every second interval has a save.

The training is divided into intervals of some seconds. Every second interval starts
with a save. The cost of a save is the extra time of its interval, against the mean
speed of the intervals before and after it: the training is blocked by the call, and
slower while a thread writes. The cost cannot exceed the time until the checkpoint is
complete.
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
from embedder.config import Config, resolve, with_options
from embedder.config.run_options import SaveOptions
from embedder.config.settings import Interval
from embedder.data.encoded import Encoded
from embedder.data.examples.example_formats import open_examples
from embedder.data.vocabulary import Vocabulary
from embedder.encoders import plan as encoder_plan
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.checkpoints import Checkpoints, arrays_of
from embedder.engine.epochs import Progress, Status, run_epochs
from embedder.run.saving import Saver
from embedder.run.stopping import Stop
from embedder.tokens.plan import TrainingInputs, TrainingPlan, plan
from embedder.tokens.task import open_corpus
from embedder.tokens.trainer import TokensTrainer

_EPOCHS = 10_000  # more than are ever run
_ROWS = 1_000_000  # of the large tables
SECONDS = {"wiki": 4.0, "large": 20.0, "encoder": 4.0}
"""Training -> seconds of an interval, long enough to complete a checkpoint."""
TITLES = {
    "wiki": "tables, V = 68 k",
    "large": "tables, V = 1 M",
    "encoder": "encoder on MNIST",
}


class Mark(NamedTuple):
    """Time at which an update was done."""

    updates: int
    seconds: float  # before the call that may save


class Saved(NamedTuple):
    """Times of one save."""

    start: float  # seconds, on the clock of marks
    blocked: float  # seconds that the call took
    whole: float  # seconds from the call until the checkpoint was complete


class _Enough(Exception):
    """Ends the training: all saves are measured."""


def run(
    names: tuple[str, ...] = tuple(TITLES), saves: int = 6, seconds: float | None = None
) -> Table:
    """Cost of checkpoints during a training.

    Args:
      names: what to train; default: all.
      saves: number of measured saves of each.
      seconds: of an interval; default: 4, or 20 for the large tables.
    """
    samples = {}
    intervals = {name: seconds or SECONDS[name] for name in names}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            training = make_training(name, Path(folder))
            path = Path(folder, "checkpoints")
            samples[name] = measure(training, intervals[name], saves, path)
    settings = {"saves": saves, "seconds": intervals}
    return table(write_results("checkpoints", settings=settings, samples=samples))


def make_training(name: str, folder: Path) -> EncoderTrainer | TokensTrainer:
    """The training named `name`; tables have 100 dimensions."""
    config = with_options(Config(), epochs=_EPOCHS, backend="numba")
    match name:
        case "wiki":
            corpus = open_corpus(str(data_folder() / "wiki" / "wiki17m-0.txt.gz"))
            cache = folder / "cache"
            inputs = TrainingInputs(config=config, source=corpus, cache=cache)
            return TokensTrainer(plan(inputs))
        case "large":
            encoded = drawn_corpus(_ROWS, 10_000_000)
            config = resolve(config, encoded.num_tokens)
            return TokensTrainer(TrainingPlan(config, encoded, range(_EPOCHS)))
        case "encoder":
            options = {"backend": "auto", "layers": (784, 512, 10), "optimizer": "sgd"}
            config = with_options(config, model="encoder", **options)
            examples = open_examples(str(data_folder() / "mnist"), config.encoder)
            given = encoder_plan.TrainingInputs(config, examples.read(None))
            return EncoderTrainer(encoder_plan.plan(given))
    raise ValueError(f"`name` must be one of {', '.join(TITLES)}, got {name!r}.")


def drawn_corpus(num_rows: int, num_tokens: int) -> Encoded:
    """Ids with probability proportional to rank ** -0.8, in sequences of 100."""
    rng = np.random.default_rng(0)
    weight = np.arange(1, num_rows + 1) ** -0.8
    ids = rng.choice(num_rows, num_tokens, p=weight / weight.sum()).astype(np.int32)
    counts = np.maximum(num_tokens * weight / weight.sum(), 1).astype(np.int64)
    vocabulary = Vocabulary([f"w{row}" for row in range(num_rows)], counts)
    shards = np.split(ids, max(1, num_tokens // 2_000_000))
    lengths = np.full(len(shards[0]) // 100, 100, np.int32)
    tokens = np.array([len(shard) for shard in shards])
    return Encoded(
        vocabulary,
        tokens,
        np.full(len(shards), len(lengths)),
        lambda shard: (shards[shard], lengths),
        num_tokens,
    )


def measure(
    training: EncoderTrainer | TokensTrainer, seconds: float, saves: int, path: Path
) -> dict:
    """Times of the first save and of the others, their cost, and bytes of the state."""
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
    """Saves as a run does, every two intervals, and records the times."""

    def __init__(self, seconds: float, saves: int, path: Path):
        self._checkpoints = Checkpoints(path)
        every = Interval(seconds=2 * seconds)
        self.saver = Saver(
            self._checkpoints, every, Stop(), start=Progress(0), facts={}
        )
        self.marks: list[Mark] = []
        self.saved: list[Saved] = []
        self._num = saves + 1  # one to import Orbax
        self._pending: float | None = None  # when the last save started

    def __call__(self, status: Status) -> None:
        now = time.perf_counter()
        self.marks.append(Mark(status.updates, now))
        if self._pending and self._checkpoints.is_written():
            last = self.saved.pop()
            self.saved.append(last._replace(whole=now - self._pending))
            self._pending = None
        self.saver(status)
        if self._pending is None and not self._checkpoints.is_written():
            if len(self.saved) == self._num:  # this one ends the last interval
                raise _Enough
            blocked = time.perf_counter() - now
            self.saved.append(Saved(now, blocked, whole=0))
            self._pending = now


def lost(marks: list[Mark], starts: list[float], seconds: float) -> list[float]:
    """Cost in seconds of each save but the first, which has no interval before it.

    Args:
      starts: of the intervals of `seconds` with a save; the next one has none.
    """
    times = [mark.seconds for mark in marks]

    def interval(start: float) -> tuple[float, float]:
        """Its length in seconds, from mark to mark, and its updates per second."""
        index = min(bisect.bisect_left(times, start), len(marks) - 2)
        end = bisect.bisect_left(times, start + seconds)
        first, last = marks[index], marks[min(max(end, index + 1), len(marks) - 1)]
        length = last.seconds - first.seconds
        return length, (last.updates - first.updates) / length

    found = []
    for before, start in itertools.pairwise(starts):
        length, speed = interval(start)
        without = interval(before + seconds)[1], interval(start + seconds)[1]
        found.append(length * (1 - speed / statistics.mean(without)))
    return found


def table(results: Results) -> Table:
    """A row for each training; % are of the default interval between checkpoints."""
    default = SaveOptions().interval.seconds
    rows = []
    for name, found in results["samples"].items():
        saves = found["saves"]
        times = [[each[part] for each in saves] for part in ("blocked", "whole")]
        shares = [100 * seconds / default for seconds in found["lost"]]
        most = 100 * max(times[1]) / default
        cells = [*map(spread, [*times, found["lost"], shares]), f"{most:.2f}"]
        rows.append([TITLES[name], f"{found['bytes'] / 2**20:.0f}", *cells])
    columns = ["training", "MiB saved", "s blocked", "s until complete"]
    columns += ["s lost", f"% of {default:.0f} s", "% at most"]
    return Table(columns, rows)


BENCHES = {"checkpoints": run}
TABLES = {"checkpoints": table}
