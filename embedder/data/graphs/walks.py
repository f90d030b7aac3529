"""Random walks over a graph, of first or second order (node2vec).

Each walk has random draws of its own, numbered from 0, so that walks can be made in any
order by any thread (ALGORITHM.md (60) to (63)). Second-order steps are drawn by
rejection, so that no table of edges times degrees is needed: a neighbour is proposed as
in a first-order walk, and accepted in proportion to its bias. A step that is rejected
MAX_TRIALS times is drawn from the exact distribution, which is the same, but takes time
in proportion to the degree.

References: Perozzi et al. 2014, arXiv:1403.6652; Grover and Leskovec 2016,
arXiv:1607.00653; Yang et al. 2019, KnightKing, SOSP.
"""

from typing import NamedTuple

import numpy as np

from embedder.data.graphs.csr import Edges, Graph
from embedder.disk.compiled import compiled
from embedder.errors import InputError
from embedder.vectors.subwords import GOLDEN, mixed

_LEAST_TRIALS = 16
_SPAWN_KEY = 4  # of the keys of walks alone
_ROUNDS = 4  # of the permutation of starts
_S11 = np.uint64(11)


class WalkOptions(NamedTuple):
    """How walks are made."""

    per_node: int  # walks from each node in an epoch
    length: int  # nodes of a walk, the first included
    p: float = 1.0  # return parameter: the bias of the way back is 1 / p
    q: float = 1.0  # in-out parameter: of nodes that are no neighbours of the last
    is_fixed: bool = False  # whether all epochs have the same walks


class Keys(NamedTuple):
    """Random keys of all walks of an epoch."""

    draws: np.uint64
    rounds: np.ndarray  # u64[4], of the permutation of starts


def epoch_keys(seed: int, epoch: int) -> Keys:
    """The keys of an epoch, ALGORITHM.md (60)."""
    sequence = np.random.SeedSequence([seed, epoch], spawn_key=(_SPAWN_KEY,))
    keys = sequence.generate_state(1 + _ROUNDS, np.uint64)
    return Keys(keys[0], keys[1:])


def make_walks(
    graph: Graph, options: WalkOptions, first: int, last: int, seed: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """The walks with the numbers `first` to `last` - 1 of an epoch.

    Returns the visited nodes i32[n], walk by walk, and the lengths of the walks
    i32[last - first], which are at least 1: a walk ends at a node without neighbours.
    """
    keys = epoch_keys(seed, 0 if options.is_fixed else epoch)
    numbers = np.arange(first, last, dtype=np.uint64)
    starts = walk_starts(numbers, graph.num_nodes, options.per_node, keys.rounds)
    nodes = np.empty((last - first, options.length), np.int32)
    lengths = np.empty(last - first, np.int32)
    biases = 1 / options.p, 1 / options.q
    _walk(graph, biases, starts, mixed(keys.draws + numbers), nodes, lengths)
    if lengths.min(initial=options.length) == options.length:
        return nodes.reshape(-1), lengths
    is_visited = np.arange(options.length) < lengths[:, np.newaxis]
    return nodes[is_visited], lengths


def walk_starts(
    numbers: np.ndarray, num_nodes: int, per_node: int, keys: np.ndarray
) -> np.ndarray:
    """The first node of each walk, i32[n]: a random permutation of the numbers of all
    walks of an epoch, modulo the number of nodes, ALGORITHM.md (61).

    A Feistel network permutes without a table; numbers out of range are permuted again.

    Args:
      numbers: of the walks, u64[n].
      keys: of the rounds, u64[4].
    """
    total = num_nodes * per_node
    half = np.uint64(max(1, -(-(total - 1).bit_length() // 2)))
    mask = (np.uint64(1) << half) - np.uint64(1)
    starts = numbers.copy()
    todo = np.ones(len(starts), bool)
    while todo.any():
        left, right = starts[todo] >> half, starts[todo] & mask
        for key in keys:
            left, right = right, left ^ (mixed(key + right) & mask)
        starts[todo] = (left << half) | right
        todo = starts >= total
    return (starts % np.uint64(num_nodes)).astype(np.int32)


_mix = compiled(mixed)


@compiled
def _uniform(key, number):
    """Draw `number` of the walk with `key`: a multiple of 2^-53 in [0, 1), (60)."""
    z = _mix(key + np.uint64(number + 1) * GOLDEN)
    return np.float64(z >> _S11) * 2.0**-53


@compiled
def _propose(graph, node, draw):
    """A neighbour by its weight, ALGORITHM.md (62)."""
    offsets, neighbors, cumulative = graph
    first, last = offsets[node], offsets[node + 1]
    if len(cumulative) == 0:
        return neighbors[min(first + np.int64(draw * (last - first)), last - 1)]
    wanted = draw * cumulative[last - 1]
    low, high = first, last - 1
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > wanted:
            high = middle
        else:
            low = middle + 1
    return neighbors[low]


@compiled
def _find(graph, node, wanted):
    """Index of the neighbour `wanted` of a node; -1: it is none."""
    offsets, neighbors = graph.offsets, graph.neighbors
    low, high = offsets[node], offsets[node + 1]
    while low < high:
        middle = (low + high) // 2
        if neighbors[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < offsets[node + 1] and neighbors[low] == wanted:
        return low
    return np.int64(-1)


@compiled
def _bias(graph, biases, previous, node):
    """Bias of `node` after `previous`, ALGORITHM.md (63)."""
    back, away = biases
    if node == previous:
        return back
    return 1.0 if _find(graph, previous, node) >= 0 else away


@compiled
def _weight(cumulative, first, k):
    """Weight of entry k of the row that begins at `first`."""
    if len(cumulative) == 0:
        return 1.0
    return cumulative[k] - cumulative[k - 1] if k > first else cumulative[k]


@compiled
def _exact(graph, biases, previous, node, draw):
    """A neighbour from the distribution (63), computed over the whole row."""
    offsets, neighbors, cumulative = graph
    first, last = offsets[node], offsets[node + 1]
    total = 0.0
    for k in range(first, last):
        bias = _bias(graph, biases, previous, neighbors[k])
        total += _weight(cumulative, first, k) * bias
    wanted, sum_so_far = draw * total, 0.0
    for k in range(first, last):
        bias = _bias(graph, biases, previous, neighbors[k])
        sum_so_far += _weight(cumulative, first, k) * bias
        if sum_so_far > wanted:
            return neighbors[k]
    return neighbors[last - 1]


@compiled
def _second_order(graph, biases, previous, node, key, number):
    """The next node by rejection, and the number of the next draw.

    If the way back has the largest bias, what this exceeds the others by is an outcome
    of its own: else nearly all proposals would be rejected.
    """
    offsets, _, cumulative = graph
    back, away = biases
    first, last = offsets[node], offsets[node + 1]
    most = max(1.0, away)
    least = min(back, 1.0, away)
    total = most * (last - first if len(cumulative) == 0 else cumulative[last - 1])
    excess = 0.0
    if back > most:
        k = _find(graph, node, previous)
        if k >= 0:
            excess = _weight(cumulative, first, k) * (back - most)
    for _ in range(max(_LEAST_TRIALS, 2 * (last - first))):
        draw = _uniform(key, number)
        number += 1
        if excess > 0:
            draw = draw * (total + excess) - excess
            if draw < 0:
                return previous, number
            draw = draw / total
        after = _propose(graph, node, draw)
        limit = _uniform(key, number) * most
        number += 1
        if limit < least:
            return after, number
        if limit < _bias(graph, biases, previous, after):
            return after, number
    draw = _uniform(key, number)
    after = _exact(graph, biases, previous, node, draw)
    return after, number + 1


@compiled
def _walk(graph, biases, starts, keys, nodes, lengths):
    """Writes walk i to nodes[i], and its number of nodes to lengths[i].

    Args:
      biases: of the way back, and of nodes that are no neighbours of the last.
    """
    offsets = graph.offsets
    back, away = biases
    is_first_order = back == 1 and away == 1
    for i in range(len(starts)):
        node, previous, number = starts[i], starts[i], 0
        nodes[i, 0] = node
        lengths[i] = nodes.shape[1]
        for step in range(1, nodes.shape[1]):
            if offsets[node] == offsets[node + 1]:
                lengths[i] = step
                break
            if is_first_order or step == 1:
                draw = _uniform(keys[i], number)
                number += 1
                after = _propose(graph, node, draw)
            else:
                after, number = _second_order(
                    graph, biases, previous, node, keys[i], number
                )
            previous, node = node, after
            nodes[i, step] = node


def split_edges(
    edges: Edges, share: float, *, directed: bool
) -> tuple[Edges, np.ndarray]:
    """The edges to train on, and different held-out ones, i64[n, 2], by their hashes.

    Self loops are not held out. Undirected pairs have the smaller node first. Raises
    InputError if no edge is held out.
    """
    num_nodes = len(edges.nodes)
    first = np.minimum(edges.source, edges.target).astype(np.uint64)
    second = np.maximum(edges.source, edges.target).astype(np.uint64)
    hashes = mixed(first * np.uint64(num_nodes) + second + GOLDEN)
    is_loop = edges.source == edges.target
    largest = np.zeros(num_nodes, np.uint64)
    for ends in (edges.source, edges.target):
        np.maximum.at(largest, ends, np.where(is_loop, np.uint64(0), hashes))
    is_kept = (hashes == largest[edges.source]) | (hashes == largest[edges.target])
    limit = np.uint64(min(round(share * 2**64), 2**64 - 1))
    is_out = (hashes < limit) & ~is_kept & ~is_loop
    if not is_out.any():
        raise InputError(
            f"`holdout` = {share} holds out none of {len(hashes)} edges, of which each "
            "node keeps one: give a larger share, or a larger graph."
        )
    one, other = (edges.source, edges.target) if directed else (first, second)
    pairs = np.stack([one[is_out], other[is_out]], axis=1).astype(np.int64)
    order = np.lexsort((*pairs.T, hashes[is_out]))
    pairs = pairs[order]
    is_new = np.append(True, (pairs[1:] != pairs[:-1]).any(axis=1))
    weight = None if edges.weight is None else edges.weight[~is_out]
    trained = Edges(edges.nodes, edges.source[~is_out], edges.target[~is_out], weight)
    return trained, pairs[is_new]
