"""Files on disk: atomic writes, digests, locks, and readers of untrusted files."""
