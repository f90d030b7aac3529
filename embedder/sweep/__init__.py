"""Sweeps: many settings tried side by side, and the best of them."""
