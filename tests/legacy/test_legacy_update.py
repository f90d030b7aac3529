"""Updates against dense arithmetic, and the division of an epoch among workers."""

import numpy as np
import pytest

from legacy import blocks, objective, update
from legacy.blocks import Blocks
from legacy.noise import build_noise_table
from legacy.update import Arrays, Plan, State, apply_update, train_epochs
from legacy.vocabulary import keep_limit

WINDOW, NEGATIVE, SIZE = 3, 5, 6
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}


def random_update(num_ids: int, num_blocks=2, block=48, tile=8, noise=6) -> Blocks:
    rng = np.random.default_rng(num_ids)
    shape = num_blocks, block
    sequence = np.broadcast_to(np.arange(block, dtype=np.int32) // 11, shape).copy()
    made = Blocks(
        rng.integers(0, num_ids, shape, np.int32),
        sequence,
        rng.integers(1, WINDOW + 1, shape, np.int8),
        rng.integers(0, num_ids, (num_blocks, block // tile, noise), np.int32),
    )
    made.ids[-1, -5:], made.sequence[-1, -5:], made.radius[-1, -5:] = 0, -1, 0
    return made


def random_tables(num_ids: int, dtype="float64") -> np.ndarray:
    return np.random.default_rng(9).normal(0, 0.5, (2, num_ids, SIZE)).astype(dtype)


def options(architecture: str, cap=128.0, rate=0.1) -> dict:
    return {
        "rate": rate,
        "cap": cap,
        "architecture": architecture,
        "window": WINDOW,
        "negative": NEGATIVE,
    }


def dense_sums(tables, made: Blocks, architecture: str):
    """Gradients [2, V, D] and weights [2, V] of whole tables."""
    rows = objective.Rows(
        tables[0][made.ids], tables[1][made.ids], tables[1][made.noise]
    )
    tile = made.ids.shape[1] // made.noise.shape[1]
    found = objective.pairs(
        made.sequence, made.radius, tile=tile, window=WINDOW, dtype=tables.dtype
    )
    compute = {"skipgram": objective.skipgram, "cbow": objective.cbow}[architecture]
    terms = compute(rows, found, window=WINDOW, negative=NEGATIVE)
    gradient, weight = np.zeros_like(tables), np.zeros(tables.shape[:2])
    for role, table, ids in (
        ("input", 0, made.ids),
        ("output", 1, made.ids),
        ("noise", 1, made.noise),
    ):
        np.add.at(gradient[table], ids, getattr(terms.gradients, role))
        np.add.at(weight[table], ids, getattr(terms.weights, role))
    return gradient, weight


def dense_update(tables, made: Blocks, architecture: str, cap: float, rate: float):
    """Tables after the update, by dense gradients, and the weights."""
    gradient, weight = dense_sums(tables, made, architecture)
    with np.errstate(divide="ignore"):
        factor = np.minimum(1, cap / weight)[..., np.newaxis]
    return tables - rate * factor * gradient, weight


@pytest.fixture(params=["skipgram", "cbow"])
def architecture(request) -> str:
    return request.param


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cap", [2.0, 128.0, np.inf])
@pytest.mark.parametrize("num_ids", [1, 2, 7, 40, 5000, 70_000])
def test_apply_update_is_the_dense_update(architecture, num_ids, cap, dtype):
    made, tables = random_update(num_ids), random_tables(num_ids, dtype)
    expected, weight = dense_update(tables, made, architecture, cap, rate=0.1)
    if num_ids <= 40 and cap == 2.0:
        assert (weight > cap).any()
    before = tables.copy()
    apply_update(State(tables), made, **options(architecture, cap))
    assert tables.dtype == dtype and not np.array_equal(tables, before)
    tolerance = TOLERANCE[dtype] * max(1, np.abs(expected).max())
    np.testing.assert_allclose(tables, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("num_ids", [1, 3, 12, 60])
def test_apply_update_with_hundreds_of_rows_an_id(architecture, num_ids):
    made = random_update(num_ids, num_blocks=3, block=1024, tile=16, noise=32)
    tables = random_tables(num_ids)
    expected, _ = dense_update(tables, made, architecture, 50.0, rate=0.05)
    apply_update(State(tables), made, **options(architecture, 50.0, rate=0.05))
    np.testing.assert_allclose(tables, expected, rtol=1e-12, atol=1e-12)


def test_no_row_moves_beyond_the_cap():
    made, tables = random_update(1), random_tables(1)
    before = tables.copy()
    apply_update(State(tables), made, **options("skipgram", cap=3.0))
    # A pair step of a row is rate * the other row at most; its length is below 3 here.
    moved = np.linalg.norm(tables - before, axis=-1)
    assert 0 < moved.max() < 0.1 * 3.0 * np.linalg.norm(before, axis=-1).max()


def test_empty_blocks_change_nothing(architecture):
    made, tables = random_update(40), random_tables(40)
    filled, alone = tables.copy(), tables.copy()
    empty = Blocks(*(np.zeros_like(field[:1]) for field in made))
    empty.sequence[:] = -1
    padded = Blocks(*(np.concatenate(pair) for pair in zip(made, empty, strict=True)))
    apply_update(State(alone), made, **options(architecture))
    apply_update(State(filled), padded, **options(architecture))
    np.testing.assert_array_equal(filled, alone)
    apply_update(State(alone), empty, **options(architecture))
    np.testing.assert_array_equal(filled, alone)


def test_apply_update_returns_what_the_loss_was_before(architecture):
    made, tables = random_update(40), random_tables(40)
    before = tables.copy()
    terms, found = apply_update(State(tables), made, **options(architecture))
    again, _ = apply_update(State(before), made, **options(architecture))
    assert update.loss_sum(architecture, terms, found, NEGATIVE) == update.loss_sum(
        architecture, again, found, NEGATIVE
    )
    lower, _ = apply_update(State(tables), made, **options(architecture))
    first = update.loss_sum(architecture, terms, found, NEGATIVE)
    assert update.loss_sum(architecture, lower, found, NEGATIVE).loss < first.loss
    assert first.terms > 0


def corpus_and_plan(shard_tokens: int, **changes) -> tuple[Arrays, Plan]:
    rng = np.random.default_rng(4)
    lengths = rng.integers(1, 20, 60).astype(np.int64)
    ids = rng.integers(0, 30, lengths.sum()).astype(np.int32)
    counts = np.bincount(ids, minlength=30)
    arrays = Arrays(
        *blocks.cut_shards(ids, lengths, shard_tokens),
        keep_limit(counts, 0),
        *build_noise_table(counts, 0.75),
    )
    plan = Plan(
        seed=1,
        first_epoch=0,
        epochs=1,
        architecture="skipgram",
        window=WINDOW,
        negative=NEGATIVE,
        block=16,
        tile=8,
        noise=4,
        blocks_per_update=2,
        cap=128.0,
        alpha=0.05,
        min_alpha=0.001,
    )
    return arrays, plan._replace(**changes)


@pytest.mark.parametrize("num_workers", [2, 3, 5])
@pytest.mark.parametrize("shard_tokens", [10_000, 150, 60])
def test_workers_divide_an_epoch_among_them(shard_tokens, num_workers):
    arrays, plan = corpus_and_plan(shard_tokens)

    def part(worker: int, workers: int) -> list[tuple[float, bytes]]:
        made = update._updates(arrays, plan, 0, worker, workers)
        return [(rate, b"".join(x.tobytes() for x in u)) for u, rate in made]

    parts = [part(worker, num_workers) for worker in range(num_workers)]
    assert sorted(sum(parts, [])) == sorted(part(0, 1))
    sizes = [len(p) for p in parts]
    assert max(sizes) <= max(min(sizes) * 2, min(sizes) + 2)


def test_train_epochs_follows_the_schedule():
    arrays, plan = corpus_and_plan(150, epochs=2, first_epoch=3, architecture="cbow")
    tables, expected = random_tables(30), random_tables(30)
    losses = train_epochs([tables], arrays, plan, 0, 1)
    corpus = blocks.Corpus(*arrays[:3])
    size = corpus.ids.size
    for epoch in (0, 1):
        loss, terms, before = 0.0, 0.0, 0
        for shard in blocks.epoch_order(corpus.num_shards, seed=1, epoch=3 + epoch):
            made = blocks.shard_blocks(
                *corpus.shard(shard),
                seed=1,
                epoch=3 + epoch,
                shard=shard,
                keep_limit=arrays.keep_limit,
                noise_table=build_noise_table(np.bincount(arrays.ids), 0.75),
                window=WINDOW,
                block=16,
                tile=8,
                noise=4,
            )
            tokens = corpus.shard_tokens()[shard]
            for i, part in enumerate(blocks.updates(made, 2)):
                share = tokens * (2 * i) / len(made.ids)
                progress = (epoch + (before + share) / size) / 2
                rate = 0.05 - (0.05 - 0.001) * progress
                result = apply_update(
                    State(expected), part, **options("cbow", 128.0, rate)
                )
                reported = update.loss_sum("cbow", *result, NEGATIVE)
                loss, terms = loss + reported.loss, terms + reported.terms
            before += tokens
        assert losses[epoch] == (loss, terms)
    np.testing.assert_array_equal(tables, expected)


def test_train_epochs_says_when_it_diverged():
    arrays, plan = corpus_and_plan(10_000, epochs=3, alpha=1e30, cap=np.inf)
    with pytest.raises(FloatingPointError, match="diverged in epoch 0: lower `alpha`"):
        train_epochs([random_tables(30, "float32")], arrays, plan, 0, 1)
