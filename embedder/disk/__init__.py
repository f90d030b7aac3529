"""Files on disk: atomic writes, digests, locks, and readers of untrusted files.

It may import `config` and what comes before. Read `workdir.py` first: the files of a
run; then `files.py`, how each is written whole or not at all.
"""
