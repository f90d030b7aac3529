"""Curves as lines of text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedder.watch.chart import chart

numbers = st.floats(-1e300, 1e300)
curves = st.lists(st.tuples(st.floats(0, 1e12), numbers), min_size=1, max_size=60)
sizes = st.integers(1, 30)


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right():
    assert chart([(0, 1.0), (10, 4.0)], 4, 4, dots=False) == [
        "   *",
        "  *",
        " *",
        "*",
    ]


def test_a_fall_between_two_columns_is_drawn_through():
    assert chart([(0, 9.0), (1, 0.0), (2, 0.0)], 3, 3, dots=False) == ["*", " *", " **"]


def test_braille_has_two_by_four_dots_a_character():
    low, high = chart([(0, 0.0), (1, 1.0)], 1, 2)[::-1]
    left, right = 0x40, 0x08 + 0x10 + 0x20
    assert (low, high) == (chr(0x2800 + left + right), chr(0x2800 + right + 0x80))


@pytest.mark.parametrize("dots", [True, False])
def test_equal_values_are_a_line_in_the_middle(dots):
    lines = chart([(0, 2.0), (5, 2.0)], 6, 3, dots=dots)
    blank = chr(0x2800) * 6 if dots else ""
    assert lines[0] == lines[2] == blank != lines[1]


def test_many_points_of_a_column_are_their_mean():
    points = [(x, float(x % 2)) for x in range(1000)] + [(1000.0, 5.0)]
    *_, lowest = chart(points, 10, 10, dots=False)
    assert lowest == "*" * 9  # the mean of zeros and ones, below 5


@given(curves, sizes, sizes, st.booleans())
def test_any_curve_fills_its_columns_and_no_more(points, width, height, dots):
    lines = chart(sorted(points), width, height, dots=dots)
    assert len(lines) == height
    if dots:
        assert {len(line) for line in lines} == {width}
        codes = np.array([[ord(c) - 0x2800 for c in line] for line in lines])
        assert (codes.max(axis=0) > 0).all()
    else:
        assert max(map(len, lines)) == width
        columns = {i for line in lines for i, c in enumerate(line) if c == "*"}
        assert columns == {*range(width)}
