"""Benches: `python -m bench NAME` measures, prints a table, writes results/*.json."""
