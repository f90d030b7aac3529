"""The rungs: each compares one stage of the port with the oracle.

A rung raises AssertionError where they differ; a failure is read before those above it.
"""

import functools

import jax
import numpy as np

import legacy.blocks
import legacy.noise
import legacy.objective
import legacy.update
import legacy.vocabulary
from embedder.data import blocks, encode, noise, vocabulary
from embedder.data.corpus import Corpus
from embedder.train.optimizer import capped_sgd, linear_rate
from embedder.train.update import Batch, Model, make_updates, state_of_tables
from embedder.train.update import row_gradients as port_row_gradients
from tests.parity.cases import NEGATIVE, Case, batch_of, blocks_of
from tests.parity.tolerances import TOLERANCE


def assert_same(actual: np.ndarray, desired: np.ndarray) -> None:
    """Equal values, shapes and dtypes."""
    np.testing.assert_array_equal(actual, desired, strict=True)


def compare_vocabulary(corpus: Corpus, source, min_count: int) -> None:
    """Tokens, counts and the ids and sequences of every shard."""
    encoded = encode.encode(corpus, min_count)
    text = legacy.vocabulary.read_text(source)
    desired = legacy.vocabulary.build_vocabulary(text, min_count)
    assert encoded.vocabulary.tokens == desired.tokens
    assert_same(encoded.vocabulary.counts, desired.counts)
    shards = legacy.blocks.cut_shards(
        *legacy.vocabulary.encode(text, desired.tokens), encode.SHARD_TOKENS
    )
    assert_same(encoded.shard_tokens, shards.shard_tokens())
    for shard in range(shards.num_shards):
        ids, lengths = encoded.read(shard)
        desired_ids, desired_lengths = shards.shard(shard)
        assert_same(ids, desired_ids)
        np.testing.assert_array_equal(lengths, desired_lengths)


def compare_distributions(counts: np.ndarray, sample: float, exponent: float) -> None:
    """The integer tables of keep and noise draws."""
    assert_same(
        vocabulary.keep_limit(counts, sample),
        legacy.vocabulary.keep_limit(counts, sample),
    )
    actual = noise.noise_table(counts, exponent)
    desired = legacy.noise.build_noise_table(counts, exponent)
    assert_same(actual.limit, desired.limit)
    assert_same(actual.alias, desired.alias)


def compare_blocks(source: blocks.BlockSource, alpha: float, min_alpha: float) -> None:
    """Every block of every epoch in order, and the learning rate of every update."""
    encoded, shape = source.encoded, source.shape
    num_shards = len(encoded.shard_tokens)
    for epoch in source.epochs:
        order = legacy.blocks.epoch_order(num_shards, seed=source.seed, epoch=epoch)
        before = 0
        for place, shard in enumerate(order):
            ids, lengths = encoded.read(shard)
            desired = legacy.blocks.shard_blocks(
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
            actual = source.updates(epoch, place)
            num_blocks = len(desired.ids)
            for name in ("ids", "sequence", "radius", "noise"):
                values = getattr(actual, name)
                flat = values.reshape(-1, *values.shape[2:])
                assert_same(flat[:num_blocks], getattr(desired, name))
                assert (flat[num_blocks:] == (-1 if name == "sequence" else 0)).all()
            rates = legacy.blocks.learning_rates(
                num_blocks,
                alpha=alpha,
                min_alpha=min_alpha,
                epoch=epoch,
                epochs=len(source.epochs),
                tokens_before=before,
                shard_tokens=len(ids),
                corpus_tokens=encoded.num_tokens,
            )
            assert_same(
                linear_rate(actual.progress, alpha=alpha, min_alpha=min_alpha),
                rates[:: shape.blocks_per_update],
            )
            before += len(ids)


def compare_gradients(case: Case, architecture: str, dtype: str) -> None:
    """Loss, and gradient and weight of each row: autodiff against hand-derived."""
    input, output = case.tables(dtype)
    desired, loss, num_terms = oracle_terms(case, architecture, input, output)
    updates = case.updates()
    batch = first_update(batch_of(updates, np.zeros(len(updates), dtype)))
    with jax.enable_x64(True):
        model = Model(tables_of(case, dtype), architecture, case.window, NEGATIVE)
        params = {"tables": {"input": input, "output": output}}
        gradients = jax.jit(functools.partial(port_row_gradients, model))
        actual_loss, actual = gradients(params, batch)
    tolerance = TOLERANCE["gradient", dtype]
    np.testing.assert_allclose(actual_loss.total, loss, **tolerance)
    np.testing.assert_array_equal(actual_loss.num_terms, num_terms)
    blocks = blocks_of(updates, 0)
    for values, rows in (
        (actual.gradients, desired.gradients),
        (actual.weights, desired.weights),
    ):
        assert values["input"].dtype == values["output"].dtype == dtype
        np.testing.assert_allclose(
            sum_by_row(case, (actual.ids["input"], values["input"])),
            sum_by_row(case, (blocks.ids, rows.input)),
            **tolerance,
        )
        np.testing.assert_allclose(
            sum_by_row(case, (actual.ids["output"], values["output"])),
            sum_by_row(case, (blocks.ids, rows.output), (blocks.noise, rows.noise)),
            **tolerance,
        )


def sum_by_row(case: Case, *parts) -> np.ndarray:
    """Sum of the values of each row's occurrences; a part is ids and their values."""
    ids, values = parts[0]
    total = np.zeros((case.num_rows, *values.shape[np.ndim(ids) :]), values.dtype)
    for ids, values in parts:
        np.add.at(total, np.asarray(ids), np.asarray(values))
    return total


def compare_updates(
    case: Case, architecture: str, dtype: str, *, update: str, cap: float, rung: str
) -> None:
    """The tables after the updates of `case`."""
    updates = case.updates()
    rates = linear_rate(updates.progress, alpha=0.05, min_alpha=0.001)
    input, output = case.tables(dtype)
    with jax.enable_x64(True):
        model = Model(tables_of(case, dtype), architecture, case.window, NEGATIVE)
        optimizer = capped_sgd(cap)
        apply_updates = make_updates(model, optimizer, update=update, loss_interval=1)
        state = state_of_tables(optimizer, input, output)
        state, _ = apply_updates(state, batch_of(updates, rates.astype(dtype)))
    desired = np.stack([input, output])
    for index, rate in enumerate(rates):
        legacy.update.apply_update(
            desired,
            blocks_of(updates, index),
            rate=rate,
            cap=cap,
            architecture=architecture,
            window=case.window,
            negative=NEGATIVE,
        )
    tables = state.params["tables"]
    assert int(state.step) == len(updates)
    assert tables["input"].dtype == dtype
    np.testing.assert_allclose(tables["input"], desired[0], **TOLERANCE[rung, dtype])
    np.testing.assert_allclose(tables["output"], desired[1], **TOLERANCE[rung, dtype])


def oracle_terms(case: Case, architecture: str, input, output):
    """The oracle's `Terms` of the first update, its loss, and its number of terms."""
    blocks = blocks_of(case.updates(), 0)
    pairs = legacy.objective.pairs(
        blocks.sequence,
        blocks.radius,
        tile=case.tile,
        window=case.window,
        dtype=input.dtype.type,
    )
    rows = legacy.objective.Rows(
        input[blocks.ids], output[blocks.ids], output[blocks.noise]
    )
    options = {"window": case.window, "negative": NEGATIVE}
    match architecture:
        case "skipgram":
            terms = legacy.objective.skipgram(rows, pairs, **options)
            loss = legacy.objective.skipgram_loss
            num_terms = legacy.objective.num_skipgram_terms(pairs)
        case "cbow":
            terms = legacy.objective.cbow(rows, pairs, **options)
            loss = legacy.objective.cbow_loss
            num_terms = legacy.objective.num_cbow_terms(pairs)
    return terms, loss(terms.scores, pairs, negative=NEGATIVE), num_terms


def tables_of(case: Case, dtype: str):
    """The port's lookup for the tables of `case`."""
    from embedder.model.tables import tables

    return tables(case.num_rows, 8, dtype=np.dtype(dtype), seed=0)


def first_update(batch: Batch) -> Batch:
    """The first update of a batch of several."""
    return Batch(*(x[0] for x in batch))
