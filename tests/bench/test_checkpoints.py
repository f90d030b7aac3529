"""The cost of checkpoints is computed from the times of updates."""

import pytest

from bench import checkpoints
from bench.checkpoints import Mark


def test_a_save_costs_the_extra_time_of_its_interval():
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


def test_an_interval_reaches_the_next_mark():
    """No update ends within an interval: the next mark ends it."""
    marks = [Mark(second // 10, float(second)) for second in range(0, 71, 10)]
    assert checkpoints.lost(marks, [0, 20, 40], 0.5) == pytest.approx([0, 0])
    assert checkpoints.lost(marks, [0, 90], 0.5) == pytest.approx([0])
