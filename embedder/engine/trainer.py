"""The protocol of a training, which each family implements."""

from collections.abc import Iterator
from typing import Protocol

from embedder.config import Config
from embedder.engine.compiled_step import CompiledStep, PlacedState
from embedder.engine.loop import CallResult
from embedder.engine.mesh_layout import MeshLayout
from embedder.engine.state import TrainState
from embedder.metrics.score_table import Metrics


class Trainer(Protocol):
    """Resolved settings over data, and their compiled updates; the state of a training
    is not part of it."""

    config: Config  # resolved
    layout: MeshLayout
    updates_per_call: int  # updates per call
    memory_advice: str  # what to change where memory is short
    epochs: range
    metrics: tuple[str, ...]  # names: the loss, others of `summary`, and `scores`
    scores: tuple[str, ...]  # names of what `evaluate` returns; (): nothing to measure
    divergence_message: str  # for a loss that is not finite: the cause, and what to do
    zero_loss_message: str  # for a loss of 0: why nothing is learned
    rate_name: str  # the learning rate's name in logs
    backend: str  # the compiler of the updates: xla or numba
    may_diverge: bool  # whether it goes on where a model is not finite
    base_flag: str  # of the command line, for the run to start from

    @property
    def program(self) -> CompiledStep:
        """The compiled updates."""

    @property
    def item_key(self) -> str:
        """The items it trains on, as files name them, in the plural."""

    @property
    def item_name(self) -> str:
        """The same, as messages name them."""

    @property
    def items(self) -> int:
        """Items of an epoch."""

    @property
    def devices_line(self) -> str:
        """Which devices take part and why, as one line."""

    def calls(
        self, state: PlacedState, epoch: int, after: tuple[int, ...]
    ) -> Iterator[CallResult]:
        """The calls of `epoch` after the update at position `after`; (): all of it."""

    def rate(self, progress: float) -> float:
        """Learning rate at `progress` in [0, 1]."""

    def summary(self, sums: tuple[float, ...]) -> Metrics:
        """The metrics of an epoch that its sums tell."""

    def evaluate(self, state: PlacedState) -> Metrics:
        """The scores of a state, which it does not change."""

    def score(self, scores: Metrics) -> float | None:
        """The score of an evaluation: the best has the highest; None: not measured."""

    def score_text(self, score: float) -> str:
        """A score with its name, for messages."""

    @property
    def content(self) -> str:
        """Digest of the tokens, or of the labels."""

    @property
    def usual_loss(self) -> float:
        """What `start_loss` is at least, known without measuring."""

    @property
    def start_loss(self) -> float:
        """Loss of the initial parameters."""

    @property
    def baselines(self) -> dict[str, float]:
        """What the scores of an evaluation are beside, by "SCORE by MODEL"."""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes needed on the host, by purpose."""

    @property
    def device_memory(self) -> dict[str, int]:
        """Bytes needed on each device, by purpose."""

    @property
    def description(self) -> list[str]:
        """Lines about the data and the updates."""

    @property
    def start_lines(self) -> tuple[str, ...]:
        """Those of them about what it starts from."""

    @property
    def corpus_facts(self) -> dict[str, float]:
        """Numbers about the data for the report, of `run_record.CORPUS_FACTS`."""

    def initial_state(self) -> TrainState:
        """The state before the first update."""
