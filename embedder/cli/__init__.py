"""The command line: the parser, and a verb in each module.

It may import all rooms but `gensim`, which is a guest. Read `arguments.py` first:
the flags of each verb; then `main.py`, what becomes of an error.
"""
