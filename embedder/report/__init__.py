"""The report of a run: one page of HTML with all that it needs."""
