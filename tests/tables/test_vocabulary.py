"""The vocabulary: selection, ids, subsampling, files."""

import numpy as np
import pytest

import legacy.vocabulary as oracle
from embedder.tables.vocabulary import (
    NoTokensError,
    Vocabulary,
    expected_tokens,
    keep_limit,
    read_vocabulary,
    select_tokens,
    write_vocabulary,
)

ALL = 2**32 - 1


def test_tokens_are_by_count_then_by_first_appearance():
    kept = select_tokens(np.array([2, 5, 2, 5, 1]), "abcde", min_count=2)
    assert kept.tolist() == [1, 3, 0, 2]


def test_no_tokens_are_refused():
    with pytest.raises(NoTokensError, match="The corpus has no tokens"):
        select_tokens(np.array([], dtype=np.int64), [], min_count=1)


def test_min_count_above_all_is_refused_with_the_most_frequent():
    with pytest.raises(NoTokensError, match="`min_count` = 4 .*, 'b', occurs 3 times"):
        select_tokens(np.array([2, 3]), "ab", min_count=4)


def test_ids_are_positions():
    assert Vocabulary(["x", "y"], np.array([2, 1])).ids == {"x": 0, "y": 1}


@pytest.mark.parametrize("limit", [keep_limit, oracle.keep_limit])
def test_keep_limit_by_hand(limit):
    # s/f = 0.01/0.04 = 1/4: p = 1/2 + 1/4; s/f = 1: p = 1.
    found = limit(np.array([4, 1, 95]), 0.01)
    assert found.dtype == np.uint32
    assert found[:2].tolist() == [3 * 2**30 - 1, ALL]
    # f = 1, s = 1/4: p = 1/2 + 1/4.
    assert limit(np.array([7]), 0.25).tolist() == [3 * 2**30 - 1]
    for sample in (0, 1):
        assert limit(np.array([99, 1]), sample).tolist() == [ALL, ALL]
    # p is far below 2**-32: the limit is 0, not -1.
    assert limit(np.array([1, 1]), 1e-300).tolist() == [0, 0]


def test_expected_tokens_by_hand():
    assert expected_tokens(np.array([4, 1, 95]), 0.0) == 100
    assert expected_tokens(np.array([8]), 0.25) == 6


def test_parquet_round_trip(tmp_path):
    tokens = ["a\u00a0b", "\u2028", '"', "猫"]
    written = Vocabulary(tokens, np.array([2**40, 3, 2, 1]))
    write_vocabulary(written, tmp_path / "vocab.parquet")
    again = read_vocabulary(tmp_path / "vocab.parquet")
    assert again.tokens == tokens
    np.testing.assert_array_equal(again.counts, written.counts, strict=True)


@pytest.mark.parametrize("data", [b"", b"PAR1 and no more"])
def test_damaged_parquet_is_refused(tmp_path, data):
    (tmp_path / "vocab.parquet").write_bytes(data)
    with pytest.raises(ValueError, match="vocab.parquet is not a whole parquet file"):
        read_vocabulary(tmp_path / "vocab.parquet")
