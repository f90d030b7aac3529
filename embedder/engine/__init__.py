"""The engine: updates on devices, their rules, loops and memory, for any family."""
