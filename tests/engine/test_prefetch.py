import threading
import time

import pytest

from embedder.engine.prefetch import parallel_map, prefetch


def test_parallel_map_keeps_the_order():
    def slow_at_first(item):
        time.sleep(0.02 if item == 0 else 0)
        return -item

    assert list(parallel_map(slow_at_first, range(20), workers=3)) == [
        -item for item in range(20)
    ]


def test_parallel_map_works_no_further_than_its_workers():
    made = []

    def make(item):
        made.append(item)
        return item

    iterator = parallel_map(make, range(100), workers=2)
    assert next(iterator) == 0
    iterator.close()
    assert len(made) <= 3


def test_prefetch_gives_the_same_items():
    assert list(prefetch(iter("abc"))) == ["a", "b", "c"]
    assert list(prefetch([])) == []


def test_prefetch_makes_the_next_item_while_one_is_in_use():
    made = threading.Semaphore(0)

    def items():
        for item in range(3):
            made.release()
            yield item

    iterator = prefetch(items())
    next(iterator)
    assert made.acquire(timeout=10)
    assert made.acquire(timeout=10)
    assert not made.acquire(timeout=0.05)
    iterator.close()


def test_prefetch_raises_what_making_an_item_raised():
    def items():
        yield 1
        raise ValueError("no second item")

    iterator = prefetch(items())
    assert next(iterator) == 1
    with pytest.raises(ValueError, match="no second item"):
        next(iterator)


def test_prefetch_leaves_no_thread():
    before = threading.active_count()
    iterator = prefetch(range(100))
    next(iterator)
    iterator.close()
    assert threading.active_count() == before
