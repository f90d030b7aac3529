"""The report of a run: one page of HTML with all that it needs.

It may import `encoders` and what comes before. Read `page.py` first: what a page
has; then `run_page.py`, which makes it from the files of a run.
"""
