"""The first stages: vocabulary, distributions and blocks, which are bit-exact."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import Literal

import jax
import numpy as np

import legacy.blocks
import legacy.noise
import legacy.vocabulary
from embedder.data import blocks, shards, vocabulary
from embedder.data.blocks import PADDING, BlockSource, StepBatches
from embedder.data.encoded import Encoded
from embedder.data.tfdata import has_tensorflow
from embedder.engine.rules import linear_rate
from embedder.tokens import loader
from migration.parity.difference import (
    Difference,
    difference,
    difference_of_tokens,
    worst,
)

_log = logging.getLogger(__name__)


def vocabulary_stage(
    encoded: Encoded, text: legacy.vocabulary.Text, min_count: int
) -> Iterator[Difference]:
    """Tokens, counts, and the ids and sequences of every shard."""
    stage = "vocabulary"
    desired = legacy.vocabulary.build_vocabulary(text, min_count)
    yield difference_of_tokens(stage, encoded.vocabulary.tokens, desired.tokens)
    yield difference(stage, "counts", encoded.vocabulary.counts, desired.counts)
    cut = legacy.blocks.cut_shards(
        *legacy.vocabulary.encode(text, desired.tokens), shards.SHARD_TOKENS
    )
    yield difference(
        stage, "tokens of shards", encoded.shard_tokens, cut.shard_tokens()
    )
    if len(encoded.shard_tokens) != cut.num_shards:
        return
    ids, lengths = [], []
    for shard in range(cut.num_shards):
        actual = encoded.read(shard)
        desired_ids, desired_lengths = cut.shard(shard)
        ids.append(difference(stage, "ids", actual[0], desired_ids))
        lengths.append(
            difference(
                stage,
                "lengths of sequences",
                actual[1],
                desired_lengths.astype(np.int32),
            )
        )
    yield worst(ids)
    yield worst(lengths)


def distributions_stage(
    counts: np.ndarray, sample: float, exponent: float
) -> Iterator[Difference]:
    """The integer tables for subsampling and for noise."""
    stage = "distributions"
    yield difference(
        stage,
        "keep limits",
        vocabulary.keep_limit(counts, sample),
        legacy.vocabulary.keep_limit(counts, sample),
    )
    actual = blocks.noise_table(counts, exponent)
    desired = legacy.noise.build_noise_table(counts, exponent)
    yield difference(stage, "noise limits", actual.limit, desired.limit)
    yield difference(stage, "noise aliases", actual.alias, desired.alias)


def loaders() -> tuple[Literal["tfdata", "memory"], ...]:
    """The loaders that can be compared here."""
    if has_tensorflow():
        return "tfdata", "memory"
    _log.warning("TensorFlow is not installed: the loader tfdata is left out.")
    return ("memory",)


def blocks_stage(
    source: BlockSource,
    kind: str,
    *,
    size: int,
    workers: int,
    alpha: float,
    min_alpha: float,
) -> Iterator[Difference]:
    """All blocks of the first and the last epoch, as loader `kind` yields them.

    Args:
      size: updates of a chunk.
    """
    found: dict[str, list[Difference]] = {name: [] for name in _FIELDS}
    for epoch in sorted({source.epochs.start, source.epochs.stop - 1}):
        chunks = loader.epoch_chunks(kind, source, epoch, size=size, workers=workers)
        actual = (
            (
                *(getattr(updates.blocks, name) for name in _BLOCKS),
                linear_rate(updates.progress, alpha=alpha, min_alpha=min_alpha),
            )
            for updates in _by_shard(chunks)
        )
        desired = _oracle_epoch(source, epoch, alpha, min_alpha)
        for pair in itertools.zip_longest(actual, desired, fillvalue=_NOTHING):
            for name, values, expected in zip(_FIELDS, *pair, strict=True):
                found[name].append(
                    difference("blocks", f"{name}, {kind}", values, expected)
                )
    nothing = difference(
        "blocks", f"none at all, {kind}", 0, 0
    )  # subsampling dropped all tokens
    for lines in found.values():
        yield worst(lines or [nothing])


_BLOCKS = legacy.blocks.Blocks._fields
_FIELDS = (*_BLOCKS, "rate")
"""The blocks of a shard in one epoch, and the learning rate f64[S] of each update."""

_NOTHING = tuple(np.empty(0) for _ in _FIELDS)


def _by_shard(chunks: Iterable[tuple[StepBatches, int]]) -> Iterator[StepBatches]:
    """The updates of each shard that has any, in the order of the epoch."""
    parts: list[StepBatches] = []
    for updates, num_updates in chunks:
        shards_visited = updates.position[:num_updates, 1]
        cuts = [0, *(np.flatnonzero(np.diff(shards_visited)) + 1), num_updates]
        for start, stop in itertools.pairwise(cuts):
            part = loader.cut(updates, start, stop)
            if parts and parts[0].position[0, 1] != part.position[0, 1]:
                yield _joined(parts)
                parts = []
            parts.append(part)
    if parts:
        yield _joined(parts)


def _joined(parts: list[StepBatches]) -> StepBatches:
    return jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


def _oracle_epoch(
    source: BlockSource, epoch: int, alpha: float, min_alpha: float
) -> Iterator[tuple[np.ndarray, ...]]:
    """The oracle's updates of each shard that has any, padded with empty blocks."""
    encoded, shape = source.encoded, source.shape
    num_shards = len(encoded.shard_tokens)
    before = 0
    for shard in legacy.blocks.epoch_order(num_shards, seed=source.seed, epoch=epoch):
        ids, lengths = encoded.read(shard)
        blocks = legacy.blocks.shard_blocks(
            ids,
            lengths.astype(np.int64),
            seed=source.seed,
            epoch=epoch,
            shard=shard,
            keep_limit=source.keep_limit,
            noise_table=legacy.noise.NoiseTable(*source.noise),
            window=shape.window,
            block=shape.block,
            tile=shape.tile,
            noise=shape.noise,
        )
        rates = legacy.blocks.learning_rates(
            len(blocks.ids),
            alpha=alpha,
            min_alpha=min_alpha,
            epoch=epoch - source.epochs.start,
            epochs=len(source.epochs),
            tokens_before=before,
            shard_tokens=len(ids),
            corpus_tokens=encoded.num_tokens,
        )
        before += len(ids)
        if len(blocks.ids):
            per_update = shape.blocks_per_update
            yield (*_grouped(blocks, per_update), rates[::per_update])


def _grouped(blocks: legacy.blocks.Blocks, per_update: int) -> Iterator[np.ndarray]:
    """[M, ...] -> [S, N, ...], padded: N blocks of an update."""
    missing = -len(blocks.ids) % per_update
    fills = (getattr(PADDING.blocks, name) for name in _BLOCKS)
    for values, fill in zip(blocks, fills, strict=True):
        pad = [(0, missing)] + [(0, 0)] * (values.ndim - 1)
        whole = np.pad(values, pad, constant_values=fill)
        yield whole.reshape(-1, per_update, *values.shape[1:])
