"""Vectors of keys: neighbours, evaluation, files."""
