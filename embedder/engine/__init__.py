"""The engine: updates on devices, their rules, loops and memory; blind to families."""
