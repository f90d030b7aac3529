"""A run while it trains: its files are only read."""
