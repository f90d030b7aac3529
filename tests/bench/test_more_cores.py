"""The kernel with a clock between its parts, and the model of more threads."""

import numpy as np
import pytest

from bench import parts, threads
from bench.stages import first_superblocks
from bench.timed import Timed, TimedUpdates
from embedder.config import Config, resolve, with_options
from embedder.tables.corpus import sequences_corpus
from embedder.tables.cpu import kernel
from embedder.tables.cpu.kernel import available_cores
from embedder.tables.encode import encode
from embedder.tables.training import Training

SEQUENCES = [[*"abc"], [*"abcd"], [*"ea"] * 40] * 10


def timed(blocks, buckets, keys=(), block_of=(), bucket_of=()) -> Timed:
    """With one part of a block, and one of a bucket."""
    times = [np.array(each, np.int64)[:, np.newaxis] for each in (blocks, buckets)]
    return Timed(*times, *(np.array(x, int) for x in (keys, block_of, bucket_of)))


def taken(blocks, buckets) -> threads.Taken:
    return threads.Taken(np.array(blocks), np.array(buckets), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("team", [1, 4])
def test_updates_with_a_clock_are_those_of_the_kernel(team):
    config = with_options(
        Config(),
        backend="numba",
        loader="memory",
        vector_size=20,
        min_count=1,
        sample=0,
        block=16,
        blocks_per_update=4,
    )
    encoded = encode(sequences_corpus(SEQUENCES), 1)
    training = Training(resolve(config, encoded.num_tokens), encoded, range(1))
    batch = first_superblocks(training)[0][0]
    with_clock = TimedUpdates(training, team)
    for s in range(len(batch.rate)):
        update = with_clock.apply(batch, s)
        assert (update.blocks[:, 2] > 0).all() and (update.buckets >= 0).all()
    apply = kernel.make_updates(
        training.program.model,
        training.config.tables.max_pairs_per_row,
        loss_interval=1,
        threads=1,
    )
    state = training.program.place_state(training.initial_state())
    tables = apply(state, batch)[0].params["tables"]
    expected = np.concatenate([tables["input"], tables["output"]])
    np.testing.assert_array_equal(with_clock.tables[:, :20], expected)
    assert {*update.bucket_of} <= {*range(4 * team)} and {*update.block_of} <= {
        0,
        1,
        2,
        3,
    }


def test_a_thread_takes_its_next_block_when_a_quarter_of_one_is_done():
    found = threads.take(timed([10, 10, 10, 10], [1] * 8), 4)
    np.testing.assert_array_equal(found.blocks, [0, 1, 2, 3])
    assert found.longest == pytest.approx(12e-9)
    found = threads.take(timed([8, 40, 8, 8, 8], [1] * 8), 2)
    np.testing.assert_array_equal(found.blocks, [0, 1, 0, 0, 1])


def test_a_thread_that_is_free_takes_the_next_bucket():
    found = threads.take(timed([1, 1], [30, 10, 10, 5]), 2)
    np.testing.assert_array_equal(found.buckets, [0, 1, 1, 1])
    assert found.longest == pytest.approx(31e-9)


def test_rows_of_others_are_gradients_and_rows_that_another_thread_updated():
    """Keys 7 and 8 are of buckets 0 and 1; each block has a gradient for both."""
    update = timed([1, 1], [1, 1], [7, 8, 7, 8], [0, 0, 1, 1], [0, 1, 0, 1])
    same = taken([0, 1], [0, 1])
    # Each thread has one gradient of the other, and loads one row of its bucket.
    assert threads.num_rows_of_others(update, same, update, same) == 2 + 2
    crossed = taken([0, 1], [1, 0])
    # Now also the row that it updates, but that it has loaded already.
    assert threads.num_rows_of_others(update, same, update, crossed) == 2 + 2
    alone = taken([0, 0], [0, 0])
    assert threads.num_rows_of_others(update, alone, update, alone) == 0
    other = timed([1, 1], [1, 1], [9, 9], [0, 1], [0, 0])
    assert threads.num_rows_of_others(update, same, other, same) == 1


def test_an_interruption_in_one_round_of_three_changes_nothing():
    rounds = [[timed([1, 1], [1])], [timed([1, 999], [1])], [timed([1, 1], [999])]]
    [update] = threads.usual(rounds)
    assert update.blocks.sum() == 2 and update.buckets.sum() == 1


def of_the_model(byte, longest, num_bytes):
    """Times of a model whose barrier takes 2 us for two threads."""
    two = 2e-3 * longest + 4e-6 + byte * num_bytes / 2
    return {
        "seconds": {"1": [2e-3, 2e-3], "2": [two, two]},
        "longest": {"1": 1e-3, "2": 1e-3 * longest},
        "bytes": {"1": 0, "2": num_bytes},
    }


def test_the_cost_of_a_byte_is_found_again():
    blocks = {"16": of_the_model(1e-11, 0.6, 1e6), "64": of_the_model(1e-11, 0.55, 8e6)}
    samples = {"barrier": [2e-6, 1e-6, 9e-6], "blocks": blocks}
    costs = threads.fit(samples)
    np.testing.assert_allclose(costs, [1e-6, 1e-11], rtol=1e-6)
    rows = threads.table({"samples": samples}).rows
    assert rows[1][:4] == ["16", "2", "1200.0", "4.0"]
    assert rows[1][6] == rows[1][7]  # as measured


def test_one_core_gives_no_costs():
    samples = {"barrier": [], "blocks": {"16": of_the_model(1e-11, 0.5, 1e6)}}
    del samples["blocks"]["16"]["seconds"]["2"]
    assert threads.fit(samples) is None
    row = threads.table({"samples": samples}).rows[1]
    assert row[3] == row[5] == row[7] == "" and row[8] == "100"


def test_barriers_of_two_threads_take_time():
    """With one core there is nothing to measure."""
    measured = threads._measure_barrier(2)
    assert len(measured) == (2 if available_cores() > 1 else 0)
    assert all(0 < seconds < 0.1 for seconds in measured)


def test_parts_have_a_rate_where_there_are_products():
    samples = {"2": {"rows: load": [4e-6], "products and errors": [2e-6, 3e-6, 4e-6]}}
    found = {"samples": samples, "flops_per_update": {"2": 6e3}}
    assert parts.table(found).rows == [
        ["2", "rows: load", "4.0", "2.0", ""],
        ["2", "products and errors", "3.0", "1.5", "2"],
    ]
