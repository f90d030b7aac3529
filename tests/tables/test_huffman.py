"""Huffman trees: by hand, against the definition, and against gensim's."""

import itertools

import numpy as np
import pytest

import embedder
import legacy.huffman
from embedder.tables.huffman import (
    Tree,
    codes_and_points,
    huffman_tree,
    node_sums,
    path_lengths,
)

COUNTS = {
    "zipf": (1e6 / np.arange(1, 1001)).astype(np.int64),
    "equal": np.full(37, 3),
    "many ties": np.sort(np.random.default_rng(0).integers(5, 9, 300))[::-1],
    "fibonacci": np.array([55, 34, 21, 13, 8, 5, 3, 2, 1, 1]),
    "two": np.array([2, 1]),
    "any order": np.random.default_rng(1).integers(1, 50, 200),
}
each_count = pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)


def paths(tree: Tree) -> list[tuple[str, list[int]]]:
    """The code and the points of each token."""
    found, ends = codes_and_points(tree), np.cumsum(codes_and_points(tree).lengths)
    parts = [
        (codes, points)
        for codes, points in zip(
            np.split(found.codes, ends[:-1]),
            np.split(found.points, ends[:-1]),
            strict=True,
        )
    ]
    return [("".join(map(str, codes)), points.tolist()) for codes, points in parts]


def test_tree_by_hand():
    # 1 + 2 = 3 (node 0), 3 + 4 = 7 (node 1), 5 + 7 = 12 (node 2, the root).
    tree = huffman_tree(np.array([5, 4, 2, 1]))
    assert paths(tree) == [
        ("0", [2]),
        ("11", [2, 1]),
        ("101", [2, 1, 0]),
        ("100", [2, 1, 0]),
    ]
    assert tree.above.tolist() == [2 * 2, 2 * 1 + 1, 1, 0, 2 * 1, 2 * 2 + 1, -1]
    assert tree.depth == 3


def test_ties_are_in_the_order_of_the_heap():
    # `heapify` makes 2 3 0 1 of 0 1 2 3, since it moves equal children up. Without 2:
    # 0 3 1; without 0: 3 1, and node 0 = (2, 0) joins. Without 3: 1 and node 0; without
    # 1: node 0, which node 1 = (3, 1) joins.
    assert paths(huffman_tree(np.ones(4, np.int64))) == [
        ("01", [2, 0]),
        ("11", [2, 1]),
        ("00", [2, 0]),
        ("10", [2, 1]),
    ]


def by_list(counts: np.ndarray) -> list[tuple[str, list[int]]]:
    """The paths by a binary heap that is written out, node by node."""
    heap: list[tuple[int, int]] = [(int(c), i) for i, c in enumerate(counts)]
    above: dict[int, tuple[int, int]] = {}

    def sift_down(start: int, at: int) -> None:
        new = heap[at]
        while at > start and new[0] < heap[(at - 1) // 2][0]:
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = new

    def sift_up(at: int) -> None:
        start, new = at, heap[at]
        while (child := 2 * at + 1) < len(heap):
            right = child + 1
            if right < len(heap) and not heap[child][0] < heap[right][0]:
                child = right
            heap[at] = heap[child]
            at = child
        heap[at] = new
        sift_down(start, at)

    def pop() -> tuple[int, int]:
        last = heap.pop()
        if not heap:
            return last
        first, heap[0] = heap[0], last
        sift_up(0)
        return first

    for at in reversed(range(len(heap) // 2)):
        sift_up(at)
    num = len(counts)
    for inner in range(num - 1):
        first, second = pop(), pop()
        above[first[1]], above[second[1]] = (inner, 0), (inner, 1)
        heap.append((first[0] + second[0], num + inner))
        sift_down(0, len(heap) - 1)
    found = []
    for node in range(num):
        code, points = "", []
        while node in above:
            inner, bit = above[node]
            code, points, node = f"{bit}{code}", [inner, *points], num + inner
        found.append((code, points))
    return found


@each_count
def test_ties_are_those_of_a_binary_heap(counts):
    assert paths(huffman_tree(counts)) == by_list(counts)


@each_count
def test_codes_are_prefix_free_and_shortest(counts):
    tree = huffman_tree(counts)
    codes = [code for code, _ in paths(tree)]
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
    for token, (code, points) in enumerate(paths(tree)):
        length = lengths[token]
        assert found.points[token, :length].tolist() == points
        assert found.signs[token, :length].tolist() == [2 * int(c) - 1 for c in code]
        assert not found.signs[token, length:].any()


def test_one_token_has_no_inner_node():
    tree = huffman_tree(np.array([7]))
    assert tree.above.tolist() == [-1]
    assert paths(tree) == [("", [])]
    assert tree.depth == 1


@each_count
def test_the_public_function_has_the_same_paths(counts):
    found = embedder.huffman_codes(counts)
    expected = codes_and_points(huffman_tree(counts))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


WRONG = {
    "none": ([], ValueError, "`counts` must have 1 value at least"),
    "negative": ([3, -1], TypeError, "`counts` must be integers >= 0, got int64.2"),
    "type": ([0.5], TypeError, "`counts` must be integers >= 0, got float64.1"),
    "shape": ([[1]], TypeError, r"`counts` must be integers >= 0, got int64.1, 1"),
}


@pytest.mark.parametrize(("counts", "kind", "message"), WRONG.values(), ids=WRONG)
@pytest.mark.row("B73")
def test_counts_that_are_none_are_refused(counts, kind, message):
    with pytest.raises(kind, match=message):
        embedder.huffman_codes(np.array(counts, None if counts else np.int64))


@pytest.mark.slow
@each_count
def test_gensim_has_the_same_tree(counts):
    reason = "gensim is an extra: pip install 'embedder-jax[bench]'"
    gensim = pytest.importorskip("gensim.models.word2vec", reason=reason)
    keyed = pytest.importorskip("gensim.models.keyedvectors", reason=reason)
    vectors = keyed.KeyedVectors(1, count=len(counts))
    vectors.index_to_key = [str(i) for i in range(len(counts))]
    vectors.key_to_index = {key: i for i, key in enumerate(vectors.index_to_key)}
    vectors.vectors = np.zeros((len(counts), 1), np.float32)
    for i, count in enumerate(counts):
        vectors.set_vecattr(str(i), "count", int(count))
    gensim._assign_binary_codes(vectors)
    for token, (code, points) in enumerate(paths(huffman_tree(counts))):
        assert "".join(map(str, vectors.get_vecattr(token, "code"))) == code
        assert list(vectors.get_vecattr(token, "point")) == points
