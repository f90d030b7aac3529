"""Iterators whose items are made by threads before they are asked for."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """`function` of each item, in order, computed by `workers` threads."""
    with ThreadPoolExecutor(workers) as pool:
        pending = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items: the next one is made by a thread while one is in use.

    A generator among `items` is closed with this one.
    """
    iterator, end = iter(items), object()
    try:
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(next, iterator, end)
            while (item := pending.result()) is not end:
                pending = pool.submit(next, iterator, end)
                yield item
    finally:
        if isinstance(iterator, Generator):
            iterator.close()
