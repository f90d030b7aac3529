"""How many threads run the kernel when other programs use the cores too.

The threads of an update wait for each other twice, with small updates in some 40
microseconds. When another program takes the core of one thread, all of them wait until
the scheduler gives that core back, and the team is slower than one thread alone. The
vectors do not depend on the number of threads, so it may change at any time.
"""

_UNDISTURBED = 0.8  # share of the time that a thread has a core on an idle machine
_MEMORY = 0.7  # weight of earlier measurements of a size, when there is a new one
_TRIALS = 0.05  # share of the time that trials of other sizes may cost
_FIRST_TRIALS = 0.02  # seconds that the first trials may cost


class TeamSize:
    """Picks the number of threads that applies the most updates a second.

    It starts with all threads. When one of them has a core for less than 0.8 of the
    time, it tries smaller numbers in turn and uses the fastest, until all threads have
    their cores again and are the fastest.

    Args:
      threads: the most threads.
    """

    def __init__(self, threads: int):
        self.threads = threads
        self.is_disturbed = False
        """Whether another program has recently taken a core of the team."""
        self._sizes = sorted({threads, max(1, threads - 1), max(1, threads // 2), 1})
        self._begin_trials()

    @property
    def best(self) -> int:
        """The number of threads with the most updates a second, as far as is known."""
        return max(self._sizes, key=lambda size: (self._rate(size), size))

    def trial(self) -> int | None:
        """The number of threads to time some updates with; None: no trial is due."""
        if not self.is_disturbed or self._credit < 0:
            return None
        others = [size for size in self._sizes if size != self.best]
        return min(others, key=self._num_calls.__getitem__)

    def record(self, size: int, updates: int, seconds: float, share: float) -> None:
        """Records how long `updates` took.

        Args:
          size: the number of threads that applied them.
          share: the smallest share of the time that a thread of them had a core.
        """
        has_cores = share >= _UNDISTURBED
        if self.is_disturbed:
            self._measure(size, updates, seconds)
            if has_cores and size == self.threads == self.best:
                self.is_disturbed = False
                self._begin_trials()
        elif size > 1 and not has_cores:
            self.is_disturbed = True

    def _begin_trials(self) -> None:
        self._updates = dict.fromkeys(self._sizes, 0.0)
        self._seconds = dict.fromkeys(self._sizes, 0.0)
        self._num_calls = dict.fromkeys(self._sizes, 0)
        self._credit = _FIRST_TRIALS
        """Seconds that trials may still cost."""

    def _measure(self, size: int, updates: int, seconds: float) -> None:
        best = self.best
        if size == best:
            self._credit += _TRIALS * seconds
        elif rate := self._rate(best):
            self._credit -= max(0.0, seconds - updates / rate)
        self._num_calls[size] += 1
        self._updates[size] = _MEMORY * self._updates[size] + updates
        self._seconds[size] = _MEMORY * self._seconds[size] + seconds

    def _rate(self, size: int) -> float:
        """Updates a second, over all recorded time: a slow call outweighs fast ones."""
        seconds = self._seconds[size]
        return self._updates[size] / seconds if seconds else 0.0
