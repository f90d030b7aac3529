"""Rungs catch wrong pieces that are planted in the kernel.

Most are planted in what the compiled function is given, so that nothing is compiled
again; some in what it is compiled from.
"""

import functools
import math
from typing import NamedTuple

import jax
import numba
import numpy as np
import pytest

from embedder.config import with_options
from embedder.tables.corpus import sequences_corpus
from embedder.tables.cpu import cbow, kernel, rows, skipgram, thread
from embedder.tables.cpu.block import BlockBuffers
from embedder.tables.cpu.paths import PathBuffers
from embedder.tables.cpu.rows import BucketRows, Gathered
from embedder.tables.cpu.simd import cast_like, compiled
from embedder.tables.cpu.subwords import Entries, WordRows
from embedder.tables.cpu.thread import Constants, LossTerms, Thread
from embedder.tables.encode import encode
from embedder.tables.prepare import Batch
from migration.parity import training, updates
from tests.parity.test_rungs_can_fail import (
    CONFIG,
    MANY,
    SEQUENCES,
    TWO_BLOCKS,
    passes,
)


def update_rung(
    case=TWO_BLOCKS,
    rung="one update",
    architecture="skipgram",
    optimizer="sgd",
    **options,
):
    sample = case.sample(architecture, update="kernel", optimizer=optimizer, **options)
    return updates.updates_rung(rung, sample)


def epoch_rung():
    config = with_options(CONFIG, backend="numba")
    encoded = encode(sequences_corpus(SEQUENCES), 1)
    return training.epoch_rung(config, encoded, SEQUENCES)


skipgram_rung = functools.partial(update_rung, architecture="skipgram")
cbow_rung = functools.partial(update_rung, architecture="cbow")
sums_rung = functools.partial(cbow_rung, cbow_mean=False)
hs_rung = functools.partial(update_rung, hs=True, negative=0)
hs_cbow_rung = functools.partial(update_rung, architecture="cbow", hs=True)
subwords_rung = functools.partial(update_rung, subwords=(1, 3), cap=math.inf)
hundred_subwords_rung = functools.partial(
    update_rung, MANY, "100 updates", subwords=(1, 3)
)
hundred_rung = functools.partial(update_rung, MANY, "100 updates")
adagrad_rung = functools.partial(update_rung, optimizer="adagrad")
hundred_adagrad_rung = functools.partial(
    update_rung, MANY, "100 updates", optimizer="adagrad"
)


# --- what the compiled function is given


class Given(NamedTuple):
    """The arguments of the compiled function."""

    thread: Thread
    tables: np.ndarray
    accumulators: np.ndarray | None
    factors: np.ndarray | None
    batch: Batch
    constants: Constants
    gathered: Gathered
    buffers: BlockBuffers
    rows: BucketRows
    losses: LossTerms
    above: np.ndarray | None
    on_paths: PathBuffers | None
    words: WordRows | None
    entries: Entries | None


def with_batch(given, change):
    """With a change of the batch, whose arrays keep their dtypes."""

    def as_before(new, old):
        return kernel._read_only(new.astype(old.dtype))

    batch = jax.tree.map(as_before, change(given.batch), given.batch)
    return given._replace(batch=batch)


def with_blocks(given, **changes):
    """Each change is a function of one field of the blocks."""
    blocks = given.batch.blocks
    fields = {name: f(getattr(blocks, name)) for name, f in changes.items()}
    return with_batch(given, lambda x: x._replace(blocks=blocks._replace(**fields)))


def with_constants(given, **changes):
    """Each change is a function of one of the constants."""
    values = {name: f(getattr(given.constants, name)) for name, f in changes.items()}
    return given._replace(constants=given.constants._replace(**values))


def first_block_left_out(given):
    """It counts as taken already."""
    np.maximum(given.thread.blocks, 1, out=given.thread.blocks)
    return given


def first_bucket_left_out(given):
    np.maximum(given.thread.buckets, 1, out=given.thread.buckets)
    return given


def mean_over_the_padding_too(given):
    return with_constants(given, dim=lambda dim: given.tables.shape[1])


def sum_for_the_mean(given):
    return with_constants(given, dim=lambda dim: 1)


def radius_one_less(given):
    return with_blocks(given, radius=lambda radius: np.maximum(radius - 1, 0))


def windows_cross_sequences(given):
    return with_blocks(given, sequence=lambda x: np.minimum(x, 0))


def noise_of_another_tile(given):
    return with_blocks(given, noise=lambda noise: np.roll(noise, 1, axis=2))


def ids_of_another_block(given):
    return with_blocks(given, ids=lambda ids: np.roll(ids, 1, axis=1))


def rate_of_another_update(given):
    return with_batch(given, lambda x: x._replace(rate=np.roll(x.rate, 1)))


def last_update_lost(given):
    return with_batch(given, lambda batch: jax.tree.map(lambda x: x[:-1], batch))


def cap_ignored(given):
    return with_constants(given, cap=lambda cap: type(cap)(np.inf))


def cap_doubled(given):
    return with_constants(given, cap=lambda cap: 2 * cap)


def noise_counted_once(given):
    return with_constants(given, noise_share=lambda share: type(share)(1))


def noise_slightly_heavier(given):
    return with_constants(given, noise_share=lambda share: share * (1 + 1e-8))


def other_architecture(given):
    return with_constants(given, is_skipgram=lambda is_skipgram: not is_skipgram)


def sums_for_means_or_means_for_sums(given):
    return with_constants(given, is_mean=lambda is_mean: not is_mean)


def loss_of_every_second_update(given):
    return with_constants(given, loss_interval=lambda interval: 2 * interval)


def with_tree(given, above):
    return given._replace(above=kernel._read_only(above.astype(np.int32)))


def codes_exchanged(given):
    return with_tree(given, np.where(given.above >= 0, given.above ^ 1, -1))


def without_the_root(given):
    root = (len(given.above) + 1) // 2 - 2
    return with_tree(given, np.where(given.above >> 1 == root, -1, given.above))


def with_words(given, **changes):
    """Each change is a function of one array of the rows of subwords."""
    words = given.words
    arrays = {k: kernel._read_only(f(getattr(words, k))) for k, f in changes.items()}
    return given._replace(words=words._replace(**arrays))


def subwords_step_twice(given):
    return with_words(given, scale=lambda scale: 2 * scale)


def own_rows_for_ngrams(given):
    """The rows of the first word for those of all."""
    return with_words(given, rows=lambda rows: np.minimum(rows, given.words.words[0]))


def first_words_not_composed(given):
    np.maximum(given.thread.words, 1, out=given.thread.words)
    return given


def first_bucket_of_subwords_left_out(given):
    np.maximum(given.thread.subwords, 1, out=given.thread.subwords)
    return given


GIVEN = [
    (subwords_rung, subwords_step_twice),
    (subwords_rung, own_rows_for_ngrams),
    (hundred_subwords_rung, first_words_not_composed),
    (subwords_rung, first_bucket_of_subwords_left_out),
    (hs_rung, codes_exchanged),
    (hs_cbow_rung, codes_exchanged),
    (hs_rung, without_the_root),
    (hs_cbow_rung, noise_counted_once),
    (hundred_rung, first_block_left_out),
    (cbow_rung, first_bucket_left_out),
    (skipgram_rung, radius_one_less),
    (cbow_rung, radius_one_less),
    (skipgram_rung, windows_cross_sequences),
    (skipgram_rung, noise_of_another_tile),
    (skipgram_rung, ids_of_another_block),
    (hundred_rung, rate_of_another_update),
    (hundred_rung, last_update_lost),
    (skipgram_rung, cap_ignored),
    (cbow_rung, cap_doubled),
    (skipgram_rung, noise_counted_once),
    (hundred_rung, noise_slightly_heavier),
    (cbow_rung, other_architecture),
    (cbow_rung, sums_for_means_or_means_for_sums),
    (sums_rung, sums_for_means_or_means_for_sums),
    (functools.partial(sums_rung, hs=True), sums_for_means_or_means_for_sums),
    (sums_rung, cap_doubled),
    (epoch_rung, rate_of_another_update),
    (epoch_rung, loss_of_every_second_update),
    (adagrad_rung, first_bucket_left_out),
    (adagrad_rung, mean_over_the_padding_too),
    (adagrad_rung, sum_for_the_mean),
    (hundred_adagrad_rung, rate_of_another_update),
]


@pytest.mark.parametrize(
    ("rung", "wrong"), GIVEN, ids=[wrong.__name__ for _, wrong in GIVEN]
)
def test_rung_catches_what_is_given_wrongly(monkeypatch, rung, wrong):
    assert passes(rung)
    right = kernel.apply_on_thread

    def planted(*types):
        return lambda *given: right(*types)(*wrong(Given(*given)))

    monkeypatch.setattr(kernel, "apply_on_thread", planted)
    assert not passes(rung)


# --- what it is compiled from


def tables_swapped(original):
    """Rows of tokens are in the table of positions, and the reverse."""

    @compiled()
    def find_keys(at, token_table, num_keys, blocks, gathered, buffers):
        original(at, 1 - token_table, num_keys, blocks, gathered, buffers)

    return find_keys


def last_tile_left_out(original):
    """Its tokens and its noise."""

    @compiled()
    def list_rows(n, num_noise, gathered, buffers, paths):
        buffers.tile_weights[len(buffers.tile_weights) - 1] = 0
        buffers.token_weights[-len(buffers.noise_terms) :] = 0
        original(n, num_noise, gathered, buffers, paths)

    return list_rows


def positions_left_out(original):
    @compiled()
    def list_rows(n, num_noise, gathered, buffers, paths):
        buffers.position_weights[:] = 0
        original(n, num_noise, gathered, buffers, paths)

    return list_rows


def listed_for_another_block(original):
    @compiled()
    def list_rows(n, num_noise, gathered, buffers, paths):
        original(len(gathered.listed) - 1 - n, num_noise, gathered, buffers, paths)

    return list_rows


def padding_listed_too(original):
    """Rows of the padding of noise; they have weights, and gradients of 0."""

    @compiled()
    def list_rows(n, num_noise, gathered, buffers, paths):
        original(n, len(buffers.noise), gathered, buffers, paths)

    return list_rows


def noise_weights_of_another_tile(original):
    @compiled(_nrt=True)  # the copy has memory
    def list_rows(n, num_noise, gathered, buffers, paths):
        buffers.tile_weights[:] = buffers.tile_weights[::-1].copy()
        original(n, num_noise, gathered, buffers, paths)

    return list_rows


def nodes_left_out(original):
    """The first inner node of each block."""

    @compiled()
    def list_rows(n, num_noise, gathered, buffers, paths):
        gradients = gathered.gradients
        gradients[(n + 1) * len(buffers.listed) - len(paths.nodes)] = 0
        original(n, num_noise, gathered, buffers, paths)

    return list_rows


def nodes_weigh_half(original):
    @compiled()
    def list_rows(n, num_noise, gathered, buffers, paths):
        for m in range(paths.num[0]):
            paths.weights[m] /= 2
        original(n, num_noise, gathered, buffers, paths)

    return list_rows


def bucket_left_out(original):
    @compiled()
    def find_rows(bucket, gathered, rows):
        num_slots, num_rows = original(bucket, gathered, rows)
        return (num_slots, num_rows) if bucket > 0 else (0, 0)

    return find_rows


def gradient_applied_twice(original):
    """The first of each bucket."""

    @compiled()
    def find_rows(bucket, gathered, rows):
        num_slots, num_rows = original(bucket, gathered, rows)
        if num_slots > 0:
            rows.slots[num_slots], rows.rows[num_slots] = rows.slots[0], rows.rows[0]
            num_slots += 1
        return num_slots, num_rows

    return find_rows


def row_applied_twice(original):
    """The first of each bucket."""

    @compiled()
    def find_rows(bucket, gathered, rows):
        num_slots, num_rows = original(bucket, gathered, rows)
        if num_rows > 0:
            rows.keys[num_rows], rows.heads[num_rows] = rows.keys[0], rows.heads[0]
            num_rows += 1
        return num_slots, num_rows

    return find_rows


def slots_of_another_block(original):
    """Keys and weights are right, gradients are those of the next block."""

    @compiled()
    def find_rows(bucket, gathered, rows):
        num_slots, num_rows = original(bucket, gathered, rows)
        for e in range(num_slots):
            slot = rows.slots[e] + gathered.listed.shape[1]
            rows.slots[e] = slot % len(gathered.keys)
        return num_slots, num_rows

    return find_rows


def gradients_overwritten(original):
    """A row has only the last of its gradients."""

    @compiled()
    def find_rows(bucket, gathered, rows):
        num_slots, num_rows = original(bucket, gathered, rows)
        for e in range(num_slots):
            rows.heads[rows.rows[e]] = rows.slots[e]
        for row in range(num_rows):
            rows.slots[row], rows.rows[row] = rows.heads[row], row
        return num_rows, num_rows

    return find_rows


def weight_of_the_last_slot(original):
    """In place of the sum."""

    @compiled()
    def find_rows(bucket, gathered, rows):
        num_slots, num_rows = original(bucket, gathered, rows)
        for e in range(num_slots):
            rows.weights[rows.rows[e]] = gathered.weights[rows.slots[e]]
        return num_slots, num_rows

    return find_rows


def squares_by_occurrence(original):
    """As if a row occurred once: each of its gradients is accumulated and applied."""

    @compiled()
    def find_rows(bucket, gathered, rows):
        num_slots, _ = original(bucket, gathered, rows)
        for e in range(num_slots):
            slot = rows.slots[e]
            rows.keys[e], rows.heads[e], rows.rows[e] = gathered.keys[slot], slot, e
        return num_slots, num_slots

    return find_rows


def sums_for_means(original):
    """Contexts of a token count 1, not 1/n_t."""

    @compiled()
    def weigh(at, is_mean, share, buffers):
        found = original(at, is_mean, share, buffers)
        for i in range(buffers.context_terms.shape[0]):
            for c in range(buffers.context_terms.shape[1]):
                if buffers.context_terms[i, c] > 0:
                    buffers.context_terms[i, c] = cast_like(1, share)
        return found

    return weigh


def with_names(function, **names):
    """The compiled function with other values of some of its global names."""
    names = {**function.py_func.__globals__, **names}
    return compiled()(type(function.py_func)(function.py_func.__code__, names))


def neighbour_left_out(original):
    """The token after one is no context of it, but the token itself is."""
    errors = skipgram.context_errors

    @compiled()
    def context_errors(g, weight, o, first, last, t, shift):
        errors(g, weight, o, first, last, t + 1, shift)

    return with_names(original, context_errors=context_errors)


def shift_off_by_one(original):
    """Where a band of errors is read; it is written at the right columns."""
    combine = original.py_func.__globals__["combine_band"]

    @compiled()
    def combine_band(out, o, g, j, tokens, row_of, shift, x):
        combine(out, o, g, j + 1, tokens, row_of, shift, x)

    return with_names(original, combine_band=combine_band)


def farthest_tokens_left_out(original):
    """Positions have no gradients from the tokens that are as far as a window."""
    combine = original.py_func.__globals__["combine_band"]

    @compiled()
    def combine_band(out, o, g, j, tokens, row_of, shift, x):
        nearer = tokens[0] + 1, tokens[1] - 1
        combine(out, o, g, j, nearer, row_of, shift, x)

    return with_names(original, combine_band=combine_band)


def accumulators_swapped(original):
    @compiled()
    def accumulate(accumulator, row, square, rate):
        half = len(accumulator) // 2
        other = row - half if row >= half else row + half
        return right(accumulator, other, square, rate)

    right = rows.accumulate
    return with_names(original, accumulate=accumulate)


def accumulated_after_the_step(original):
    """The step divides by the root of what earlier updates have left."""

    @compiled()
    def accumulate(accumulator, row, square, rate):
        scale = rate / (np.sqrt(accumulator[row]) + cast_like(1e-8, rate))
        accumulator[row] += square
        return scale

    return with_names(original, accumulate=accumulate)


def eps_inside_the_root(original):
    @compiled()
    def accumulate(accumulator, row, square, rate):
        accumulator[row] += square
        return rate / np.sqrt(accumulator[row] + cast_like(1e-8, rate))

    return with_names(original, accumulate=accumulate)


def nothing(original):
    return original


COMPILED = [
    (skipgram_rung, thread, "find_rows", nothing),
    (skipgram_rung, thread, "find_keys", tables_swapped),
    (skipgram_rung, thread, "list_rows", last_tile_left_out),
    (cbow_rung, thread, "list_rows", positions_left_out),
    (skipgram_rung, thread, "list_rows", listed_for_another_block),
    (skipgram_rung, thread, "list_rows", padding_listed_too),
    (skipgram_rung, thread, "list_rows", noise_weights_of_another_tile),
    (skipgram_rung, thread, "find_rows", bucket_left_out),
    (skipgram_rung, thread, "find_rows", gradient_applied_twice),
    (skipgram_rung, thread, "find_rows", slots_of_another_block),
    (skipgram_rung, thread, "find_rows", gradients_overwritten),
    (skipgram_rung, thread, "find_rows", weight_of_the_last_slot),
    (cbow_rung, cbow, "weigh", sums_for_means),
    (cbow_rung, cbow, "spread", shift_off_by_one),
    (hs_rung, thread, "list_rows", nodes_left_out),
    (hs_rung, thread, "list_rows", nodes_weigh_half),
    (hs_cbow_rung, thread, "list_rows", nodes_left_out),
    (skipgram_rung, skipgram, "differentiate", neighbour_left_out),
    (skipgram_rung, skipgram, "differentiate", shift_off_by_one),
    (skipgram_rung, skipgram, "differentiate", farthest_tokens_left_out),
    (adagrad_rung, thread, "find_rows", gradients_overwritten),
    (adagrad_rung, thread, "find_rows", row_applied_twice),
    (adagrad_rung, thread, "find_rows", squares_by_occurrence),
    (adagrad_rung, thread, "apply_adagrad", accumulators_swapped),
    (adagrad_rung, thread, "apply_adagrad", accumulated_after_the_step),
    (adagrad_rung, thread, "apply_adagrad", eps_inside_the_root),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "module", "name", "wrong"),
    COMPILED,
    ids=[wrong.__name__ for *_, wrong in COMPILED],
)
def test_rung_catches_what_is_compiled_wrongly(
    tmp_path, monkeypatch, rung, module, name, wrong
):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # nobody else's
    fresh = functools.cache(thread.apply_on_thread.__wrapped__)
    monkeypatch.setattr(kernel, "apply_on_thread", fresh)
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    again = with_names(thread._differentiate)
    monkeypatch.setattr(thread, "_differentiate", again)
    assert passes(rung) == (wrong is nothing)
    assert [*tmp_path.rglob("*.nbc")]  # what was compiled is kept there
