"""Bootstrap: multiplicities by their moments, weighted updates by loops over pairs."""

import functools
import itertools

import jax
import numpy as np
import pytest

from embedder.data.blocks import Blocks, BlockShape, BlockSource, Sampling, block_source
from embedder.data.bootstrap import draws_of_shards, expected_share, multiplicities
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.data.encoded import Encoded
from embedder.tokens.prepare import Batch
from embedder.tokens.train_step import host_state
from migration.parity.updates import Sample
from tests.pairs import pairwise
from tests.parity.cases import NEGATIVE, UPDATES, Case

SHAPE = BlockShape(window=3, block=8, tile=4, noise=5, blocks_per_update=2)
CAP = 5.0
CASES = [
    Case("several_updates", 9, (3, 2, 16), tile=4, noise=6, padding=5),
    Case("one_word", 1, (1, 1, 16), tile=4, noise=3),
    Case("repeated_centre", 3, (2, 2, 16), tile=16, noise=5),
    Case("sequences_of_two", 9, (1, 2, 16), tile=2, noise=6, sequence_length=2),
]


@pytest.fixture
def encoded(monkeypatch, sequences) -> Encoded:
    """Several shards of the sequences."""
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 1000)
    return encode(sequences_corpus(sequences), 1)


def source(encoded: Encoded, seed: int) -> BlockSource:
    settings = dict(seed=seed, epochs=range(2), bootstrap=True)
    return block_source(encoded, SHAPE, Sampling(0.0, 0.75), **settings)


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


def weights_by_sequence(made: BlockSource, epoch: int) -> dict[tuple[int, int], int]:
    """The weight of each sequence that an epoch trains on, by shard and number."""
    found: dict[tuple[int, int], int] = {}
    for index, shard in enumerate(made.shard_order(epoch)):
        blocks = made.updates(epoch, index).blocks
        is_token = blocks.sequence >= 0
        assert not blocks.weight[~is_token].any()
        pairs = zip(blocks.sequence[is_token], blocks.weight[is_token], strict=True)
        for sequence, weight in pairs:
            assert found.setdefault((int(shard), int(sequence)), weight) == weight
    return found


def test_blocks_have_the_multiplicities_and_leave_out_what_was_not_drawn(encoded):
    sizes = encoded.shard_sequences
    assert len(sizes) > 3
    drawn = np.split(resample(list(sizes), 1), np.cumsum(sizes)[:-1])
    expected = {
        (shard, number): weight
        for shard, weights in enumerate(drawn)
        for number, weight in enumerate(weights)
        if weight
    }
    made = source(encoded, 1)
    assert weights_by_sequence(made, 0) == expected
    assert weights_by_sequence(made, 1) == expected  # in another order of shards
    assert weights_by_sequence(source(encoded, 2), 0) != expected


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


def by_loops(
    sample: Sample, batch: Batch, architecture: str, optimizer: str
) -> tuple[dict[str, np.ndarray], list[tuple[float, float]]]:
    """(7), (8), (41), (18) and (42) with (56) and (67), pair by pair: the tables, what
    Adagrad keeps, and loss and terms of each update."""
    tables = [sample.input.copy(), sample.output.copy()]
    accumulators, losses = [np.zeros(len(table)) for table in tables], []
    for s, rate in enumerate(batch.rate):
        gradients = [np.zeros_like(table) for table in tables]
        weights = [np.zeros(len(table)) for table in tables]
        of_update = np.zeros(2)
        for n, t in itertools.product(*map(range, batch.blocks.ids.shape[1:])):
            blocks = Blocks(*(x[s, n] for x in batch.blocks))
            of_update += add_token(blocks, t, architecture, tables, gradients, weights)
        for table, sums, gradient, weight in zip(
            tables, accumulators, gradients, weights, strict=True
        ):
            scale = np.minimum(1, CAP / np.maximum(weight, 1e-300))
            if optimizer == "adagrad":
                sums += (gradient**2).mean(axis=1)
                scale = 1 / (np.sqrt(sums) + 1e-8)
            table -= rate * scale[:, np.newaxis] * gradient
        losses.append(tuple(of_update))
    found = dict(zip(("input", "output"), tables, strict=True))
    if optimizer == "adagrad":
        names = "input_accumulator", "output_accumulator"
        found |= zip(names, accumulators, strict=True)
    return found, losses


def add_token(
    blocks: Blocks, t: int, architecture: str, tables, gradients, weights
) -> tuple[float, float]:
    """Adds the terms of token t to gradients and weights of rows; returns their loss,
    and the weight of the positive ones."""
    contexts = [
        j
        for j in range(len(blocks.ids))
        if 0 < abs(t - j) <= blocks.radius[t]
        and blocks.sequence[t] == blocks.sequence[j]
    ]
    if not contexts:
        return 0.0, 0.0
    (input, output), m = tables, float(blocks.weight[t])
    noise = blocks.noise[t // (len(blocks.ids) // len(blocks.noise))]
    share = NEGATIVE / len(noise)
    loss = 0.0

    def add(hidden, row: int, sign: int, count: float) -> np.ndarray:
        """A term softplus(sign hidden . u_row) that counts `count` times; returns its
        derivative by `hidden`."""
        nonlocal loss
        score = hidden @ output[row]
        error = count * sign / (1 + np.exp(-sign * score))
        loss += count * np.logaddexp(0, sign * score)
        gradients[1][row] += error * hidden
        weights[1][row] += count
        return error * output[row]

    ids = blocks.ids
    if architecture == "skipgram":
        for j in contexts:
            gradients[0][ids[t]] += add(input[ids[t]], ids[j], -1, m)
        for k in noise:
            count = m * share * len(contexts)
            gradients[0][ids[t]] += add(input[ids[t]], k, 1, count)
        weights[0][ids[t]] += m * len(contexts)
        return loss, m * len(contexts)
    hidden = input[ids[contexts]].mean(axis=0)
    gradient = add(hidden, ids[t], -1, m)
    gradient += sum(add(hidden, k, 1, m * share) for k in noise)
    for j in contexts:
        gradients[0][ids[j]] += gradient / len(contexts)
        weights[0][ids[j]] += m / len(contexts)
    return loss, m


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
    expected, losses = by_loops(sample, batch, architecture, optimizer)
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
