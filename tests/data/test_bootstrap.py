"""Bootstrap: multiplicities by their moments, weighted updates by loops over pairs."""

import functools
import itertools
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from embedder.data.blocks import Blocks
from embedder.data.bootstrap import draws_of_shards, expected_share, multiplicities
from embedder.tokens.prepare import Batch
from embedder.tokens.train_step import host_state
from migration.parity.updates import Sample
from tests.loops import Loops
from tests.pairs import pairwise
from tests.parity.cases import NEGATIVE, UPDATES, Case

CAP = 5.0
CASES = [
    Case("several_updates", 9, (3, 2, 16), tile=4, noise=6, padding=5),
    Case("one_word", 1, (1, 1, 16), tile=4, noise=3),
    Case("repeated_centre", 3, (2, 2, 16), tile=16, noise=5),
    Case("sequences_of_two", 9, (1, 2, 16), tile=2, noise=6, sequence_length=2),
]


def resample(sizes: list[int], seed: int) -> np.ndarray:
    """The multiplicities of the sequences of all shards."""
    draws = draws_of_shards(np.array(sizes), seed)
    parts = [
        multiplicities(shard, size, int(draws[shard]), seed)
        for shard, size in enumerate(sizes)
    ]
    return np.concatenate(parts)


@pytest.mark.slow
def test_multiplicities_have_the_moments_of_a_multinomial():
    """Mean 1, variance 1 - 1 / n, covariance -1 / n, in a shard and between shards."""
    sizes, num = [3, 1, 4], 20_000
    found = np.array([resample(sizes, seed) for seed in range(num)], float)
    n = sum(sizes)
    assert (found.sum(axis=1) == n).all()
    covariance = np.cov(found.T, bias=True)
    expected = np.eye(n) - 1 / n
    # standard errors: 1 / sqrt(num) of a mean, about 1.4 times that of a variance
    np.testing.assert_allclose(found.mean(axis=0), 1, atol=5 * num**-0.5)
    np.testing.assert_allclose(covariance, expected, atol=6 * num**-0.5)
    present = (found > 0).mean(axis=0)
    np.testing.assert_allclose(present, expected_share(n), atol=3 * num**-0.5)
    assert resample([1], 5).tolist() == [expected_share(1)] == [1]


def weighted(sample: Sample, kind: str) -> Batch:
    """With a weight for each sequence of a block: a multiplicity from 1 to 3, or a real
    one, as the product with a weight of a session is; 0 in padding."""
    batch = sample.batch
    sequence, rng = batch.blocks.sequence, np.random.default_rng(3)
    drawn = rng.integers(1, 4, sequence.shape, np.uint8)
    if kind == "real":
        drawn = rng.uniform(0.1, 5, sequence.shape).astype(np.float32)
    weight = np.take_along_axis(drawn, np.maximum(sequence, 0), axis=2)
    weight = np.where(sequence >= 0, weight, 0).astype(drawn.dtype)
    return batch._replace(blocks=batch.blocks._replace(weight=weight))


def tokens_of(blocks: Blocks) -> Iterator[tuple]:
    """Each token of an update: its id, its contexts, the noise of its tile, its weight.

    Those without a context have no terms.
    """
    for n, t in itertools.product(*map(range, blocks.ids.shape)):
        ids, sequence, radius, noise, weight = (
            getattr(blocks, name)[n]
            for name in ("ids", "sequence", "radius", "noise", "weight")
        )
        is_near = np.abs(np.arange(len(ids)) - t) <= radius[t]
        is_near[t] = False
        contexts = ids[is_near & (sequence == sequence[t])]
        if len(contexts):
            of_tile = noise[t // (len(ids) // len(noise))]
            yield ids[t], contexts, of_tile, float(weight[t])


@pytest.mark.spread(1)
@pairwise(
    case=CASES,
    kind=["multiplicities", "real"],
    architecture=["skipgram", "cbow"],
    optimizer=["sgd", "adagrad"],
    backend=[*UPDATES],
)
def test_weighted_updates_are_those_of_loops(
    case, kind, architecture, optimizer, backend
):
    sample = case.sample(architecture, update=backend, optimizer=optimizer, cap=CAP)
    batch, program = weighted(sample, kind), sample.program
    model = Loops((sample.input, sample.output), architecture, optimizer, CAP, NEGATIVE)
    losses = []
    for s, rate in enumerate(batch.rate):
        model.loss = model.terms = 0.0
        model.update(tokens_of(Blocks(*(x[s] for x in batch.blocks))), rate)
        losses.append((model.loss, model.terms))
    expected = dict(zip(("input", "output"), model.tables, strict=True))
    if optimizer == "adagrad":
        names = "input_accumulator", "output_accumulator"
        expected |= zip(names, model.sums, strict=True)
    with jax.enable_x64(True):
        state = host_state(program.optimizer, sample.input, sample.output)
        state, loss = program.apply_updates(
            program.place_state(state), program.place_batch(batch)
        )
        state = program.whole_state(state)
    found = state.params["tables"] | program.optimizer.row_state(state.opt_state)
    assert_close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert_close(found[name], array)
    assert_close(np.transpose([loss.total, loss.num_terms]), losses)
