"""Walks have the transition probabilities of their graph, and draws of their own."""

import collections
import itertools
from concurrent.futures import ThreadPoolExecutor

import networkx
import numpy as np
import pytest
import scipy.stats

from embedder.data.graphs.walks import WalkOptions, epoch_keys, make_walks, walk_starts
from tests.graphs import walk_oracle
from tests.graphs.graph_cases import KARATE, graph, rows

SHAPES = {  # whether it is weighted, p, q
    "first order": (False, 1, 1),
    "weighted": (True, 1, 1),
    "p and q below 1": (False, 0.25, 0.5),
    "p and q above 1": (False, 4, 2),
    "weighted, p below, q above 1": (True, 0.5, 2),
    "weighted, p above, q below 1": (True, 2, 0.25),
    "often rejected": (True, 1000, 0.001),
    "mostly back": (True, 0.01, 0.5),
}
DIRECTED = networkx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3), (1, 0), (0, 4), (4, 1)])


def split(nodes: np.ndarray, lengths: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(nodes, np.cumsum(lengths)[:-1])]


def p_value(walks: list[list[int]], of, p: float, q: float) -> float:
    """Of a chi-square test of all transitions against the exact probabilities."""
    seen = collections.defaultdict(collections.Counter)
    for each in walks:
        for before, node, after in zip([-1, *each], each, each[1:], strict=False):
            seen[before if p != 1 or q != 1 else -1, node][after] += 1
    statistic, freedom = 0.0, 0
    for (before, node), counts in seen.items():
        names = sorted(of[node])
        bias = [1.0] * len(names)
        if before >= 0:
            bias = walk_oracle.biases(of, names, before, p, q)
        expected = np.array(bias) * [of[node][name] for name in names]
        expected *= counts.total() / expected.sum()
        observed = np.array([counts[name] for name in names])
        large = expected >= 5  # the others are one cell
        cells = [np.append(x[large], x[~large].sum()) for x in (observed, expected)]
        cells = [x[cells[1] > 0] for x in cells]
        assert observed.sum() == counts.total()  # nothing but neighbours
        statistic += float(((cells[0] - cells[1]) ** 2 / cells[1]).sum())
        freedom += len(cells[0]) - 1
    assert freedom > 50
    return float(scipy.stats.chi2.sf(statistic, freedom))


@pytest.mark.parametrize("shape", SHAPES)
def test_transitions_have_the_exact_probabilities(shape):
    weighted, p, q = SHAPES[shape]
    given = graph(weighted=weighted)
    made = make_walks(given, WalkOptions(400, 30, p, q), 0, 400 * len(KARATE), 1, 0)
    assert p_value(split(*made), rows(given), p, q) > 1e-3


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_walks_are_those_of_the_oracle_to_the_last_node(shape, directed):
    weighted, p, q = SHAPES[shape]
    given = graph(DIRECTED if directed else KARATE, weighted=weighted)
    of, options = rows(given), WalkOptions(5, 12, p, q)
    keys = walk_oracle.keys_of(7, 3)
    expected = []
    for number in range(3, 5 * len(of)):
        node = walk_oracle.start(number, len(of), 5, keys[1:])
        key = walk_oracle.mix((keys[0] + number) % 2**64)
        expected.append(walk_oracle.walk(of, node, 12, p, q, key))
    assert split(*make_walks(given, options, 3, 5 * len(of), 7, 3)) == expected
    if directed:
        assert {len(each) for each in expected} > {1, 12}  # 3 has no neighbour


@pytest.mark.parametrize("total", [1, 2, 5, 64, 1000])
def test_each_node_starts_its_share_of_the_walks(total):
    keys = epoch_keys(5, 0).rounds
    numbers = np.arange(3 * total, dtype=np.uint64)
    starts = walk_starts(numbers, total, 3, keys)
    assert (np.bincount(starts, minlength=total) == 3).all()


def test_starts_are_shuffled():
    """The first node of an epoch is any, by a chi-square test over epochs."""
    first = [
        walk_starts(np.zeros(1, np.uint64), 10, 2, epoch_keys(1, epoch).rounds)[0]
        for epoch in range(2000)
    ]
    assert scipy.stats.chisquare(np.bincount(first, minlength=10)).pvalue > 1e-3
    one = walk_starts(np.arange(100, dtype=np.uint64), 100, 1, epoch_keys(1, 0).rounds)
    assert np.abs(scipy.stats.spearmanr(one, np.arange(100)).statistic) < 0.3


@pytest.mark.parametrize("shape", ["first order", "weighted, p below, q above 1"])
def test_any_cut_and_any_thread_makes_the_same_walks(shape):
    weighted, p, q = SHAPES[shape]
    given, options = graph(weighted=weighted), WalkOptions(10, 20, p, q)
    whole, _ = make_walks(given, options, 0, 340, 1, 2)
    bounds = itertools.pairwise([0, 1, 50, 51, 200, 340])

    def part(bound):
        return make_walks(given, options, *bound, 1, 2)[0]

    with ThreadPoolExecutor(3) as pool:
        parts = np.concatenate([*pool.map(part, bounds)])
    np.testing.assert_array_equal(parts, whole, strict=True)


def test_epochs_and_seeds_have_walks_of_their_own_unless_fixed():
    given, options = graph(), WalkOptions(2, 10)

    def walks(seed, epoch, **changes):
        changed = options._replace(**changes)
        return make_walks(given, changed, 0, 68, seed, epoch)[0].tolist()

    different = [walks(*key) for key in ((1, 0), (1, 1), (2, 0), (2**64 - 1, 0))]
    assert len({*map(tuple, different)}) == 4
    assert walks(1, 5, is_fixed=True) == walks(1, 0) == walks(1, 0, is_fixed=True)
