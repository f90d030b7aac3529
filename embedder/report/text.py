"""Texts as they are shown: of untrusted data, numbers, times, and ends of runs."""

from embedder.base.terminal import shown

LONGEST = 80
"""Characters of a token or a name at most; the others are left out."""


def short(text: str) -> str:
    """`text` with invisible characters escaped, cut to `LONGEST` characters."""
    text = shown(text[: LONGEST + 1])
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def number(value: float | None) -> str:
    """A number in at most some ten characters; none: "–"."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """A time as 3.2 s, 4 min 05 s or 2 h 07 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def end_of(done: int, epochs: int, patience: int) -> str:
    """Why a finished run ended after `done` epochs."""
    if done >= epochs:
        return "all epochs are done" if epochs else "no epochs: the initial vectors"
    if patience:
        return f"early: {patience} evaluations in a row were no better (patience)"
    return "metrics.jsonl lacks epochs"
