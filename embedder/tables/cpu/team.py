"""How many threads work on the updates of the kernel, beside other programs.

The threads of an update wait for each other twice in some 40 microseconds. Where
another program runs on the core of one of them, all wait until the scheduler gives that
core back, and the team is slower than one thread alone. The number of threads does not
change the vectors, so it may change at any time.
"""

_UNDISTURBED = 0.9  # share of the time that a thread computes if it has a core
_MEMORY = 0.7  # weight of the earlier measurements of a size when a new one comes
_TRIALS = 0.05  # share of the time that may be lost by trials of other sizes
_FIRST_TRIALS = 0.02  # seconds that the first trials may lose


class TeamSize:
    """Picks the number of threads that does the most updates a second.

    That is all of them until one computes for less than 0.9 of the time. From then on
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

    def pick(self) -> int:
        """Threads of the next updates."""
        if not self.is_disturbed:
            return self.threads
        best = self._best()
        self._is_trial = self._credit >= 0 and not self._is_trial
        if not self._is_trial:
            return best
        others = [size for size in self._sizes if size != best]
        return min(others, key=self._num_calls.__getitem__)

    def record(self, size: int, updates: int, seconds: float, share: float) -> None:
        """Takes in how long `updates` took.

        Args:
          size: threads that worked on them.
          share: of `seconds`, that the slowest of them computed.
        """
        if not self.is_disturbed:
            if size > 1 and share < _UNDISTURBED:
                self.is_disturbed = True
                self._begin_trials()
            return
        self._pay(size, updates, seconds)
        self._num_calls[size] += 1
        self._updates[size] = _MEMORY * self._updates[size] + updates
        self._seconds[size] = _MEMORY * self._seconds[size] + seconds
        if size == self.threads == self._best() and share >= _UNDISTURBED:
            self.is_disturbed = False

    def _begin_trials(self) -> None:
        self._updates = dict.fromkeys(self._sizes, 0.0)
        self._seconds = dict.fromkeys(self._sizes, 0.0)
        self._num_calls = dict.fromkeys(self._sizes, 0)
        self._credit = _FIRST_TRIALS
        """Seconds that trials may still lose."""
        self._is_trial = False

    def _pay(self, size: int, updates: int, seconds: float) -> None:
        """Books the seconds that a trial has lost, or what other calls allow for it."""
        best = self._best()
        if size == best:
            self._credit += _TRIALS * seconds
        elif rate := self._rate(best):
            self._credit -= max(0.0, seconds - updates / rate)

    def _best(self) -> int:
        return max(self._sizes, key=lambda size: (self._rate(size), size))

    def _rate(self, size: int) -> float:
        """Updates a second over time: one slow call counts for many fast ones."""
        seconds = self._seconds[size]
        return self._updates[size] / seconds if seconds else 0.0
