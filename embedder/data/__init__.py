"""Anything on its way to tokens or examples: text, tables, sessions, graphs, images."""
