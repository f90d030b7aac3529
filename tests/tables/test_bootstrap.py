"""Bootstrap: multiplicities by their moments, weighted updates by loops over pairs."""

import functools
from typing import NamedTuple

import jax
import numpy as np
import pytest

from embedder.config import Config, replicas_of, with_options
from embedder.engine.bootstrap import (
    draws_of_shards,
    expected_share,
    multiplicities,
)
from embedder.engine.rules import capped_sgd, rowwise_adagrad
from embedder.engine.state import device_state
from embedder.tables.blocks import Blocks, BlockShape, BlockSource, block_source
from embedder.tables.corpus import sequences_corpus
from embedder.tables.cpu import kernel
from embedder.tables.encode import encode, encode_cached
from embedder.tables.encoded import Encoded
from embedder.tables.lookup import tables
from embedder.tables.prepare import Batch, Model, objective_of
from embedder.tables.problem import plan
from embedder.tables.update import host_state, make_updates
from migration.parity.updates import random_tables
from tests.pairs import pairwise
from tests.parity.cases import NEGATIVE, Case
from tests.tables.reruns import check_goes_on, check_loaders

SHAPE = BlockShape(window=3, block=8, tile=4, noise=5, blocks_per_update=2)
CAP = 5.0
CASES = [
    Case("several_updates", 9, (3, 2, 16), tile=4, noise=6, padding=5),
    Case("one_word", 1, (1, 1, 16), tile=4, noise=3),
    Case("repeated_centre", 3, (2, 2, 16), tile=16, noise=5),
    Case("sequences_of_two", 9, (1, 2, 16), tile=2, noise=6, sequence_length=2),
]
ARCHITECTURES = ["skipgram", "cbow"]
OPTIMIZERS = ["sgd", "adagrad"]
KINDS = ["multiplicities", "real"]
BACKENDS = ["rows", "dense", "kernel"]
BOTH = pytest.mark.parametrize("architecture", ARCHITECTURES)


@pytest.fixture
def encoded(monkeypatch, sequences) -> Encoded:
    """Several shards of the sequences."""
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 1000)
    return encode(sequences_corpus(sequences), 1)


def source(encoded: Encoded, **changes) -> BlockSource:
    settings = dict(sample=0.0, ns_exponent=0.75, seed=1, epochs=range(2))
    settings |= {"bootstrap": True}
    return block_source(encoded, SHAPE, **(settings | changes))


def resample(sizes: list[int], seed: int) -> np.ndarray:
    """The multiplicities of the sequences of all shards."""
    draws = draws_of_shards(np.array(sizes), seed)
    parts = [
        multiplicities(shard, size, int(draws[shard]), seed)
        for shard, size in enumerate(sizes)
    ]
    return np.concatenate(parts)


def test_a_resample_has_as_many_sequences_as_the_corpus():
    for seed in (0, 1, 2**64 - 1):
        assert resample([7, 1, 12, 30], seed).sum(dtype=int) == 50


def test_multiplicities_have_the_moments_of_a_multinomial():
    """Mean 1, variance 1 - 1 / n, covariance -1 / n, in a shard and between shards."""
    sizes, num = [3, 1, 4], 20_000
    found = np.array([resample(sizes, seed) for seed in range(num)], float)
    n = sum(sizes)
    covariance = np.cov(found.T, bias=True)
    expected = np.eye(n) - 1 / n
    # standard errors: 1 / sqrt(num) of a mean, about 1.4 times that of a variance
    np.testing.assert_allclose(found.mean(axis=0), 1, atol=5 * num**-0.5)
    np.testing.assert_allclose(covariance, expected, atol=6 * num**-0.5)
    present = (found > 0).mean(axis=0)
    np.testing.assert_allclose(present, expected_share(n), atol=3 * num**-0.5)


def test_seeds_and_shards_draw_independently():
    """Correlations of the first sequence: of consecutive seeds, and of two shards."""
    num = 5000
    first, second = np.array([resample([20, 20], s)[[0, 20]] for s in range(num)]).T
    bound = 4 * num**-0.5
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(first, second)[0, 1] + 1 / 39) < bound


def test_one_sequence_is_always_drawn_once():
    assert resample([1], 5).tolist() == [1]
    assert expected_share(1) == 1


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
    made = source(encoded)
    assert weights_by_sequence(made, 0) == expected
    assert weights_by_sequence(made, 1) == expected  # in another order of shards
    assert weights_by_sequence(source(encoded, seed=2), 0) != expected


def test_blocks_hold_the_tokens_of_drawn_sequences(encoded):
    made, total = source(encoded), encoded.num_tokens
    kept = 0
    for index in range(len(encoded.shard_tokens)):
        kept += int((made.updates(0, index).blocks.sequence >= 0).sum())
    assert kept / total == pytest.approx(0.632, abs=0.1)


def test_without_a_bootstrap_blocks_have_no_weights(encoded):
    made = source(encoded, bootstrap=False)
    assert made.updates(0, 0).blocks.weight is None
    assert made.specs.blocks.weight is None


def test_weights_have_the_shape_and_dtype_they_say(encoded):
    made = source(encoded)
    updates = made.updates(0, 0)
    assert made.specs.blocks.weight.dtype == updates.blocks.weight.dtype == np.uint8
    assert updates.blocks.weight.shape == updates.blocks.ids.shape


def test_a_share_has_the_weights_of_its_blocks(encoded):
    whole = source(encoded).updates(0, 0).blocks.weight
    part = source(encoded, share=range(1, 3)).updates(0, 0).blocks.weight
    np.testing.assert_array_equal(part[:, 0], whole[:, 1])
    assert not part[:, 1].any()


@pytest.mark.parametrize("after", [(0, -1), (1, 4)])
@pytest.mark.tfdata
def test_both_loaders_give_the_same_blocks_from_any_position(encoded, after):
    made = source(encoded)
    assert check_loaders(made, after).blocks.weight is not None


def test_a_cache_has_the_numbers_of_sequences(monkeypatch, sequences, tmp_path):
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 1000)
    corpus = sequences_corpus(sequences)
    expected = encode(corpus, 1).shard_sequences
    for _ in range(2):  # as it is written, and as it is read
        found = encode_cached(corpus, 1, tmp_path)
        np.testing.assert_array_equal(found.shard_sequences, expected, strict=True)
        for shard, number in enumerate(expected):
            assert len(found.read(shard)[1]) == number


class Tables(NamedTuple):
    """Tables, what Adagrad keeps, and loss and terms of each update."""

    tables: list[np.ndarray]  # input and output, [V, D]
    accumulators: list[np.ndarray]  # [V]
    loss: list[float]
    num_terms: list[float]


def random_weights(case: Case, kind: str) -> np.ndarray:
    """A weight for each sequence of a block: a multiplicity from 1 to 3, or a real one,
    as the product with a weight of a session is; 0 in padding."""
    sequence = case.updates().blocks.sequence
    rng, size = np.random.default_rng(3), (*case.size[:2], 16)
    drawn = rng.integers(1, 4, size, np.uint8)
    if kind == "real":
        drawn = rng.uniform(0.1, 5, size).astype(np.float32)
    weight = np.take_along_axis(drawn, np.maximum(sequence, 0), axis=2)
    return np.where(sequence >= 0, weight, 0).astype(drawn.dtype)


def weighted_batch(
    case: Case, dtype: str = "float64", kind: str = "multiplicities"
) -> Batch:
    blocks = case.updates().blocks._replace(weight=random_weights(case, kind))
    return Batch(blocks, np.full(case.size[0], 0.05, dtype))


def by_loops(
    case: Case, batch: Batch, architecture: str, optimizer: str, dim: int = 8
) -> Tables:
    """(7), (8), (41), (18) and (42) with (56) and (67), pair by pair."""
    cap = CAP if optimizer == "sgd" else np.inf
    start = random_tables((case.num_rows, dim), "float64")
    found = Tables(list(start), [np.zeros(case.num_rows) for _ in start], [], [])
    for s, rate in enumerate(batch.rate):
        gradients = [np.zeros_like(table) for table in start]
        weights = [np.zeros(case.num_rows) for _ in start]
        loss = terms = 0.0
        for n in range(case.size[1]):
            blocks = Blocks(*(x[s, n] for x in batch.blocks))
            for t in range(case.size[2]):
                added = add_token(
                    blocks, t, architecture, found.tables, gradients, weights
                )
                loss, terms = loss + added[0], terms + added[1]
        for table, sums, gradient, weight in zip(
            found.tables, found.accumulators, gradients, weights, strict=True
        ):
            scale = np.minimum(1, cap / np.maximum(weight, 1e-300))
            if optimizer == "adagrad":
                sums += (gradient**2).mean(axis=1)
                scale = 1 / (np.sqrt(sums) + 1e-8)
            table -= rate * scale[:, np.newaxis] * gradient
        found.loss.append(loss)
        found.num_terms.append(terms)
    return found


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


def rule(optimizer: str, cap: float = CAP):
    return capped_sgd(cap) if optimizer == "sgd" else rowwise_adagrad()


def apply(
    case: Case,
    batch: Batch,
    architecture: str,
    optimizer: str,
    backend: str,
    cap: float = CAP,
):
    """The whole state after the updates of `batch`, and their `Loss`."""
    dtype = batch.rate.dtype
    lookup = tables(case.num_rows, 8, dtype=dtype, seed=0)
    model = Model(lookup, objective_of(architecture), case.window, NEGATIVE)
    state = host_state(rule(optimizer), *random_tables((case.num_rows, 8), dtype.name))
    if backend == "kernel":
        limit = cap if optimizer == "sgd" else None
        updates = kernel.make_updates(
            model, limit, loss_interval=1, threads=2, optimizer=optimizer
        )
        return updates(state, batch)
    updates = make_updates(model, rule(optimizer, cap), update=backend, loss_interval=1)
    with jax.enable_x64(True):
        return jax.device_get(updates(device_state(state), batch))


def arrays(state, optimizer: str) -> dict[str, np.ndarray]:
    """The tables, and what the optimizer keeps."""
    kept = rule(optimizer).row_state(state.opt_state)
    return {**state.params["tables"], **kept}


@pytest.mark.spread(1)
@pairwise(
    case=CASES,
    kind=KINDS,
    architecture=ARCHITECTURES,
    optimizer=OPTIMIZERS,
    backend=BACKENDS,
)
def test_weighted_updates_are_those_of_loops(
    case, kind, architecture, optimizer, backend
):
    batch = weighted_batch(case, kind=kind)
    expected = by_loops(case, batch, architecture, optimizer)
    state, loss = apply(case, batch, architecture, optimizer, backend)
    assert_close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    names = ["input", "output"]
    for name, table in zip(names, expected.tables, strict=True):
        assert_close(state.params["tables"][name], table)
    if optimizer == "adagrad":
        for name, sums in zip(names, expected.accumulators, strict=True):
            assert_close(arrays(state, optimizer)[f"{name}_accumulator"], sums)
    assert_close(loss.total, expected.loss)
    assert_terms = assert_close if kind == "real" else np.testing.assert_array_equal
    assert_terms(loss.num_terms, expected.num_terms)


@pytest.mark.slow
@pairwise(
    kind=KINDS,
    architecture=ARCHITECTURES,
    optimizer=OPTIMIZERS,
    backend=BACKENDS,
)
def test_weights_of_one_give_the_same_bits_as_none(
    kind, architecture, optimizer, backend
):
    case = CASES[0]
    batch = weighted_batch(case, "float32", kind)
    ones = np.ceil(np.minimum(batch.blocks.weight, 1)).astype(batch.blocks.weight.dtype)
    of_one = batch.blocks._replace(weight=ones)
    none = batch.blocks._replace(weight=None)
    results = [
        apply(case, batch._replace(blocks=b), architecture, optimizer, backend)
        for b in (of_one, none)
    ]
    (ours, our_loss), (theirs, their_loss) = results
    for name, array in arrays(theirs, optimizer).items():
        np.testing.assert_array_equal(arrays(ours, optimizer)[name], array)
    for x, y in zip(our_loss, their_loss, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.spread(1)
@pairwise(architecture=ARCHITECTURES, backend=BACKENDS)
def test_twice_the_weights_are_half_the_rate_and_half_the_cap(architecture, backend):
    """To the bit, as 2 is a power of 2; the loss doubles, with the number of terms."""
    batch = weighted_batch(CASES[0], kind="real")
    light = batch.blocks._replace(weight=batch.blocks.weight / 2)
    given = ((batch, CAP), (Batch(light, 2 * batch.rate), CAP / 2))
    (ours, our_loss), (theirs, their_loss) = (
        apply(CASES[0], each, architecture, "sgd", backend, cap) for each, cap in given
    )
    for name, table in ours.params["tables"].items():
        np.testing.assert_array_equal(theirs.params["tables"][name], table)
    for x, y in zip(our_loss, their_loss, strict=True):
        np.testing.assert_array_equal(x, 2 * y)


@pytest.mark.spread(1)
@pairwise(architecture=ARCHITECTURES, optimizer=OPTIMIZERS, backend=BACKENDS)
def test_a_weight_of_a_block_is_a_number_of_its_copies(
    architecture, optimizer, backend
):
    """By the update without weights, which the oracle of the parity suite has too."""
    case = CASES[0]._replace(size=(1, 3, 16))
    blocks, counts = case.updates().blocks, [1, 3, 2]
    weight = np.array(counts, np.uint8)[np.newaxis, :, np.newaxis]
    weight = np.where(blocks.sequence >= 0, weight, 0).astype(np.uint8)
    rate = np.full(1, 0.05)
    batch = Batch(blocks._replace(weight=weight), rate)
    copies = Batch(jax.tree.map(lambda x: x.repeat(counts, axis=1), blocks), rate)
    ours, our_loss = apply(case, batch, architecture, optimizer, backend)
    theirs, their_loss = apply(case, copies, architecture, optimizer, backend)
    for name, array in arrays(theirs, optimizer).items():
        np.testing.assert_allclose(
            arrays(ours, optimizer)[name], array, rtol=1e-12, atol=1e-12
        )
    np.testing.assert_allclose(our_loss.total, their_loss.total, rtol=1e-12)
    np.testing.assert_array_equal(our_loss.num_terms, their_loss.num_terms)


def trained(config: Config, sequences) -> dict[str, np.ndarray]:
    """The tables after all epochs."""
    training = plan(config, sequences_corpus(sequences), None)
    state = training.program.place_state(training.initial_state())
    for epoch in training.epochs:
        for call in training.calls(state, epoch):
            state = call.state
    return training.program.whole_state(state).params["tables"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["xla", "numba"])
@BOTH
def test_a_replica_is_the_run_of_its_seed(sequences, architecture, backend):
    config = with_options(
        Config(),
        **{"architecture": architecture, "backend": backend, "replicas": 3},
        **{"bootstrap": True, "epochs": 2, "vector_size": 8, "min_count": 1},
        **{"loader": "memory", "mode": "jit"},
    )
    together = trained(config, sequences)
    for k, alone in enumerate(replicas_of(config)):
        assert alone.run.bootstrap
        for name, table in trained(alone, sequences).items():
            np.testing.assert_array_equal(together[name][k], table)


@pytest.mark.spread(1)
@pytest.mark.parametrize("backend", ["xla", "numba"])
def test_an_epoch_goes_on_from_a_position(sequences, backend):
    """Of replicas whose resamples have different numbers of updates."""
    config = with_options(
        Config(),
        **{"bootstrap": True, "replicas": 2, "backend": backend, "mode": "jit"},
        **{"vector_size": 8, "min_count": 1, "sample": 0, "save_every": "16"},
    )
    training = plan(config, sequences_corpus(sequences), None)
    check_goes_on(training)


def test_a_bootstrap_changes_the_vectors(sequences):
    config = with_options(Config(), epochs=1, vector_size=8, min_count=1)
    plain = trained(config, sequences)
    resampled = trained(with_options(config, bootstrap=True), sequences)
    assert (plain["input"] != resampled["input"]).any()


def test_memory_counts_the_weights(sequences):
    found = []
    for bootstrap in (False, True):
        config = with_options(Config(), bootstrap=bootstrap, min_count=1)
        training = plan(config, sequences_corpus(sequences), None)
        size = training.superblock_size
        found.append(training.memory["blocks"] / size)
    assert found[1] > found[0]
