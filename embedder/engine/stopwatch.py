"""The time of a run, by what it did."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

ACTIVITIES = ("compile", "input", "evaluation", "other")
"""What is timed: the first call, which compiles; waiting for batches; scores; and what
callers do between updates, as to save. The rest of the time went to updates."""


class Stopwatch:
    """Seconds since it was made, and seconds of each of `ACTIVITIES`."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._seconds = dict.fromkeys(ACTIVITIES, 0.0)

    @property
    def seconds(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._began

    @property
    def seconds_of(self) -> dict[str, float]:
        """Seconds of each activity so far."""
        return dict(self._seconds)

    def add(self, activity: str, seconds: float) -> None:
        """Adds `seconds` that one of `ACTIVITIES` took."""
        self._seconds[activity] += seconds

    @contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Adds the time of the body."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(activity, time.perf_counter() - began)
