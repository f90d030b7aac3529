"""The engine: updates on devices, their rules, loops and memory, for any family.

It may import `metrics` and what comes before; no family is known here. Read `task.py`
and `trainer.py` first, what a family gives it; then `epochs.py`, the loop.
"""

from embedder.errors import check_docstrings

check_docstrings()
