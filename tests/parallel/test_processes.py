"""Several processes as one run, on loopback."""
