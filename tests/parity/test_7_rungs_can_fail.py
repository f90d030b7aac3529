"""Each rung catches wrong pieces that are planted in the port."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from embedder.data import blocks, encode, noise, vocabulary
from embedder.data.blocks import BlockShape, block_source
from embedder.data.corpus import sequences_corpus
from embedder.model import objective
from embedder.train import update
from tests.parity import rungs
from tests.parity.cases import Case

SEQUENCES = [["a", "b", "c"], ["a", "b", "c", "d"], ["e", "a"] * 40]
COUNTS = 1_000_000 // np.arange(1, 2001)
TILED = Case("tiled", 40, (1, 1, 32), tile=8, noise=6)
TWO_BLOCKS = Case("two_blocks", 4, (1, 2, 16), tile=8, noise=6)
MANY = Case("many", 40, (100, 1, 16), tile=8, noise=6)


def vocabulary_rung():
    rungs.compare_vocabulary(sequences_corpus(SEQUENCES), SEQUENCES, 1)


def distributions_rung():
    rungs.compare_distributions(COUNTS, 1e-3, 0.75)


def blocks_rung():
    shape = BlockShape(window=3, block=16, tile=8, noise=4, blocks_per_update=2)
    source = block_source(
        encode.encode(sequences_corpus(SEQUENCES), 1),
        shape,
        sample=0.1,
        ns_exponent=0.75,
        seed=1,
        epochs=range(2),
    )
    rungs.compare_blocks(source, alpha=0.035, min_alpha=1e-4)


def gradients_rung(architecture):
    rungs.compare_gradients(TILED, architecture, "float64")


def update_rung(case=TWO_BLOCKS, rung="update"):
    rungs.compare_updates(
        case, "skipgram", "float64", update="rows", cap=2.5, rung=rung
    )


def ties_by_last_appearance(original, counts, tokens, min_count):
    order = np.argsort(-counts[::-1], kind="stable")
    return len(counts) - 1 - order


def joined_sequences(original, lengths):
    return np.array([lengths.sum()])


def counts_off_by_one(original, counts, parameter):
    return original(counts + 1, parameter)


def ids_off_by_one(original, table, size, rng):
    return (original(table, size, rng) + 1) % np.int32(len(table.limit))


def sequences_of_zero(original, *arguments):
    ids, sequence, radius, noise_ids = original(*arguments)
    return ids, np.minimum(sequence, 0), radius, noise_ids


def rate_of_the_end(original, progress, **options):
    return original(progress + 1e-9, **options)


def window_crosses_sequences(original, sequence, radius, **options):
    return original(jnp.minimum(sequence, 0), radius, **options)


def dropped_n_t(original, rows, pairs, **options):
    ones = jnp.minimum(pairs.count, 1)
    return original(rows, pairs._replace(count=ones), **options)


def weights_without_n_t(original, pairs, **options):
    return original(pairs._replace(count=jnp.minimum(pairs.count, 1)), **options)


def sum_for_mean(original, rows, pairs, **options):
    factor = pairs.count.max()
    return original(rows._replace(input=rows.input * factor), pairs, **options)


def shifted_halo(original, x, tile, window, **options):
    return jnp.roll(original(x, tile, window, **options), 1, axis=2)


def weights_of_one_place(original, ids, weights, num_rows):
    return jnp.zeros(num_rows, weights.dtype).at[ids].set(weights)


def weights_of_one_block(original, ids, weights, num_rows):
    """The cap applied before the blocks of the update are summed."""
    return original(ids, weights, num_rows) / 2


def slightly_steeper(original, x):
    return original(x) * (1 + 1e-8)


PLANTED = [
    (vocabulary_rung, encode, "select_tokens", ties_by_last_appearance),
    (vocabulary_rung, encode, "_cut_long", joined_sequences),
    (distributions_rung, vocabulary, "keep_limit", counts_off_by_one),
    (distributions_rung, noise, "noise_table", counts_off_by_one),
    (blocks_rung, blocks, "draw_noise", ids_off_by_one),
    (blocks_rung, blocks, "_make_blocks", sequences_of_zero),
    (blocks_rung, rungs, "linear_rate", rate_of_the_end),
    (
        functools.partial(gradients_rung, "skipgram"),
        objective,
        "pairs",
        window_crosses_sequences,
    ),
    (
        functools.partial(gradients_rung, "skipgram"),
        objective,
        "skipgram_loss",
        dropped_n_t,
    ),
    (
        functools.partial(gradients_rung, "skipgram"),
        objective,
        "skipgram_weights",
        weights_without_n_t,
    ),
    (functools.partial(gradients_rung, "cbow"), objective, "cbow_loss", sum_for_mean),
    (functools.partial(gradients_rung, "cbow"), objective, "_halo", shifted_halo),
    (update_rung, update, "_row_totals", weights_of_one_place),
    (update_rung, update, "_row_totals", weights_of_one_block),
    (
        functools.partial(update_rung, MANY, "100 updates"),
        objective,
        "_softplus",
        slightly_steeper,
    ),
]


@pytest.mark.parametrize(
    ("rung", "module", "name", "wrong"),
    PLANTED,
    ids=[f"{name}-{wrong.__name__}" for _, _, name, wrong in PLANTED],
)
def test_rung_catches(monkeypatch, rung, module, name, wrong):
    rung()
    original = getattr(module, name)
    monkeypatch.setattr(module, name, functools.partial(wrong, original))
    with pytest.raises(AssertionError):
        rung()
