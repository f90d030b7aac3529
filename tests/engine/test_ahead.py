import threading
import time

import pytest

from embedder.engine.ahead import map_ahead, read_ahead


def test_map_ahead_keeps_the_order():
    def slow_at_first(place):
        time.sleep(0.02 if place == 0 else 0)
        return -place

    assert list(map_ahead(slow_at_first, range(20), workers=3)) == [
        -place for place in range(20)
    ]


def test_map_ahead_works_no_further_than_its_workers():
    made = []

    def make(place):
        made.append(place)
        return place

    ahead = map_ahead(make, range(100), workers=2)
    assert next(ahead) == 0
    ahead.close()
    assert len(made) <= 3


def test_read_ahead_gives_the_same_items():
    assert list(read_ahead(iter("abc"))) == ["a", "b", "c"]
    assert list(read_ahead([])) == []


def test_read_ahead_makes_the_next_item_while_one_is_in_use():
    made = threading.Semaphore(0)

    def items():
        for item in range(3):
            made.release()
            yield item

    ahead = read_ahead(items())
    next(ahead)
    assert made.acquire(timeout=10)
    assert made.acquire(timeout=10)
    assert not made.acquire(timeout=0.05)
    ahead.close()


def test_read_ahead_raises_what_making_an_item_raised():
    def items():
        yield 1
        raise ValueError("no second item")

    ahead = read_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="no second item"):
        next(ahead)


def test_read_ahead_leaves_no_thread():
    before = threading.active_count()
    ahead = read_ahead(range(100))
    next(ahead)
    ahead.close()
    assert threading.active_count() == before
