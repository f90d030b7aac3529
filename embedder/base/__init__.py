"""What all rooms may use: output for people, threads, limits of memory, stages.

It may import `errors` alone. Read `stages.py` first: how long work says what it does.
"""
