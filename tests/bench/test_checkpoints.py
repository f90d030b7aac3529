"""What checkpoints cost is found from when updates were done."""

import json

import pytest

from bench import checkpoints, results
from bench.checkpoints import Mark
from embedder.config import Config, with_options
from embedder.runs.tables import open_corpus, plan


def test_a_save_costs_what_its_stretch_would_have_taken_less():
    """100 updates a second; half as many for 10 s after the save at 20."""
    marks, updates = [], 0
    for second in range(61):
        marks.append(Mark(updates, float(second)))
        updates += 50 if 20 <= second < 30 else 100
    assert checkpoints.lost(marks, [0, 20, 40], 10) == pytest.approx([5, 0])


def test_a_corpus_is_drawn_by_rank():
    encoded = checkpoints.drawn_corpus(50, 1000)
    ids, lengths = encoded.read(0)
    assert encoded.num_tokens == len(ids) == lengths.sum() == 1000
    assert (ids < 5).sum() > (ids >= 45).sum()


@pytest.mark.slow
def test_saves_of_a_training_are_measured(tmp_path, monkeypatch, text_file):
    def small(name, folder):
        options = {"epochs": 10_000, "min_count": 1, "vector_size": 8}
        config = with_options(Config(), loader="memory", **options)
        return plan(config, open_corpus(str(text_file)), folder / "cache")

    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(checkpoints, "make_training", small)
    monkeypatch.setattr(checkpoints, "SECONDS", {"wiki": 0.5})
    table = checkpoints.run(["wiki"], saves=2)
    assert [row[0] for row in table.rows] == ["tables, V = 68 k"]
    sample = json.loads((tmp_path / "checkpoints.json").read_text())["samples"]["wiki"]
    assert len(sample["saves"]) == len(sample["lost"]) == 2
    assert all(0 < save["blocked"] <= save["whole"] for save in sample["saves"])
