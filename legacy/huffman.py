"""The Huffman tree of hierarchical softmax, with the ties of gensim.

Reference: Huffman 1952, Proc. IRE 40(9); gensim 4, `models/word2vec.py`.
"""

import heapq
from typing import NamedTuple

import numpy as np


class Tree(NamedTuple):
    """The path of each token from the root, padded to that of the longest."""

    points: np.ndarray  # i32[V, L], inner nodes; the last one, V - 2, is the root
    signs: np.ndarray  # i8[V, L]: 1 to a second child, -1 to a first, 0 is padding


NO_TREE = Tree(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int8))
"""In the place of a tree where there is none: of one token, without a path."""


class _Node:
    """Compared by counts alone, so that the heap decides on ties."""

    def __init__(self, count: int, number: int, children: tuple = ()):
        self.count = count
        self.number = number  # of a token, or V + that of an inner node
        self.children = children

    def __lt__(self, other: "_Node") -> bool:
        return self.count < other.count


def huffman_tree(counts: np.ndarray) -> Tree:
    """The tree of tokens that occur `counts` times, i64[V].

    The two lightest nodes become the first and the second child of inner node 0, then
    of 1, and so on up to V - 2.
    """
    num_tokens = len(counts)
    heap = [_Node(count, token) for token, count in enumerate(counts.tolist())]
    heapq.heapify(heap)
    for inner in range(num_tokens - 1):
        children = heapq.heappop(heap), heapq.heappop(heap)
        count = children[0].count + children[1].count
        heapq.heappush(heap, _Node(count, num_tokens + inner, children))
    paths: list[list[tuple[int, int]]] = [[] for _ in range(num_tokens)]
    stack: list[tuple[_Node, list[tuple[int, int]]]] = [(heap[0], [])]
    while stack:
        node, path = stack.pop()
        if not node.children:
            paths[node.number] = path
            continue
        for sign, child in zip((-1, 1), node.children, strict=True):
            stack.append((child, [*path, (node.number - num_tokens, sign)]))
    longest = max(1, *map(len, paths)) if num_tokens > 1 else 1
    points = np.zeros((num_tokens, longest), np.int32)
    signs = np.zeros((num_tokens, longest), np.int8)
    for token, path in enumerate(paths):
        for place, (point, sign) in enumerate(path):
            points[token, place], signs[token, place] = point, sign
    return Tree(points, signs)
