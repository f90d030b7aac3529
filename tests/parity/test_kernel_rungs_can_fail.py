"""Rungs catch wrong pieces that are planted in the kernel.

Most are planted in what the compiled function is given, so that nothing is compiled
again; some in what it is compiled from.
"""

import functools

import numba
import numpy as np
import pytest

from embedder.config import with_options
from embedder.tables.corpus import sequences_corpus
from embedder.tables.cpu import kernel, tiles
from embedder.tables.cpu.simd import cast_like, compiled
from embedder.tables.encode import encode
from migration.parity import training, updates
from tests.parity.test_rungs_can_fail import (
    CONFIG,
    MANY,
    SEQUENCES,
    TWO_BLOCKS,
    passes,
)

TABLES, BATCH, CONSTANTS, SETTINGS = range(1, 5)  # arguments of the compiled function
IDS, SEQUENCE, RADIUS, NOISE, RATE = range(5)  # of a batch


def update_rung(case=TWO_BLOCKS, rung="one update", architecture="skipgram"):
    sample = case.sample(architecture, update="kernel")
    return updates.updates_rung(rung, sample)


def epoch_rung():
    config = with_options(CONFIG, backend="numba")
    encoded = encode(sequences_corpus(SEQUENCES), 1)
    return training.epoch_rung(config, encoded, SEQUENCES)


skipgram_rung = functools.partial(update_rung, architecture="skipgram")
cbow_rung = functools.partial(update_rung, architecture="cbow")
hundred_rung = functools.partial(update_rung, MANY, "100 updates")


# --- what the compiled function is given


def changed(values: tuple, place: int, change) -> tuple:
    """The tuple with one value changed, an array as the kernel takes arrays."""
    value = change(values[place])
    if isinstance(value, np.ndarray):
        value = kernel._read_only(value.astype(values[place].dtype))
    return (*values[:place], value, *values[place + 1 :])


def tables_swapped(arguments):
    return changed(arguments, TABLES, lambda tables: tables[::-1])


def in_batch(arguments, field, change):
    return changed(arguments, BATCH, lambda batch: changed(batch, field, change))


def radius_one_less(arguments):
    return in_batch(arguments, RADIUS, lambda radius: np.maximum(radius - 1, 0))


def windows_cross_sequences(arguments):
    return in_batch(arguments, SEQUENCE, lambda x: np.minimum(x, 0))


def noise_of_another_tile(arguments):
    return in_batch(arguments, NOISE, lambda noise: np.roll(noise, 1, axis=2))


def ids_of_another_block(arguments):
    return in_batch(arguments, IDS, lambda ids: np.roll(ids, 1, axis=1))


def rate_of_another_update(arguments):
    return in_batch(arguments, RATE, lambda rate: np.roll(rate, 1))


def last_update_lost(arguments):
    for field in range(5):
        arguments = in_batch(arguments, field, lambda values: values[:-1])
    return arguments


def cap_ignored(arguments):
    return changed(arguments, CONSTANTS, lambda x: (type(x[0])(np.inf), x[1]))


def cap_doubled(arguments):
    return changed(arguments, CONSTANTS, lambda x: (2 * x[0], x[1]))


def noise_counted_once(arguments):
    return changed(arguments, CONSTANTS, lambda x: (x[0], type(x[1])(1)))


def noise_slightly_heavier(arguments):
    return changed(arguments, CONSTANTS, lambda x: (x[0], x[1] * (1 + 1e-8)))


def other_architecture(arguments):
    return changed(arguments, SETTINGS, lambda x: (not x[0], *x[1:]))


def loss_of_every_second_update(arguments):
    return changed(arguments, SETTINGS, lambda x: (*x[:2], 2 * x[2]))


GIVEN = [
    (skipgram_rung, tables_swapped),
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
    (epoch_rung, rate_of_another_update),
    (epoch_rung, loss_of_every_second_update),
]


@pytest.mark.parametrize(
    ("rung", "wrong"), GIVEN, ids=[wrong.__name__ for _, wrong in GIVEN]
)
def test_rung_catches_what_is_given_wrongly(monkeypatch, rung, wrong):
    assert passes(rung)
    right = kernel._work
    monkeypatch.setattr(
        kernel, "_work", lambda dtype: lambda *given: right(dtype)(*wrong(given))
    )
    assert not passes(rung)


# --- what it is compiled from


def last_tile_left_out(original):
    """Its rows are listed last."""

    @compiled()
    def find_rows(gathered, found, update, threads):
        num_rows = original(gathered, found, update, threads)
        return num_rows - gathered.count[len(gathered.count) - 1]

    return find_rows


def sums_for_means(original):
    """Contexts of a token count 1, not 1/n_t."""

    @compiled()
    def weigh_cbow(place, share, own):
        found = original(place, share, own)
        for i in range(own.context_terms.shape[0]):
            for c in range(own.context_terms.shape[1]):
                if own.context_terms[i, c] > 0:
                    own.context_terms[i, c] = cast_like(1, share)
        return found

    return weigh_cbow


def neighbour_left_out(original):
    """The token after one is no context of it, but the token itself is."""
    errors = tiles.context_errors

    @compiled()
    def context_errors(g, i, first, last, window):
        errors(g, i, first, last, window + 1)

    names = {**original.py_func.__globals__, "context_errors": context_errors}
    code = original.py_func.__code__
    return compiled()(type(original.py_func)(code, names))


def nothing(original):
    return original


COMPILED = [
    (skipgram_rung, "_find_rows", nothing),
    (skipgram_rung, "_find_rows", last_tile_left_out),
    (cbow_rung, "weigh_cbow", sums_for_means),
    (skipgram_rung, "differentiate_skipgram", neighbour_left_out),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "name", "wrong"), COMPILED, ids=[wrong.__name__ for *_, wrong in COMPILED]
)
def test_rung_catches_what_is_compiled_wrongly(
    tmp_path, monkeypatch, rung, name, wrong
):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # nobody else's
    monkeypatch.setattr(kernel, "_work", functools.cache(kernel._work.__wrapped__))
    monkeypatch.setattr(kernel, name, wrong(getattr(kernel, name)))
    assert passes(rung) == (wrong is nothing)
    assert [*tmp_path.rglob("*.nbc")]  # what was compiled is kept there
