"""Edges of a graph that are held out while it trains, and what is scored on them."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from embedder import EmbeddingTrainer, read_vectors
from embedder.cli.main import main
from embedder.config.token_options import TokensOptions
from embedder.data.graph import Walks, encode_graph, open_graph
from embedder.data.graphs.csr import Edges
from embedder.data.graphs.walks import split_edges
from embedder.errors import InputError
from embedder.metrics.links import sample_non_edges
from tests.commands import json_lines
from tests.graphs import walk_oracle
from tests.graphs.graph_cases import KARATE, edges

FAST = ("--loader", "memory", "--vector-size", "6", "--block", "32", "--epochs", "3")
FAST += ("--sample", "0")
GRAPH = ("edges.tsv", *FAST, "--walks", "20", "--walk-length", "9", "--alpha", "0.05")
LINKS = (*GRAPH, "--holdout", "0.3", "--best-by", "links")
METRICS = "run/metrics.jsonl"


@pytest.fixture(autouse=True)
def files(own_folder):
    """Two groups of 15 nodes each, with three edges between them."""
    rng = np.random.default_rng(0)
    pairs = {(a, b) for a, b in rng.integers(15, size=(90, 2)).tolist() if a != b}
    both = [(a + 15 * group, b + 15 * group) for group in (0, 1) for a, b in pairs]
    both += [(0, 15), (3, 20), (7, 29)]
    Path("edges.tsv").write_text("".join(f"n{a}\tn{b}\n" for a, b in both))
    labels = "".join(f"n{i}\t{'left' if i < 15 else 'right'}\n" for i in range(30))
    Path("labels.tsv").write_text(labels)


def train(*options: str) -> int:
    return main(["train", *options, "--workdir", "run"])


def encoded(holdout: float = 0.3, cache: Path | None = None, **settings) -> Walks:
    options = TokensOptions(walks=20, walk_length=9, holdout=holdout, **settings)
    return encode_graph(open_graph("edges.tsv", options), options, cache)


def named(walks: Walks, pairs: np.ndarray) -> set[frozenset[str]]:
    tokens = walks.vocabulary.tokens
    return {frozenset((tokens[a], tokens[b])) for a, b in pairs.tolist()}


def pairs_of(walks: Walks) -> np.ndarray:
    """The pairs of nodes with an edge that is trained on."""
    degrees = np.diff(walks.graph.offsets)
    source = np.repeat(np.arange(len(degrees)), degrees)
    return np.stack([source, walks.graph.neighbors], axis=1)


def mix(z: int) -> int:
    """SplitMix64 of z, in integers of Python."""
    return walk_oracle.mix((z + 0x9E3779B97F4A7C15) % 2**64)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_edges_are_held_out_by_the_equation(share):
    """(77): by one node after the other."""
    given = edges()
    ends = list(zip(given.source.tolist(), given.target.tolist(), strict=True))
    num = len(given.nodes)
    hashes = {frozenset(e): mix(min(e) * num + max(e)) for e in ends}
    kept = {
        max((e for e in hashes if node in e), key=lambda e: hashes[e])
        for node in range(num)
    }
    expected = {e for e, h in hashes.items() if h < share * 2**64} - kept
    left, found = split_edges(given, share, directed=False)
    assert [frozenset(e) for e in found.tolist()] == sorted(
        expected, key=lambda e: hashes[e]
    )
    assert len(left.source) == len(ends) - len(expected) and len(expected) > 1
    degrees = Counter([*left.source.tolist(), *left.target.tolist()])
    assert {*degrees} == {*range(num)}


def test_both_directions_repetitions_and_weights_go_together():
    ends = np.array([*KARATE.edges()], np.int32)
    ends = np.concatenate([ends, ends[:, ::-1], ends[:9], [[2, 2]]])
    weight = np.arange(1.0, len(ends) + 1)
    given = Edges([str(i) for i in range(34)], ends[:, 0], ends[:, 1], weight)
    for directed in (False, True):
        left, found = split_edges(given, 0.5, directed=directed)
        kept = {*zip(left.source.tolist(), left.target.tolist(), strict=True)}
        held_out = {*map(tuple, found.tolist())}
        assert not kept & held_out and (2, 2) in kept
        mirrored = {(b, a) for a, b in held_out}
        assert mirrored == held_out if directed else not mirrored & held_out
        assert len(held_out) == len(found)
        assert left.weight is not None
        rows = (left.weight - 1).astype(int)
        np.testing.assert_array_equal(ends[rows, 0], left.source)


@pytest.mark.parametrize("directed", [False, True])
def test_walks_never_take_a_held_out_edge(directed):
    walks = encoded(directed=directed)
    whole = encoded(0.0, directed=directed)
    held_out = named(walks, walks.held_out)
    assert len(held_out) > 15
    assert named(whole, pairs_of(whole)) == held_out | named(walks, pairs_of(walks))
    steps = set()
    for epoch in range(3):
        ids, lengths = walks.shard(0, seed=1, epoch=epoch)
        is_last = np.zeros(len(ids), bool)
        is_last[np.cumsum(lengths) - 1] = True
        pairs = np.stack([ids[:-1], ids[1:]], axis=1)[~is_last[:-1]]
        steps |= named(walks, pairs)
    assert len(steps) > 40 and not steps & held_out


def test_a_cache_has_the_held_out_edges(tmp_path):
    first, again = encoded(cache=tmp_path / "c"), encoded(cache=tmp_path / "c")
    np.testing.assert_array_equal(first.held_out, again.held_out)
    assert len(encoded(0.0, tmp_path / "c").held_out) == 0
    assert len([*(tmp_path / "c").iterdir()]) == 2
    (path,) = (tmp_path / "c").rglob("held_out.npy")
    data = path.read_bytes()
    path.write_bytes(data[:-8] + (99).to_bytes(8, "little"))
    with pytest.raises(InputError, match=r"held_out\.npy"):
        encoded(cache=tmp_path / "c")


@pytest.mark.spread(1)
@pytest.mark.parametrize("directed", [(), ("--directed",)])
def test_scores_are_those_of_cosines(capsys, directed):
    assert train(*LINKS, *directed) == 0
    walks = encoded(directed=bool(directed))
    vectors = read_vectors("run/vectors.safetensors")
    known = np.concatenate([pairs_of(walks), walks.held_out])
    others = sample_non_edges(
        len(walks.held_out), 30, known, directed=bool(directed), seed=0
    )
    both = np.concatenate([walks.held_out, others])
    is_edge = np.arange(len(both)) < len(walks.held_out)
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    cosines = (unit[both[:, 0]] * unit[both[:, 1]]).sum(axis=1)
    last = json_lines(METRICS)[-1]
    np.testing.assert_allclose(last["link_auc"], roc_auc_score(is_edge, cosines))
    np.testing.assert_allclose(
        last["link_ap"], average_precision_score(is_edge, cosines)
    )
    shown = capsys.readouterr().err
    assert f"{len(walks.held_out)} edges held out" in shown
    baselines = next(x for x in shown.splitlines() if x.startswith("baselines"))
    adjacency = np.zeros((30, 30))
    adjacency[tuple(pairs_of(walks).T)] = 1
    source, target = both.T
    degrees = adjacency.sum(axis=1)[source] * adjacency.sum(axis=0)[target]
    common = (adjacency @ adjacency)[source, target]
    counted = {"common neighbours": common, "degree product": degrees}
    for model, values in counted.items():
        auc = roc_auc_score(is_edge, values)
        assert f"link_auc {auc:.4f} ({model})" in baselines
        np.testing.assert_allclose(last[f"link_auc by {model}"], auc)
        average = average_precision_score(is_edge, values)
        assert f"link_ap {average:.4f} ({model})" in baselines


def test_labels_are_scored_as_by_the_verb(capsys):
    """For it, too, held-out edges are no edges of the training, but all others."""
    assert train(*GRAPH, "--holdout", "0.3", "--best-by", "labels.tsv") == 0
    baselines = capsys.readouterr().err
    command = ["evaluate", "run", "--labels", "labels.tsv", "--splits", "1", "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[0])
    last = json_lines(METRICS)[-1]
    for name, shown in (("micro_f1", "micro F1"), ("macro_f1", "macro F1")):
        assert last[name] == pytest.approx(report["scores"][shown]["value"], abs=1e-9)
        for model, scores in report["baselines"].items():
            assert f"{name} {scores[shown]['value']:.4f} ({model})" in baselines
    assert last["micro_f1"] > 0.6  # the groups are told apart
    assert main(["evaluate", "run", "--edges", "edges.tsv"]) == 0
    num = len(encoded().held_out)
    assert f"{num} edges and {num} other pairs" in capsys.readouterr().out


SETTINGS = {"vector_size": 6, "block": 32, "epochs": 3, "sample": 0, "alpha": 0.05}


def test_fit_graph_keeps_the_scores_of_its_last_training():
    """As of the command, which holds out the same edges."""
    assert train(*LINKS) == 0
    trainer = EmbeddingTrainer(**SETTINGS).fit_graph("edges.tsv", 20, 9, holdout=0.3)
    names = "link_auc", "link_ap"
    expected = [{name: line[name] for name in names} for line in json_lines(METRICS)]
    assert trainer.score_history == expected and len(expected) == 3
    assert trainer.held_out_history == []
    with pytest.raises(ValueError, match="`holdout` = 1e-09 holds out none of "):
        trainer.fit_graph("edges.tsv", 20, 9, holdout=1e-9)
    assert trainer.score_history == expected
    trainer.fit_graph("edges.tsv", 20, 9)
    assert trainer.score_history == []
