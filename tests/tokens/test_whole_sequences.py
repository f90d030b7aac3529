"""Whole sessions as contexts: runs with all that changes them, against loops.

The loops begin with the rows of the table: pairs, multiplicities (55), held-out
sessions (57) and weights (67) are theirs. Only the order of blocks and the noise ids
are read from the blocks.
"""

import jax
import numpy as np
import polars as pl
import pytest
import scipy.sparse

from embedder import EmbeddingTrainer
from embedder.config import Config, resolve, with_options
from embedder.data.columns import Columns
from embedder.data.encode import encode
from embedder.data.sessions import frame_corpus
from embedder.engine.epochs import run_epochs
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.trainer import TokensTrainer
from migration.parity.equations import resample
from tests.loops import Loops

HOLDOUT, CAP, NEGATIVE, SIZE = 0.25, 3.0, 2, 5
EPOCHS = range(2)
SHAPES = {
    "tiles": {"block": 16, "tile": 4, "noise": 6, "blocks_per_update": 2},
    "largest": {"block": 128, "tile": 16, "noise": 8},
    "one tile": {"block": 10, "tile": 10, "noise": 3, "optimizer": "adagrad"},
    "odd": {"block": 15, "tile": 5, "noise": 7, "optimizer": "adagrad"},
}
WORDS = [f"w{i}" for i in range(40)]


def sessions() -> list[tuple[list[str], float]]:
    """Items and weight of each session, by name; some have more than a small block."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(2, 12, size=60)
    lengths[::20] = 21
    return [
        ([f"i{i}" for i in rng.integers(0, 25, n)], float(w))
        for n, w in zip(lengths, rng.choice([0.25, 1.0, 2.5], 60), strict=True)
    ]


def training(**options) -> TokensTrainer:
    rows = [
        {"session": f"{number:03}", "item": item, "importance": weight}
        for number, (items, weight) in enumerate(sessions())
        for item in items
    ]
    table = pl.DataFrame(rows).sample(fraction=1, shuffle=True, seed=1)
    table = table.sort("session", maintain_order=True)
    columns = Columns("session", "item", "none", weights="importance")
    encoded = encode(frame_corpus(table.lazy(), columns), 1)
    assert len(encoded.shard_tokens) > 2
    given = {"vector_size": SIZE, "blocks_per_update": 1, "loader": "memory"}
    given |= {"window": "session", "sample": 0.0, "negative": NEGATIVE}
    given |= {"bootstrap": True, "holdout": HOLDOUT, "replicas": 2, "alpha": 0.05}
    given |= {"max_pairs_per_row": None if "optimizer" in options else CAP}
    config = with_options(Config(), dtype="float64", **given | options)
    return TokensTrainer(
        TrainingPlan(resolve(config, encoded.num_tokens), encoded, EPOCHS)
    )


def loops(
    planned: TokensTrainer, number: int, architecture: str, optimizer: str
) -> Loops:
    """Model `number` after the last epoch; the loss is that of this epoch."""
    encoded, source = planned.encoded, planned.sources[number]
    config = planned.replicas[number]
    sizes = [int(n) for n in encoded.shard_sequences]
    drawn = resample(sizes, config.run.seed)
    first = np.concatenate([[0], np.cumsum(sizes)])
    given, start = sessions(), planned.initial_state().params["tables"]
    id_of = {token: i for i, token in enumerate(encoded.vocabulary.tokens)}
    tables = [start[name][number] for name in ("input", "output")]
    model = Loops(tables, architecture, optimizer, CAP, NEGATIVE)
    alpha, low, pairs = config.tables.alpha, config.tables.min_alpha, 0
    for epoch in EPOCHS:
        model.loss = model.terms = 0.0
        for index, shard in enumerate(source.shard_order(epoch)):
            found = source.updates(epoch, index)
            of_shard = np.random.SeedSequence(0, spawn_key=(3, shard))  # (57)
            hashes = np.random.default_rng(of_shard).integers(2**32, size=sizes[shard])
            out = hashes < round(2**32 * HOLDOUT)
            seen = {}
            for s, progress in enumerate(found.progress):
                tokens = []
                for ids, sequence, noise in zip(
                    found.blocks.ids[s],
                    found.blocks.sequence[s],
                    found.blocks.noise[s],
                    strict=True,
                ):
                    for t in np.flatnonzero(sequence >= 0):
                        near = np.flatnonzero(sequence == sequence[t])
                        contexts = [ids[j] for j in near if j != t]
                        own = sequence[t]
                        seen.setdefault(own, []).append(ids[t])
                        weight = drawn[shard][own] * given[first[shard] + own][1]
                        pairs += len(contexts)
                        if contexts:
                            of_tile = noise[t // (len(ids) // len(noise))]
                            tokens.append((ids[t], contexts, of_tile, weight))
                model.update(tokens, alpha + (low - alpha) * progress)
            expected = {
                i: sorted(id_of[item] for item in given[first[shard] + i][0])
                for i in range(sizes[shard])
                if drawn[shard][i] and not out[i]
            }
            assert {i: sorted(found) for i, found in seen.items()} == expected
    assert pairs > 1000
    return model


@pytest.mark.spread(4)
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("backend", ["numba", "xla"])
def test_a_run_is_that_of_loops(monkeypatch, architecture, shape, backend):
    """Weights, a bootstrap, held-out sessions and two replicas at once."""
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", 150)
    options = SHAPES[shape] | {"architecture": architecture, "backend": backend}
    with jax.enable_x64(True):
        planned = training(**options)
        end = run_epochs(planned, planned.initial_state())
        trained = jax.tree.map(np.asarray, end.state.params["tables"])
    optimizer = options.get("optimizer", "sgd")
    desired = [loops(planned, k, architecture, optimizer) for k in range(2)]
    for k, model in enumerate(desired):
        for name, table in zip(("input", "output"), model.tables, strict=True):
            np.testing.assert_allclose(trained[name][k], table, rtol=1e-9, atol=1e-12)
    loss, terms = (sum(getattr(m, name) for m in desired) for name in ("loss", "terms"))
    assert end.position.losses[-1] == pytest.approx(loss / terms, rel=1e-9)
    assert not np.allclose(trained["input"][0], trained["input"][1])


def test_sequences_longer_than_a_block_are_counted_in_the_log(caplog):
    """Walks as well: they are whole sequences, too."""
    caplog.set_level("INFO")
    options = {"vector_size": 4, "min_count": 1, "epochs": 1, "window": "session"}
    small = EmbeddingTrainer(**options, block=16)
    lines, rest = [WORDS, WORDS[:20], WORDS[:16]] * 2, ": an epoch trains a random part"
    EmbeddingTrainer(**options | {"window": 5}, block=16).fit(lines)
    assert "more than" not in caplog.text
    small.fit(lines)
    ring = scipy.sparse.coo_array(np.roll(np.eye(9), 1, axis=0))
    small.fit_graph(ring + ring.T, walks=3, walk_length=20)
    EmbeddingTrainer(**options, block=128).fit([WORDS * 4])
    assert [line for line in caplog.messages if "more than `block`" in line] == [
        f"{num} of the first {of} sequences have more than `block` = {block} tokens"
        f"{rest} of their pairs.{' `block` may be up to 128.' * (block < 128)}"
        for num, of, block in ((4, 6, 16), (27, 27, 16), (1, 1, 128))
    ]


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("window", "block", "expected"),
    [(5, None, 32), ("session", None, 256), ("session", 16, 32), ("session", 48, 96)],
)
def test_a_saved_trainer_goes_on_with_its_window_and_noise(
    tmp_path, window, block, expected
):
    """A file has the number of noise tokens, as those of runs, which `legacy` reads."""
    sessions = [WORDS[i % 7 : 9 + i % 30] for i in range(30)]
    options = {"vector_size": 4, "min_count": 1, "epochs": 1, "block": block}
    options |= {"window": window}
    trainer, other = (
        EmbeddingTrainer(**options, noise=noise).fit(sessions)
        for noise in (None, expected)
    )
    np.testing.assert_array_equal(trainer.vectors, other.vectors)
    trainer.save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    given = None if window == "session" else expected
    assert (trainer.noise, loaded.noise, loaded.window) == (given, expected, window)
    for each in (trainer, loaded):
        each.partial_fit(sessions)
    np.testing.assert_array_equal(trainer.vectors, loaded.vectors)


@pytest.mark.parametrize(("tile", "block"), [(1, 128), (16, 128), (48, 96), (100, 100)])
def test_blocks_of_whole_sequences_are_as_large_as_they_may_be(tile, block):
    given = with_options(Config(), window="session", tile=tile)
    assert resolve(given, 1000).tables.block == block
