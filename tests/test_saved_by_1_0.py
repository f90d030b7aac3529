"""Files that version 1.0 wrote, whose modules had other names, open and go on.

Made by that version, of `TEXT` with `vector_size` 4 and `X`, `Y` with layers (3, 2, 3),
`epochs` 1.
"""

import importlib
import pickle
from pathlib import Path

import numpy as np
import pytest

from embedder import EmbeddingTrainer, FeatureEncoder

SAVED = Path(__file__).with_name("saved_by_1_0")
TEXT = [["a", "b", "c"]] * 20
X = np.eye(3, dtype=np.float32).repeat(4, axis=0)


@pytest.mark.parametrize("name", ["trainer", "subwords"])
def test_a_pickled_trainer_answers_and_goes_on(name):
    trainer = pickle.loads((SAVED / f"{name}.pickle").read_bytes())
    assert type(trainer) is EmbeddingTrainer
    ((key, cosine),) = trainer.most_similar("a", topn=1)
    assert key == "b" and 0.6 < cosine < 0.8
    before = trainer.vectors.copy()
    trainer.partial_fit(TEXT)
    assert len(trainer.loss_history) == 2 and (trainer.vectors != before).any()
    again = pickle.loads(pickle.dumps(trainer))
    np.testing.assert_array_equal(again.vectors, trainer.vectors)


def test_a_pickled_trainer_is_the_saved_one():
    trainer = pickle.loads((SAVED / "trainer.pickle").read_bytes())
    saved = EmbeddingTrainer.load(SAVED / "model.npz")
    np.testing.assert_array_equal(trainer.vectors, saved.vectors)


def test_pickled_encoders_predict_as_the_saved_one():
    saved = FeatureEncoder.load(SAVED / "encoder.npz")
    encoder = pickle.loads((SAVED / "encoder.pickle").read_bytes())
    np.testing.assert_array_equal(encoder.transform(X), saved.transform(X))
    ensemble = pickle.loads((SAVED / "ensemble.pickle").read_bytes())
    assert type(ensemble) is FeatureEncoder and len(ensemble.ensemble_) == 2
    np.testing.assert_array_equal(ensemble.transform(X), saved.transform(X))


FORMER = """
encoders.estimator FeatureEncoder
encoders.feature_ensemble FeatureEnsemble
encoders.networks.wide_resnet WideResNet
tables.estimator EmbeddingTrainer
tables.vocabulary Vocabulary
threads _Turn
"""


@pytest.mark.parametrize("line", FORMER.strip().splitlines())
def test_a_class_has_its_former_module(line):
    module, name = line.split()
    found = getattr(importlib.import_module(f"embedder.{module}"), name)
    assert found.__name__ == name and found.__module__ != f"embedder.{module}"


def test_other_names_are_found_no_more():
    with pytest.raises(ModuleNotFoundError, match="embedder.tables.other"):
        importlib.import_module("embedder.tables.other")
    assert not hasattr(importlib.import_module("embedder.threads"), "other")
