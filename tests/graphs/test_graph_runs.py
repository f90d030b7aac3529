"""Walks as the corpus of a run: cache, loaders, replicas, resuming, bad settings."""

import dataclasses
import gzip
import json
from pathlib import Path

import jax
import networkx
import numpy as np
import pytest
import scipy.sparse

from embedder import EmbeddingTrainer, read_vectors
from embedder.cli import main
from embedder.config import Config, read_toml, resolve, with_options
from embedder.disk.digests import DIGESTS_FILE, files_in, write_digests
from embedder.engine.compilation import avoid_slow_scatters
from embedder.errors import InputError
from embedder.tables import loader, shards
from embedder.tables.blocks import BlockShape, block_source
from embedder.tables.graph import Walks, encode_graph, open_graph, walks_over
from embedder.tables.memory import memory_needed
from embedder.tables.problem import TablesProblem
from tests.commands import error_line
from tests.graphs.graph_cases import KARATE, edges

GRAPH = ("karate.tsv", "--walks", "4", "--walk-length", "20", "--vector-size", "5")
GRAPH += ("--loader", "memory", "--workdir", "run", "--alpha", "0.01")


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ends = "".join(f"{a}\t{b}\n" for a, b in KARATE.edges())
    Path("karate.tsv").write_text(ends)


def options(**changes):
    return with_options(Config(), **{"walks": 4, "walk_length": 20} | changes).tables


def walks(**changes) -> Walks:
    return walks_over(edges(), options(**changes))


def shard_lists(source: Walks, seed: int, epoch: int) -> list[list[int]]:
    return [
        source.shard(number, seed, epoch)[0].tolist()
        for number in range(len(source.shard_tokens))
    ]


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(shards, "SHARD_TOKENS", 500)  # 25 walks of 20


def test_nodes_are_sorted_by_expected_visits():
    source = walks()
    counts = source.vocabulary.counts
    assert len(source.vocabulary) == 34 and (np.diff(counts) <= 0).all()
    degrees = dict(KARATE.degree())
    ranked = [degrees[int(name)] for name in source.vocabulary.tokens]
    assert ranked[:2] == [17, 16] and ranked[-1] == 1
    assert abs(counts.sum() - 4 * 34 * 20) <= 34 / 2  # rounded


def test_shards_have_all_walks_and_their_visits_are_expected(small_shards):
    source = walks(walks=400)
    assert source.shard_sequences.tolist() == [25] * 544
    assert source.num_tokens == source.raw_tokens == 400 * 34 * 20
    found = np.concatenate([source.shard(z, 1, 0)[0] for z in range(544)])
    visits = np.bincount(found, minlength=34)
    np.testing.assert_allclose(visits, source.vocabulary.counts, rtol=0.1)
    assert [len(part) for part in shard_lists(walks(walks=1), 1, 0)] == [500, 180]


def test_repeats_of_nodes_in_blocks_by_hand():
    """Walks around a directed circle of 8 nodes have each node once; those along one
    edge have two nodes in turn."""
    circle = networkx.cycle_graph(8, create_using=networkx.DiGraph)
    source = walks_over(edges(circle), options(walk_length=8, directed=True))
    assert [source.repeats(block) for block in (4, 8, 16, 32)] == [1, 1, 2, 4]
    edge = walks_over(edges(networkx.Graph([(0, 1)])), options(walks=8))
    assert [edge.repeats(block) for block in (2, 4, 64)] == [1, 2, 32]
    assert edge.repeats(5) == (3**2 + 2**2) / 5


@pytest.mark.parametrize(
    ("min_alpha", "alpha"), [("0.0001", 0.03125 / 32), ("0.01",) * 2]
)
def test_walks_that_return_have_a_lower_rate(min_alpha, alpha):
    """Both nodes of one edge are 32 times in a block of 64."""
    Path("edge.tsv").write_text("a\tb\n")
    given = ["--walks", "8", "--walk-length", "16", "--vector-size", "3"]
    given += ["--loader", "memory", "--min-alpha", min_alpha, "--workdir", "run"]
    assert main(["train", "edge.tsv", *given]) == 0
    found = read_toml(Path("run/config.toml")).tables
    assert (found.alpha, found.block) == (pytest.approx(float(alpha)), 64)


def test_isolated_nodes_have_a_row_and_no_pair():
    graph = networkx.Graph([(0, 1), (1, 2)])
    graph.add_edge(3, 3)
    source = walks_over(edges(graph), options())
    assert source.vocabulary.tokens[-1] == "3"
    ids, lengths = source.shard(0, 1, 0)
    assert sorted(lengths.tolist()) == [1] * 4 + [20] * 12
    assert np.bincount(ids)[3] == 4 == source.vocabulary.counts[3]


def test_a_graph_is_cached_and_found_again(monkeypatch):
    files = open_graph("karate.tsv", options())
    first = encode_graph(files, options(), Path("cache"))
    unread = files._replace(read=lambda: pytest.fail("it was read"))
    again = encode_graph(unread, options(p=0.5, q=2, walks_fixed=True), Path("cache"))
    assert again.content == first.content
    assert again.vocabulary.tokens == first.vocabulary.tokens
    assert again.building_bytes == 0 < first.building_bytes
    assert encode_graph(files, options(), None).content == first.content
    for changes in ({"directed": True}, {"walk_length": 9}, {"walks": 5}):
        before = len([*Path("cache").iterdir()])
        encode_graph(files, options(**changes), Path("cache"))
        assert len([*Path("cache").iterdir()]) == before + 1


@pytest.mark.row("F13", "B26")
@pytest.mark.parametrize("name", ["neighbors.npy", "offsets.npy", "vocabulary.parquet"])
def test_a_damaged_cache_is_refused(name):
    files = open_graph("karate.tsv", options())
    encode_graph(files, options(), Path("cache"))
    (path,) = Path("cache").glob(f"*/{name}")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"Cache file .*{name} is damaged"):
        encode_graph(files, options(), Path("cache"))


@pytest.mark.row("B19")
def test_an_edge_list_that_grows_is_refused_and_not_cached():
    files = open_graph("karate.tsv", options())
    with open("karate.tsv", "a") as file:
        file.write("1\t2\n")
    with pytest.raises(InputError, match="karate.tsv changed while it was read"):
        encode_graph(files, options(), Path("cache"))
    assert not [*Path("cache").glob("*")]


SHAPE = BlockShape(window=3, block=32, tile=16, noise=8, blocks_per_update=2)


def source_of(given: Walks, seed: int = 1):
    return block_source(
        given, SHAPE, sample=1e-2, ns_exponent=0.75, seed=seed, epochs=range(3)
    )


def flat(updates) -> list:
    return [x.tolist() for x in jax.tree.leaves(updates)]


def superblocks(kind: str, source, epoch: int, workers: int = 2) -> list:
    made = loader.epoch_superblocks(kind, source, epoch, size=16, workers=workers)
    return [(flat(updates), num) for updates, num in made]


@pytest.mark.slow
def test_both_loaders_make_the_same_blocks_of_walks(small_shards):
    avoid_slow_scatters()
    source = source_of(walks())
    assert superblocks("tfdata", source, 1) == superblocks("memory", source, 1)


def test_blocks_depend_on_seed_and_epoch_and_on_no_thread(small_shards):
    source = source_of(walks())
    first = superblocks("memory", source, 0)
    assert first == superblocks("memory", source, 0, workers=1)
    assert first == superblocks("memory", source.with_seed(2).with_seed(1), 0)
    for other in ((source, 1), (source.with_seed(2), 0)):
        assert first != superblocks("memory", *other)
    given = walks()
    assert shard_lists(given, 1, 0) != shard_lists(given, 1, 1)
    fixed = walks(walks_fixed=True)
    assert shard_lists(fixed, 1, 0) == shard_lists(fixed, 1, 1)


def test_progress_rises_to_the_end_although_walks_end_early(small_shards):
    graph = networkx.DiGraph([*KARATE.edges()])  # most walks are short
    source = source_of(walks_over(edges(graph), options(walks=40, directed=True)))
    progress = [
        source.updates(epoch, index).progress
        for epoch in range(3)
        for index in range(len(source.encoded.shard_tokens))
    ]
    found = np.concatenate(progress)
    assert found[0] == 0 and (np.diff(found) > 0).all() and 0.9 < found[-1] < 1


def test_a_run_writes_the_vectors_of_all_nodes(capsys):
    assert main(["train", *GRAPH]) == 0
    said = capsys.readouterr().err
    assert "graph: 34 nodes, 78 edges; self loops, left out: 0;" in said
    assert "nodes/s" in said
    assert sorted(read_vectors(Path("run/vectors.safetensors")).keys, key=int) == [
        str(node) for node in range(34)
    ]
    assert "min_count = 1\n" in Path("run/config.toml").read_text()
    assert main(["train", *GRAPH]) == 0
    assert "finished before" in capsys.readouterr().out


def digest(folder: str) -> bytes:
    return Path(folder, "vectors.safetensors").read_bytes()


def test_a_stopped_run_of_walks_ends_as_a_whole_one(stopped):
    arguments = [*GRAPH, "--walks", "200", "--p", "0.5", "--epochs", "3"]
    assert main(["train", *arguments]) == 0
    expected = digest("run")
    arguments = ["stopped" if x == "run" else x for x in arguments]
    stopped(*arguments)
    assert main(["train", *arguments]) == 0
    assert digest("stopped") == expected


@pytest.mark.slow
def test_replicas_have_the_walks_of_their_own_seeds():
    assert main(["train", *GRAPH, "--replicas", "2", "--seed", "5"]) == 0
    assert main(["train", *GRAPH, "--workdir", "one", "--seed", "6"]) == 0
    from embedder.vectors.ensemble_files import read_ensemble

    second = read_ensemble(Path("run/replicas.safetensors")).vectors[1]
    expected = read_vectors(Path("one/vectors.safetensors")).matrix
    np.testing.assert_array_equal(second, expected)


def test_a_dry_run_counts_the_graph(capsys):
    assert main(["train", *GRAPH, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "graph: 34 nodes, unweighted, 156 neighbours in all; 136 walks" in said
    assert ", graph 0.0, building graph 0.0," in said
    assert not Path("run").exists()


def test_memory_has_the_bytes_of_the_graph():
    given = walks()
    assert given.memory["graph"] == 35 * 8 + 2 * 78 * 4
    assert given.memory["building graph"] == 78 * 110


def test_building_counts_beyond_the_memory_of_what_comes_later():
    """Tables take the memory of the building, of which libraries keep a quarter."""

    def needed(building: int) -> dict[str, int]:
        given = dataclasses.replace(walks(), building_bytes=building)
        return memory_needed(resolve(Config(), 680), given, 4)

    assert needed(100)["building graph"] == 25
    assert sum(needed(10**12).values()) == 10**12


@pytest.mark.row("B16")
def test_another_graph_is_refused_when_a_run_resumes(stopped, capsys):
    stopped(*GRAPH, "--walks", "200", "--epochs", "3")
    Path("karate.tsv").write_text(Path("karate.tsv").read_text() + "0\t9\n")
    assert main(["train", *GRAPH, "--walks", "200", "--epochs", "3"]) == 2
    assert "another corpus" in error_line(capsys)


BAD = {
    "no graph": (["--walks", "1"], "`walks` needs a graph: give an edge list as the"),
    "bootstrap": ([*GRAPH, "--bootstrap"], "`bootstrap` applies only to texts: walks"),
    "min count": ([*GRAPH, "--min-count", "3"], "`min_count` applies only to texts"),
    "errors": ([*GRAPH, "--unicode-errors", "replace"], "`unicode_errors` applies"),
    "p": (
        ["karate.tsv", "--p", "2"],
        "`p` applies only to graphs, got 2.0",
    ),
    "fixed": (["karate.tsv", "--walks-fixed"], "`walks_fixed` applies only to graphs"),
    "q": ([*GRAPH, "--q", "0"], "`q` must be a number from 1e-06 to 1000000.0, got 0"),
    "nan": ([*GRAPH, "--p", "nan"], "`p` must be a number from 1e-06 to 1000000.0"),
    "length": ([*GRAPH, "--walk-length", "1"], "`walk_length` must be an integer from"),
    "walks": (["karate.tsv", "--walks", "-1"], "`walks` must be an integer >= 0, got"),
    "missing": (["none.tsv", "--walks", "1"], "Corpus none.tsv does not exist"),
    "empty": (["empty.tsv", "--walks", "1"], "empty.tsv has no edge"),
    "prose": (["prose.txt", "--walks", "1"], "an edge list has two or three"),
    "columns": ([*GRAPH, "--source", "a"], "name them by --source, --target"),
    "loops": (["loops.tsv", "--walks", "1"], "must have an edge between two nodes"),
    "text": (["karate.txt"], "give --walks 10 to train on random walks"),
}


@pytest.mark.row("B26", "B20")
@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_one_line(case, capsys):
    arguments, message = BAD[case]
    Path("empty.tsv").touch()
    Path("loops.tsv").write_text("1 1\n")
    Path("prose.txt").write_text("To be or not to be\n" * 40)
    Path("karate.txt").write_text(Path("karate.tsv").read_text())
    assert main(["train", *arguments]) == 2
    assert message in error_line(capsys)


@pytest.mark.slow
def test_a_run_of_walks_is_no_base(capsys):
    assert main(["train", *GRAPH]) == 0
    capsys.readouterr()
    assert main(["train", *GRAPH, "--resume", "run", "--workdir", "more"]) == 2
    assert "`resume` applies only to texts" in error_line(capsys)


def test_parity_has_no_graphs(capsys):
    assert main(["parity", "--corpus", "karate.tsv", "--walks", "2"]) == 2
    assert "`walks` must be 0" in error_line(capsys)


def test_without_numba_a_graph_is_refused(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(InputError, match="`walks` needs Numba.*pip install numba"):
        TablesProblem("karate.tsv", None, options())


SETTINGS = {"vector_size": 6, "epochs": 2, "alpha": 0.01, "seed": 3}


def test_all_forms_of_a_graph_train_the_same_vectors():
    scipy.sparse.save_npz("k.npz", networkx.to_scipy_sparse_array(KARATE, weight=None))
    Path("k.gz").write_bytes(gzip.compress(Path("karate.tsv").read_bytes()))
    bare = networkx.Graph([*KARATE.edges()])
    bare = networkx.relabel_nodes(bare, str)  # in another order of nodes
    forms = ["karate.tsv", Path("k.gz"), "k.npz", bare]
    forms.append(networkx.to_scipy_sparse_array(KARATE, weight=None))
    found = []
    for form in forms:
        trainer = EmbeddingTrainer(**SETTINGS).fit_graph(form, 5, 20, q=2)
        found.append((trainer.index_to_key, trainer.vectors.tolist()))
    texts, numbered = found[:2], found[2::2]
    assert texts[0] == texts[1] and numbered[0] == numbered[1]
    assert {*texts[0][0]} == {*numbered[0][0]} == {*found[3][0]}


def test_fit_graph_trains_as_a_run_does():
    """On the same walks: min_count and the settings of walks agree."""
    trainer = EmbeddingTrainer(**SETTINGS).fit_graph("karate.tsv", 5, 20, p=0.5)
    arguments = [f"--{k.replace('_', '-')}={v}" for k, v in SETTINGS.items()]
    walk = ["--walks", "5", "--walk-length", "20", "--p", "0.5"]
    run = ["--workdir", "run", "--loader", "memory"]
    assert main(["train", "karate.tsv", *walk, *arguments, *run]) == 0
    vectors = read_vectors(Path("run/vectors.safetensors"))
    assert vectors.keys == trainer.index_to_key
    np.testing.assert_array_equal(vectors.matrix, trainer.vectors)


@pytest.mark.slow
def test_an_ensemble_of_a_graph_has_the_models_of_consecutive_seeds():
    trainer = EmbeddingTrainer(**SETTINGS).fit_graph("karate.tsv", 5, 20, replicas=2)
    for k, matrix in enumerate(trainer.ensemble_.vectors):
        settings = SETTINGS | {"seed": trainer.seed + k}
        alone = EmbeddingTrainer(**settings).fit_graph("karate.tsv", 5, 20)
        np.testing.assert_array_equal(matrix, alone.vectors)
        with pytest.raises(RuntimeError, match="call `fit_ensemble` first"):
            _ = alone.ensemble_


def test_fit_graph_takes_the_direction_of_the_graph():
    graph = networkx.DiGraph([(a, b) for a, b in KARATE.edges()])

    def counts(**changes):
        trainer = EmbeddingTrainer(**SETTINGS).fit_graph(graph, 5, 20, **changes)
        return trainer._vocabulary.counts.sum()

    assert counts() == counts(directed=True) < counts(directed=False)


@pytest.mark.row("B8", "B26")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"walks": 0}, "`walks` must be an integer >= 1, got 0"),
        ({"walks": "5"}, "`walks` must be an integer >= 1, got '5'"),
        ({"replicas": 0}, "`replicas` must be an integer >= 1, got 0"),
        ({"walk_length": 1}, "`walk_length` must be an integer from 2"),
        ({"p": 0}, "`p` must be a number from"),
        ({"directed": 1}, "`directed` must be True or False, got 1"),
        ({"source": "a"}, "are columns of a file"),
    ],
)
def test_fit_graph_refuses_what_is_wrong(changes, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingTrainer().fit_graph(KARATE, **changes)


def test_manifest_is_that_of_the_file():
    files = open_graph("karate.tsv", options())
    assert json.dumps(files.manifest) and files.name == "karate"
    assert files.manifest[0]["bytes"] == Path("karate.tsv").stat().st_size


@pytest.mark.row("B6", "B26")
@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("offsets", np.array([0, 3, 2]), "its sizes must be"),
        ("offsets", np.array([1, 1, 2]), "its sizes must be"),
        ("offsets", np.array([0, 2]), "its sizes must be"),
        ("offsets", np.array([0, 1, 3]), "its sizes must be"),
        ("offsets", np.array([0, 1, 2], np.int32), "other types"),
        ("neighbors", np.array([1, 2], np.int32), "must be from 0 to 1"),
        ("neighbors", np.array([-1, 0], np.int32), "must be from 0 to 1"),
        ("cumulative", np.ones(1), "its sizes must be"),
    ],
)
def test_a_cache_that_would_be_read_out_of_bounds_is_refused(name, array, message):
    """Its digests are right: only its numbers are wrong."""
    Path("karate.tsv").write_text("a b\n")
    files = open_graph("karate.tsv", options())
    encode_graph(files, options(), Path("cache"))
    (folder,) = Path("cache").iterdir()
    np.save(folder / f"{name}.npy", array)
    (folder / DIGESTS_FILE).unlink()
    write_digests(folder, files_in(folder))
    with pytest.raises(InputError, match=f"is damaged .*{message}"):
        encode_graph(files, options(), Path("cache"))
