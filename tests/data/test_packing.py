"""Blocks of whole sequences, against loops over all pairs of the corpus."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedder.data.blocks import BlockShape, BlockSource, Sampling, block_source
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.data.encoded import Encoded
from embedder.data.packing import whole_sequences
from embedder.data.split import held_out

SHAPE = BlockShape(
    window=15, block=16, tile=4, noise=5, blocks_per_update=3, whole_sequences=True
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


@pytest.mark.parametrize(
    ("lengths", "block", "expected"),
    [
        # The longest first, each into the fullest block that has room for it.
        ([1, 5, 2, 3, 0], 6, [[1, 1, 1, 1, 1, 0], [3, 3, 3, 2, 2, -1]]),
        # 10 tokens in blocks of 4: pieces of 4, 3 and 3, each in a block of its own.
        ([10, 1], 4, [[0, 0, 0, -1], [0, 0, 0, 0], [0, 0, 0, 1]]),
    ],
)
def test_packing_worked_by_hand(lengths, block, expected):
    assert sorted(blocks_of(lengths, block)) == expected


@given(
    lengths=st.lists(st.integers(0, 40), max_size=40),
    block=st.integers(2, 13),
    seed=st.integers(0, 9),
)
def test_sequences_are_whole_or_in_pieces_of_nearly_equal_size(lengths, block, seed):
    packed = blocks_of(lengths, block, seed)
    runs = [
        (number, len([*run]))
        for each in packed
        for number, run in itertools.groupby(each)
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


@pytest.fixture
def text(monkeypatch) -> list[list[str]]:
    """Sequences of 1 to 16 of the words, of several shards."""
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 500)
    rng = np.random.default_rng(0)
    return [list(rng.choice(WORDS, size=n)) for n in rng.integers(1, 17, size=300)]


def source(encoded: Encoded, sample: float = 0.0, **changes) -> BlockSource:
    settings = dict(seed=1, epochs=range(2))
    return block_source(encoded, SHAPE, Sampling(sample, 0.75), **(settings | changes))


def pairs_in(made: BlockSource, epoch: int = 0) -> Counter:
    """Ids of the ordered pairs of an epoch, by equation (6)."""
    found: Counter = Counter()
    for index in range(len(made.shard_order(epoch))):
        each = made.updates(epoch, index).blocks
        size = -1, SHAPE.block
        rows = (x.reshape(size) for x in (each.ids, each.sequence, each.radius))
        for ids, sequence, radius in zip(*rows, strict=True):
            for t, j in itertools.permutations(range(SHAPE.block), 2):
                near = abs(t - j) <= radius[t] and sequence[t] == sequence[j]
                if near and sequence[t] >= 0:
                    found[int(ids[t]), int(ids[j])] += 1
    return found


@pytest.mark.parametrize("epoch", [0, 1])
def test_each_pair_of_a_sequence_is_in_an_epoch_once(text, epoch):
    encoded = encode(sequences_corpus(text), 1)
    assert len(encoded.shard_tokens) > 3
    id_of = {token: i for i, token in enumerate(encoded.vocabulary.tokens)}
    expected = Counter(
        (id_of[a], id_of[b])
        for sequence in text
        for a, b in itertools.permutations(sequence, 2)
    )
    assert pairs_in(source(encoded), epoch) == expected


def test_an_epoch_has_other_pairs_of_long_sequences():
    sequences = [WORDS]
    encoded = encode(sequences_corpus(sequences), 1)
    one, other = (pairs_in(source(encoded), epoch) for epoch in (0, 1))
    assert one.total() == other.total() == 2 * 15 * 14
    assert one != other and max((one | other).values()) == 1


def test_tokens_that_are_left_out_have_no_pairs(text):
    """By subsampling and hold-out; a resample gives weights to all of a sequence."""
    encoded = encode(sequences_corpus(text), 1)
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


def test_progress_reaches_the_next_epoch(text):
    """Where the last blocks of shards are not the only ones with padding."""
    made = source(encode(sequences_corpus([each[:9] for each in text]), 1))
    progress = np.concatenate(
        [made.updates(e, i).progress for e in (0, 1) for i in range(4)]
    )
    assert (np.diff(progress) > 0).all() and progress[0] == 0 and progress[-1] < 1
