"""Iterators that make items in threads, before the caller asks for them."""

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    batch: int = 1,
) -> Iterator[Result]:
    """`function` of each item, in order, computed by `workers` threads.

    At most `workers` batches of results wait for the caller.

    Args:
      batch: items that a thread takes at once: to hand over one takes 30 us.
    """

    def results(some: list[Item]) -> list[Result]:
        return [function(item) for item in some]

    rest = iter(items)
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[list[Result]]] = deque()
        try:
            while some := [*itertools.islice(rest, batch)]:
                pending.append(pool.submit(results, some))
                if len(pending) > workers:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def prefetch(items: Iterable[Item]) -> Generator[Item]:
    """The same items, each made by a thread while the caller uses the one before.

    Closing this generator also closes `items`, where that is a generator.
    """
    iterator = iter(items)
    try:
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(_next, iterator)
            while item := pending.result():
                pending = pool.submit(_next, iterator)
                yield item[0]
    finally:
        if isinstance(iterator, Generator):
            iterator.close()


def _next(iterator: Iterator[Item]) -> tuple[Item] | tuple[()]:
    """The next item; () at the end."""
    for item in iterator:
        return (item,)
    return ()
