"""How many threads work on the updates of the kernel, beside other programs.

The threads of an update wait for each other twice in some 40 microseconds. Where
another program runs on the core of one of them, all wait until the scheduler gives that
core back, and the team is slower than one thread alone. The number of threads does not
change the vectors, so it may change at any time.
"""

_UNDISTURBED = 0.8  # share of its time that a thread has a core on a quiet machine
_MEMORY = 0.7  # weight of the earlier measurements of a size when a new one comes
_TRIALS = 0.05  # share of the time that may be lost by trials of other sizes
_FIRST_TRIALS = 0.02  # seconds that the first trials may lose


class TeamSize:
    """Picks the number of threads that does the most updates a second.

    That is all of them until one has a core for less than 0.8 of the time. From then on
    smaller numbers are tried in turn, and the fastest is used, until all threads have
    their cores again and are the fastest.

    Args:
      threads: the most threads.
    """

    def __init__(self, threads: int):
        self.threads = threads
        self.is_disturbed = False
        """Whether another program has lately taken a core from the team."""
        self._sizes = sorted({threads, max(1, threads - 1), max(1, threads // 2), 1})
        self._begin_trials()

    @property
    def best(self) -> int:
        """Threads that do the most updates a second, as far as that is known."""
        return max(self._sizes, key=lambda size: (self._rate(size), size))

    def trial(self) -> int | None:
        """Threads that some updates should be tried with now; None: no trial is due."""
        if not self.is_disturbed or self._credit < 0:
            return None
        others = [size for size in self._sizes if size != self.best]
        return min(others, key=self._num_calls.__getitem__)

    def record(self, size: int, updates: int, seconds: float, share: float) -> None:
        """Takes in how long `updates` took.

        Args:
          size: threads that worked on them.
          share: of its time, that the thread with the least had a core.
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
        """Seconds that trials may still lose."""

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
        """Updates a second over time: one slow call counts for many fast ones."""
        seconds = self._seconds[size]
        return self._updates[size] / seconds if seconds else 0.0
