"""The oracle does not change unnoticed: what parity was proved against stays."""

import hashlib
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from legacy import EmbeddingTrainer

FOLDER = Path(__file__).parents[1] / "legacy"

# A change here needs a numbered entry in migration/archive/decisions.md that says why.
SHA256 = {
    "__init__.py": "b9f0c2497cf08217dc4f546b1cfaebdcfabc511f579f84dce51dff0921047daa",
    "blocks.py": "e92790990c70e77beb1a0d26def5dbab84950b5aa39a4f52737902aa5ce25642",
    "hogwild.py": "e75669b8a6fc3457265d79f84b4d83d770e2b47650a5047d0a2071c192c9a4c2",
    "huffman.py": "8623f2b672b7cf740968e4b9e0aa6fbf4125abc6da9c93b625f6971f7a9273ef",
    "mlp.py": "b50ed7e1f32d23a42cc1eaa1495f7b7d0220d53a028b99087af884dc1513e6b6",
    "mlp_train.py": "a697768590478be8b355db188ca2e4f570ced911b0146b224c087537c32c9fa2",
    "model.py": "c5994089267e1585d9c7bb860f761034cc38df113574f81c5d08c557a027dfb7",
    "network.py": "85a233f59af056779c8c3f4b6a215ac6254d56f165250770e7dfe5610f425a9e",
    "noise.py": "39bf4af9600ad1af32090fb1752dc38e35ed836bceeb0e159daa19960c439ce4",
    "objective.py": "16b67205e08b4b7a92d6bd13ef6027b2ef5e800c987aca469f2ca0ea43563e88",
    "softmax.py": "169bd4a88fcf629722cda245d110e54fdb6ab56ea2d49a9fd915ac431d850c8e",
    "subwords.py": "c2428f2e3963c28d8797542fc0d281689a2706b2037242efed46df1536079569",
    "trainer.py": "866f100c0974d6373b31bd29a44d202e8f2cd27693462b5f643bf50f71044db8",
    "update.py": "468ab42245bf7c4d2e377a151182ae49c45dbef7b13d17161fea42406c3f9ae6",
    "vocabulary.py": "12f6229394ca4d335f827eff5c26f047bdb1dfc738b8b66539b4c447a3425b16",
}


def digest(path: Path) -> str:
    """Of the text, whatever its line ends."""
    return hashlib.sha256(path.read_text(encoding="utf-8").encode()).hexdigest()


def test_sources_are_the_frozen_ones():
    assert {path.name: digest(path) for path in FOLDER.glob("*.py")} == SHA256


SMALL = {"vector_size": 8, "min_count": 1, "block": 32, "epochs": 3}


@pytest.mark.spread(4)
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float64"},
        {"optimizer": "adagrad"},
        {"hs": True, "negative": 0},
        {"hs": True, "cbow_mean": False},
        {"subwords": (2, 3), "buckets": 100},
    ],
    ids=lambda options: " ".join(options),
)
def test_it_learns_and_its_file_goes_on(tmp_path, sequences, architecture, options):
    """With the installed NumPy. That it computes what it promises is pinned."""
    trained = EmbeddingTrainer(architecture=architecture, **SMALL | options)
    losses = trained.fit(sequences).loss_history
    assert losses == sorted(losses, reverse=True) and len(losses) == 3
    trained.save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    first, second = (each.partial_fit(sequences) for each in (trained, loaded))
    np.testing.assert_array_equal(first.vectors, second.vectors)
    assert first.loss_history == second.loss_history


def test_workers_train_as_one_does_and_end(sequences):
    alone = EmbeddingTrainer(**SMALL).fit(sequences)
    together = EmbeddingTrainer(**SMALL, workers=2).fit(sequences)
    np.testing.assert_allclose(together.loss_history, alone.loss_history, rtol=0.1)
    assert multiprocessing.active_children() == []
