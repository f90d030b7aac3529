"""What a run would do, without doing it."""

import tempfile
from pathlib import Path

from embedder.config import Config, to_toml
from embedder.run import open_corpus, plan
from embedder.training import Training


def preview(config: Config, source: str | None, *, cache: Path | None = None) -> str:
    """What `train` would do, as text; nothing is written but to `cache`, if given.

    Raises:
      OSError, ValueError: bad input.
    """
    with tempfile.TemporaryDirectory() as temporary:
        training = plan(config, open_corpus(source), cache or Path(temporary))
    return "\n".join(
        [
            to_toml(training.config),
            _vocabulary_line(training),
            _updates_line(training),
            _schedule_line(training),
            _memory_line(training),
        ]
    )


def _vocabulary_line(training: Training) -> str:
    encoded = training.encoded
    return (
        f"vocabulary: {len(encoded.vocabulary)} tokens, {encoded.num_tokens} of "
        f"{encoded.raw_tokens} occurrences"
    )


def _updates_line(training: Training) -> str:
    data, kept = training.config.data, training.kept_tokens
    tokens = data.block * data.blocks_per_update
    updates = -int(-kept // tokens)
    return (
        f"updates: {updates} an epoch on average, "
        f"{updates * len(training.epochs)} in all, of {tokens} tokens each, compiled "
        f"by {training.backend}; "
        f"sample keeps {kept / training.encoded.num_tokens:.1%}"
    )


def _schedule_line(training: Training) -> str:
    rates = ", ".join(f"{training.rate(p):.4g}" for p in (0, 0.25, 0.5, 0.75, 1))
    return f"learning rate at 0, 25, 50, 75, 100 %: {rates}"


def _memory_line(training: Training) -> str:
    parts = [f"{k} {v / 2**20:.0f} MiB" for k, v in training.memory.items()]
    total = sum(training.memory.values()) / 2**20
    return f"memory: {total:.0f} MiB: {', '.join(parts)}"
