"""Migration from the NumPy trainer: converters, drop-in module, parity suite."""
