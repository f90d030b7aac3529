"""Each rung catches wrong pieces that are planted in the port."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import embedder.tables.training
import legacy.vocabulary
import tests.parity.cases
from embedder.config import Config, with_options
from embedder.engine import loop, rules
from embedder.tables import (
    blocks,
    cbow,
    cbow_sums,
    encode,
    estimator,
    hierarchical,
    noise,
    prepare,
    problem,
    replay,
    shards,
    skipgram,
    starting,
    update,
    updating,
    vocabulary,
)
from embedder.tables.blocks import BlockShape, block_source
from embedder.tables.corpus import sequences_corpus
from embedder.tables.row_factors import RowFactors
from embedder.vectors import search, subwords
from migration import convert
from migration.parity import continued, data, replicas, training, updates, workers
from tests.parity.cases import Case

SEQUENCES = [["a", "b", "c"], ["a", "b", "c", "d"], ["e", "a"] * 40]
COUNTS = 1_000_000 // np.arange(1, 2001)
TILED = Case("tiled", 40, (1, 1, 32), tile=8, noise=6)
TWO_BLOCKS = Case("two_blocks", 4, (1, 2, 16), tile=8, noise=6)
MANY = Case("many", 40, (100, 1, 16), tile=8, noise=6)
CONFIG = with_options(
    Config(),
    loader="memory",
    vector_size=8,
    min_count=1,
    sample=0,
    block=16,
    dtype="float64",
)
EIGHT_TOPICS = [
    [f"{topic}{i}" for i in np.random.default_rng(topic + 8 * n).integers(0, 20, 12)]
    for topic in range(8)
    for n in range(40)
]

GROWING = with_options(CONFIG, min_count=5)
REPLICAS = with_options(CONFIG, max_pairs_per_row=4.0, alpha=0.1)


def vocabulary_rung():
    text = legacy.vocabulary.read_text(SEQUENCES)
    encoded = encode.encode(sequences_corpus(SEQUENCES), 1)
    return data.vocabulary_rung(encoded, text, 1)


def distributions_rung():
    return data.distributions_rung(COUNTS, 1e-3, 0.75)


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
    return data.blocks_rung(
        source, "memory", size=16, workers=1, alpha=0.035, min_alpha=1e-4
    )


def loss_rung(architecture):
    return updates.loss_rung(TILED.sample(architecture))


def gradients_rung(architecture):
    return updates.gradients_rung(TILED.sample(architecture))


def update_rung(case=TWO_BLOCKS, rung="one update", optimizer="sgd"):
    return updates.updates_rung(rung, case.sample("skipgram", optimizer=optimizer))


def sums_loss_rung():
    return updates.loss_rung(TILED.sample("cbow", cbow_mean=False))


def sums_weights_rung():
    return updates.gradients_rung(TILED.sample("cbow", cbow_mean=False))


def hierarchical_rung(rung, architecture="skipgram", negative=0):
    sample = TILED.sample(architecture, hs=True, negative=negative)
    return rung(sample)


def epoch_rung():
    encoded = encode.encode(sequences_corpus(SEQUENCES), 1)
    return training.epoch_rung(CONFIG, encoded, SEQUENCES)


def replicas_rung():
    return replicas.replicas_rung(REPLICAS, EIGHT_TOPICS)


def bootstrap_rung():
    return replicas.bootstrap_rung(REPLICAS, EIGHT_TOPICS)


def factors_rung():
    sample = TWO_BLOCKS.sample(factors=updates.random_factors(TWO_BLOCKS.num_rows))
    return updates.updates_rung("row factors", sample)


def frozen_rows_rung():
    return continued.frozen_rows_rung(REPLICAS, EIGHT_TOPICS)


def model_update_rung():
    return continued.update_rung(GROWING, EIGHT_TOPICS)


def resume_rung():
    return training.resume_rung(CONFIG, SEQUENCES)


def converters_rung():
    return training.converters_rung(CONFIG, SEQUENCES)


def neighbours_rung():
    return training.neighbours_rung(CONFIG, SEQUENCES)


def workers_rung():
    return workers.workers_rung(CONFIG, EIGHT_TOPICS, seeds=(1, 2, 3))


skipgram_loss_rung = functools.partial(loss_rung, "skipgram")
cbow_loss_rung = functools.partial(loss_rung, "cbow")
hs_loss_rung = functools.partial(hierarchical_rung, updates.loss_rung)
hs_cbow_loss_rung = functools.partial(hierarchical_rung, updates.loss_rung, "cbow")
hs_gradients_rung = functools.partial(hierarchical_rung, updates.gradients_rung)
hs_cbow_gradients_rung = functools.partial(
    hierarchical_rung, updates.gradients_rung, "cbow", negative=5
)
hs_update_rung = functools.partial(
    hierarchical_rung, functools.partial(updates.updates_rung, "one update")
)
skipgram_gradients_rung = functools.partial(gradients_rung, "skipgram")
cbow_gradients_rung = functools.partial(gradients_rung, "cbow")
hundred_rung = functools.partial(update_rung, MANY, "100 updates")
adagrad_rung = functools.partial(update_rung, optimizer="adagrad")


def subword_rung():
    return updates.updates_rung("one update", TILED.sample("cbow", subwords=(1, 3)))


def own_rows_alone(original, lists, table, words, longest):
    """The rows of words, without those of their n-grams."""
    return table.at[words].get(mode="fill", fill_value=0)


def longest_cut(original, *arguments):
    """The last subwords of the longest words are left out."""
    *others, longest = arguments
    return original(*others, longest - 8)


def rows_of_each_word_doubled(original, lists, *arguments, **options):
    return original(lists._replace(scale=2 * lists.scale), *arguments, **options)


def subwords_without_limit(original, *arguments, share, **options):
    return original(*arguments, share=jnp.ones_like, **options)


def unsigned_bytes(original, words, rule):
    """FNV-1a itself: words that are not ASCII have other buckets."""
    buckets, lengths = original(words, rule)
    is_ascii = np.repeat([word.isascii() for word in words], lengths)
    return np.where(is_ascii, buckets, (buckets + 1) % rule.num_buckets), lengths


def buckets_reversed(original, words, rule):
    buckets, lengths = original(words, rule)
    return rule.num_buckets - 1 - buckets, lengths


def signs_turned(original, *arguments):
    """Codes 0 and 1 are exchanged."""
    found = original(*arguments)
    return found._replace(signs=-found.signs)


def without_the_root(original, *arguments):
    found = original(*arguments)
    is_root = jnp.cumsum(found.signs[..., ::-1] != 0, axis=-1)[..., ::-1] == 1
    return found._replace(signs=jnp.where(is_root, 0, found.signs))


def nodes_one_higher(original, *arguments):
    found = original(*arguments)
    return found._replace(nodes=found.nodes + 1)


def in_the_order_of_ids(original, counts):
    """The tree of equal counts."""
    return original(np.ones_like(counts))


def stopped_hs_gradient(original, rows, *others):
    """The loss is right, the gradient of input rows is not."""
    stopped = rows._replace(input=jax.lax.stop_gradient(rows.input))
    return original(stopped, *others)


def sum_of_contexts(original, pairs, is_mean):
    return original(pairs, not is_mean)


def weights_of_means(original, pairs, **options):
    return cbow.row_weights(pairs, **options)


def weights_of_tokens_alone(original, first, second):
    """Where negative sampling is, too, those of hierarchical softmax are left out."""
    both = original(first, second)
    if both.input.ndim > 3:
        return both
    size = second.input.shape[2]
    return both._replace(input=both.input.at[:, :, -size:].multiply(0))


def ties_by_last_appearance(original, counts, tokens, min_count):
    order = np.argsort(-counts[::-1], kind="stable")
    return len(counts) - 1 - order


def joined_sequences(original, lengths):
    return np.array([lengths.sum()])


def counts_off_by_one(original, counts, parameter):
    return original(counts + 1, parameter)


def ids_off_by_one(original, table, size, rng):
    return (original(table, size, rng) + 1) % np.int32(len(table.limit))


def noise_of_one_token(original, table, size, rng):
    return np.zeros_like(original(table, size, rng))


def sequences_of_zero(original, *arguments):
    made = original(*arguments)
    return made._replace(sequence=np.minimum(made.sequence, 0))


def progress_too_far(original, source, epoch, place):
    made = original(source, epoch, place)
    return made._replace(progress=made.progress + 1e-9)


def constant_rate(original, progress, **options):
    return original(np.zeros_like(progress), **options)


def window_crosses_sequences(original, sequence, *others, **options):
    return original(jnp.minimum(sequence, 0), *others, **options)


def dropped_n_t(original, rows, pairs, **options):
    ones = jnp.minimum(pairs.num_contexts, 1)
    return original(rows, pairs._replace(num_contexts=ones), **options)


def weights_without_n_t(original, pairs, **options):
    return original(
        pairs._replace(num_contexts=jnp.minimum(pairs.num_contexts, 1)), **options
    )


def sum_for_mean(original, rows, pairs, **options):
    factor = pairs.num_contexts.max()
    return original(rows._replace(input=rows.input * factor), pairs, **options)


def shifted_halo(original, x, tile, window, **options):
    return jnp.roll(original(x, tile, window, **options), 1, axis=2)


def stopped_gradient(original, rows, pairs, **options):
    """The loss is right, its gradient is not."""
    noiseless = original(
        rows, pairs._replace(num_contexts=0 * pairs.num_contexts), **options
    )
    whole = original(rows, pairs, **options)
    return noiseless + jax.lax.stop_gradient(whole - noiseless)


def weights_of_one_place(original, zeros, ids, weights):
    return zeros, weights


def weights_of_one_block(original, zeros, ids, weights):
    """The cap applied before the blocks of the update are summed."""
    zeros, totals = original(zeros, ids, weights)
    return zeros, totals / 2


def weights_left_over(original, zeros, ids, weights):
    """Those of earlier updates are not cleared."""
    return zeros.at[ids].add(weights), original(zeros, ids, weights)[1]


def sum_of_squares(original, model):
    """The sum over the columns, not the mean."""
    return lambda values: values.sum(axis=-1)


def adagrad_with_divisor(original, eps, divisor):
    """The rule with another divisor of G: by the sums before and after the update."""
    rule = original(eps)

    def update(gradients, state, params=None, *, row_ids, **extra):
        _, after = rule.update(gradients, state, params, row_ids=row_ids, **extra)
        before, now = (
            jax.tree.map(rules.rows_at, each.accumulators, row_ids)
            for each in (state, after)
        )
        scaled = jax.tree.map(
            lambda g, old, new: g / divisor(old, new)[..., jnp.newaxis],
            gradients,
            before,
            now,
        )
        return scaled, after

    return optax.GradientTransformationExtraArgs(rule.init, update)


def accumulated_after_the_step(original, eps):
    return adagrad_with_divisor(original, eps, lambda old, new: jnp.sqrt(old) + eps)


def eps_inside_the_root(original, eps):
    return adagrad_with_divisor(original, eps, lambda old, new: jnp.sqrt(new + eps))


def squares_by_occurrence(original, slots, gradients):
    """The sums have the length of the gradients of each occurrence together."""
    sums = original(slots, gradients)
    squares = original(slots, jax.tree.map(jnp.square, gradients))

    def stretched(sums, squares):
        length, own = squares.sum(axis=-1), (sums**2).sum(axis=-1)
        return sums * jnp.sqrt(length / jnp.where(own > 0, own, 1))[:, jnp.newaxis]

    return jax.tree.map(stretched, sums, squares)


def slightly_steeper(original, x):
    return original(x) * (1 + 1e-8)


def last_superblock_lost(original, *arguments, **options):
    return list(original(*arguments, **options))[:-1] or []


def loss_of_the_first_updates(original, self, loss):
    return original(self, loss._replace(total=loss.total[:1]))


def in_reverse(original, members, *arguments):
    return original([*members][::-1], *arguments)


def seeds_in_reverse(original, config):
    return original(config)[::-1]


def one_seed_for_all(original, self, seed):
    """Blocks and noise are those of the first replica."""
    return self


def times_of_others(original, *arguments):
    return np.roll(original(*arguments), 1)


def drawn_or_not(original, self, *arguments):
    return np.minimum(original(self, *arguments), 1)


def weights_without_times(original, pairs, **options):
    """The cap of a row counts a sequence once."""
    return original(pairs._replace(weight=None), **options)


def factors_squared(original, deltas, factors):
    squares = {name: factor**2 for name, factor in (factors or {}).items()}
    return original(deltas, squares)


def factors_of_the_other_table(original, program, factors):
    return original(program, RowFactors(factors.output, factors.input))


def factors_of_other_rows(original, program, factors):
    rolled = {name: np.roll(x, 1) for name, x in factors.arrays.items()}
    return original(program, RowFactors(**rolled))


def slightly_thawed(original, *arguments):
    rows, factors = original(*arguments)
    return rows, RowFactors(input=np.maximum(factors.input, np.float32(1e-4)))


def output_frozen(original, *arguments):
    rows, factors = original(*arguments)
    return rows, RowFactors(factors.input, factors.input)


def only_input_starts(original, *arguments):
    found = original(*arguments)
    return found._replace(rows={"input": found.rows["input"]})


def in_the_order_of_the_file(original, tokens, keys):
    ids, numbers = original(tokens, keys)
    return ids, np.sort(numbers)


def keeps_less(original, old_counts, new_counts):
    """1 in the place of the 10 of (69)."""
    return original(old_counts // 10, new_counts)


def counts_of_all_texts(original, encoded, counts):
    return original(encoded, encoded.vocabulary.counts)


def new_output_rows_of_zero(original, base, num_rows):
    found, num_old = original(base, num_rows), len(base.output)
    found.output[num_old:] = 0
    return found


def unfactored(original, frozen, *of_update):
    return frozen


def same_draws_in_each_epoch(original, seed, epoch, *arguments):
    return original(seed, 0, *arguments)


def new_tokens_by_chance(original, shard, num_old):
    return np.zeros_like(original(shard, num_old))


def earlier_counts_forgotten(original, *arguments):
    return {}


def counts_without_replay(original, self):
    return self.new.occurrences()


def sizes_without_replay(original, self, name):
    return getattr(self.new, name)


def epochs_forgotten(original, path):
    """Draws start again at epoch 0."""
    return original(path)._replace(loss_history=[])


def output_forgotten(original, path):
    model = original(path)
    return model._replace(output=np.zeros_like(model.output))


def tables_swapped(original, path):
    model = original(path)
    return model._replace(input=model.output, output=model.input)


def rows_shifted(original, run, model):
    return original(run, model._replace(input=np.roll(model.input, 1, axis=0)))


def vectors_shifted(original, keys, matrix, counts, **others):
    return original(keys, np.roll(matrix, 1, axis=0), counts, **others)


def lengths_left_in(original, rows):
    """Dot products in the place of cosines."""
    return rows


PLANTED = [
    (vocabulary_rung, encode, "select_tokens", ties_by_last_appearance),
    (vocabulary_rung, shards, "_cut_long", joined_sequences),
    (distributions_rung, vocabulary, "keep_limit", counts_off_by_one),
    (distributions_rung, noise, "noise_table", counts_off_by_one),
    (blocks_rung, blocks, "draw_noise", ids_off_by_one),
    (blocks_rung, blocks, "_make_blocks", sequences_of_zero),
    (blocks_rung, blocks.BlockSource, "updates", progress_too_far),
    (skipgram_loss_rung, skipgram, "loss", dropped_n_t),
    (skipgram_loss_rung, prepare, "pairs_of", window_crosses_sequences),
    (cbow_loss_rung, cbow, "loss", sum_for_mean),
    (skipgram_gradients_rung, skipgram, "loss", stopped_gradient),
    (skipgram_gradients_rung, prepare, "pairs_of", window_crosses_sequences),
    (skipgram_gradients_rung, skipgram, "row_weights", weights_without_n_t),
    (cbow_gradients_rung, cbow, "loss", sum_for_mean),
    (cbow_gradients_rung, cbow, "halo", shifted_halo),
    (hs_loss_rung, hierarchical.HierarchicalSoftmax, "paths", signs_turned),
    (hs_loss_rung, hierarchical.HierarchicalSoftmax, "paths", without_the_root),
    (hs_loss_rung, hierarchical.HierarchicalSoftmax, "paths", nodes_one_higher),
    (hs_loss_rung, updates, "huffman_tree", in_the_order_of_ids),
    (hs_loss_rung, hierarchical, "halo", shifted_halo),
    (hs_cbow_loss_rung, cbow, "context_weights", sum_of_contexts),
    (sums_loss_rung, cbow, "context_weights", sum_of_contexts),
    (sums_weights_rung, cbow_sums, "row_weights", weights_of_means),
    (hs_gradients_rung, hierarchical, "_skipgram_loss", stopped_hs_gradient),
    (hs_cbow_gradients_rung, hierarchical, "_joined", weights_of_tokens_alone),
    (hs_update_rung, hierarchical, "softplus", slightly_steeper),
    (subword_rung, update, "compose_words", own_rows_alone),
    (subword_rung, update, "compose_words", longest_cut),
    (subword_rung, update, "step_subwords", rows_of_each_word_doubled),
    (subword_rung, update, "step_subwords", subwords_without_limit),
    (subword_rung, subwords, "ngram_buckets", unsigned_bytes),
    (subword_rung, subwords, "ngram_buckets", buckets_reversed),
    (update_rung, prepare, "_totals", weights_of_one_place),
    (update_rung, prepare, "_totals", weights_of_one_block),
    (hundred_rung, prepare, "_totals", weights_left_over),
    (hundred_rung, skipgram, "softplus", slightly_steeper),
    (adagrad_rung, update, "_mean_columns", sum_of_squares),
    (adagrad_rung, update, "_row_sums", squares_by_occurrence),
    (adagrad_rung, rules, "scale_by_rowwise_adagrad", accumulated_after_the_step),
    (adagrad_rung, rules, "scale_by_rowwise_adagrad", eps_inside_the_root),
    (epoch_rung, embedder.tables.training, "linear_rate", constant_rate),
    (epoch_rung, blocks, "draw_noise", ids_off_by_one),
    (
        epoch_rung,
        embedder.tables.training.loader,
        "epoch_superblocks",
        last_superblock_lost,
    ),
    (epoch_rung, loop.EpochSums, "add", loss_of_the_first_updates),
    (replicas_rung, embedder.tables.training, "replicas_of", seeds_in_reverse),
    (replicas_rung, embedder.tables.training, "stack_states", in_reverse),
    (replicas_rung, embedder.tables.training, "stack_batches", in_reverse),
    (replicas_rung, blocks.BlockSource, "with_seed", one_seed_for_all),
    (bootstrap_rung, blocks.BlockSource, "with_seed", one_seed_for_all),
    (bootstrap_rung, blocks, "multiplicities", times_of_others),
    (bootstrap_rung, blocks.BlockSource, "_weights", drawn_or_not),
    (bootstrap_rung, skipgram, "row_weights", weights_without_times),
    (factors_rung, update, "scale", factors_squared),
    (
        factors_rung,
        tests.parity.cases,
        "factored_program",
        factors_of_the_other_table,
    ),
    (factors_rung, tests.parity.cases, "factored_program", factors_of_other_rows),
    (
        frozen_rows_rung,
        embedder.tables.training,
        "factored_program",
        factors_of_other_rows,
    ),
    (frozen_rows_rung, starting, "_with_frozen_rows", slightly_thawed),
    (frozen_rows_rung, starting, "_with_frozen_rows", output_frozen),
    (frozen_rows_rung, starting, "_first_rows", only_input_starts),
    (frozen_rows_rung, starting, "common_ids", in_the_order_of_the_file),
    (model_update_rung, updating, "row_factors", keeps_less),
    (model_update_rung, updating, "_drawn_by", counts_of_all_texts),
    (model_update_rung, updating, "with_output_rows", new_output_rows_of_zero),
    (model_update_rung, problem, "joined_factors", unfactored),
    (model_update_rung, updating, "counts_in", earlier_counts_forgotten),
    (model_update_rung, replay, "drawn_sequences", same_draws_in_each_epoch),
    (model_update_rung, replay, "has_new_token", new_tokens_by_chance),
    (model_update_rung, replay.Replay, "counts", counts_without_replay),
    (model_update_rung, replay.Replay, "_expected", sizes_without_replay),
    (resume_rung, estimator, "read_model", epochs_forgotten),
    (resume_rung, estimator, "read_model", output_forgotten),
    (converters_rung, estimator, "read_model", tables_swapped),
    (converters_rung, convert, "write_results", rows_shifted),
    (neighbours_rung, estimator, "Vectors", vectors_shifted),
    (neighbours_rung, search, "unit_rows", lengths_left_in),
]


@pytest.fixture(autouse=True)
def fresh_programs():
    """Nothing compiled with a planted piece is used elsewhere, nor the reverse."""
    embedder.tables.training.make_program.cache_clear()
    yield
    embedder.tables.training.make_program.cache_clear()


def passes(rung) -> bool:
    return all(line.passed for line in rung())


passes_unchanged = functools.cache(passes)
"""The same where nothing is planted: once for each rung."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "module", "name", "wrong"),
    PLANTED,
    ids=[f"{name}-{wrong.__name__}" for _, _, name, wrong in PLANTED],
)
def test_rung_catches(monkeypatch, rung, module, name, wrong):
    assert passes_unchanged(rung)
    original = getattr(module, name)
    monkeypatch.setattr(
        module, name, lambda *args, **options: wrong(original, *args, **options)
    )
    embedder.tables.training.make_program.cache_clear()
    assert not passes(rung)


@pytest.mark.slow
def test_workers_rung_catches(monkeypatch):
    """That it passes otherwise is a matter of chance on so little text."""
    original = blocks.draw_noise
    monkeypatch.setattr(
        blocks, "draw_noise", lambda *args: noise_of_one_token(original, *args)
    )
    assert not passes(workers_rung)
