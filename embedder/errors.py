"""Errors of usage and input: the program prints them as one line, exit code 2.

Each derives from the built-in exception that callers of the Python API expect. Any
other exception that ends the program is a bug.
"""

import collections.abc
import contextlib
import importlib.util
import sys

DISTRIBUTION = "embedder-jax"
"""The name on the package index; the import and the command are `embedder`."""

EXTRAS = {
    "PIL": ("Pillow", "images"),
    "faiss": ("faiss-cpu", "faiss"),
    "jax2onnx": ("jax2onnx", "onnx"),
    "matplotlib": ("matplotlib", "plot"),
    "optuna": ("Optuna", "sweep"),
    "prompt_toolkit": ("prompt_toolkit", "prompt"),
    "sklearn": ("scikit-learn", "sklearn"),
    "usearch": ("usearch", "index"),
}
"""Modules that the base installation lacks: their package, and the extra with it."""


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


class MissingPackageError(ImportError, InputError):
    """A package of an extra is needed and not installed."""


def check_docstrings() -> None:
    """Raises InputError if this Python leaves out docstrings, which dm-haiku needs."""
    if sys.flags.optimize > 1:
        raise InputError(
            "python -OO leaves out docstrings, without which dm-haiku does not work: "
            "run without -OO and PYTHONOPTIMIZE=2."
        )


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"python -m pip install '{DISTRIBUTION}[{extra}]'"


def is_installed(module: str) -> bool:
    """Whether a module can be imported; it is not loaded."""
    return importlib.util.find_spec(module) is not None


def check_installed(module: str, subject: str) -> None:
    """Checks that a module of an extra is installed; it is not loaded.

    Args:
      module: one of `EXTRAS`.
      subject: what needs it, as the message begins.

    Raises:
      MissingPackageError: it is not; the message has the command that installs it.
    """
    if not is_installed(module):
        package, extra = EXTRAS[module]
        raise MissingPackageError(
            f"{subject} needs {package}, which is not installed: "
            f"{install_command(extra)}."
        )


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
