"""A training resumes from any snapshot to the same bits."""

import numpy as np
import pytest

from embedder.config import Config, resolve, with_options
from embedder.engine.epochs import RunPosition, Snapshot, Status, run_epochs
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.training import Training

SMALL = with_options(
    Config(),
    loader="memory",
    vector_size=6,
    min_count=1,
    epochs=2,
    block=32,
    sample=0,
    save_every=16,
)


@pytest.fixture
def encoded(sequences):
    return encode(sequences_corpus(sequences), 1)


def training_of(encoded, **options) -> Training:
    config = resolve(with_options(SMALL, **options), encoded.num_tokens)
    return Training(config, encoded, range(config.run.epochs))


def snapshots_of(training: Training):
    """The end of a training, and a snapshot after each call and epoch."""
    seen: list[tuple[Status, Snapshot]] = []

    def keep(status: Status) -> None:
        seen.append((status, status.snapshot()))

    state, place = run_epochs(training, training.initial_state(), keep)
    return state.params["tables"], place.losses, seen


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"architecture": "cbow", "dtype": "float64"},
        {"backend": "numba"},
        {"blocks_per_update": 3, "update": "dense"},
    ],
    ids=["skipgram", "cbow", "numba", "dense"],
)
def test_every_snapshot_leads_to_the_same_end(encoded, options):
    training = training_of(encoded, **options)
    tables, losses, seen = snapshots_of(training)
    assert len(seen) > 8
    for _, (state, place) in seen:
        again, end = run_epochs(training, state, start=place)
        assert end.losses == losses
        for name, table in again.params["tables"].items():
            np.testing.assert_array_equal(table, tables[name], strict=True)


def test_a_snapshot_does_not_change_afterwards(encoded):
    for backend in ("xla", "numba"):
        taken = []

        def keep(status: Status, taken=taken) -> None:
            if not taken:
                state = status.snapshot().state
                taken.extend([state, state.params["tables"]["input"].copy()])

        training = training_of(encoded, backend=backend)
        run_epochs(training, training.initial_state(), keep)
        state, before = taken
        np.testing.assert_array_equal(state.params["tables"]["input"], before)


def test_positions_of_snapshots_increase(encoded):
    _, losses, seen = snapshots_of(training_of(encoded))
    statuses = [status for status, _ in seen]
    updates = [status.updates for status in statuses]
    assert updates == sorted(updates)
    assert updates[0] == 16  # as often as `save_every` wants
    assert seen[-1][1].position == RunPosition(
        2, (), 1.0, updates[-1], tuple((loss,) for loss in losses)
    )
    assert statuses[-1].items == 2 * encoded.raw_tokens
    assert [status.is_epoch_end for status in statuses].count(True) == 2


def test_a_resumed_run_counts_its_own_time_and_all_words(encoded):
    training = training_of(encoded)
    _, _, seen = snapshots_of(training)
    state, place = next(s for status, s in seen if status.is_epoch_end)
    again: list[Status] = []
    run_epochs(training, state, again.append, place)
    assert again[-1].items == 2 * encoded.raw_tokens
    own = again[-1].items_per_second * again[-1].seconds
    assert own == pytest.approx(encoded.raw_tokens)


@pytest.mark.slow
def test_a_snapshot_of_infinite_vectors_raises(encoded):
    training = training_of(encoded, alpha=1e30, max_pairs_per_row=1e30)
    with pytest.raises(FloatingPointError, match="after 16 updates are not finite"):
        snapshots_of(training)
