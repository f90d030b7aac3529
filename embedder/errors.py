"""Errors of usage and input: the program prints them as one line, exit code 2.

Each derives from the built-in exception that callers of the Python API expect. Any
other exception that ends the program is a bug.
"""

import collections.abc
import contextlib


class InputError(ValueError):
    """Wrong usage or bad input; the message names the argument or file, and a fix."""


class InputTypeError(TypeError, InputError):
    """An argument has the wrong type."""


class InputKeyError(KeyError, InputError):
    """A token is not in the vocabulary."""


class InputNotFoundError(FileNotFoundError, InputError):
    """A file or folder does not exist."""


class InputExistsError(FileExistsError, InputError):
    """A file or folder exists where another is to be written."""


class InputIsFolderError(IsADirectoryError, InputError):
    """A folder is given for a file."""


class InputEndError(EOFError, InputError):
    """A file ends too early."""


@contextlib.contextmanager
def naming(argument: str) -> collections.abc.Iterator[None]:
    """Messages of bad input name `argument`, which the user gave, for the `path` of the
    function that is called."""
    try:
        yield
    except InputError as error:
        text = error.args[0]
        if not (isinstance(text, str) and "`path`" in text):
            raise
        raise type(error)(text.replace("`path`", f"`{argument}`")) from error
