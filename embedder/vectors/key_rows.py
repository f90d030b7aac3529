"""The rows of a file of vectors whose keys are whatever another program wrote."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from embedder.errors import InputError
from embedder.vectors.vectors import Vectors

KeyErrors = Literal["strict", "skip", "replace"]
"""For rows that cannot have their key, as it is repeated, white space or not UTF-8, or
has blanks in a word2vec file.
strict: InputError. skip: they are left out; of a repeated key the first row stays.
replace: as skip, but bytes that are not UTF-8 become U+FFFD."""
SKIP = "--key-errors skip leaves such rows out"
_log = logging.getLogger(__name__)


class KeyRows:
    """Collects keys and their rows, part by part.

    Args:
      path: of the file, for messages.
      row: what messages call a row: line, or row.
    """

    def __init__(self, path: Path, errors: KeyErrors, row: str = "line"):
        self.path, self._errors, self._row = path, errors, row
        self.is_strict = errors == "strict"
        self._first: dict[str, int] = {}  # key -> number of its row
        self._parts: list[np.ndarray] = []
        self._num_left_out = self._num_replaced = 0

    def text(self, key: bytes, number: int) -> str | None:
        """The text of a key; None: its row is left out.

        Raises:
          InputError: it is not UTF-8, or white space.
        """
        where = f"{self.path} {self._row} {number}: column 1 must be"
        try:
            text = key.decode()
        except UnicodeDecodeError:
            if self.is_strict:
                raise InputError(
                    f"{where} UTF-8, got {short(key)}: {SKIP}, --key-errors replace "
                    "has U+FFFD in keys."
                ) from None
            if self._errors == "replace":
                self._num_replaced += 1
                return key.decode(errors="replace")
            text = ""
        else:
            if not text and self.is_strict:
                raise InputError(f"{where} a key, got white space: {SKIP}.")
        self._num_left_out += not text
        return text or None

    def add(
        self, keys: Sequence[str], rows: np.ndarray, numbers: Sequence[int]
    ) -> None:
        """Adds rows f32[n, D] with the numbers that they have in the file.

        Raises:
          InputError: a key is repeated.
        """
        first_rows = []
        for row, (key, number) in enumerate(zip(keys, numbers, strict=True)):
            first = self._first.setdefault(key, number)
            if first == number:
                first_rows.append(row)
            elif self.is_strict:
                raise InputError(
                    f"{self.path} {self._row} {number}: column 1 must be another key "
                    f"than on {self._row} {first}, got {short(key)}: {SKIP}."
                )
        self._num_left_out += len(keys) - len(first_rows)
        self._parts.append(rows if len(first_rows) == len(keys) else rows[first_rows])

    def vectors(self) -> Vectors:
        """The vectors. Logs how many rows were left out, and keys changed.

        Raises:
          InputError: they are none.
        """
        if self._num_left_out:
            _log.warning(
                "%s: rows whose key is repeated, white space or not UTF-8, left out: "
                "%d.",
                *(self.path, self._num_left_out),
            )
        if self._num_replaced:
            _log.warning(
                "%s: keys that are not UTF-8, with U+FFFD: %d.",
                *(self.path, self._num_replaced),
            )
        try:
            return Vectors([*self._first], np.concatenate(self._parts))
        except ValueError as error:
            raise InputError(f"{self.path}: {error}") from error


def short(value: bytes | str) -> str:
    """A value for a message: quoted, at most 40 characters."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    text = text.rstrip("\r\n")
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
