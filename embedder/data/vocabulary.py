"""The vocabulary: known tokens, their counts, and the subsampling of frequent ones."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from embedder.data.huffman import CodesAndPoints
from embedder.errors import InputError


class NoTokensError(InputError):
    """A corpus has no token to train on."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Known tokens by id: descending count, ties by first appearance.

    Tokens that were added later come after the others, in the same order.
    """

    tokens: list[str]  # [V]
    counts: np.ndarray  # i64[V], occurrences in the corpus, and in earlier ones
    text_counts: np.ndarray | None = None  # i64[V], of an update: in its text alone

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each token."""
        return {token: id for id, token in enumerate(self.tokens)}

    @property
    def drawn_counts(self) -> np.ndarray:
        """The counts by which an epoch draws tokens and noise, (1) and (2), i64[V]."""
        return self.counts if self.text_counts is None else self.text_counts

    def kept_counts(self, sample: float) -> np.ndarray:
        """Occurrences of each token that subsampling keeps, expected, f64[V]."""
        return self.counts * ((keep_limit(self.counts, sample) + 1.0) / 2**32)

    def row_updates(self, sample: float) -> float:
        """Updates that the row of a token gets in an epoch: the geometric mean, over
        the tokens that subsampling keeps, of how often their kind is kept, (43)."""
        counts = self.kept_counts(sample)
        total = counts.sum()
        if not total:
            return 1.0
        return float(np.exp((counts * np.log(np.maximum(counts, 1e-9))).sum() / total))

    @property
    def digest(self) -> str:
        """SHA-256 of tokens and counts, in hexadecimal digits."""
        digest = hashlib.sha256("\n".join(self.tokens).encode())
        digest.update(self.counts.tobytes())
        return digest.hexdigest()


def select_tokens(
    counts: np.ndarray, tokens: Sequence[str], min_count: int
) -> np.ndarray:
    """Indices of the tokens that occur `min_count` times or more, by new id, i64[V].

    Args:
      counts: i64[U] of `tokens`, both in the order of first appearance.

    Raises:
      NoTokensError: there are no tokens, or none occurs `min_count` times.
    """
    if len(counts) == 0:
        raise NoTokensError("The corpus has no tokens.")
    order = np.argsort(-counts, kind="stable")
    num_kept = int((counts >= min_count).sum())
    if num_kept == 0:
        most = order[0]
        raise NoTokensError(
            f"Nothing occurs `min_count` = {min_count} times or more: the most "
            f"frequent, {tokens[most]!r}, occurs {counts[most]} times."
        )
    return order[:num_kept]


def keep_limit(counts: np.ndarray, sample: float) -> np.ndarray:
    """Limits of subsampling, u32[V]: a uniform uint32 draw <= its limit keeps a token.

        p = min(1, sqrt(s / f) + s / f)

    is the probability to keep it, with f its relative frequency and s = `sample`; s = 0
    keeps all. An integer limit makes the draw the same in every dtype.

    Reference: Mikolov et al. 2013, arXiv:1310.4546, section 2.3, in the form of
    word2vec.c.
    """
    if sample == 0:
        return np.full(len(counts), 2**32 - 1, dtype=np.uint32)
    ratio = sample / (np.maximum(counts, 1) / counts.sum())  # 0: it does not occur
    probability = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return (np.maximum(np.rint(probability * 2**32), 1) - 1).astype(np.uint32)


def expected_tokens(counts: np.ndarray, sample: float) -> float:
    """Expected number of tokens that subsampling keeps in an epoch."""
    return float(Vocabulary([], counts).kept_counts(sample).sum())


def write_vocabulary(
    vocabulary: Vocabulary, path: Path, paths: CodesAndPoints | None = None
) -> None:
    """Writes `vocabulary` as parquet: columns token and count, in the order of ids.

    Args:
      paths: of hierarchical softmax: two columns more, code (list of u8) and point
        (list of i32), the branches and the inner nodes from the root to the token.
    """
    import polars as pl

    frame = pl.DataFrame({"token": vocabulary.tokens, "count": vocabulary.counts})
    if paths is not None:
        row = np.repeat(np.arange(len(vocabulary)), paths.lengths)
        lists = (
            pl.DataFrame({"row": row, "code": paths.codes, "point": paths.points})
            .group_by("row", maintain_order=True)
            .agg("code", "point")
        )
        rows = pl.DataFrame({"row": np.arange(len(vocabulary))})
        paths_of_rows = rows.join(lists, on="row", how="left", maintain_order="left")
        none = pl.col("code", "point").fill_null([])  # a single token has no path
        frame = frame.hstack(paths_of_rows.select(none))
    data = io.BytesIO()  # so that a full disk raises OSError, not an error of Polars
    frame.write_parquet(data)
    path.write_bytes(data.getbuffer())


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary in a file that `write_vocabulary` wrote. Raises InputError if the
    file is damaged."""
    import polars as pl

    try:
        with open(path, "rb") as file:  # Polars opens only paths in UTF-8
            frame = pl.read_parquet(file)
        counts = frame["count"].to_numpy().astype(np.int64)
        return Vocabulary(frame["token"].to_list(), counts)
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path} is not a whole parquet file.") from error
