"""Sweeps: many settings tried side by side, and the best of them.

It may import `api` and what comes before. Read `sweep.py` first, then `trials.py`.
"""
