"""The command line: the parser, and a verb in each module."""
