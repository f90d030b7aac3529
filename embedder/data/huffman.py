"""The Huffman tree of hierarchical softmax: a code for each token, ALGORITHM.md (89).

The two lightest nodes become the children of a new one, until one is left. Ties are
those of gensim, which follow from the order of `heapq`: so a tree of the same counts
has the same codes and the same inner nodes.

References: Huffman 1952, Proc. IRE 40(9); Morin and Bengio 2005, AISTATS; gensim 4,
`models/word2vec.py`.
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from embedder.errors import InputError, InputTypeError


class Tree(NamedTuple):
    """The inner nodes above each of V tokens; inner nodes are 0 .. V - 2, by age."""

    above: np.ndarray
    """i32[2 V - 1], of the tokens and then of the inner nodes: 2 p + c with p the inner
    node above and c = 1 for its second child; -1: none, the root."""
    depth: int
    """Nodes of the longest path, at least 1."""

    @property
    def num_tokens(self) -> int:
        """V."""
        return (len(self.above) + 1) // 2


class CodesAndPoints(NamedTuple):
    """The paths of V tokens from the root, one after the other."""

    codes: np.ndarray  # u8[n], 1 where the path goes to a second child
    points: np.ndarray  # i32[n], inner nodes, of which the root is V - 2
    lengths: np.ndarray  # i64[V], of the path of each token


class _Weight(float):
    """The count of a node, compared as a number alone, as gensim compares its nodes."""

    __slots__ = ("node",)

    def __init__(self, count: float):
        self.node = 0


def huffman_tree(counts: np.ndarray) -> Tree:
    """The tree of V tokens that occur `counts` times, i64[V], 1 token at least."""
    num_tokens = len(counts)
    above = np.full(2 * num_tokens - 1, -1, np.int32)
    heap = [_Weight(count) for count in counts.tolist()]
    for token, weight in enumerate(heap):
        weight.node = token
    heapq.heapify(heap)
    for inner in range(num_tokens - 1):
        first, second = heapq.heappop(heap), heapq.heappop(heap)
        above[first.node], above[second.node] = 2 * inner, 2 * inner + 1
        both = _Weight(first + second)
        both.node = num_tokens + inner
        heapq.heappush(heap, both)
    tree = Tree(above, depth=1)
    return tree._replace(depth=max(1, int(path_lengths(tree).max())))


def huffman_codes(counts: np.ndarray) -> CodesAndPoints:
    """The paths of V tokens that occur `counts` times, i64[V], as gensim has them.

    Raises:
      TypeError: counts are no integers >= 0; ValueError: there is none.
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise InputTypeError(
            f"`counts` must be integers >= 0, got {counts.dtype}{list(counts.shape)}."
        )
    if not len(counts):
        raise InputError("`counts` must have 1 value at least, got none.")
    return codes_and_points(huffman_tree(counts))


def path_lengths(tree: Tree) -> np.ndarray:
    """Inner nodes above each token, i64[V]."""
    lengths = np.zeros(tree.num_tokens, np.int64)
    for tokens, _ in _rising(tree):
        lengths[tokens] += 1
    return lengths


def codes_and_points(tree: Tree) -> CodesAndPoints:
    """The path of each token from the root, as gensim has it."""
    lengths = path_lengths(tree)
    ends = np.cumsum(lengths)
    codes, points = np.empty(ends[-1], np.uint8), np.empty(ends[-1], np.int32)
    for height, (tokens, entry) in enumerate(_rising(tree)):
        place = ends[tokens] - 1 - height  # paths end at the token
        codes[place], points[place] = entry & 1, entry >> 1
    return CodesAndPoints(codes, points, lengths)


def node_sums(tree: Tree, values: np.ndarray) -> np.ndarray:
    """Sum of `values` [V] over the tokens below each inner node, [V].

    There is one row more than there are inner nodes, which is 0.
    """
    sums = np.zeros(tree.num_tokens, values.dtype)
    for tokens, entry in _rising(tree):
        np.add.at(sums, entry >> 1, values[tokens])
    return sums


def descending(tree: Tree) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The nodes of each level, from the children of the root on: which they are, tokens
    and then V + inner nodes, i64[m], and what `Tree.above` says of them, i32[m]."""
    num_tokens = tree.num_tokens
    children = np.zeros(2 * (num_tokens - 1), np.int64)
    children[tree.above[:-1]] = np.arange(len(tree.above) - 1)
    inner = np.array([num_tokens - 2][: num_tokens - 1])
    while len(inner):
        entry = np.stack([2 * inner, 2 * inner + 1], axis=1).ravel()
        nodes = children[entry]
        yield nodes, entry
        inner = nodes[nodes >= num_tokens] - num_tokens


def _rising(tree: Tree) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of the lowest inner nodes of all paths, then of those above, and so on: the
    tokens that have one, i64[m], and what `Tree.above` says of it, i32[m]."""
    tokens, entry = np.arange(tree.num_tokens), tree.above[: tree.num_tokens]
    while True:
        is_there = entry >= 0
        tokens, entry = tokens[is_there], entry[is_there]
        if not len(tokens):
            return
        yield tokens, entry
        entry = tree.above[tree.num_tokens + (entry >> 1)]
