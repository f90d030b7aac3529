"""Blocks of whole sequences, against loops over all pairs of the corpus."""

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedder.tables.blocks import Blocks, BlockShape, BlockSource, block_source
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.encoded import Encoded
from embedder.tables.packing import filled_share, whole_sequences
from embedder.tables.split import held_out
from tests.tables.reruns import check_loaders

SHAPE = BlockShape(
    window=15,
    block=16,
    tile=4,
    noise=5,
    blocks_per_update=3,
    whole_sequences=True,
)
WORDS = [f"w{i}" for i in range(30)]


def blocks_of(lengths: list[int], block: int, seed: int = 0) -> list[list[int]]:
    """The number of the sequence of each token in each block; -1: padding."""
    packing = whole_sequences(
        np.array(lengths, np.int64), block, np.random.default_rng(seed)
    )
    packed = packing.pack(np.repeat(np.arange(len(lengths)), lengths), fill=-1)
    assert (packed[-1] == -1).all()
    return packed[:-1].tolist()


def test_packing_worked_by_hand():
    """The longest first, each into the fullest block that has room for it."""
    assert sorted(blocks_of([1, 5, 2, 3, 0], 6)) == [
        [1, 1, 1, 1, 1, 0],
        [3, 3, 3, 2, 2, -1],
    ]


def test_pieces_worked_by_hand():
    """10 tokens in blocks of 4: pieces of 4, 3 and 3, each in a block of its own."""
    packed = sorted(blocks_of([10, 1], 4))
    assert packed == [[0, 0, 0, -1], [0, 0, 0, 0], [0, 0, 0, 1]]


@given(
    lengths=st.lists(st.integers(0, 40), max_size=40),
    block=st.integers(2, 13),
    seed=st.integers(0, 9),
)
def test_sequences_are_whole_or_in_pieces_of_nearly_equal_size(lengths, block, seed):
    packed = blocks_of(lengths, block, seed)
    found = [[len([*run]) for _, run in itertools.groupby(each)] for each in packed]
    runs = [
        (number, size)
        for each, sizes in zip(packed, found, strict=True)
        for number, size in zip(
            [number for number, _ in itertools.groupby(each)], sizes, strict=True
        )
        if number >= 0
    ]
    for number, length in enumerate(lengths):
        pieces = sorted(size for other, size in runs if other == number)
        num = -(-length // block)
        assert pieces == sorted((length + i) // num for i in range(num))
    half_empty = [each for each in packed if 2 * each.count(-1) >= block]
    assert len(half_empty) <= 1  # the rest of two of them would have fitted into one
    for each in packed:
        numbers = [number for number, _ in itertools.groupby(each)]
        assert len({*numbers}) == len(numbers)  # no two pieces of one sequence


def test_packing_depends_on_the_draws_alone():
    lengths = [3, 3, 3, 3, 9, 20, 1, 2]
    assert blocks_of(lengths, 6, seed=1) == blocks_of(lengths, 6, seed=1)
    assert len({str(blocks_of(lengths, 6, seed=seed)) for seed in range(5)}) > 1


def test_pairs_of_long_sequences_are_drawn_with_their_probability():
    """7 items in pieces of 4 and 3: (4 * 3 + 3 * 2) / (7 * 6) = 3/7, (66)."""
    num, together = 4000, np.zeros((7, 7))
    for seed in range(num):
        positions = whole_sequences(
            np.array([7]), 4, np.random.default_rng(seed)
        ).positions
        of_token = positions // 4
        together += of_token[:, np.newaxis] == of_token
    drawn = together[~np.eye(7, dtype=bool)]
    assert drawn.mean() == pytest.approx(num * 3 / 7, rel=1e-12)  # in each epoch
    deviation = (num * 3 / 7 * 4 / 7) ** 0.5
    assert 0 < np.abs(drawn - num * 3 / 7).max() < 4.5 * deviation


def corpus(longest: int, seed: int = 0) -> list[list[str]]:
    """Sequences of 1 to `longest` of the words."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=300)
    return [list(rng.choice(WORDS, size=n)) for n in lengths]


@pytest.fixture
def few_tokens(monkeypatch):
    """Several shards."""
    monkeypatch.setattr("embedder.tables.shards.SHARD_TOKENS", 500)


def source(encoded: Encoded, **changes) -> BlockSource:
    settings = dict(sample=0.0, ns_exponent=0.75, seed=1, epochs=range(2))
    return block_source(encoded, SHAPE, **(settings | changes))


def blocks(made: BlockSource, epoch: int) -> Iterator[tuple[int, Blocks]]:
    """Number and blocks of each shard of an epoch."""
    for index, shard in enumerate(made.shard_order(epoch)):
        yield int(shard), made.updates(epoch, index).blocks


def pairs_in(made: BlockSource, epoch: int = 0) -> Counter:
    """Ids of the ordered pairs of an epoch, by equation (6)."""
    found: Counter = Counter()
    for _, each in blocks(made, epoch):
        size = -1, SHAPE.block
        rows = (x.reshape(size) for x in (each.ids, each.sequence, each.radius))
        for ids, sequence, radius in zip(*rows, strict=True):
            for t, j in itertools.permutations(range(SHAPE.block), 2):
                near = abs(t - j) <= radius[t] and sequence[t] == sequence[j]
                if near and sequence[t] >= 0:
                    found[int(ids[t]), int(ids[j])] += 1
    return found


def pairs_of(sequences: list[list[str]], encoded: Encoded) -> Counter:
    """Ids of all ordered pairs of two places of a sequence."""
    id_of = {token: i for i, token in enumerate(encoded.vocabulary.tokens)}
    return Counter(
        (id_of[a], id_of[b])
        for sequence in sequences
        for a, b in itertools.permutations(sequence, 2)
    )


@pytest.mark.parametrize("epoch", [0, 1])
def test_each_pair_of_a_sequence_is_in_an_epoch_once(few_tokens, epoch):
    sequences = corpus(longest=16)
    encoded = encode(sequences_corpus(sequences), 1)
    assert len(encoded.shard_tokens) > 3
    assert pairs_in(source(encoded), epoch) == pairs_of(sequences, encoded)


def test_the_order_within_a_sequence_changes_no_pair(few_tokens):
    sequences = corpus(longest=16)
    encoded = encode(sequences_corpus(sequences), 1)
    backwards = encode(sequences_corpus([each[::-1] for each in sequences]), 1)
    names = backwards.vocabulary.tokens
    id_of = {token: i for i, token in enumerate(encoded.vocabulary.tokens)}
    found = {
        (id_of[names[a]], id_of[names[b]]): n
        for (a, b), n in pairs_in(source(backwards)).items()
    }
    assert found == pairs_in(source(encoded))


def test_an_epoch_has_other_pairs_of_long_sequences():
    sequences = [WORDS]
    encoded = encode(sequences_corpus(sequences), 1)
    one, other = (pairs_in(source(encoded), epoch) for epoch in (0, 1))
    assert one.total() == other.total() == 2 * 15 * 14
    assert one != other and max((one | other).values()) == 1


def test_tokens_that_are_left_out_have_no_pairs(few_tokens):
    """By subsampling and hold-out; a resample gives weights to all of a sequence."""
    encoded = encode(sequences_corpus(corpus(longest=16)), 1)
    made = source(encoded, sample=0.02, holdout=0.2, bootstrap=True)
    for index, shard in enumerate(made.shard_order(0)):
        found = made.updates(0, index).blocks
        ids, lengths = encoded.read(int(shard))
        rng = np.random.default_rng([made.seed, 0, int(shard)])
        drawn = rng.integers(0, 2**32, size=len(ids), dtype=np.uint32)
        number = np.repeat(np.arange(len(lengths)), lengths)
        weight = made._weights(int(shard), lengths)
        kept = (drawn <= made.keep_limit[ids]) & (weight > 0)
        kept &= ~held_out(int(shard), len(lengths), 0.2)[number]
        assert 0 < kept.sum() < len(kept)
        real = found.sequence >= 0
        tokens = zip(found.sequence[real], found.ids[real], found.weight[real])  # noqa: B905
        expected = zip(number[kept], ids[kept], weight[kept], strict=True)
        assert Counter(tokens) == Counter(expected)
        for of_update in found.sequence.reshape(-1, SHAPE.block):
            distinct = of_update[of_update >= 0]
            for one in np.unique(distinct):
                assert (distinct == one).sum() == (number[kept] == one).sum()


def test_radii_are_the_block_and_padding_has_none():
    encoded = encode(sequences_corpus(corpus(longest=10)), 1)
    found = source(encoded).updates(0, 0).blocks
    real = found.sequence >= 0
    assert not real.all()
    assert (found.radius == np.where(real, 15, 0)).all()
    assert not found.ids[~real].any()


@pytest.mark.parametrize("after", [(0, -1), (1, 3)])
@pytest.mark.tfdata
def test_both_loaders_give_the_same_blocks_from_any_position(few_tokens, after):
    made = source(encode(sequences_corpus(corpus(longest=30)), 1))
    check_loaders(made, after)


def test_progress_reaches_the_next_epoch(few_tokens):
    """Where the last blocks of shards are not the only ones with padding."""
    made = source(encode(sequences_corpus(corpus(longest=9)), 1))
    progress = np.concatenate(
        [made.updates(e, i).progress for e in (0, 1) for i in range(4)]
    )
    assert (np.diff(progress) > 0).all() and progress[0] == 0 and progress[-1] < 1


def test_share_of_filled_places_by_hand():
    assert filled_share(np.array([9, 9, 9]), 1.0, 16) == 27 / 48
    assert filled_share(np.array([8, 8, 4, 0]), 1.0, 16) == 20 / 32
    assert filled_share(np.array([0]), 1.0, 16) == 1.0
