"""Subwords around their updates: settings, files, runs and unknown words."""

import numpy as np
import pytest

import embedder
import legacy
from embedder.cli import main
from embedder.config import Config, with_options
from embedder.errors import InputError, InputTypeError
from embedder.tables.artefact import read_model, write_model
from tests.commands import error_line

SETTINGS = {"vector_size": 8, "min_count": 1, "epochs": 1, "block": 32}
SUBWORDS = SETTINGS | {"subwords": (2, 4), "buckets": 500}


@pytest.fixture
def trained(sequences) -> embedder.EmbeddingTrainer:
    return embedder.EmbeddingTrainer(**SUBWORDS).fit(sequences)


@pytest.fixture
def corpus(tmp_path, sequences):
    path = tmp_path / "corpus.txt"
    path.write_text("".join(" ".join(each) + "\n" for each in sequences))
    return path


def run(corpus, workdir, *arguments: str) -> int:
    return main(
        [
            *("train", str(corpus), "--workdir", str(workdir), "--min-count", "1"),
            *("--vector-size", "8", "--epochs", "1", *arguments),
        ]
    )


@pytest.mark.row("B85")
@pytest.mark.parametrize("kind", [embedder.EmbeddingTrainer, legacy.EmbeddingTrainer])
@pytest.mark.parametrize("value", [(3,), (0, 3), (4, 3), (3, 51), (3, 4, 5), "36", 3])
def test_lengths_out_of_bounds_are_refused(kind, value):
    message = "`subwords` must be two integers, MIN and MAX, with 1 <= MIN <= MAX <= 50"
    with pytest.raises((TypeError, ValueError), match=f"{message}, got "):
        kind(subwords=value)


def test_lengths_of_other_types_are_type_errors():
    with pytest.raises(InputTypeError, match="`subwords` must be two integers"):
        with_options(Config(), subwords=(3.0, 6))


@pytest.mark.row("B86")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update": "dense"}, "`update` 'dense' does not go with `subwords`"),
        ({"table_sharding": "rows"}, "`table_sharding` 'rows' does not go with"),
        ({"init_from": "/x.npz"}, "`init_from` '/x.npz' does not go with"),
        ({"freeze": "all"}, "`freeze` 'all' does not go with `subwords`"),
        ({"replay": 0.5}, "`replay` 0.5 does not go with `subwords`"),
        ({"walks": 5}, "`subwords` applies only to texts"),
        ({"optimizer": "adagrad"}, "`optimizer` must be 'sgd' with `subwords`"),
    ],
)
def test_what_does_not_go_with_them_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        with_options(Config(), subwords=(3, 6), **options)


@pytest.mark.row("B88")
def test_unknown_words_have_vectors(trained):
    token = trained.index_to_key[0]
    assert np.isfinite(trained[f"{token}s"]).all() and trained[f"{token}s"].any()
    assert trained.vector(token).tobytes() == trained.vectors[0].tobytes()
    assert trained.similarity(token, f"{token}s") > 0.2
    found = trained.most_similar(f"{token}s", topn=3)
    assert len(found) == 3 and f"{token}s" not in dict(found)
    long = embedder.EmbeddingTrainer(**SUBWORDS | {"subwords": (20, 30)})
    long.fit([["a", "b"]] * 20)
    with pytest.raises(KeyError, match="Token 'xy' is not in the vocabulary"):
        long["xy"]


@pytest.mark.row("F61", "B87")
def test_files_are_whole_and_models_go_on(sequences, trained, tmp_path):
    trained.save(tmp_path / "model.npz")
    model, path = read_model(tmp_path / "model.npz"), tmp_path / "damaged.npz"
    rows = model.subwords
    wrong = np.where(np.arange(len(rows))[:, None] == 3, np.float32(np.nan), rows)
    for damaged in (rows[:-1], wrong):
        write_model(path, model._replace(subwords=damaged))
        for kind in (embedder.EmbeddingTrainer, legacy.EmbeddingTrainer):
            with pytest.raises(
                ValueError, match="not a whole model file: .*`subwords`"
            ):
                kind.load(path)
    loaded = embedder.EmbeddingTrainer.load(tmp_path / "model.npz")
    again = embedder.EmbeddingTrainer.load(tmp_path / "model.npz")
    assert loaded["unknown"].tobytes() == trained["unknown"].tobytes()
    for each in (loaded, again):
        each.partial_fit(sequences[:20])
    assert loaded.vectors.tobytes() == again.vectors.tobytes()
    with pytest.raises(ValueError, match="`grow` does not go with `subwords`"):
        loaded.partial_fit(sequences, grow=True)
    with pytest.raises(ValueError, match="`schedule` must be 'restart' for an update"):
        loaded.partial_fit(sequences, schedule="continue")
    loaded.subwords = (3, 3)
    with pytest.raises(ValueError, match=r"`subwords` must be \(2, 4\), as when"):
        loaded.partial_fit(sequences)


@pytest.mark.row("B86", "B87")
def test_runs_have_unknown_words_and_say_what_does_not_go(corpus, tmp_path, capsys):
    own, flags = tmp_path / "a", ("--subwords", "2", "4", "--buckets", "500")
    assert run(corpus, own, *flags, "--dry-run") == 0
    assert "lists of subwords" in capsys.readouterr().out
    assert run(corpus, own, *flags) == 0
    capsys.readouterr()
    assert main(["neighbors", str(own), "unheardof", "--topn", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    resumed = "--resume", str(own), *flags
    restart = *resumed, "--schedule", "restart"
    assert run(corpus, tmp_path / "b", *restart) == 0
    for arguments, line in (
        (resumed, "`schedule` must be 'restart' for an update of a model with"),
        ((*resumed, "--grow"), "`grow` does not go with `subwords`"),
        ((*restart, "--buckets", "9"), "`buckets` must be that of the run to start"),
        ((*flags, "--update", "dense"), "`update` 'dense' does not go with"),
    ):
        capsys.readouterr()
        assert run(corpus, tmp_path / "c", *arguments) == 2
        assert line in error_line(capsys)
