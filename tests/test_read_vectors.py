"""`embedder.read_vectors`: files, folders of runs, and their indexes."""

import logging
from pathlib import Path

import numpy as np
import pytest

from embedder import read_vectors, train, write_vectors
from embedder.config import make_config
from embedder.errors import InputError, InputNotFoundError
from embedder.vectors.index import IndexOptions, build_index, index_folder

SETTINGS = {"vector_size": 8, "min_count": 1, "sample": 0.0, "epochs": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("read")
    text = folder / "text.txt"
    rng = np.random.default_rng(0)
    text.write_text("\n".join(" ".join(map(str, rng.permutation(40))) for _ in "a" * 9))
    config = make_config(SETTINGS | {"loader": "memory", "report": False})
    train(config, folder / "run", str(text))
    return folder / "run"


def uses_index(vectors) -> bool:
    return vars(vectors).get("_index") is not None


@pytest.mark.row("F50")
def test_a_run_is_read_by_its_folder_and_uses_a_fresh_index(run, caplog):
    pytest.importorskip("usearch")
    of_file = read_vectors(run / "vectors.safetensors")
    found = read_vectors(run)
    assert found.keys == of_file.keys and not uses_index(found)
    np.testing.assert_array_equal(found.matrix, of_file.matrix)
    build_index(of_file, run, IndexOptions())
    assert uses_index(read_vectors(str(run)))
    assert uses_index(read_vectors(run, index="auto"))
    assert not uses_index(read_vectors(run, index="none"))
    assert not caplog.records
    (graph,) = index_folder(run).glob("*.usearch")
    graph.write_bytes(graph.read_bytes()[:-1])
    caplog.set_level(logging.WARNING, "embedder")
    assert not uses_index(read_vectors(run))
    assert "is damaged" in caplog.text and "Exact search is used." in caplog.text


def test_an_index_beside_a_file_is_used_if_that_is_asked_for(run, tmp_path):
    pytest.importorskip("usearch")
    path = tmp_path / "v.npz"
    write_vectors(read_vectors(run, index="none"), path)
    build_index(read_vectors(path), path, IndexOptions())
    assert not uses_index(read_vectors(path))
    assert uses_index(read_vectors(path, index="auto"))


def test_integer_keys_of_a_run_stay_integers(tmp_path):
    import polars as pl

    table = tmp_path / "table.parquet"
    sessions = {
        "session": [i // 4 for i in range(80)],
        "item": [i % 5 for i in range(80)],
    }
    pl.DataFrame(sessions).write_parquet(table)
    train(make_config(SETTINGS | {"report": False}), tmp_path / "run", str(table))
    assert read_vectors(tmp_path / "run").key_type == "integer"


@pytest.mark.row("B1")
def test_what_is_no_finished_run_is_named(tmp_path):
    with pytest.raises(
        InputNotFoundError, match="`path` must be a file of vectors or a"
    ):
        read_vectors(tmp_path)
    with pytest.raises(InputNotFoundError, match=r"none.npz does not exist"):
        read_vectors(tmp_path / "none.npz")
    with pytest.raises(
        InputError, match="`index` must be 'auto' or 'none', got 'fast'"
    ):
        read_vectors(tmp_path, index="fast")  # type: ignore[arg-type]
