"""Corpus -> vocabulary -> noise -> blocks -> loader."""
