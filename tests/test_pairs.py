"""Cells that stand for a product of values."""

import itertools

from tests.pairs import pairwise

VALUES = {"a": [0, 1, 2, 3], "b": [0, 1], "c": [0, 1, 2]}


def test_each_value_is_tested_by_default_and_each_pair_when_slow():
    cells = pairwise(**VALUES).args[1]
    fast = [cell.values for cell in cells if not cell.marks]
    for place, values in enumerate(VALUES.values()):
        assert {cell[place] for cell in fast} == {*values}
    for i, j in itertools.combinations(range(3), 2):
        first, second = [*VALUES.values()][i], [*VALUES.values()][j]
        found = {(cell.values[i], cell.values[j]) for cell in cells}
        assert found == {*itertools.product(first, second)}
    assert len({cell.values for cell in cells}) == len(cells) < 4 * 2 * 3
