"""Edges of a graph that are held out while it trains, and what is scored on them."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from embedder import EmbeddingTrainer
from embedder.cli import main
from embedder.errors import InputError
from embedder.evaluation.links import sample_non_edges
from embedder.graphs.csr import Edges
from embedder.graphs.held_out import split_edges
from embedder.run.workdir import Workdir
from embedder.tables.graph import Walks, encode_graph, open_graph
from embedder.tables.options import TablesOptions
from embedder.vectors.export import read_vectors
from tests.commands import error_line
from tests.graphs.graph_cases import KARATE, edges

FAST = ("--loader", "memory", "--vector-size", "6", "--block", "32", "--epochs", "3")
FAST += ("--sample", "0")
GRAPH = ("edges.tsv", *FAST, "--walks", "20", "--walk-length", "9", "--alpha", "0.05")
LINKS = (*GRAPH, "--holdout", "0.3", "--best-by", "links")
EVERY = ("--eval-every", "16", "--blocks-per-update", "1")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Two groups of 15 nodes each, with three edges between them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pairs = {(a, b) for a, b in rng.integers(15, size=(90, 2)).tolist() if a != b}
    both = [(a + 15 * group, b + 15 * group) for group in (0, 1) for a, b in pairs]
    both += [(0, 15), (3, 20), (7, 29)]
    Path("edges.tsv").write_text("".join(f"n{a}\tn{b}\n" for a, b in both))
    labels = "".join(f"n{i}\t{'left' if i < 15 else 'right'}\n" for i in range(30))
    Path("labels.tsv").write_text(labels)


def train(*options: str, run: str = "run") -> int:
    return main(["train", *options, "--workdir", run])


def lines(run: str = "run") -> list[dict]:
    """The lines of metrics.jsonl without what tells the time."""
    found = map(json.loads, Path(run, "metrics.jsonl").read_text().splitlines())
    timed = "seconds", "per_second"
    return [{k: x for k, x in line.items() if not k.endswith(timed)} for line in found]


def encoded(holdout: float = 0.3, cache: Path | None = None, **settings) -> Walks:
    options = TablesOptions(walks=20, walk_length=9, holdout=holdout, **settings)
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
    """SplitMix64 of z, Steele et al. 2014, in integers of Python."""
    z = (z + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


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


def test_a_larger_share_holds_out_those_of_a_smaller_one():
    found = [split_edges(edges(), x, directed=False)[1] for x in (0.2, 0.4, 0.8)]
    few, more, most = ({*map(tuple, each.tolist())} for each in found)
    assert few < more < most


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
    last = lines()[-1]
    np.testing.assert_allclose(last["link_auc"], roc_auc_score(is_edge, cosines))
    np.testing.assert_allclose(
        last["link_ap"], average_precision_score(is_edge, cosines)
    )
    shown = capsys.readouterr().err
    assert f"{len(walks.held_out)} edges held out" in shown
    baselines = next(x for x in shown.splitlines() if x.startswith("baselines"))
    adjacency = np.zeros((30, 30))
    adjacency[tuple(pairs_of(walks).T)] = 1
    counted = {
        "common neighbours": (adjacency @ adjacency)[both[:, 0], both[:, 1]],
        "degree product": adjacency.sum(axis=1)[both[:, 0]]
        * adjacency.sum(axis=0)[both[:, 1]],
    }
    for model, values in counted.items():
        auc = roc_auc_score(is_edge, values)
        assert f"link_auc {auc:.4f} ({model})" in baselines
        np.testing.assert_allclose(last[f"link_auc by {model}"], auc)
        average = average_precision_score(is_edge, values)
        assert f"link_ap {average:.4f} ({model})" in baselines


@pytest.mark.slow
def test_evaluations_do_not_change_vectors():
    options = *GRAPH, "--holdout", "0.3", "--blocks-per-update", "1"
    best = "--best-by", "links", "--result", "last"
    assert train(*options, run="without") == 0
    assert train(*options, *best, *EVERY, run="with") == 0
    assert len(lines("with")) > 8
    for name in ("model.npz", "vectors.safetensors"):
        assert Path("with", name).read_bytes() == Path("without", name).read_bytes()
    assert train(*GRAPH, "--blocks-per-update", "1", run="all") == 0
    other = Path("all/vectors.safetensors").read_bytes()
    assert other != Path("with/vectors.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("best", ["links", "labels.tsv"])
def test_a_stopped_run_has_the_same_scores_best_and_end(stopped, best):
    options = *GRAPH, "--holdout", "0.3", "--best-by", best, *EVERY, "--result", "best"
    assert train(*options, run="whole") == 0
    stopped(*options, "--workdir", "run", epoch=1)
    assert train(*options) == 0
    assert lines() == lines("whole")
    for name in ("model.npz", "vectors.safetensors"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()


def test_labels_are_scored_as_by_the_verb(capsys):
    assert train(*GRAPH, "--best-by", "labels.tsv") == 0
    baselines = capsys.readouterr().err
    command = ["evaluate", "run", "--labels", "labels.tsv", "--splits", "1", "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[0])
    last = lines()[-1]
    for name, shown in (("micro_f1", "micro F1"), ("macro_f1", "macro F1")):
        assert last[name] == pytest.approx(report["scores"][shown]["value"], abs=1e-9)
        for model, scores in report["baselines"].items():
            assert f"{name} {scores[shown]['value']:.4f} ({model})" in baselines
    assert last["micro_f1"] > 0.6  # the groups are told apart
    assert Workdir("run").is_finished


def test_held_out_edges_are_no_edges_of_the_training(capsys):
    """For `embedder evaluate` either: all edges of the file that were held out."""
    assert train(*LINKS) == 0
    capsys.readouterr()
    assert main(["evaluate", "run", "--edges", "edges.tsv"]) == 0
    num = len(encoded().held_out)
    assert f"{num} edges and {num} other pairs" in capsys.readouterr().out


SETTINGS = {"vector_size": 6, "block": 32, "epochs": 3, "sample": 0, "alpha": 0.05}
SETTINGS |= {"noise": None}  # as of the command


@pytest.mark.parametrize("directed", [False, True])
def test_fit_graph_holds_out_what_the_command_does(directed):
    """The same edges, so the same vectors and scores."""
    assert train(*LINKS, *["--directed"] * directed) == 0
    trainer = EmbeddingTrainer(**SETTINGS)
    trainer.fit_graph("edges.tsv", 20, 9, directed=directed, holdout=0.3)
    vectors = read_vectors("run/vectors.safetensors")
    assert vectors.keys == trainer.index_to_key
    np.testing.assert_array_equal(vectors.matrix, trainer.vectors)
    names = "link_auc", "link_ap"
    expected = [{name: line[name] for name in names} for line in lines()]
    assert trainer.score_history == expected and len(expected) == 3
    assert trainer.held_out_history == []


@pytest.mark.slow
def test_a_trainer_keeps_the_scores_of_its_last_training():
    trainer = EmbeddingTrainer(**SETTINGS | {"epochs": 1})
    trainer.fit_graph("edges.tsv", 20, 9, holdout=0.3)
    held_out = trainer.vectors
    (alone,) = trainer.score_history
    trainer.fit_graph("edges.tsv", 20, 9, holdout=0.3, replicas=2)
    (mean,) = trainer.score_history
    assert [*mean] == [*alone] == ["link_auc", "link_ap"] and mean != alone
    trainer.fit_graph("edges.tsv", 20, 9)
    assert trainer.score_history == []
    assert not np.array_equal(trainer.vectors, held_out)


@pytest.mark.row("B39")
@pytest.mark.parametrize(
    ("share", "message"),
    [
        (1.0, r"`holdout` must be a number in \[0, 1\), got 1.0"),
        ("0.1", r"`holdout` must be a number in \[0, 1\), got '0.1'"),
        (1e-9, "`holdout` = 1e-09 holds out none of "),
    ],
)
def test_fit_graph_refuses_a_wrong_share(share, message):
    trainer = EmbeddingTrainer(**SETTINGS)
    with pytest.raises(ValueError, match=message):
        trainer.fit_graph("edges.tsv", 20, 9, holdout=share)
    assert trainer.loss_history == [] == trainer.score_history


REFUSED = {
    "held-out": (
        [*GRAPH, "--holdout", "0.1", "--best-by", "held-out"],
        "`best_by` must be links or a file with `walks`, got 'held-out'.",
    ),
    "no walks": (
        ["text.txt", *FAST, "--holdout", "0.1", "--best-by", "links"],
        "`best_by` must be held-out or next-item or a file without `walks`, got",
    ),
    "no share": (
        [*GRAPH, "--best-by", "links"],
        "`best_by` links needs `holdout`, such as 0.01, got 0.0.",
    ),
    "none": (
        [*GRAPH, "--holdout", "1e-9"],
        "`holdout` = 1e-09 holds out none of ",
    ),
    "no label": (
        [*GRAPH, "--best-by", "one.tsv"],
        "one.tsv must have 2 labels or more of known nodes, got 1",
    ),
}


@pytest.mark.row("B39")
@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_use_is_one_line_and_leaves_nothing(capsys, options, message):
    Path("text.txt").write_text("a b\n" * 99)
    Path("one.tsv").write_text("n1\tx\nn2\tx\n")
    assert train(*options) == 2
    assert message in error_line(capsys)
    assert not Path("run").exists()
