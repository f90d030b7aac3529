"""Training with whole sequences as contexts, against loops over all pairs."""

import logging
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.cli import main
from embedder.config import Config, resolve, with_options
from embedder.engine.epochs import run_epochs
from embedder.engine.rules import capped_sgd
from embedder.engine.state import device_state
from embedder.errors import InputError
from embedder.tables.blocks import BlockShape, block_source
from embedder.tables.corpus import sequences_corpus
from embedder.tables.cpu import kernel
from embedder.tables.encode import encode
from embedder.tables.loader import cut
from embedder.tables.lookup import tables
from embedder.tables.objective import halo, num_positions
from embedder.tables.options import TablesOptions
from embedder.tables.prepare import Batch, Model, objective_of
from embedder.tables.training import Training
from embedder.tables.update import host_state, make_updates
from migration.parity.updates import random_tables
from tests.commands import error_line

ARCHITECTURES = ["skipgram", "cbow"]
RATE, NEGATIVE = 0.05, 3
WORDS = [f"w{i}" for i in range(40)]


def encoded_corpus(longest: int):
    """300 sequences of 1 to `longest` of 40 words."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, longest + 1, size=300)
    sequences = [list(rng.choice(WORDS, size=n)) for n in lengths]
    return encode(sequences_corpus([WORDS[:16], *sequences]), 1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


class Sums:
    """Loss, terms and gradients of an update, summed pair by pair."""

    def __init__(self, input, output):
        self.input, self.output = input, output
        self.gradients = np.zeros_like(input), np.zeros_like(output)
        self.loss, self.num_terms = 0.0, 0

    def skipgram(self, token, contexts, noise):
        of_input, of_output = self.gradients
        for context in contexts:
            self._add(self.input[token], of_input[token : token + 1], context, 1, -1)
            self.num_terms += 1
            for k in noise:
                weight = NEGATIVE / len(noise)
                self._add(self.input[token], of_input[token : token + 1], k, weight, 1)

    def cbow(self, token, contexts, noise):
        mean, of_mean = self.input[contexts].mean(axis=0), np.zeros((1, 6))
        self._add(mean, of_mean, token, 1, -1)
        self.num_terms += 1
        for k in noise:
            self._add(mean, of_mean, k, NEGATIVE / len(noise), 1)
        for context in contexts:
            self.gradients[0][context] += of_mean[0] / len(contexts)

    def _add(self, row, of_row, other, weight, sign):
        """weight softplus(sign row . u) and its derivatives."""
        score = row @ self.output[other]
        self.loss += weight * softplus(sign * score)
        error = sign * weight * sigmoid(sign * score)
        of_row[0] += error * self.output[other]
        self.gradients[1][other] += error * row


def by_loops(architecture, given, blocks) -> Sums:
    """All ordered pairs of each sequence of an update, whatever their distance."""
    sums = Sums(*given)
    for ids, sequence, noise in zip(
        blocks.ids[0], blocks.sequence[0], blocks.noise[0], strict=True
    ):
        tile = len(ids) // len(noise)
        for t in range(len(ids)):
            same = np.flatnonzero((sequence == sequence[t]) & (sequence >= 0))
            contexts = [ids[j] for j in same if j != t]
            if contexts and sequence[t] >= 0:
                getattr(sums, architecture)(ids[t], contexts, noise[t // tile])
    return sums


SHAPES = {
    "tiles": BlockShape(15, 16, 4, 5, 3, whole_sequences=True),
    "one tile": BlockShape(9, 10, 10, 3, 2, whole_sequences=True),
    "odd": BlockShape(14, 15, 5, 7, 1, whole_sequences=True),
    "largest": BlockShape(127, 128, 16, 8, 1, whole_sequences=True),
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("backend", ["xla", "numba"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SHAPES)
def test_an_update_is_that_of_loops_over_all_pairs(name, architecture, backend):
    """The first update of a shard, without a limit on pairs; in float64."""
    shape, encoded = SHAPES[name], encoded_corpus(longest=14)
    made = block_source(
        encoded, shape, sample=0.0, ns_exponent=0.75, seed=1, epochs=range(1)
    )
    blocks = cut(made.updates(0, 0), 0, 1).blocks
    num_rows = len(encoded.vocabulary)
    given = random_tables((num_rows, 6), "float64")
    lookup = tables(num_rows, 6, dtype=np.dtype("float64"), seed=0)
    model = Model(lookup, objective_of(architecture), shape.window, NEGATIVE)
    batch = Batch(blocks, rate=np.full(1, RATE))
    expected = by_loops(architecture, given, blocks)
    with jax.enable_x64(True):
        if backend == "xla":
            rule = capped_sgd(math.inf)
            apply = make_updates(model, rule, update="rows", loss_interval=1)
            state = device_state(host_state(rule, *given))
        else:
            apply = kernel.make_updates(model, None, loss_interval=1, threads=2)
            state = host_state(capped_sgd(math.inf), *given)
        after, loss = jax.tree.map(np.asarray, apply(state, batch)[:2])
    assert (blocks.sequence >= 0).any() and expected.num_terms > 10
    assert loss.num_terms[0] == expected.num_terms
    np.testing.assert_allclose(loss.total[0], expected.loss, rtol=1e-12)
    found = after.params["tables"]
    for table, before, gradient in zip(
        ("input", "output"), given, expected.gradients, strict=True
    ):
        desired = before - RATE * gradient
        np.testing.assert_allclose(found[table], desired, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("window", [1, 6, 7, 40])
def test_halos_have_the_positions_that_memory_is_counted_for(window):
    """A block of 8 in tiles of 2: from a window of 7 on each halo is the block."""
    block = jnp.arange(8)[jnp.newaxis]
    found = halo(block, 2, window, fill=-1)
    assert found.shape == (1, 4, num_positions(8, 2, window))
    if window >= 7:
        np.testing.assert_array_equal(found[0], np.tile(np.arange(8), (4, 1)))


def config(**options) -> Config:
    small = {"vector_size": 6, "blocks_per_update": 2, "block": 16, "tile": 4}
    small |= {"dtype": "float64", "loader": "memory", "noise": 6, "sample": 0.0}
    small |= {"epochs": 2, "save_every": "16"}  # so a call has 16 updates
    return with_options(Config(), **small | options)


def training(encoded, **options) -> Training:
    given = config(**options)
    return Training(resolve(given, encoded.num_tokens), encoded, range(2))


def trained(encoded, **options):
    planned = training(encoded, **options)
    return run_epochs(planned, planned.initial_state())


@pytest.mark.spread(1)
@pytest.mark.parametrize("backend", ["xla", "numba"])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_a_run_resumes_after_any_update(backend, bootstrap):
    encoded = encoded_corpus(longest=30)
    options = {"window": "session", "backend": backend, "bootstrap": bootstrap}
    planned, snapshots = training(encoded, **options), []
    whole = run_epochs(
        planned,
        planned.initial_state(),
        lambda status: snapshots.append(status.snapshot()),
    )
    assert len(snapshots) > 6
    for snapshot in snapshots:
        end = run_epochs(
            training(encoded, **options), snapshot.state, start=snapshot.position
        )
        jax.tree.map(np.testing.assert_array_equal, end.state[:2], whole.state[:2])


def test_an_epoch_is_one_superblock_where_it_was_estimated_so():
    """Blocks of whole sequences have padding, which the estimate counts."""
    encoded = encode(sequences_corpus([WORDS[:9]] * 50), 1)  # one to a block
    planned = training(encoded, window="session", save_every="never")
    assert planned._packed_tokens == pytest.approx(50 * 16)
    assert len([*planned.calls(planned.initial_state(), 0)]) == 1
    assert any("updates: 25 an epoch" in line for line in planned.description)


@pytest.mark.slow
def test_long_sequences_are_logged_once(caplog):
    caplog.set_level(logging.INFO)
    trained(encoded_corpus(longest=16), window="session")
    trained(encoded_corpus(longest=30), window=5)
    assert "more than" not in caplog.text
    encoded = encode(sequences_corpus([WORDS, WORDS[:20], WORDS[:16]] * 2), 1)
    trained(encoded, window="session")
    lines = [line for line in caplog.messages if "more than `block`" in line]
    assert lines == [
        "4 of the first 6 sequences have more than `block` = 16 tokens: an epoch "
        "trains a random part of their pairs. `block` may be up to 128."
    ]
    caplog.clear()
    trained(encode(sequences_corpus([WORDS * 4]), 1), window="session", block=128)
    assert "1 of the first 1 sequences have more than `block` = 128" in caplog.text
    assert "may be up to" not in caplog.text


def test_walks_are_whole_sequences(tmp_path, caplog, capsys):
    caplog.set_level(logging.INFO)
    edges = tmp_path / "ring.tsv"
    edges.write_text("".join(f"{i}\t{(i + 1) % 9}\n" for i in range(9)))
    options = ["--walks", "3", "--walk-length", "20", "--window", "session"]
    options += ["--block", "16", "--epochs", "1", "--workdir", str(tmp_path / "run")]
    assert main(["train", str(edges), *options]) == 0
    log = capsys.readouterr().err
    assert "27 of the first 27 sequences have more than `block` = 16" in log


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_saved_trainer_goes_on_with_whole_sessions(tmp_path, architecture):
    """To the bits of one that was not saved, which are not those of a window."""
    sessions = [WORDS[i % 7 : 9 + i % 30] for i in range(100)]
    options = {"vector_size": 8, "min_count": 1, "architecture": architecture}
    whole, other = (
        EmbeddingTrainer(window=window, **options).fit(sessions)
        for window in ("session", 63)
    )
    whole.save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    assert loaded.window == "session"
    for each in (whole, loaded, other):
        each.partial_fit(sessions)
    np.testing.assert_array_equal(loaded.vectors, whole.vectors)
    assert not np.allclose(other.vectors, whole.vectors)


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("window", "block", "expected"),
    [(5, None, 32), ("session", None, 256), ("session", 16, 32), ("session", 48, 96)],
)
def test_a_trainer_has_the_noise_of_the_command_if_it_is_none(
    tmp_path, window, block, expected
):
    """A file has the number, as those of runs, so that `legacy` reads it."""
    sessions = [WORDS[i % 7 : 9 + i % 30] for i in range(30)]
    options = {"vector_size": 4, "min_count": 1, "epochs": 1, "block": block}
    options |= {"window": window}
    trainer, given = (
        EmbeddingTrainer(**options, noise=noise).fit(sessions)
        for noise in (None, expected)
    )
    np.testing.assert_array_equal(trainer.vectors, given.vectors)
    trainer.save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    assert (trainer.noise, loaded.noise) == (None, expected)
    for each in (trainer, loaded):
        each.partial_fit(sessions)
    np.testing.assert_array_equal(trainer.vectors, loaded.vectors)


@pytest.mark.parametrize("window", [127, "session"])
def test_the_largest_distance_of_a_window(window):
    found = TablesOptions(window=window, block=128)
    assert found.max_distance == 127
    assert found.has_whole_sequences is (window == "session")


@pytest.mark.parametrize(("tile", "block"), [(1, 128), (16, 128), (48, 96), (100, 100)])
def test_blocks_of_whole_sequences_are_as_large_as_they_may_be(tile, block):
    given = with_options(Config(), window="session", tile=tile)
    assert resolve(given, 1000).tables.block == block
    assert given.tables.max_distance == block - 1


@pytest.mark.row("B31")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--window", "sessions"], "`--window` must be an integer or 'session', got"),
        (["--window", "0"], "`window` must be an integer from 1 to 127 or 'session'"),
        (
            ["--window", "session", "--block", "256"],
            "`block` must be from 2 to 128 with `window` = 'session', got 256.",
        ),
        (
            ["--window", "session", "--block", "1", "--tile", "1"],
            "`block` must be from 2 to 128 with `window` = 'session', got 1.",
        ),
        (
            ["--window", "session", "--tile", "200"],
            "with `window` = 'session', got 200 by `tile` = 200.",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused(
    tmp_path, monkeypatch, capsys, options, message
):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *options]) == 2
    assert message in error_line(capsys)
    assert not [*tmp_path.iterdir()]


@pytest.mark.row("B31")
@pytest.mark.parametrize("value", ["5", "Session", "", True, None, ["session"]])
def test_windows_of_other_types_are_refused(value):
    with pytest.raises(
        InputError, match="`window` must be an integer from 1 to 127 or"
    ):
        with_options(Config(), window=value)


@pytest.mark.slow
@pytest.mark.row("B31")
def test_a_run_of_another_window_does_not_resume(tmp_path, text_file, capsys):
    run = ["train", str(text_file), "--workdir", str(tmp_path / "run")]
    run += ["--epochs", "1", "--block", "64"]
    assert main([*run, "--window", "session"]) == 0
    capsys.readouterr()
    assert main([*run, "--window", "63"]) == 2
    assert "`window` 'session' there, 63 now." in error_line(capsys)
    assert main([*run, "--window", "session"]) == 0
