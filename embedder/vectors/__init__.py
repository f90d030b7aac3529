"""Vectors of keys: nearest neighbours, evaluation, file formats."""
