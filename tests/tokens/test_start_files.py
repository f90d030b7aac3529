"""Files of vectors to start from, and of keys to freeze; and the same from Python."""

from collections.abc import Iterable

import numpy as np
import pytest

from embedder import EmbeddingTrainer, read_vectors
from embedder.cli.main import main
from embedder.errors import InputError
from embedder.vectors.export import write_vectors
from embedder.vectors.vectors import Vectors

OPTIONS = {"vector_size": 3, "min_count": 1, "epochs": 2, "sample": 0}
VECTORS = Vectors(["b", "a", "z"], np.arange(9, dtype=np.float32).reshape(3, 3))
TEXT = [["a", "b", "c", "a", "d"] * 4] * 30
EXPECTED = VECTORS.matrix[[1, 0]]  # of a and b


def test_what_starts_from_a_file_and_what_is_frozen_is_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    write_vectors(VECTORS, path := tmp_path / "vectors.vec.gz")
    trainer = EmbeddingTrainer(**OPTIONS | {"dtype": "float64"})
    trainer.fit(TEXT, init_from=path, freeze="known")
    found = rows(trainer, "ab")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, EXPECTED)
    lines = [
        f"start: 2 of 4 rows (60.0 % of the corpus's tokens) start from {path}",
        "frozen: 2 of 4 rows of the input table",
    ]
    assert [x for x in caplog.messages if x.startswith(("start:", "frozen:"))] == lines


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


def test_a_run_to_start_from_in_python_is_read_as_by_the_command_line(tmp_path):
    """One of replicas is refused."""
    run, text = tmp_path / "run", tmp_path / "text.txt"
    text.write_text("\n".join(map(" ".join, TEXT)))
    flags = "--vector-size 3 --min-count 1 --epochs 1 --no-report --loader memory"
    command = ["train", str(text), *flags.split(), "--workdir"]
    assert main([*command, str(run)]) == 0
    trainer = EmbeddingTrainer(**OPTIONS).fit(TEXT, init_from=run, freeze="known")
    expected = read_vectors(str(run))
    np.testing.assert_array_equal(rows(trainer, "ab"), [expected[x] for x in "ab"])
    assert main([*command, str(tmp_path / "two"), "--replicas", "2"]) == 0
    with pytest.raises(InputError, match="`init_from` .* replicas"):
        trainer.fit(TEXT, init_from=tmp_path / "two")


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


@pytest.fixture
def edges(tmp_path) -> str:
    path = tmp_path / "edges.tsv"
    path.write_text("a\tb\nb\tc\nc\td\nd\ta\na\tc\n")
    return str(path)


def rows(trainer: EmbeddingTrainer, keys: Iterable[str]) -> np.ndarray:
    return trainer.vectors[[trainer.key_to_index[key] for key in keys]]


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
