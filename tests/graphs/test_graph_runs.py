"""Walks as the corpus of a run: its columns, cache, loaders, bad settings."""

import gzip
import json
from pathlib import Path

import networkx
import numpy as np
import polars as pl
import pytest
import scipy.sparse

from embedder import EmbeddingTrainer, read_vectors
from embedder.cli.main import main
from embedder.config import Config, read_toml, with_options
from embedder.data import shards
from embedder.data.blocks import BlockShape, Sampling, block_source
from embedder.data.graph import Walks, encode_graph, open_graph, walks_over
from embedder.data.graphs.edge_table import EdgeColumns
from embedder.data.graphs.edges import find_columns
from embedder.disk.digests import DIGESTS_FILE, files_in, write_digests
from embedder.errors import InputError
from embedder.tokens.task import TokensTask
from tests.commands import error_line, flip
from tests.graphs.graph_cases import KARATE, edges

GRAPH = ("karate.tsv", "--walks", "4", "--walk-length", "20", "--vector-size", "5")
GRAPH += ("--loader", "memory", "--workdir", "run", "--alpha", "0.01")
TRAIN = ("train", "friends.tsv", *GRAPH[1:], "--walks", "200", "--epochs", "3")
COLUMNS = {"source": "user", "target": "friend", "weight": "calls"}
NAMED = [part for name, column in COLUMNS.items() for part in (f"--{name}", column)]


@pytest.fixture(autouse=True)
def graphs(own_folder):
    """With a graph without a header, and one with columns."""
    ends = "".join(f"{a}\t{b}\n" for a, b in KARATE.edges())
    Path("karate.tsv").write_text(ends)
    friends().write_csv("friends.tsv", separator="\t")


def friends() -> pl.DataFrame:
    ends = np.array([*KARATE.edges()])
    calls = 1.0 + np.arange(len(ends)) % 3
    return pl.DataFrame({"user": ends[:, 0], "friend": ends[:, 1], "calls": calls})


def options(**changes):
    return with_options(Config(), **{"walks": 4, "walk_length": 20} | changes).tables


def walks(**changes) -> Walks:
    return walks_over(edges(), options(**changes))


def shard_lists(source: Walks, seed: int, epoch: int) -> list[list[int]]:
    count = len(source.shard_tokens)
    return [source.shard(z, seed, epoch)[0].tolist() for z in range(count)]


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
    assert source.memory["graph"] == 35 * 8 + 2 * 78 * 4
    assert source.memory["building graph"] == 78 * 110


def test_shards_have_all_walks_and_their_visits_are_expected(small_shards):
    source = walks(walks=400)
    assert source.shard_sequences.tolist() == [25] * 544
    assert source.num_tokens == source.raw_tokens == 400 * 34 * 20
    visits = np.bincount(np.concatenate(shard_lists(source, 1, 0)), minlength=34)
    np.testing.assert_allclose(visits, source.vocabulary.counts, rtol=0.1)
    assert [len(part) for part in shard_lists(walks(walks=1), 1, 0)] == [500, 180]


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


def test_progress_rises_to_the_end_although_walks_end_early(small_shards):
    graph = networkx.DiGraph([*KARATE.edges()])  # most walks are short
    given = walks_over(edges(graph), options(walks=40, directed=True))
    shape = BlockShape(window=3, block=32, tile=16, noise=8, blocks_per_update=2)
    sampling = Sampling(1e-2, 0.75)
    source = block_source(given, shape, sampling, seed=1, epochs=range(3))
    count = len(source.encoded.shard_tokens)
    found = np.concatenate(
        [source.updates(e, z).progress for e in range(3) for z in range(count)]
    )
    assert found[0] == 0 and (np.diff(found) > 0).all() and 0.9 < found[-1] < 1


def test_a_run_writes_the_vectors_of_all_nodes(capsys):
    """A dry run counts the graph; a finished run is known to be so."""
    assert main(["train", *GRAPH, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "graph: 34 nodes, unweighted, 156 neighbours in all; 136 walks" in said
    assert ", graph 0.0, building graph 0.0," in said
    assert not Path("run").exists()
    assert main(["train", *GRAPH]) == 0
    said = capsys.readouterr().err
    assert "graph: 34 nodes, 78 edges; self loops, left out: 0;" in said
    assert "nodes/s" in said
    assert {*read_vectors("run").keys} == {str(node) for node in range(34)}
    assert "min_count = 1\n" in Path("run/config.toml").read_text()
    assert main(["train", *GRAPH]) == 0
    assert "finished before" in capsys.readouterr().out


def test_without_numba_a_graph_is_refused(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(InputError, match="`walks` needs Numba.*pip install numba"):
        TokensTask("karate.tsv", None, options())


def test_numba_that_is_turned_off_is_named(monkeypatch, capsys):
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    fault = "which is turned off by NUMBA_DISABLE_JIT: unset it."
    Path("text.txt").write_text("a b\n" * 9)
    assert main("train text.txt --min-count 1 --backend numba".split()) == 2
    assert error_line(capsys) == f"embedder: `backend` is 'numba', {fault}"
    assert main(["train", *GRAPH]) == 2
    assert error_line(capsys) == f"embedder: `walks` needs Numba, {fault}"


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
    texts, (in_file, matrix) = found[:2], found[2::2]
    assert texts[0] == texts[1] and in_file[1] == matrix[1]
    assert matrix[0] == [*map(int, in_file[0])]
    assert {*texts[0][0]} == {*in_file[0]} == {*found[3][0]}


def test_nodes_that_are_integers_stay_integers():
    trainer = EmbeddingTrainer(**SETTINGS).fit_graph(KARATE, 5, 20)
    trainer.save("model.npz")
    loaded = EmbeddingTrainer.load("model.npz")
    assert {*loaded.index_to_key} == {*KARATE} and 0 in loaded
    near = trainer.most_similar(0, topn=3)
    assert near == loaded.most_similar(0, topn=3)
    assert all(type(node) is int for node, _ in near)
    named = networkx.relabel_nodes(KARATE, str)
    trainer.fit_graph(named, 5, 20)
    with pytest.raises(KeyError, match="0 is not in the vocabulary"):
        trainer.most_similar(0)


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


# --- the cache


def test_a_graph_is_cached_and_found_again():
    """Whether its columns are named or found."""
    files = open_graph("friends.tsv", options())
    first = encode_graph(files, options(**COLUMNS), Path("cache"))
    unread = files._replace(read=lambda: pytest.fail("it was read"))
    again = encode_graph(unread, options(p=0.5, q=2, walks_fixed=True), Path("cache"))
    assert again.content == first.content
    assert again.vocabulary.tokens == first.vocabulary.tokens
    assert again.building_bytes == 0 < first.building_bytes
    assert encode_graph(files, options(), None).content == first.content
    unweighted = {"source": "user", "target": "friend"}
    for changes in ({"directed": True}, {"walk_length": 9}, {"walks": 5}, unweighted):
        before = len([*Path("cache").iterdir()])
        changed = options(**changes)
        found = encode_graph(open_graph("friends.tsv", changed), changed, Path("cache"))
        assert len([*Path("cache").iterdir()]) == before + 1
        assert found.content != first.content


@pytest.mark.row("F13", "B26")
@pytest.mark.parametrize("name", ["neighbors.npy", "offsets.npy", "vocabulary.parquet"])
def test_a_damaged_cache_is_refused(name):
    files = open_graph("karate.tsv", options())
    encode_graph(files, options(), Path("cache"))
    (path,) = Path("cache").glob(f"*/{name}")
    flip(path, -5)
    with pytest.raises(InputError, match=f"Cache file .*{name} is damaged"):
        encode_graph(files, options(), Path("cache"))


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


@pytest.mark.row("B19")
def test_an_edge_list_that_grows_is_refused_and_not_cached():
    files = open_graph("karate.tsv", options())
    assert files.name == "karate"
    assert files.manifest[0]["bytes"] == Path("karate.tsv").stat().st_size
    with open("karate.tsv", "a") as file:
        file.write("1\t2\n")
    with pytest.raises(InputError, match="karate.tsv changed while it was read"):
        encode_graph(files, options(), Path("cache"))
    assert not [*Path("cache").glob("*")]


# --- columns


@pytest.mark.spread(1)
@pytest.mark.row("B16")
@pytest.mark.parametrize("flags", [([], NAMED), (NAMED, [])], ids=["found", "named"])
def test_a_run_goes_on_whether_its_columns_are_named_or_found(stopped, capsys, flags):
    """A finished one is not planned again; other columns are refused."""
    first, second = flags
    stopped(*TRAIN[1:], *first)
    for message, named in (
        ("`source` 'user' there", ["--source", "friend", "--target", "user"]),
        ("`weight` 'calls' there, '' now", NAMED[:4]),
        ("`target` 'friend' there, 'calls' now", [*NAMED[:3], "calls"]),
    ):
        assert main([*TRAIN, *named]) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert "run holds a run with other settings: " in line and message in line
    assert main([*TRAIN, *second]) == 0
    assert "Resumes after" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        unplanned = "embedder.tokens.task.plan"
        patch.setattr(unplanned, lambda *_: pytest.fail("it is planned again"))
        assert main([*TRAIN, *first]) == 0
    assert "finished before" in capsys.readouterr().out


@pytest.mark.parametrize("named", [False, True])
def test_a_list_without_header_has_no_columns(stopped, capsys, named):
    """To name columns makes its first line the header: that is another graph."""
    Path("friends.tsv").write_text("1\t2\n" + "3\t4\n4\t5\n5\t3\n" * 9)
    columns = ["--source", "1", "--target", "2"]
    first, second = (columns, []) if named else ([], columns)
    stopped(*TRAIN[1:], *first)
    assert main([*TRAIN, *second]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert ("`source` '1' there, '' now" if named else "'' there, '1' now") in line
    assert main([*TRAIN, *first]) == 0


def test_a_run_of_an_earlier_version_resumes(stopped, capsys):
    """Its manifest of a graph had no columns."""
    stopped(*TRAIN[1:])
    facts = json.loads(Path("run/corpus.json").read_text())
    assert facts["manifest"].pop() == {"columns": COLUMNS}
    Path("run/corpus.json").write_text(json.dumps(facts, indent=2) + "\n")
    Path("run/SHA256SUMS").unlink(missing_ok=True)
    assert main([*TRAIN, *NAMED]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "`source` '' there, 'user' now" in line
    assert main([*TRAIN]) == 0 == main([*TRAIN])
    assert "finished before" in capsys.readouterr().out


def test_columns_are_found_in_the_heads_of_files(monkeypatch):
    monkeypatch.setattr("embedder.data.tables.text_form.HEAD_BYTES", 128)
    Path("1").write_text("# c\n\n a , b , w \n1,2,0.5\n")
    Path("2").write_bytes(gzip.compress(b"\xef\xbb\xbfa b w\n1 2 3\n"))
    pl.DataFrame({"a": [1], "b": [2], "w": [1]}).write_parquet("3")
    Path("other").write_text("x y w\n1 2 3\n")
    Path("bare").write_text("1 2 3\n")
    scipy.sparse.save_npz("m.npz", scipy.sparse.eye_array(3).tocsr())
    rows = b"1 2\n" * 10**5
    Path("long").write_bytes(b"# c\n" * 20 + b"a b\n" + rows + b"\xff\n")

    def find(names: str, *named: str) -> EdgeColumns | None:
        return find_columns([*map(Path, names.split())], EdgeColumns(*named))

    assert find("1 2 3") == ("a", "b", "w") == find("3 2 1", "a", "b", "w")
    assert find("1", "b", "a") == EdgeColumns("b", "a")
    assert find("long") == EdgeColumns("a", "b"), "of the first pieces alone"
    for names in ("1 other", "1 bare", "bare 1", "m.npz"):
        assert find(names) is None
