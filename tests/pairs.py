"""Few cells of a product of values, so that each pair of values is in one."""

from collections.abc import Sequence
from typing import Any

import pytest
from allpairspy import AllPairs


def pairwise(**values: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrizes a test by the names of `values`.

    Each value is in a cell that runs by default. Each pair of values of two names is in
    such a cell or in a slow one. What only three values together do may stay unseen.
    """
    columns = [[*each] for each in values.values()]
    cells = [
        [index % len(column) for column in columns]
        for index in range(max(map(len, columns)))
    ]
    rest: list[list[int]] = []
    if len(columns) > 1:
        indices = [list(range(len(column))) for column in columns]
        rest = [[*cell] for cell in AllPairs(indices, previously_tested=cells)]
    return pytest.mark.parametrize(
        [*values],
        [
            pytest.param(
                *(column[i] for column, i in zip(columns, cell, strict=True)),
                marks=[pytest.mark.slow] if is_slow else [],
            )
            for is_slow, some in ((False, cells), (True, rest))
            for cell in some
        ],
        ids=lambda value: getattr(value, "name", None),
    )
