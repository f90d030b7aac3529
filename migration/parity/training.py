"""Stages of what a user does: an epoch, resuming, model files, neighbours."""

import functools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import embedder
import legacy
from embedder.config import Config, resolve, with_options
from embedder.data.encoded import Encoded
from embedder.disk.workdir import Workdir
from embedder.engine.epochs import Evaluations, run_epochs
from embedder.tokens.artefact import ModelFile, model_settings, read_model
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.trainer import TokensTrainer
from migration.convert import model_to_run, run_to_model
from migration.parity.difference import Difference, difference, difference_of_tokens
from migration.parity.tolerances import TOLERANCE

Sequences = Sequence[Sequence[str]]
Trainer = embedder.EmbeddingTrainer | legacy.EmbeddingTrainer

_QUERIES = 200  # of the most frequent tokens
TOPN = 10


def trainer(kind, config: Config, **changes) -> Trainer:
    """A trainer of class `kind` with the settings of `config` and `changes`."""
    return kind(**model_settings(config) | {"workers": 1} | changes)


def epoch_stage(
    config: Config, encoded: Encoded, sequences: Sequences
) -> Iterator[Difference]:
    """Both tables, the loss and the accumulators of Adagrad after one epoch of training
    as `embedder train` does it, with the evaluations of `config`.

    Args:
      encoded: `sequences` as the port reads them.
    """
    config = with_options(config, epochs=1)
    row_updates = encoded.vocabulary.row_updates
    resolved = resolve(config, encoded.num_tokens, None, row_updates)
    training = TokensTrainer(TrainingPlan(resolved, encoded, range(1)))
    evaluations = Evaluations(config.run.evaluation_interval)
    state, place = run_epochs(
        training, training.initial_state(), evaluations=evaluations
    )
    desired = model_of(trainer(legacy.EmbeddingTrainer, config).fit(sequences))
    row_state = training.program.optimizer.row_state(state.opt_state)
    ours = _learned(state.params["tables"], place.losses, row_state)
    yield from _models("whole epoch", config, ours, desired)


def resume_stage(config: Config, sequences: Sequences) -> Iterator[Difference]:
    """Training that is resumed from a file of each program, by each program.

    In the program that wrote the file, the result is bit-equal to a training without a
    stop; in the other, it is within the tolerance.
    """
    config = with_options(config, epochs=1)
    ends = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        for writer in (legacy.EmbeddingTrainer, embedder.EmbeddingTrainer):
            first = trainer(writer, config).fit(sequences)
            first.save(path)
            for reader in (legacy.EmbeddingTrainer, embedder.EmbeddingTrainer):
                resumed = reader.load(path).partial_fit(sequences)
                ends[writer, reader] = model_of(resumed)
            ends[writer] = model_of(first.partial_fit(sequences))
    oracle, port = legacy.EmbeddingTrainer, embedder.EmbeddingTrainer
    for name, kind in (("oracle", oracle), ("port", port)):
        resumed, never_stopped = map(_learned_by, (ends[kind, kind], ends[kind]))
        for quantity, expected in never_stopped.items():
            yield difference(
                "resume",
                f"{name} stopped, {quantity}",
                resumed[quantity],
                expected,
                dtype=config.run.dtype,
            )
    for words, actual in (
        ("oracle to port", ends[oracle, port]),
        ("port to oracle", ends[port, oracle]),
    ):
        yield from _models(
            "resume", config, _learned_by(actual), ends[oracle], f"{words}, "
        )


def converters_stage(config: Config, sequences: Sequences) -> Iterator[Difference]:
    """Model files of the oracle, converted to a run and back."""
    line = functools.partial(difference, "converters", dtype=config.run.dtype)
    with tempfile.TemporaryDirectory() as folder:
        path, back = Path(folder) / "model.npz", Path(folder) / "back.npz"
        run = Path(folder) / "run"
        saved = trainer(legacy.EmbeddingTrainer, config, epochs=1).fit(sequences)
        saved.save(path)
        model_to_run(path, run)
        vectors = embedder.read_vectors(Workdir(run).vectors)
        run_to_model(run, back)
        yield line("bytes, there and back", _bytes(back), _bytes(path))
        loaded = embedder.EmbeddingTrainer.load(back)
        yield difference_of_tokens(
            "converters",
            loaded.index_to_key,
            saved.index_to_key,
            dtype=config.run.dtype,
        )
        yield line("vectors", loaded.vectors, saved.vectors)
        yield line("vectors of the run", vectors.matrix, saved.vectors)
        port = Path(folder) / "port.npz"
        loaded.save(port)
        yield line("bytes, saved by the port", _bytes(port), _bytes(path))


def neighbours_stage(config: Config, sequences: Sequences) -> Iterator[Difference]:
    """The nearest neighbours of the most frequent tokens, from one model file."""
    stage, dtype = "neighbours", config.run.dtype
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        oracle = trainer(legacy.EmbeddingTrainer, config, epochs=1).fit(sequences)
        oracle.save(path)
        port = embedder.EmbeddingTrainer.load(path)
    tokens = oracle.index_to_key[:_QUERIES]
    ours, theirs = (nearest(each, tokens) for each in (port, oracle))
    tolerance = TOLERANCE[stage, dtype]
    cosines = (
        np.array([cosine for ranking in rankings for _, cosine in ranking])
        for rankings in (ours, theirs)
    )
    yield difference(stage, "cosines", *cosines, dtype=dtype, tolerance=tolerance)
    wrong = sum(_misplaced(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))
    yield difference(stage, "tokens not among them", float(wrong), 0.0, dtype=dtype)


def nearest(trained: Trainer, tokens: Sequence[str], topn: int = TOPN):
    """The `topn` nearest neighbours of each token, with their cosine similarities."""
    return [trained.most_similar(token, topn=topn) for token in tokens]


def model_of(trained: Trainer) -> ModelFile:
    """The trained model, as its file has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        trained.save(path)
        return read_model(path)


def _misplaced(ours, theirs, tolerance: float) -> int:
    """Tokens in one ranking only, except those that tie with the last one."""
    last = theirs[-1][1] if theirs else 0.0
    a, b = dict(ours), dict(theirs)
    only = [a.get(key, b.get(key)) for key in a.keys() ^ b.keys()]
    return sum(abs(similarity - last) > 2 * tolerance for similarity in only)


def _learned(tables, losses, row_state) -> dict[str, np.ndarray]:
    """What training has made, by the names of the report."""
    found = {name: np.asarray(table) for name, table in tables.items()}
    found["loss"] = np.asarray(losses)
    for name, values in row_state.items():
        found[name.replace("_", " ")] = np.asarray(values)
    return found


def _learned_by(model: ModelFile) -> dict[str, np.ndarray]:
    tables = {"input": model.input, "output": model.output}
    if model.subwords is not None:
        tables["subwords"] = model.subwords
    return _learned(tables, model.loss_history, model.row_state)


def _models(
    stage: str,
    config: Config,
    ours: dict[str, np.ndarray],
    desired: ModelFile,
    prefix: str = "",
) -> Iterator[Difference]:
    for name, expected in _learned_by(desired).items():
        yield difference(
            stage,
            f"{prefix}{name}",
            ours.get(name, ()),
            expected,
            dtype=config.run.dtype,
            tolerance=TOLERANCE[stage, config.run.dtype],
        )


def _bytes(path: Path) -> np.ndarray:
    return np.frombuffer(path.read_bytes(), np.uint8)
