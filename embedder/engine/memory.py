"""Checks that a run fits in the host's memory, and describes what it needs."""

from typing import Protocol

from embedder.errors import InputError
from embedder.limits import gib, memory_limit


class MemoryUse(Protocol):
    """The memory that a training needs, in bytes by purpose."""

    @property
    def memory(self) -> dict[str, int]:
        """On the host, at most, beside Python and JAX."""

    @property
    def device_memory(self) -> dict[str, int]:
        """On each device."""


def check_memory(needed: dict[str, int], advice: str) -> None:
    """Checks that a run fits in memory, before anything is allocated.

    Args:
      needed: bytes by purpose, as in `MemoryUse`.
      advice: what to do otherwise, a clause that ends the message.

    Raises:
      InputError: it does not fit in the limit of this machine or container.
    """
    total, limit = sum(needed.values()), memory_limit()
    if total > limit.size:
        parts = ", ".join(f"{name} {gib(n)}" for name, n in needed.items() if n)
        raise InputError(
            f"The run must fit in the {gib(limit.size)} of {limit.source}, got "
            f"{gib(total)} ({parts}): {advice}"
        )


def memory_lines(training: MemoryUse) -> list[str]:
    """The memory that a training needs on the host and on each device, as text."""
    return [
        f"memory: {_total(training.memory)}",
        f"on each device: {_total(training.device_memory)}",
    ]


def _total(needed: dict[str, int]) -> str:
    parts = ", ".join(f"{name} {n / 2**20:.1f}" for name, n in needed.items() if n)
    return f"{sum(needed.values()) / 2**20:.1f} MiB ({parts})"
