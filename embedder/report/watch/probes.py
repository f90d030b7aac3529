"""Neighbours of probe words while a run trains, from its newest checkpoint.

A checkpoint is read without JAX, which would take memory of the device that trains, and
without its optimizer. Only complete checkpoints are read; one that the run removes
meanwhile is passed over.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.disk.digests import check_digests
from embedder.disk.files import short_reason
from embedder.disk.workdir import Workdir, checkpoint_steps
from embedder.errors import InputError
from embedder.vectors.search import nearest_rows, table_of, unit_rows
from embedder.vectors.vectors import check_known

NUM_NEIGHBORS = 8
MOST = 200_000
"""The tokens, the most frequent ones, among which neighbours are."""
_INPUT = "params.tables.input"
_FIRST, _LAST = 30, 7_000  # ranks of words that are neither "the" nor rare
_PROBES, _FEW = 5, 300  # words
_LISTED = 5  # times that checkpoints are listed, while a run replaces them


class Near(NamedTuple):
    """A neighbour."""

    token: str
    similarity: float
    is_new: bool  # it was not among the neighbours before


class Probe(NamedTuple):
    """A word and its neighbours, the nearest first."""

    word: str
    near: tuple[Near, ...]


class Neighbors(NamedTuple):
    """The neighbours of all probe words at one moment of a run."""

    updates: int | None  # None: the end
    before: int | None  # updates of those that they are compared with; None: none
    probes: tuple[Probe, ...]
    about: str = ""  # a restriction, as a sentence


class _Table(NamedTuple):
    """Vectors of the most frequent tokens, and of the probe words."""

    rows: np.ndarray  # f64[Q, D], of the words
    frequent: np.ndarray  # f[n, D], of tokens 0 to n - 1


class Probes:
    """Reads the neighbours of `words`; none: of some frequent tokens."""

    def __init__(self, words: Sequence[str] = ()):
        self._words = words
        self._run: tuple[Path, int] | None = None  # and when it was started
        self._tokens: list[str] = []
        self._ids: list[int] = []
        self._read: int | None = -1  # updates of the checkpoint that was read
        self._neighbors: Neighbors | None = None
        self._fault = ""

    @property
    def fault(self) -> str:
        """Why the newest checkpoint was not read, a sentence; "": it was."""
        return self._fault

    def read(self, run: Workdir, *, is_finished: bool) -> Neighbors | None:
        """The neighbours at the newest checkpoint, or at the end; None: there is none.

        Raises:
          InputKeyError: a word is not in the vocabulary.
        """
        self._fault = ""
        try:
            self._open(run)
            self._update(run, is_finished)
        except FileNotFoundError:
            pass  # the run has removed it: the next reading finds a newer one
        except KeyError:  # an InputKeyError about a word
            raise
        except (OSError, ValueError) as error:
            self._fault = f"No neighbours: {short_reason(error)}."
        return self._neighbors

    def _open(self, run: Workdir) -> None:
        """Reads the vocabulary, again if the run was started anew."""
        identity = run.path, run.config.stat().st_mtime_ns
        if identity == self._run:
            return
        from embedder.data.vocabulary import read_vocabulary

        tokens = read_vocabulary(run.vocabulary).tokens
        check_known(self._words, tokens, "`probe`")
        words = self._words or _frequent(tokens)
        rows = {token: row for row, token in enumerate(tokens)}
        self._run, self._tokens = identity, tokens
        self._ids = [rows[word] for word in words]
        self._read, self._neighbors = -1, None

    def _update(self, run: Workdir, is_finished: bool) -> None:
        if is_finished:
            if self._read is not None:
                table = _of_vectors(run, self._ids)
                if self._neighbors is None:
                    self._read_older(run, checkpoint_steps(run.checkpoints)[:1])
                self._take(None, table)
            return
        steps: list[int] = []
        for _ in range(_LISTED):
            before, steps = steps, checkpoint_steps(run.checkpoints)
            if steps == before or self._read_newest(run, steps):
                return  # else the run has replaced them meanwhile

    def _read_newest(self, run: Workdir, steps: list[int]) -> bool:
        """Whether one of `steps`, newest first, is read."""
        for number, step in enumerate(steps):
            if step == self._read:
                return True
            try:
                table = _of_checkpoint(run.checkpoints / str(step), self._ids)
            except (OSError, ValueError) as error:
                if step in checkpoint_steps(run.checkpoints):  # the run kept it
                    reason = short_reason(error)
                    self._fault = f"Checkpoint {step} is not read: {reason}."
                continue
            if self._neighbors is None:
                self._read_older(run, steps[number + 1 : number + 2])
            self._take(step, table)
            return True
        return False

    def _read_older(self, run: Workdir, steps: list[int]) -> None:
        """Reads what the first neighbours are compared with, if there is anything."""
        with contextlib.suppress(OSError, ValueError):
            for step in steps:
                self._take(step, _of_checkpoint(run.checkpoints / str(step), self._ids))

    def _take(self, updates: int | None, table: _Table) -> None:
        before = self._neighbors and {
            probe.word: {near.token for near in probe.near}
            for probe in self._neighbors.probes
        }
        probes = []
        for word, near in zip(self._ids, self._nearest(table), strict=True):
            name = self._tokens[word]
            known = before[name] if before else {token for token, _ in near}
            probes.append(
                Probe(name, tuple(Near(t, x, t not in known) for t, x in near))
            )
        about = ""
        if len(self._tokens) > MOST:
            about = f"Neighbours are among the {MOST:,} most frequent tokens."
        last = self._neighbors.updates if self._neighbors else None
        self._read = updates
        self._neighbors = Neighbors(updates, last, tuple(probes), about)

    def _nearest(self, table: _Table) -> list[list[tuple[str, float]]]:
        """The nearest tokens of each word by cosine, with the cosines."""
        num, frequent = len(table.frequent), table.frequent
        ids, cosines = nearest_rows(
            *(table_of(frequent, unit_rows(frequent)), table.rows, NUM_NEIGHBORS),
            excluded=[[word] if word < num else [] for word in self._ids],
        )
        return [
            [(self._tokens[i], x) for i, x in zip(*each, strict=True) if i >= 0]
            for each in zip(ids.tolist(), cosines.tolist(), strict=True)
        ]


def _frequent(tokens: list[str]) -> list[str]:
    """Some of the most frequent tenth of the tokens; of a few tokens the first."""
    num = len(tokens)
    if num < _FEW:
        return [*tokens[:_PROBES]]
    first, last = min(_FIRST, num // 100), min(_LAST, num // 10)
    ranks = np.geomspace(first, last, _PROBES).round().astype(int).tolist()
    return [tokens[rank] for rank in ranks]


def _of_checkpoint(folder: Path, ids: list[int]) -> _Table:
    """The input table in a checkpoint; of replicas that of the first.

    Raises:
      OSError, ValueError: it is damaged, or gone.
    """
    check_digests(folder)
    import tensorstore

    path = folder.resolve() / "state"
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "ocdbt", "base": f"file://{path}", "path": f"{_INPUT}/"},
    }
    stored = tensorstore.open(spec, read=True, open=True).result()
    if stored.ndim == 3:
        stored = stored[0]
    num = min(MOST, stored.shape[0])
    frequent = np.asarray(stored[:num].read().result())
    return _Table(np.stack([_row(stored, frequent, i) for i in ids]), frequent)


def _row(stored, frequent: np.ndarray, row: int) -> np.ndarray:
    if row < len(frequent):
        return frequent[row].astype(np.float64)
    return np.asarray(stored[row].read().result(), np.float64)


def _of_vectors(run: Workdir, ids: list[int]) -> _Table:
    """The vectors of a finished run.

    Raises:
      OSError, InputError: their file is damaged.
    """
    from embedder.vectors.export import read_vectors

    matrix = read_vectors(run.vectors).matrix
    if matrix.ndim != 2 or max(ids, default=-1) >= len(matrix):
        raise InputError(f"{run.vectors} has other tokens than {run.vocabulary.name}")
    return _Table(np.asarray(matrix[ids], np.float64), np.asarray(matrix[:MOST]))
