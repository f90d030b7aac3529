"""Anything on its way to tokens or examples: text, tables, sessions, graphs, images.

It may import `run` and what comes before. Read `encoded.py` first: what a training
reads of a text, or of walks; then `tables/reader.py`, the one reader of tables.
"""
