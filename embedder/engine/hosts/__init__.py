"""Several processes that are one run."""
