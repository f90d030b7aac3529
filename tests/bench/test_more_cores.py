"""The kernel with a clock between its parts, and the model of more threads."""

import numpy as np
import pytest

from bench import threads
from bench.stages import first_chunks
from bench.timed import Timed, TimedUpdates
from embedder.config import Config, resolve, with_options
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.tokens.cpu import kernel
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.trainer import TokensTrainer

SEQUENCES = [[*"abc"], [*"abcd"], [*"ea"] * 40] * 10


def timed(blocks, buckets, keys=(), block_of=(), bucket_of=()) -> Timed:
    """With one part of a block, and one of a bucket."""
    times = [np.array(each, np.int64)[:, np.newaxis] for each in (blocks, buckets)]
    return Timed(*times, *(np.array(x, int) for x in (keys, block_of, bucket_of)))


@pytest.mark.slow
@pytest.mark.parametrize("team", [1, 4])
def test_updates_with_a_clock_are_those_of_the_kernel(team):
    given = {"backend": "numba", "loader": "memory", "vector_size": 20, "sample": 0}
    given |= {"min_count": 1, "block": 16, "blocks_per_update": 4}
    config = with_options(Config(), **given)
    encoded = encode(sequences_corpus(SEQUENCES), 1)
    training = TokensTrainer(
        TrainingPlan(resolve(config, encoded.num_tokens), encoded, range(1))
    )
    batch = first_chunks(training)[0][0]
    with_clock = TimedUpdates(training, team)
    for s in range(len(batch.rate)):
        update = with_clock.apply(batch, s)
        assert (update.blocks[:, 2] > 0).all() and (update.buckets >= 0).all()
    apply = kernel.place(
        training.program.model,
        training.config.tables.max_pairs_per_row,
        loss_interval=1,
        threads=1,
    ).apply_updates
    state = training.program.place_state(training.initial_state())
    tables = apply(state, batch)[0].params["tables"]
    expected = np.concatenate([tables["input"], tables["output"]])
    np.testing.assert_array_equal(with_clock.tables[:, :20], expected)
    assert {*update.bucket_of} <= {*range(4 * team)}
    assert {*update.block_of} <= {*range(4)}


def test_a_thread_takes_its_next_block_when_a_quarter_of_one_is_done():
    found = threads.take(timed([10, 10, 10, 10], [1] * 8), 4)
    np.testing.assert_array_equal(found.blocks, [0, 1, 2, 3])
    assert found.longest == pytest.approx(12e-9)
    found = threads.take(timed([8, 40, 8, 8, 8], [1] * 8), 2)
    np.testing.assert_array_equal(found.blocks, [0, 1, 0, 0, 1])
    found = threads.take(timed([1, 1], [30, 10, 10, 5]), 2)  # so buckets, when free
    np.testing.assert_array_equal(found.buckets, [0, 1, 1, 1])
    assert found.longest == pytest.approx(31e-9)
