"""Files of vectors to start from, and of keys to freeze; and the same from Python."""

import gzip
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.config import Config, resolve, with_options
from embedder.engine.layout import Layout
from embedder.errors import InputError
from embedder.tables.memory import device_bytes
from embedder.tables.start_files import (
    given_start,
    is_vectors_file,
    read_first_vectors,
    read_frozen_keys,
    write_start,
)
from embedder.tables.starting import plan_start
from embedder.tables.vocabulary import Vocabulary
from embedder.vectors.export import endings, write_vectors
from embedder.vectors.vectors import Vectors

OPTIONS = {"vector_size": 3, "min_count": 1, "epochs": 2, "sample": 0}
VECTORS = Vectors(["b", "a", "z"], np.arange(9, dtype=np.float32).reshape(3, 3))
TEXT = [["a", "b", "c", "a", "d"] * 4] * 30
VOCABULARY = Vocabulary(["a", "b", "c", "d"], np.array([8, 4, 3, 1]))
EXPECTED = VECTORS.matrix[[1, 0]]  # of a and b


@pytest.mark.parametrize("ending", endings())
def test_every_format_is_read(tmp_path, ending):
    path = tmp_path / f"vectors{ending}"
    write_vectors(VECTORS, path)
    assert is_vectors_file(path)
    check_start(path)


def check_start(path: Path) -> None:
    starting = given_start(path, "known")
    rows, factors = plan_start(starting, VOCABULARY, "float64")
    assert rows.ids.tolist() == [0, 1]
    np.testing.assert_array_equal(rows.rows["input"], EXPECTED)
    assert rows.rows["input"].dtype == np.float64 and "output" not in rows.rows
    assert rows.lines == (
        f"start: 2 of 4 rows (75.0 % of the corpus's tokens) start from {path}",
        "frozen: 2 of 4 rows of the input table",
    )
    assert factors is not None and factors.tables == ("input",)
    np.testing.assert_array_equal(factors.input, [0, 0, 1, 1])


@pytest.mark.parametrize("name", ["glove.txt", "glove.vec.gz"])
def test_glove_is_read(tmp_path, name):
    opened = gzip.open if name.endswith("gz") else open
    with opened(tmp_path / name, "wt") as file:
        file.write("b 0 1 2\na 3 4 5\nz 6 7 8\n")
    check_start(tmp_path / name)


def test_a_model_file_has_output_rows_too(tmp_path):
    trainer = EmbeddingTrainer(**OPTIONS).fit(TEXT)
    trainer.save(tmp_path / "model.npz")
    path = tmp_path / "model.npz"
    assert not is_vectors_file(path)
    rows, factors = plan_start(given_start(path, ""), VOCABULARY, "float32")
    assert {*rows.rows} == {"input", "output"} and factors is None
    ids = [trainer.key_to_index[x] for x in VOCABULARY.tokens]
    np.testing.assert_array_equal(rows.rows["input"], trainer.vectors[ids])
    np.testing.assert_array_equal(rows.rows["output"], trainer._table("output")[ids])


@pytest.mark.parametrize("has_output", [True, False])
def test_what_a_run_keeps_starts_it_again(tmp_path, has_output):
    """The digests are those of the files, so that it is the same run."""
    source = VECTORS
    if has_output:
        source = EmbeddingTrainer(**OPTIONS).fit(TEXT)._model()
    keys = tmp_path / "keys.txt"
    keys.write_text("\ufeffd\r\nb\nx\n")
    starting = given_start(source, str(keys))
    path = tmp_path / "start.npz"
    write_start(path, starting, VOCABULARY)
    vectors = read_first_vectors(path, "FILE")
    frozen = read_frozen_keys(path, "KEYS")
    assert starting.vectors is not None and "z" not in vectors.keys
    assert starting.frozen is not None and frozen.keys == ["d", "b", "x"]
    again = starting._replace(vectors=vectors, frozen=frozen)
    assert again.facts == starting.facts
    (ours, our_factors), (theirs, their_factors) = (
        plan_start(each, VOCABULARY, "float32") for each in (again, starting)
    )
    assert {*ours.rows} == {*theirs.rows} and ("output" in ours.rows) == has_output
    for name, rows in theirs.rows.items():
        np.testing.assert_array_equal(ours.rows[name], rows, strict=True)
    np.testing.assert_array_equal(our_factors.input, their_factors.input)


def test_other_vectors_and_keys_have_other_digests():
    plain = given_start(VECTORS, ["a"]).facts
    other = Vectors(VECTORS.keys, VECTORS.matrix + 1)
    renamed = Vectors(["b", "a", "y"], VECTORS.matrix)
    for vectors, keys in ((other, ["a"]), (renamed, ["a"])):
        facts = given_start(vectors, keys).facts
        assert facts["init_from"] != plain["init_from"]
        assert facts["freeze"] == plain["freeze"]
    assert given_start(VECTORS, ["a", "b"]).facts["freeze"] != plain["freeze"]


@pytest.mark.row("B36")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"freeze": "known"}, "`freeze` known needs vectors to start from"),
        ({"freeze": ["q"]}, "`freeze` keys has no token of the vocabulary"),
        ({"freeze": []}, "`freeze` keys has no key"),
        ({"freeze": "missing"}, "`freeze` must be all, known, or a file .*'missing'"),
        ({"init_from": "missing.bin"}, "Vectors file missing.bin does not exist"),
        ({"init_from": "vectors.csv"}, "`path` must end in"),
        (
            {"init_from": Vectors(["a"], np.ones((1, 2)))},
            "the given vectors has vectors of 2 numbers, and `vector_size` is 3",
        ),
        ({"init_from": Vectors(["q"], np.ones((1, 3)))}, "has no token of the corpus"),
        (
            {"init_from": Vectors(["a"], np.full((1, 3), -1e99))},
            "has a value that float32 cannot hold, -1e.99",
        ),
    ],
)
def test_bad_starts_leave_the_trainer_as_it_was(arguments, message):
    trainer = EmbeddingTrainer(**OPTIONS).fit(TEXT)
    before = trainer.vectors
    with pytest.raises(InputError, match=message):
        trainer.fit(TEXT, **arguments)
    assert trainer.vectors is before


def test_fit_starts_from_vectors_a_file_or_a_trainer(tmp_path):
    write_vectors(VECTORS, tmp_path / "vectors.txt")
    fits = [
        EmbeddingTrainer(**OPTIONS).fit(TEXT, init_from=source)
        for source in (VECTORS, tmp_path / "vectors.txt", str(tmp_path / "vectors.txt"))
    ]
    for fit in fits:
        np.testing.assert_array_equal(fit.vectors, fits[0].vectors)
    plain = EmbeddingTrainer(**OPTIONS).fit(TEXT)
    assert np.abs(fits[0].vectors - plain.vectors).max() > 0.1
    start = EmbeddingTrainer(**OPTIONS | {"epochs": 0}).fit(TEXT, init_from=plain)
    np.testing.assert_array_equal(start.vectors, plain.vectors)


@pytest.mark.spread(1)
@pytest.mark.parametrize("tokens", ["text", "integers"])
def test_fit_freezes_keys_all_or_known_tokens(tokens):
    text, keys = TEXT, ["a", "b"]
    if tokens == "integers":
        number = {x: i for i, x in enumerate("abcd")}
        text, keys = [[number[x] for x in line] for line in TEXT], [0, 1]
    vectors = Vectors([*map(str, keys)], EXPECTED)
    for freeze in ("all", "known", keys):
        trainer = EmbeddingTrainer(**OPTIONS)
        trainer.fit(text, init_from=vectors, freeze=freeze)
        ids = [trainer.key_to_index[key] for key in keys]
        np.testing.assert_array_equal(trainer.vectors[ids], EXPECTED)
        start = EmbeddingTrainer(**OPTIONS | {"epochs": 0}).fit(text)
        moved = np.delete(trainer.vectors != start.vectors, ids, axis=0)
        assert moved.any() == (freeze != "all")


def test_factors_need_memory():
    config = resolve(with_options(Config(), vector_size=16), 10**6)
    plain, one, two = (
        device_bytes(config, (1000, 16), Layout(), 4, tables)
        for tables in ((), ("input",), ("input", "output"))
    )
    assert [each["row factors"] for each in (plain, one, two)] == [0, 4000, 8000]
    assert one["prepared updates"] > plain["prepared updates"]
    assert one["tables"] == plain["tables"]


@pytest.fixture
def edges(tmp_path) -> str:
    path = tmp_path / "edges.tsv"
    path.write_text("a\tb\nb\tc\nc\td\nd\ta\na\tc\n")
    return str(path)


def rows(trainer: EmbeddingTrainer, keys: Iterable[str]) -> np.ndarray:
    return trainer.vectors[[trainer.key_to_index[key] for key in keys]]


@pytest.mark.slow
@pytest.mark.parametrize("freeze", ["", "known"])
def test_all_models_of_an_ensemble_start_from_vectors(freeze):
    trainer = EmbeddingTrainer(**OPTIONS)
    trainer.fit_ensemble(TEXT, 2, init_from=VECTORS, freeze=freeze)
    matrices = trainer.ensemble_.vectors
    for seed, matrix in enumerate(matrices, trainer.seed):
        alone = EmbeddingTrainer(**OPTIONS, seed=seed)
        alone.fit(TEXT, init_from=VECTORS, freeze=freeze)
        np.testing.assert_array_equal(matrix, alone.vectors)
    ids = [trainer.key_to_index[key] for key in "ab"]
    assert (matrices[:, ids] == EXPECTED).all() == (freeze == "known")


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("freeze", "frozen"), [("", ""), ("known", "ab"), ("all", "ab"), (["b"], "b")]
)
def test_nodes_of_a_graph_start_from_vectors(edges, freeze, frozen):
    """With a rate of nearly 0 they end near their start, frozen ones at it."""
    settings = OPTIONS | {"alpha": 1e-4, "min_alpha": 1e-4}
    trainer = EmbeddingTrainer(**settings)
    trainer.fit_graph(edges, 4, 10, init_from=VECTORS, freeze=freeze)
    found = rows(trainer, "ab")
    np.testing.assert_allclose(found, EXPECTED, atol=0.3)
    stays = (found == EXPECTED).all(axis=1).tolist()
    assert stays == [key in frozen for key in "ab"]
    drawn = EmbeddingTrainer(**settings | {"epochs": 0}).fit_graph(edges, 4, 10)
    assert (rows(trainer, "cd") != rows(drawn, "cd")).any() == (freeze != "all")


@pytest.mark.spread(1)
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("freeze", ["all", "known", ["a", "n"]])
def test_more_training_freezes_keys_all_or_known_tokens(is_trained, freeze):
    """Known are those of `init_from`, or those that the trainer has already."""
    trainer, start, known = EmbeddingTrainer(**OPTIONS), VECTORS, EXPECTED
    if is_trained:
        start, known = None, rows(trainer.fit(TEXT), "ab")
    more = [["a", "b", "n"] * 6] * 30
    trainer.partial_fit(more, grow=True, init_from=start, freeze=freeze)
    stays = (rows(trainer, "ab") == known).all(axis=1).tolist()
    assert stays == [True, freeze != ["a", "n"]]
    is_as_drawn = np.abs(rows(trainer, "n")).max() <= 0.5 / 3
    assert is_as_drawn == (freeze != "known")


@pytest.mark.row("B36")
@pytest.mark.parametrize("name", ["fit_ensemble", "fit_graph", "partial_fit"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"init_from": "missing.bin"}, "missing.bin does not exist"),
        ({"init_from": Vectors(["a"], np.ones((1, 2)))}, "has vectors of 2 numbers"),
        ({"init_from": Vectors(["q"], np.ones((1, 3)))}, "has no token of the corpus"),
        ({"freeze": ["q"]}, "`freeze` keys has no token of the vocabulary"),
        ({"freeze": "known"}, "`freeze` known needs vectors to start from"),
    ],
)
def test_bad_starts_are_refused_by_every_training(edges, name, arguments, message):
    trainer = EmbeddingTrainer(**OPTIONS)
    with pytest.raises(InputError, match=message):
        getattr(trainer, name)(edges if name == "fit_graph" else TEXT, **arguments)
    with pytest.raises(RuntimeError, match="is not trained yet"):
        trainer.vectors  # noqa: B018 - the property raises


@pytest.mark.row("B36")
def test_a_trained_trainer_goes_on_from_no_other_vectors():
    trainer = EmbeddingTrainer(**OPTIONS).fit(TEXT)
    before = trainer.vectors
    with pytest.raises(InputError, match="`init_from` applies only to a trainer that"):
        trainer.partial_fit(TEXT, init_from=VECTORS)
    assert trainer.vectors is before
