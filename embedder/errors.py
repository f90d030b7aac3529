"""Errors of usage and input: what the program prints as one line, with exit code 2.

Each derives from the exception of Python that callers of the Python API expect. Any
other exception that ends the program is a bug of it.
"""


class InputError(ValueError):
    """Wrong usage or bad input; the message names the argument or file, and the fix."""


class InputTypeError(InputError, TypeError):
    """An argument has the wrong type."""


class InputKeyError(InputError, KeyError):
    """A token is not in the vocabulary."""

    __str__ = ValueError.__str__  # KeyError puts its message in quotes


class InputNotFoundError(InputError, FileNotFoundError):
    """A file or folder does not exist."""


class InputExistsError(InputError, FileExistsError):
    """A file or folder stands where something else is to be written."""


class InputIsFolderError(InputError, IsADirectoryError):
    """A folder is given for a file."""


class InputEndError(InputError, EOFError):
    """A file ends too early."""
