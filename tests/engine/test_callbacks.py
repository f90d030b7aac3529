"""Callbacks are called when they are due, and one that returns True stops."""

import numpy as np
import pytest

import embedder
from embedder import EmbeddingTrainer, FeatureEncoder, every
from embedder.engine.callbacks import Callbacks
from embedder.engine.epochs import Status

TEXT = [[f"w{(i * j) % 23}" for j in range(40)] for i in range(60)]
SETTINGS = {"vector_size": 4, "min_count": 1, "epochs": 4, "sample": 0}


def trainer(**settings) -> EmbeddingTrainer:
    return EmbeddingTrainer(**SETTINGS | settings)


def classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(64) % 2
    return rng.standard_normal((64, 3)) + y[:, None], y


def test_a_callback_gets_each_epoch():
    seen: list[Status] = []
    found = trainer().fit(TEXT, callbacks=seen.append)
    assert [x.epoch for x in seen] == [0, 1, 2, 3]
    assert [x.loss for x in seen] == found.loss_history
    assert [x.progress for x in seen] == [0.25, 0.5, 0.75, 1.0]
    assert all(x.is_epoch_end and x.items_per_second > 0 for x in seen)


def test_a_callback_gets_the_scores_of_held_out_sequences():
    seen: list[Status] = []
    found = trainer().fit(TEXT, holdout=0.2, callbacks=seen.append)
    assert [x.scores for x in seen] == found.score_history
    assert [*seen[0].scores] == ["held_out"]


def test_a_callback_by_updates_is_called_where_a_multiple_is_reached():
    seen: list[int] = []
    options = {"block": 16, "blocks_per_update": 1}
    trainer(**options).fit(
        TEXT, callbacks=[every(40, lambda status: seen.append(status.updates))]
    )
    assert len(seen) > 2
    assert [x // 40 for x in seen] == sorted({x // 40 for x in seen})
    assert all(x >= 40 for x in seen)


def test_a_callback_by_updates_shortens_calls():
    """The last update of an epoch ends a call, too."""
    seen: list[Status] = []
    options = {"block": 16, "blocks_per_update": 1}
    trainer(**options).fit(TEXT, callbacks=[every(32, seen.append)])
    total = seen[-1].updates
    assert total > 400
    assert total // 32 <= len(seen) <= total // 32 + SETTINGS["epochs"]
    assert {x.updates for x in seen if x.epoch == 0} >= {32, 64, 96}


def test_a_callback_by_updates_gets_the_losses_until_then():
    """An epoch of one call, and one of several."""
    seen: list[Status] = []
    for options in ({}, {"block": 16, "blocks_per_update": 1}):
        seen.clear()
        found = trainer(**options).fit(TEXT, callbacks=every(1, seen.append))
        last = {x.epoch: x.loss for x in seen}
        assert [*last.values()] == found.loss_history
        assert all(x.loss > 1 and x.recent_loss > 1 for x in seen)
    first = seen[0]
    assert first.loss == first.recent_loss
    assert any(x.loss != x.recent_loss for x in seen)


def test_a_callback_by_loss_stops_where_the_loss_is_reached():
    """A loss of 0, of an epoch whose first call is not read yet, would stop at once."""
    seen: list[float] = []

    def reached(status: Status) -> bool:
        seen.append(status.recent_loss)
        return status.recent_loss < 2.9

    trainer(epochs=60, alpha=0.05).fit(TEXT, callbacks=every(1, reached))
    assert seen[0] > 2.9 and seen[-1] < 2.9 and min(seen[:-1]) >= 2.9


def test_the_same_callbacks_change_no_bit():
    options = {"block": 16, "blocks_per_update": 1}
    for given in ({}, options):
        plain = trainer(**given).fit(TEXT)
        watched = trainer(**given).fit(TEXT, callbacks=[print, every(1, print)])
        assert np.array_equal(plain.vectors, watched.vectors)


@pytest.mark.slow
@pytest.mark.parametrize("updates", [1, 3])
def test_callbacks_by_updates_change_no_bit_of_an_encoder(updates):
    x, y = classes()
    seen: list[Status] = []
    plain = FeatureEncoder((3, 4, 2), epochs=3, batch_size=8).fit(x, y)
    watched = FeatureEncoder((3, 4, 2), epochs=3, batch_size=8)
    watched.fit(x, y, callbacks=every(updates, seen.append))
    assert len(seen) >= 24 // updates
    assert np.array_equal(plain.transform(x), watched.transform(x))
    assert all(each.loss > 0.3 for each in seen)


def test_true_at_an_epochs_end_keeps_what_was_trained():
    seen: list[Status] = []

    def stop(status: Status) -> bool:
        seen.append(status)
        return status.epoch == 1

    found = trainer().fit(TEXT, callbacks=stop)
    assert len(seen) == 2 and found.loss_history == [x.loss for x in seen]
    whole: list[np.ndarray] = []

    def keep(status: Status) -> None:
        whole.append(status.snapshot().state.params["tables"]["input"].copy())

    trainer().fit(TEXT, callbacks=keep)
    assert np.array_equal(found.vectors, whole[1])
    assert len(found.most_similar("w1", topn=2)) == 2


def test_true_within_an_epoch_stops_there(caplog):
    options = {"block": 16, "blocks_per_update": 1}
    caplog.set_level("INFO", "embedder")
    found = trainer(**options).fit(TEXT, callbacks=every(1, lambda x: np.True_))
    assert found.loss_history == []
    assert np.isfinite(found.vectors).all() and found.vectors.any()
    (line,) = [x for x in caplog.messages if x.startswith("Stopped by a callback")]
    assert " updates, " in line
    assert "Stopped" not in str(trainer().fit(TEXT).report().html)


def test_a_report_of_a_training_without_a_whole_epoch():
    found = trainer(block=16, blocks_per_update=1)
    found.fit(TEXT, callbacks=every(1, lambda x: True))
    assert "w1" in str(found.report().html)


@pytest.mark.row("B45")
def test_an_array_that_a_callback_returns_does_not_stop():
    found = trainer().fit(TEXT, callbacks=lambda status: np.ones(3))
    assert len(found.loss_history) == 4


@pytest.mark.row("B45")
def test_an_error_in_a_callback_leaves_the_trainer_as_it_was():
    found = trainer().fit(TEXT)
    before = found.vectors.copy()

    def fail(status: Status) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        found.fit(TEXT, callbacks=fail)
    assert np.array_equal(found.vectors, before) and len(found.loss_history) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fit_ensemble", "partial_fit", "fit_graph"])
def test_other_trainings_call_back(name, tmp_path):
    seen: list[Status] = []
    given = TEXT
    if name == "fit_graph":
        given = tmp_path / "edges.txt"
        given.write_text("a b\nb c\nc a\nc d\n")
    options = {"replicas": 2} if name == "fit_ensemble" else {}
    getattr(trainer(), name)(given, callbacks=seen.append, **options)
    assert [x.epoch for x in seen] == [*range(1 if name == "partial_fit" else 4)]


@pytest.mark.slow
def test_an_encoder_calls_back_and_stops():
    x, y = classes()
    seen: list[Status] = []

    def stop(status: Status) -> bool:
        seen.append(status)
        return status.epoch == 1

    found = FeatureEncoder((3, 4, 2), epochs=5, validation_fraction=0.25)
    found.fit(x, y, callbacks=[stop])
    assert [each.metrics for each in seen] == found.history_ and len(seen) == 2
    assert [*seen[0].scores] == ["val_loss", "val_accuracy"]
    assert found.predict(x).shape == (64,)
    found.fit_ensemble(x, y, 2, callbacks=stop)
    assert len(found.history_) == 2


@pytest.mark.row("B45")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Callbacks(3), "`callbacks` must be functions .* got 3"),
        (lambda: Callbacks([print, "x"]), "`callbacks` must be functions .* got 'x'"),
        (lambda: every(3, None), "`callbacks` must be functions .* got None"),
        (lambda: every(0, print), "`updates` must be at least 1, got 0"),
        (lambda: every(1.5, print), "`updates` must be an integer, got 1.5"),
        (lambda: every(True, print), "`updates` must be an integer, got True"),
    ],
)
def test_wrong_callbacks(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_wrong_callbacks_are_found_before_the_text_is_read():
    read = []
    with pytest.raises(TypeError, match="`callbacks`"):
        trainer().fit((read.append(1) for _ in range(1)), callbacks="no")
    with pytest.raises(TypeError, match="`verbose` must be True, False or None"):
        trainer().fit(TEXT, verbose="yes")


def test_every_is_public():
    assert embedder.every is every
