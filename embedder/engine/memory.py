"""Whether there is as much memory as a run needs, and how that is shown."""

from embedder.errors import InputError
from embedder.limits import gib, memory_limit


def check_memory(needed: dict[str, int], advice: str) -> None:
    """Refuses a run that no memory here can ever hold, before anything is made.

    Args:
      needed: bytes, by what needs them.
      advice: what to do, a clause.

    Raises:
      ValueError: as said; the message says what needs how much.
    """
    total, limit = sum(needed.values()), memory_limit()
    if total > limit.size:
        parts = ", ".join(f"{name} {gib(n)}" for name, n in needed.items() if n)
        raise InputError(
            f"The run must fit in the {gib(limit.size)} of {limit.source}, got "
            f"{gib(total)} ({parts}): {advice}"
        )


def memory_lines(training) -> list[str]:
    """What a training needs of the machine and of each device, for people."""
    return [
        f"memory: {_in_all(training.memory)}",
        f"on each device: {_in_all(training.device_memory)}",
    ]


def _in_all(needed: dict[str, int]) -> str:
    parts = ", ".join(f"{name} {n / 2**20:.1f}" for name, n in needed.items() if n)
    return f"{sum(needed.values()) / 2**20:.1f} MiB ({parts})"
