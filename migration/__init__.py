"""Across from the NumPy trainer: DECISIONS.md says what was decided on the way."""
