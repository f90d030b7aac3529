"""Callbacks are called when they are due, and one that returns True stops."""

import numpy as np
import pytest

from embedder import EmbeddingTrainer, FeatureEncoder, every

TEXT = [[f"w{(i * j) % 23}" for j in range(40)] for i in range(60)]
SETTINGS = {"vector_size": 4, "min_count": 1, "epochs": 4, "sample": 0}
SHORT = {"block": 16, "blocks_per_update": 1}  # epochs of many calls


def trainer(**settings) -> EmbeddingTrainer:
    return EmbeddingTrainer(**SETTINGS | settings)


def classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(64) % 2
    return rng.standard_normal((64, 3)) + y[:, None], y


def test_a_callback_gets_each_epoch_and_its_scores():
    seen: list = []
    found = trainer().fit(TEXT, holdout=0.2, callbacks=seen.append)
    assert [x.epoch for x in seen] == [0, 1, 2, 3]
    assert [x.loss for x in seen] == found.loss_history
    assert [x.progress for x in seen] == [0.25, 0.5, 0.75, 1.0]
    assert all(x.is_epoch_end and x.items_per_second > 0 for x in seen)
    assert [x.scores for x in seen] == found.score_history
    assert [*seen[0].scores] == ["held_out"]


def test_a_callback_by_updates_is_called_where_a_multiple_is_reached():
    """It shortens calls; the last update of an epoch ends one, too."""
    seen: list = []
    trainer(**SHORT).fit(TEXT, callbacks=[every(32, seen.append)])
    updates = [x.updates for x in seen]
    total = updates[-1]
    assert total > 400
    assert total // 32 <= len(seen) <= total // 32 + SETTINGS["epochs"]
    assert {x.updates for x in seen if x.epoch == 0} >= {32, 64, 96}
    assert {x // 32 for x in updates} == {*range(1, total // 32 + 1)}


def test_a_callback_by_updates_gets_the_losses_until_then():
    """An epoch of one call, and one of several."""
    seen: list = []
    for options in ({}, SHORT):
        seen.clear()
        found = trainer(**options).fit(TEXT, callbacks=every(1, seen.append))
        last = {x.epoch: x.loss for x in seen}
        assert [*last.values()] == found.loss_history
        assert all(x.loss > 1 and x.recent_loss > 1 for x in seen)
    assert seen[0].loss == seen[0].recent_loss
    assert any(x.loss != x.recent_loss for x in seen)


def test_a_callback_by_loss_stops_where_the_loss_is_reached():
    """A loss of 0, of an epoch whose first call is not read yet, would stop at once."""
    seen: list[float] = []

    def reached(status) -> bool:
        seen.append(status.recent_loss)
        return status.recent_loss < 2.9

    trainer(epochs=60, alpha=0.05).fit(TEXT, callbacks=every(1, reached))
    assert seen[0] > 2.9 and seen[-1] < 2.9 and min(seen[:-1]) >= 2.9


def test_callbacks_change_no_bit():
    for given in ({}, SHORT):
        plain = trainer(**given).fit(TEXT)
        watched = trainer(**given).fit(TEXT, callbacks=[print, every(1, print)])
        assert np.array_equal(plain.vectors, watched.vectors)
    encoders = [FeatureEncoder((3, 4, 2), epochs=3, batch_size=8) for _ in range(2)]
    x, y = classes()
    seen: list = []
    encoders[0].fit(x, y)
    encoders[1].fit(x, y, callbacks=every(3, seen.append))
    assert len(seen) >= 8 and all(each.loss > 0.3 for each in seen)
    assert np.array_equal(*(each.transform(x) for each in encoders))


def test_true_at_an_epochs_end_keeps_what_was_trained():
    whole: list[np.ndarray] = []

    def stop(status) -> bool:
        whole.append(status.snapshot().state.params["tables"]["input"].copy())
        return status.epoch == 1

    found = trainer().fit(TEXT, callbacks=stop)
    assert len(whole) == 2 == len(found.loss_history)
    assert np.array_equal(found.vectors, whole[1])
    assert len(found.most_similar("w1", topn=2)) == 2


def test_true_within_an_epoch_stops_there(caplog):
    caplog.set_level("INFO", "embedder")
    found = trainer(**SHORT).fit(TEXT, callbacks=every(1, lambda x: np.True_))
    assert found.loss_history == []
    assert np.isfinite(found.vectors).all() and found.vectors.any()
    (line,) = [x for x in caplog.messages if x.startswith("Stopped by a callback")]
    assert " updates, " in line
    assert "w1" in str(found.report().html)  # also without a whole epoch


@pytest.mark.row("B45")
def test_an_error_in_a_callback_leaves_the_trainer_as_it_was():
    """An array that a callback returns does not stop."""
    found = trainer().fit(TEXT, callbacks=lambda status: np.ones(3))
    before = found.vectors.copy()

    def fail(status) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        found.fit(TEXT, callbacks=fail)
    assert np.array_equal(found.vectors, before) and len(found.loss_history) == 4
    read = []
    with pytest.raises(TypeError, match="`callbacks`"):
        found.fit((read.append(1) for _ in range(1)), callbacks="no")
    assert not read


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fit_ensemble", "partial_fit", "fit_graph"])
def test_other_trainings_call_back(name, tmp_path):
    seen: list = []
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
    seen: list = []

    def stop(status) -> bool:
        seen.append(status)
        return status.epoch == 1

    found = FeatureEncoder((3, 4, 2), epochs=5, validation_fraction=0.25)
    found.fit(x, y, callbacks=[stop])
    assert [each.metrics for each in seen] == found.history_ and len(seen) == 2
    assert [*seen[0].scores] == ["val_loss", "val_accuracy"]
    found.fit_ensemble(x, y, 2, callbacks=stop)
    assert len(found.history_) == 2
