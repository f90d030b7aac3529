"""Graphs: edge lists and objects as CSR, and random walks over them."""
