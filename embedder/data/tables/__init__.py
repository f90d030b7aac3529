"""Data on their way in: tables of rows and columns, in files and in memory."""
