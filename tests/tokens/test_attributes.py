"""Attributes of items: which values a table has, and items that no session has."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import sparse

import embedder
from embedder import EmbeddingTrainer
from embedder.cli.main import main
from embedder.data.attribute_tables import given_attributes, read_attributes
from embedder.metrics.next_item_baselines import PairRules
from embedder.metrics.next_item_scores import Mixture, SessionCounts
from embedder.vectors.attributes import ALIKE, AttributeRows
from tests.commands import flip

OPTIONS = {"vector_size": 8, "min_count": 1, "window": "session", "epochs": 2}
SESSIONS = [["tea", "milk"], ["tea", "cup", "milk"], ["nail", "hammer"]] * 40
KINDS = {"tea": ["kind=food"], "milk": ["kind=food", "white=1"], "oats": ["kind=food"]}
KINDS |= {"hammer": ["kind=tool", "never=1"], "saw": ["kind=tool"], "glue": ["never=1"]}
TRAIN = "train sessions.txt --min-count 1 --vector-size 8 --epochs 2 --loader memory"
TRAIN += " --no-report --attributes items.csv kind words:name --workdir"


@pytest.fixture(autouse=True)
def place(own_folder):
    Path("sessions.txt").write_text("\n".join(map(" ".join, SESSIONS)))
    rows = ["item,name,kind", "tea,Green Tea,food", "saw,GREEN saw,tool", "milk,,food"]
    rows += ["hammer,Big hammer's head,tool", "milk,,drink", "lamp,lamp,light"]
    Path("items.csv").write_text("\n".join(rows))


@pytest.fixture(scope="module")
def pickled() -> bytes:
    return pickle.dumps(EmbeddingTrainer(**OPTIONS).fit(SESSIONS, attributes=KINDS))


@pytest.fixture
def trained(pickled) -> EmbeddingTrainer:
    return pickle.loads(pickled)


def row(trainer: EmbeddingTrainer, name: str) -> np.ndarray:
    """The row of an attribute: the vector of an unseen item that has it alone."""
    attributes = trainer._lookup().attributes
    return attributes().vector_of([name])


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ({"x": ["a", "b"], "y": ["b", None]}, [], {"a": ["x=a", "y=b"], "b": ["x=b"]}),
        ({"x": ["Big tin, big", " "]}, ["words:x"], {"a": ["x=big", "x=tin"]}),
        ({"x": ["a | b|", "c"]}, ["list:x"], {"a": ["x=a", "x=b"], "b": ["x=c"]}),
        ({"x": [[2, 3], [3]]}, ["x"], {"a": ["x=2", "x=3"], "b": ["x=3"]}),
        ({"x": [1.0, None]}, ["x"], {"a": ["x=1"]}),
        ({"x": [1.5, 2.0]}, ["x"], {"a": ["x=1.5"], "b": ["x=2"]}),
        ({"x": [True, False]}, ["x"], {"a": ["x=true"], "b": ["x=false"]}),
        ({"sku": ["", "b"], "x": [1, 2]}, ["x"], {"b": ["x=2"]}),
    ],
)
@pytest.mark.row("B96")
def test_values_are_attributes(content, columns, expected):
    frame = pl.DataFrame(content | {"item": ["a", "b"]})  # the keys are not the first
    frame.write_parquet("items.parquet")
    found = read_attributes(Path("items.parquet"), columns)
    by_key: dict[str, list[str]] = {}
    for key, name in found.pairs.iter_rows():
        by_key.setdefault(key, []).append(name)
    assert by_key == expected


@pytest.mark.row("B96")
def test_there_may_be_100_000_values(tmp_path):
    frame = pl.DataFrame({"item": range(100_000), "x": range(100_000)})
    frame.write_parquet("many.parquet")
    known = read_attributes(Path("many.parquet")).known(["7", "99999", "none"])
    assert (len(known.names), known.num_known) == (100_000, 2)
    assert known.rows_of(["99999", "5"])[0].tolist() == [1, 0]


def test_vectors_are_means_of_their_rows(trained):
    own = trained._trained_state().params["tables"]["subwords"][: len(trained)]
    for key, names in (("milk", ["kind=food", "white=1"]), ("cup", [])):
        place = trained.key_to_index[key]
        rows = [own[place], *(row(trained, name) for name in names)]
        np.testing.assert_allclose(trained[key], np.mean(rows, axis=0), rtol=1e-5)
    np.testing.assert_array_equal(trained["oats"], row(trained, "kind=food"))
    assert trained.similarity("oats", "tea") > trained.similarity("saw", "tea")
    assert trained["glue"].tobytes() == row(trained, "never=1").tobytes()
    with pytest.raises(KeyError, match="'lamp' is not in the vocabulary"):
        trained["lamp"]


def test_a_model_file_and_an_update_keep_them(trained):
    trained.save("model.npz")
    loaded = EmbeddingTrainer.load("model.npz")
    assert loaded["oats"].tobytes() == trained["oats"].tobytes()
    for each in (loaded, trained):
        each.partial_fit([["oats", "milk", "glue"]] * 20, grow=True)
    assert "oats" in loaded.index_to_key
    assert loaded["oats"].tobytes() == trained["oats"].tobytes()
    assert loaded["saw"].tobytes() == trained["saw"].tobytes()


def test_an_update_brings_items_with_new_attributes(trained):
    before = row(trained, "white=1")
    more = {"rice": ["kind=food", "white=1", "grain=1"], "sand": ["grain=1"]}
    trained.alpha = 1e-4  # so small that old rows nearly stay
    trained.partial_fit([["rice", "tea"]] * 20, grow=True, attributes=more)
    np.testing.assert_allclose(row(trained, "white=1"), before, atol=0.02)
    assert trained["sand"].tobytes() == row(trained, "grain=1").tobytes()


def test_an_update_brings_the_first_item_with_an_attribute(trained):
    """Until then it is kept without a row."""
    kinds = KINDS | {"rice": ["grain=1"], "corn": ["grain=1"]}
    trained.fit(SESSIONS, attributes=kinds)
    with pytest.raises(KeyError, match="'corn' is not in the vocabulary"):
        trained["corn"]
    trained.partial_fit([["rice", "tea"]] * 20, grow=True)
    assert trained["corn"].tobytes() == row(trained, "grain=1").tobytes()


def test_integers_have_integers_as_items_with_attributes(capsys):
    sessions = [[1, 2, 3], [1, 4, 3], [5, 6, 7]] * 60
    kinds = {1: ["k=f"], 5: ["k=t"], 9: ["k=t"], "GIFT": ["k=t"], "007": ["k=f"]}
    trained = EmbeddingTrainer(**OPTIONS)
    trained.fit(sessions, attributes=kinds, next_items=True, holdout=0)
    again = pickle.loads(pickle.dumps(trained))
    for each in (trained, again):
        assert each.next_items([1], topn=1)[0][0] in (2, 3, 4)
        assert 9 in dict(each.next_items([6], topn=9))
        with pytest.raises(KeyError, match="'GIFT'"):
            each.next_items(["GIFT"])


def test_an_update_takes_the_new_attributes_of_an_item(trained):
    trained.partial_fit(SESSIONS, attributes={"tea": ["kind=drink"]})
    own = trained._trained_state().params["tables"]["subwords"]
    rows = own[trained.key_to_index["tea"]], row(trained, "kind=drink")
    np.testing.assert_allclose(trained["tea"], np.mean(rows, axis=0), rtol=1e-5)


def test_unseen_items_are_ranked_by_those_alike():
    """Equations (104) and (105), by loops."""
    rng = np.random.default_rng(0)
    of_keys = {
        f"i{k}": [f"a={x}" for x in {*rng.integers(6, size=3)}] for k in range(12)
    }
    tokens = [f"i{k}" for k in range(9)]
    attributes = given_attributes(of_keys).known(tokens)
    output = rng.normal(size=(9, 4)).astype(np.float32)
    names = attributes.names[: attributes.num_known]
    rows = AttributeRows(attributes, np.zeros((len(names), 4), np.float32))
    sets = [{*of_keys[f"i{k}"]} & {*names} for k in range(12)]
    having = {a: [k for k in range(9) if a in sets[k]] for a in names}
    gain = {a: np.log(1 + 9 / len(each)) for a, each in having.items()}
    alike, unseen = rows.alike(tokens).toarray(), rows.unseen_output(tokens, output)
    assert rows.unseen(tokens)[0] == ["i10", "i11", "i9"]
    for row_number, k in enumerate((10, 11, 9)):
        similarity = np.array(
            [
                sum(map(gain.get, sets[k] & sets[c]))
                / sum(map(gain.get, sets[k] | sets[c]))
                for c in range(9)
            ]
        )
        similarity[np.argsort(-similarity, kind="stable")[ALIKE:]] = 0
        expected = similarity / similarity.sum()
        np.testing.assert_allclose(alike[row_number], expected, rtol=1e-5)
        means = [output[having[a]].mean(axis=0) for a in sets[k]]
        np.testing.assert_allclose(
            unseen[row_number], np.mean(means, axis=0), rtol=1e-4
        )


def test_counts_of_unseen_items_are_means():
    """As of a table with a row and a column for each."""
    rng = np.random.default_rng(0)
    counts, means = (
        sparse.random_array(shape, density=0.2, rng=rng, format="csr", dtype="f4")
        for shape in ((30, 30), (7, 30))
    )
    every = sparse.csr_array(sparse.vstack([sparse.eye_array(30, dtype="f4"), means]))
    whole = sparse.csr_array(every @ counts @ every.T)
    queries = np.array([1, 33, 5, 36, 2]), np.array([2, 1, 2])
    for decay in (0.0, 0.5):
        found = PairRules(counts, decay, every)(queries).toarray()
        expected = PairRules(whole, decay)(queries).toarray()
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert expected[1].any()


def test_near_sessions_of_unseen_items_are_those_of_the_ones_alike():
    """Item 4 is as 1, most of all; also as a candidate."""
    sessions = np.array([0, 1, 2, 1, 3, 0, 2, 3]), np.array([3, 2, 3])
    means = sparse.csr_array([*np.eye(4), [0, 0.75, 0.25, 0]], dtype=np.float32)
    tables = np.ones((5, 2), np.float32)
    known = Mixture(tables[:4], tables[:4], SessionCounts.fit([sessions], 4))
    near = Mixture(tables, tables, known.counts, means=means).parts["neighbors"]
    found = near((np.array([0, 4, 2]), np.array([2, 1]))).toarray()
    asked = known.parts["neighbors"]((np.array([0, 1, 2]), np.array([2, 1])))
    scores = asked @ means.T.toarray()
    assert scores[:, 4].all()
    totals = scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, scores / totals, rtol=1e-5)


def test_verbs_know_items_that_no_session_has(capsys):
    assert main([*TRAIN.split(), "run", "--next-items"]) == 0
    capsys.readouterr()
    assert main(["neighbors", "run", "--attributes", "name=green", "--topn", "1"]) == 0
    assert capsys.readouterr().out.startswith("name=green\n")
    assert main(["neighbors", "run", "saw", "--topn", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["next", "run", "saw", "tea", "--topn", "9"]) == 0
    assert "hammer" in capsys.readouterr().out
    assert main(["next", "run", "hammer", "--topn", "9"]) == 0
    assert "saw" in capsys.readouterr().out
    assert main(["next", "run", "lamp"]) == 2  # no attribute of a known item
    assert "Item 'lamp' is not in the vocabulary" in capsys.readouterr().err
    assert main(["export", "run", "--to", "all.parquet", "--unseen"]) == 0
    frame = pl.read_parquet("all.parquet")
    assert frame["key"].to_list()[-1] == "saw" and len(frame) == 6
    vectors = embedder.read_vectors("run")
    assert frame["vector"][-1].to_list() == vectors["saw"].tolist()
    assert main([*TRAIN.split(), "dry", "--dry-run"]) == 0
    assert "attributes" in capsys.readouterr().out


def test_unseen_items_are_evaluated(capsys):
    assert main([*TRAIN.split(), "run", "--next-items"]) == 0
    Path("later.txt").write_text("nail saw\ntea milk\nsaw nail\nlamp tea\n" * 3)
    capsys.readouterr()
    command = "evaluate run --sessions later.txt --targets count --json"
    assert main(command.split()) == 0
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cases = {each["settings"]["targets"]: each["counts"]["cases"] for each in reports}
    assert cases == {
        **{"all": 9, "items that no session has": 3},
        "items that occur more than 20 times": 6,
    }


@pytest.mark.row("F64")
def test_a_run_keeps_what_it_read_of_them(capsys):
    """It goes on without the file, not with another one, nor with a damaged copy."""
    assert main([*TRAIN.split(), "whole"]) == 0
    stopped = [*TRAIN.split(), "run", "--save-every", "1"]
    assert main([*stopped, "--epochs", "1"]) == 0
    Path("run/vectors.safetensors").unlink()  # as if it were killed at the end
    shutil.copytree("run", "damaged")
    Path("items.csv").rename("moved.csv")
    assert main(["train", "--workdir", "run"]) == 0
    Path("items.csv").write_text("item,name,kind\ntea,x,y\n")
    capsys.readouterr()
    again = [each.replace("run", "damaged") for each in stopped]
    assert main(again) == 2
    assert "`attributes` of other items or columns" in capsys.readouterr().err
    Path("items.csv").unlink()
    flip(Path("damaged/attributes.npz"))
    assert main(again) == 2
    assert "attributes.npz" in capsys.readouterr().err
