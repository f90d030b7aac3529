"""Benches: `python -m bench NAME` measures, prints a table and keeps all samples."""
