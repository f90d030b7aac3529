"""Held-out sequences: which they are, and that no training sees them."""

import re

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.config import Config, resolve, with_options
from embedder.engine.bootstrap import draws_of_shards, multiplicities
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError
from embedder.tables.blocks import BlockShape, BlockSource, block_source
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.encoded import Encoded
from embedder.tables.heldout import sequences as held_out_sequences
from embedder.tables.split import held_out, num_held_out, trained_share
from embedder.tables.training import Training
from embedder.tables.vocabulary import Vocabulary

SHAPE = BlockShape(window=3, block=8, tile=4, noise=5, blocks_per_update=2)
SHARE = 0.25


@pytest.fixture
def encoded(monkeypatch, sequences) -> Encoded:
    """Several shards of the sequences."""
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 1000)
    return encode(sequences_corpus(sequences), 1)


def source(encoded: Encoded, **changes) -> BlockSource:
    settings = dict(sample=0.0, ns_exponent=0.75, seed=1, epochs=range(2))
    settings |= {"holdout": SHARE}
    return block_source(encoded, SHAPE, **(settings | changes))


def masks(encoded: Encoded, share: float = SHARE) -> dict[tuple[int, int], bool]:
    """Whether each sequence, by shard and number, is held out."""
    return {
        (shard, number): bool(is_out)
        for shard, num in enumerate(encoded.shard_sequences)
        for number, is_out in enumerate(held_out(shard, int(num), share))
    }


def trained_tokens(made: BlockSource, epoch: int) -> dict[tuple[int, int], list[int]]:
    """The ids of each sequence in the blocks of an epoch, sorted."""
    found: dict[tuple[int, int], list[int]] = {}
    for index, shard in enumerate(made.shard_order(epoch)):
        blocks = made.updates(epoch, index).blocks
        is_token = blocks.sequence >= 0
        pairs = zip(blocks.sequence[is_token], blocks.ids[is_token], strict=True)
        for sequence, id in pairs:
            found.setdefault((int(shard), int(sequence)), []).append(int(id))
    return {key: sorted(ids) for key, ids in found.items()}


def test_the_hash_is_uniform_and_independent_of_shards():
    shares = [0.01, 0.3, 0.9]
    for share in shares:
        drawn = np.array([held_out(shard, 5000, share) for shard in range(4)])
        error = (share * (1 - share) / drawn.size) ** 0.5
        assert abs(drawn.mean() - share) < 4 * error
        assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 4 * 5000**-0.5


def test_the_hash_of_a_sequence_depends_on_its_position_alone():
    many, few = held_out(3, 1000, 0.2), held_out(3, 10, 0.2)
    np.testing.assert_array_equal(many[:10], few)
    assert not (many & ~held_out(3, 1000, 0.3)).any()  # a larger share has them too


@pytest.mark.parametrize("seed", [1, 2])
def test_blocks_have_every_sequence_but_those_held_out(encoded, seed):
    expected = {key for key, is_out in masks(encoded).items() if not is_out}
    assert len(encoded.shard_tokens) > 3
    assert 0.1 < 1 - len(expected) / encoded.shard_sequences.sum() < 0.4
    made = source(encoded, seed=seed)
    for epoch in range(2):
        assert {*trained_tokens(made, epoch)} == expected
    assert {*trained_tokens(made.with_seed(7), 0)} == expected


def test_subsampling_keeps_the_tokens_that_it_keeps_without_a_holdout(encoded):
    whole = trained_tokens(source(encoded, holdout=0.0, sample=0.01), 1)
    part = trained_tokens(source(encoded, sample=0.01), 1)
    out = masks(encoded)
    assert part == {key: ids for key, ids in whole.items() if not out[key]}


def test_a_resample_leaves_out_held_out_sequences(encoded):
    draws = draws_of_shards(encoded.shard_sequences, 1)
    drawn = {
        (shard, number)
        for shard, num in enumerate(encoded.shard_sequences)
        for number in np.flatnonzero(multiplicities(shard, num, draws[shard], 1))
    }
    out = {key for key, is_out in masks(encoded).items() if is_out}
    assert drawn & out
    assert {*trained_tokens(source(encoded, bootstrap=True), 0)} == drawn - out


def test_held_out_sequences_are_the_ones_that_blocks_lack(encoded):
    found = held_out_sequences(encoded, SHARE)
    ends = np.cumsum(found.lengths)
    ours = sorted(x.tolist() for x in np.split(found.ids, ends[:-1]))
    expected = []
    for shard in range(len(encoded.shard_tokens)):
        ids, lengths = encoded.read(shard)
        parts = np.split(ids, np.cumsum(lengths)[:-1])
        mask = held_out(shard, len(lengths), SHARE)
        expected += [
            x.tolist() for x, is_out in zip(parts, mask, strict=True) if is_out
        ]
    assert ours == sorted(expected)


@pytest.mark.parametrize("limit", [1, 100, 777])
def test_a_limit_keeps_the_first_tokens_of_any_larger_one(encoded, limit):
    whole = held_out_sequences(encoded, SHARE)
    part = held_out_sequences(encoded, SHARE, limit)
    assert len(part.ids) == part.lengths.sum() == limit < len(whole.ids)
    np.testing.assert_array_equal(part.ids, whole.ids[:limit])
    num = len(part.lengths)
    np.testing.assert_array_equal(part.lengths[:-1], whole.lengths[: num - 1])
    larger = held_out_sequences(encoded, 2 * SHARE, limit)
    np.testing.assert_array_equal(larger.ids, part.ids)


def lines(num: int = 40, length: int = 6) -> list[list[str]]:
    """Sequences that have no token in common."""
    return [[f"{i}-{j}" for j in range(length)] for i in range(num)]


def training(sequences, **options) -> Training:
    encoded = encode(sequences_corpus(sequences), 1)
    small = {"vector_size": 6, "loader": "memory", "epochs": 2, "holdout": SHARE}
    config = with_options(Config(), **small | options)
    return Training(resolve(config, encoded.num_tokens), encoded, range(2))


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    "options",
    [
        {"backend": "xla"},
        {"backend": "xla", "replicas": 2},
        {"backend": "xla", "architecture": "cbow"},
        {"backend": "numba"},
        pytest.param({"loader": "tfdata"}, marks=pytest.mark.slow),
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_a_run_leaves_the_rows_of_held_out_tokens_as_they_were(options):
    planned = training(lines(), sample=0.0, **options)
    start = planned.initial_state()
    end = run_epochs(planned, start)
    before, after = (
        np.asarray(state.params["tables"]["input"]) for state in (start, end.state)
    )
    out = held_out_sequences(planned.encoded, SHARE).ids
    changed = (before != after).any(axis=-1)
    expected = np.ones(len(planned.encoded.vocabulary), bool)
    expected[out] = False
    assert 0 < len(out) < len(expected)
    np.testing.assert_array_equal(changed, np.broadcast_to(expected, changed.shape))


@pytest.mark.parametrize("bootstrap", [False, True])
def test_kept_tokens_are_those_that_are_not_held_out(bootstrap):
    planned = training(lines(400), sample=0.0, bootstrap=bootstrap)
    num = sum(map(len, trained_tokens(planned.sources[0], 0).values()))
    error = 4 * 0.48 * 6 * 400**0.5 if bootstrap else 1e-9
    assert planned.kept_tokens == pytest.approx(num, abs=error)


def test_a_run_says_what_is_held_out():
    text = "\n".join(training(lines(), bootstrap=True).description)
    num = num_held_out(np.array([40]), SHARE).sum()
    assert f"held out: {num} of 40 sequences" in text
    assert re.search(r"sample, bootstrap and holdout keep \d", text)
    assert "sample and holdout keep" in "\n".join(training(lines()).description)
    assert "held out" not in "\n".join(training(lines(), holdout=0.0).description)


def test_without_a_holdout_the_share_is_exactly_one():
    some, none = np.array([5, 7]), np.array([], np.int64)
    for sizes in (some, none):
        vocabulary = Vocabulary(["a"], np.array([12]))
        source = Encoded(vocabulary, sizes, sizes, lambda shard: None, 12)
        assert trained_share(source, 0.0) == 1.0


@pytest.mark.parametrize(
    ("num", "share", "message"),
    [
        (3, 1e-6, "`holdout` = 1e-06 holds out none of the 3 sequences of the corpus"),
        (2, 0.999999, "`holdout` = 0.999999 holds out all of the 2 sequences"),
        (1, 0.5, "`holdout` = 0.5 holds out .* of the 1 sequences"),
    ],
)
def test_a_holdout_of_nothing_or_of_all_is_refused(num, share, message):
    with pytest.raises(InputError, match=message):
        training(lines(num), holdout=share)


@pytest.mark.slow
def test_the_trainer_holds_out_and_scores():
    options = {"vector_size": 6, "min_count": 1, "epochs": 3, "sample": 0.0}
    words = np.random.default_rng(0).integers(9, size=(200, 12))
    text = [[f"w{i}" for i in line] for line in words]
    trainer = EmbeddingTrainer(**options).fit(text, holdout=0.1)
    assert len(trainer.held_out_history) == 3
    np.testing.assert_allclose(trainer.held_out_history, -np.log(9), atol=0.1)
    scores = [{"held_out": score} for score in trainer.held_out_history]
    assert trainer.score_history == scores
    whole = EmbeddingTrainer(**options).fit(text)
    assert whole.held_out_history == whole.score_history == []
    assert not np.array_equal(trainer.vectors, whole.vectors)
    trainer.fit_ensemble(text, 2, holdout=0.1)
    assert len(trainer.held_out_history) == 3
    with pytest.raises(ValueError, match=r"`holdout` must be a number in \[0, 1\)"):
        trainer.fit(text, holdout=1.0)
