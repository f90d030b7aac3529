"""A run and its folder: what it writes, when it saves, where it goes on."""
