"""Hierarchical softmax and subwords around their updates: files and words."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder import EmbeddingTrainer
from embedder.cli.main import main
from embedder.config import Config, with_options
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import BaseVocabulary, encode
from embedder.data.huffman import codes_and_points, huffman_tree, node_sums
from embedder.data.vocabulary import Vocabulary, write_vocabulary
from embedder.tokens import continue_training

COUNTS = np.array([40, 20, 20, 5, 1])
HS = {"hs": True, "vector_size": 8, "min_count": 1, "epochs": 2, "block": 32}
negatives = pytest.mark.parametrize("negative", [0, 5])


@pytest.mark.parametrize("counts", [COUNTS, np.array([3])])
def test_the_vocabulary_file_has_codes_and_points(tmp_path, counts):
    paths, tokens = codes_and_points(huffman_tree(counts)), [*"abcde"[: len(counts)]]
    write_vocabulary(Vocabulary(tokens, counts), tmp_path / "vocab.parquet", paths)
    frame = pl.read_parquet(tmp_path / "vocab.parquet")
    assert frame.schema["code"] == pl.List(pl.UInt8)
    assert frame.schema["point"] == pl.List(pl.Int32)
    ends = np.cumsum(paths.lengths)[:-1]
    for name, whole in (("code", paths.codes), ("point", paths.points)):
        assert frame[name].to_list() == [x.tolist() for x in np.split(whole, ends)]


@negatives
def test_nodes_move_by_the_text_below_them(sequences, negative):
    """An update moves inner nodes less than new ones, those without text not at all."""
    config = with_options(Config(), negative=negative, **HS)
    base = EmbeddingTrainer(negative=negative, **HS).fit(sequences)._model()
    tree, known = huffman_tree(base.counts), Vocabulary(base.tokens, base.counts)
    new = encode(
        sequences_corpus([base.tokens[:2] * 3]), 1, BaseVocabulary(known, False)
    )
    text = np.zeros(len(base.tokens), np.int64)
    text[:2] = 3
    found = continue_training.plan_update(base, new, [], config.tables)
    nodes = found.row_multipliers.output[-len(base.tokens) :]
    old, below = node_sums(tree, base.counts), node_sums(tree, text)
    np.testing.assert_allclose(nodes, below / np.maximum(10 * old + below, 1))
    assert (nodes == 0).any() and nodes[len(nodes) - 2] > 0  # the root
    assert len(found.row_multipliers.output) == len(base.output)


@pytest.mark.spread(1)
@negatives
def test_vectors_to_start_from_give_output_rows_of_tokens_alone(sequences, negative):
    sampled = EmbeddingTrainer(**HS | {"hs": False}).fit(sequences)
    trained = EmbeddingTrainer(**HS | {"epochs": 0}, negative=negative)
    trained.fit(sequences, init_from=sampled)
    num_rows = len(sampled.vectors)
    np.testing.assert_array_equal(trained.vectors, sampled.vectors)
    output = trained._table("output")
    assert not output[-num_rows:].any()
    if negative:
        np.testing.assert_array_equal(output[:num_rows], sampled._table("output"))


SUBWORDS = {"vector_size": 8, "min_count": 1, "epochs": 1, "block": 32}
SUBWORDS |= {"subwords": (2, 4), "buckets": 500}


@pytest.mark.row("B88")
def test_unknown_words_have_vectors(sequences, tmp_path):
    trained = EmbeddingTrainer(**SUBWORDS).fit(sequences)
    token = trained.index_to_key[0]
    assert np.isfinite(trained[f"{token}s"]).all() and trained[f"{token}s"].any()
    assert trained.vector(token).tobytes() == trained.vectors[0].tobytes()
    assert trained.similarity(token, f"{token}s") > 0.2
    found = trained.most_similar(f"{token}s", topn=3)
    assert len(found) == 3 and f"{token}s" not in dict(found)
    long = EmbeddingTrainer(**SUBWORDS | {"subwords": (20, 30)}).fit([["a", "b"]] * 20)
    with pytest.raises(KeyError, match="'xy' is not in the vocabulary"):
        long["xy"]
    trained.save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    assert loaded["unknown"].tobytes() == trained["unknown"].tobytes()
    for each in (loaded, trained):
        each.partial_fit(sequences[:20])
    assert loaded["unknown"].tobytes() == trained["unknown"].tobytes()


@pytest.mark.slow
@pytest.mark.row("B88")
def test_runs_have_unknown_words_and_go_on(sequences, own_folder, capsys):
    Path("corpus.txt").write_text("".join(" ".join(x) + "\n" for x in sequences))
    train = "train corpus.txt --min-count 1 --vector-size 8 --epochs 1 --loader memory"
    train += " --subwords 2 4 --buckets 500 --workdir"
    assert main([*train.split(), "a", "--dry-run"]) == 0
    assert "lists of subwords" in capsys.readouterr().out
    assert main([*train.split(), "a"]) == 0
    more = ["--resume", "a", "--schedule", "restart"]
    assert main([*train.split(), "b", *more]) == 0
    for run in "ab":
        capsys.readouterr()
        assert main(["neighbors", run, "unheardof", "--topn", "2"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 3
