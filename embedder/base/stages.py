"""What long work does now, for a display: reading, compiling, writing."""

import contextlib
from collections.abc import Callable, Iterator

_listeners: list[Callable[[str], object]] = []


def report_stage(text: str) -> None:
    """Tells what is done from now on, as "reading a.txt: 3,000,000 tokens".

    Any thread may call it, and as often as the text changes.
    """
    for show in tuple(_listeners):
        show(text)


@contextlib.contextmanager
def showing_stages(show: Callable[[str], object]) -> Iterator[None]:
    """Calls `show` with each stage that is reported in the body."""
    _listeners.append(show)
    try:
        yield
    finally:
        _listeners.remove(show)
