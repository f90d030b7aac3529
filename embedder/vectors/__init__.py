"""Vectors of keys: nearest neighbours, evaluation, file formats.

It may import `disk` and what comes before; no training is known here. Read
`vectors.py` first, then `export.py`: the table of formats.
"""
