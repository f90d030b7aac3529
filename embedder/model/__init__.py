"""Objectives on gathered rows, and the tables that the rows come from."""
