"""Huffman trees: by hand, against the definition, and against the oracle's."""

import itertools

import numpy as np
import pytest

import legacy.huffman
from embedder import huffman_codes
from embedder.data.huffman import huffman_tree, node_sums, path_lengths

COUNTS = {
    "zipf": (1e6 / np.arange(1, 1001)).astype(np.int64),
    "equal": np.full(37, 3),
    "many ties": np.sort(np.random.default_rng(0).integers(5, 9, 300))[::-1],
    "fibonacci": np.array([55, 34, 21, 13, 8, 5, 3, 2, 1, 1]),
    "two": np.array([2, 1]),
    "any order": np.random.default_rng(1).integers(1, 50, 200),
}
each_count = pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)


def paths(counts) -> list[tuple[str, list[int]]]:
    """The code and the points of each token."""
    found = huffman_codes(np.array(counts))
    ends = np.cumsum(found.lengths)[:-1]
    parts = zip(np.split(found.codes, ends), np.split(found.points, ends), strict=True)
    return [("".join(map(str, codes)), points.tolist()) for codes, points in parts]


def test_tree_by_hand():
    # 1 + 2 = 3 (node 0), 3 + 4 = 7 (node 1), 5 + 7 = 12 (node 2, the root).
    expected = [("0", [2]), ("11", [2, 1]), ("101", [2, 1, 0]), ("100", [2, 1, 0])]
    assert paths([5, 4, 2, 1]) == expected
    tree = huffman_tree(np.array([5, 4, 2, 1]))
    assert tree.above.tolist() == [2 * 2, 2 * 1 + 1, 1, 0, 2 * 1, 2 * 2 + 1, -1]
    assert tree.depth == 3


@each_count
def test_codes_are_prefix_free_and_shortest(counts):
    tree = huffman_tree(counts)
    codes = [code for code, _ in paths(counts)]
    ordered = sorted(codes)
    assert not any(b.startswith(a) for a, b in itertools.pairwise(ordered))
    # The bits of all tokens are the sum of the counts of all inner nodes.
    sums = node_sums(tree, counts)
    assert sums[-1] == 0 and sums[len(counts) - 2] == counts.sum()
    assert (path_lengths(tree) * counts).sum() == sums.sum()
    bits = sum(len(code) * n for code, n in zip(codes, counts, strict=True))
    entropy = -(counts * np.log2(counts / counts.sum())).sum()
    assert entropy <= bits + 1e-9 <= entropy + counts.sum() + 1


@each_count
def test_oracle_has_the_same_tree(counts):
    tree, found = huffman_tree(counts), legacy.huffman.huffman_tree(counts)
    lengths = path_lengths(tree)
    assert found.points.shape == (len(counts), tree.depth)
    for token, (code, points) in enumerate(paths(counts)):
        length = lengths[token]
        assert found.points[token, :length].tolist() == points
        assert found.signs[token, :length].tolist() == [2 * int(c) - 1 for c in code]
        assert not found.signs[token, length:].any()


def test_one_token_has_no_inner_node():
    tree = huffman_tree(np.array([7]))
    assert (tree.above.tolist(), tree.depth, paths([7])) == ([-1], 1, [("", [])])
