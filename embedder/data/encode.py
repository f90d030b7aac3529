"""Encodes a corpus: its vocabulary, and its tokens as ids in shards.

The corpus is read once. Each token gets a code by order of first appearance, and the
codes are written to a temporary file (the spool). Once all tokens are counted, the
vocabulary maps codes to ids, which are cut into shards of whole sequences. Shards are
kept in memory, or in a cache folder that later runs read.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import logging
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl

from embedder.base.limits import check_room
from embedder.base.stages import report_stage
from embedder.data import shards
from embedder.data.corpus import Corpus
from embedder.data.encoded import Encoded, SequenceWeights
from embedder.data.plain_text import Chunk
from embedder.data.shards import EncodedChunk, Shard, cut_shards
from embedder.data.vocabulary import (
    Vocabulary,
    read_vocabulary,
    select_tokens,
    write_vocabulary,
)
from embedder.disk.arrays import read_stored_array, stored_shape
from embedder.disk.digests import (
    DIGESTS_FILE,
    check_digest,
    files_in,
    json_digest,
    read_digests,
    write_digests,
)
from embedder.disk.files import short_reason
from embedder.disk.folders import atomic_folder, remove_unfinished_folders
from embedder.disk.urls import without_secrets
from embedder.errors import InputError

_TYPE_BYTES = 250  # of memory that counting takes for each type, without its text
_FORMAT = 2  # version of the cache's files: older caches are not found
_log = logging.getLogger(__name__)


class _Counts(NamedTuple):
    """The U different tokens (types) of a corpus by code, and the sizes of chunks."""

    tokens: list[str]  # [U], by first appearance
    counts: np.ndarray  # i64[U]
    sizes: list["_ChunkSize"]
    num_bytes: int  # of memory that the types took


class _ChunkSize(NamedTuple):
    tokens: int
    sequences: int
    is_open: bool
    has_weights: bool


class BaseVocabulary(NamedTuple):
    """The vocabulary of the model that a training continues from."""

    vocabulary: Vocabulary
    grows: bool = False
    """Whether new tokens get ids after the known ones, and counts are added up."""
    earlier: Mapping[str, int] = MappingProxyType({})
    """Occurrences of new tokens in earlier corpora, which count for `min_count`."""


def encode(
    corpus: Corpus,
    min_count: int,
    base: BaseVocabulary | None = None,
    cache: Path | None = None,
) -> Encoded:
    """`corpus` as ids in memory, or by `encode_cached`.

    Args:
      min_count: tokens that occur less often are dropped, except those of `base`.
      base: None builds a new vocabulary.
      cache: None: encode in memory.

    Raises:
      NoTokensError: no token is left to train.
      InputError: counting the tokens takes more memory than there is.
    """
    if cache is not None:
        return encode_cached(corpus, min_count, cache, base)
    with io.BytesIO() as spool:
        counts = _count_tokens(corpus.source, corpus.chunks(), spool)
        vocabulary, id_of_code = _vocabulary(counts, min_count, base)
        encoded = _in_memory(vocabulary, counts, spool, id_of_code)
        return dataclasses.replace(encoded, item_name=corpus.item_name)


def encode_cached(
    corpus: Corpus, min_count: int, cache: Path, base: BaseVocabulary | None = None
) -> Encoded:
    """`corpus` as ids in a folder of `cache`, which is written unless it exists.

    The folder is named by a digest of the corpus's manifest and the arguments. Removes
    unfinished folders of killed processes.

    Raises:
      NoTokensError, InputError: see `encode`.
      InputError: the cache is damaged; damage of a shard is found when it is read.
    """
    folder = cache / _digest(corpus.manifest, min_count, base)
    remove_unfinished_folders(cache)
    size = 0
    if not folder.exists():
        size = _write_cache(corpus, min_count, base, folder)
    encoded = _open_cache(folder)
    return dataclasses.replace(encoded, counting_bytes=size, item_name=corpus.item_name)


def open_encoded(
    manifest: list[dict[str, Any]],
    min_count: int,
    cache: Path,
    base: BaseVocabulary | None = None,
) -> Encoded | None:
    """What `encode_cached` wrote of a corpus with this manifest; None: nothing. Raises
    InputError if the cache is damaged."""
    folder = cache / _digest(manifest, min_count, base)
    return _open_cache(folder) if folder.exists() else None


def _count_tokens(source: str, chunks: Iterator[Chunk], spool: BinaryIO) -> _Counts:
    """Reads `chunks` of `source`; writes codes u32, lengths i64 and, if there are any,
    weights f32 of each to `spool`.

    Polars numbers tokens in any order: its numbers are mapped to codes.
    """
    categories = pl.Categories.random()
    tokens: list[str] = []
    code_of_category = np.empty(0, dtype=np.uint32)
    counts = np.empty(0, dtype=np.int64)
    num_types = num_bytes = 0
    sizes: list[_ChunkSize] = []
    source = without_secrets(source)
    report_stage(f"reading {source}")
    for chunk in chunks:
        coded = chunk.tokens.cast(pl.Categorical(categories))
        category = coded.to_physical().to_numpy()
        new = first_positions(category, num_types)
        new_tokens = chunk.tokens.gather(np.sort(new))
        text_bytes = int(new_tokens.str.len_bytes().sum())
        num_bytes += len(new_tokens) * _TYPE_BYTES + 2 * text_bytes
        num_types = len(tokens) + len(new_tokens)
        what = f"The corpus has {num_types} different tokens or more, and counting them"
        check_room(num_bytes, f"{what} takes", "give a text with fewer")
        num_known = len(tokens)
        tokens.extend(new_tokens.to_list())
        code_of_category = _with_capacity(code_of_category, num_types)
        code_of_category[num_known:num_types] = np.argsort(np.argsort(new)) + num_known
        codes = code_of_category[category]
        counts = _with_capacity(counts, num_types)
        np.add.at(counts, codes, 1)
        spool.write(codes.tobytes())
        spool.write(chunk.lengths.tobytes())
        if chunk.weights is not None:
            spool.write(chunk.weights.astype(np.float32, copy=False).tobytes())
        size = len(codes), len(chunk.lengths)
        sizes.append(_ChunkSize(*size, chunk.is_open, chunk.weights is not None))
        num_tokens = sum(each.tokens for each in sizes)
        report_stage(f"reading {source}: {num_tokens:,} tokens")
    return _Counts(tokens, counts[:num_types], sizes, num_bytes)


def _with_capacity(array: np.ndarray, size: int) -> np.ndarray:
    """`array` if it has `size` elements or more, else a zero-padded copy of twice
    that."""
    if size <= len(array):
        return array
    return np.concatenate([array, np.zeros(2 * size - len(array), dtype=array.dtype)])


def first_positions(categories: np.ndarray, num_known: int) -> np.ndarray:
    """Position of the first token of each new category, in the order of categories."""
    positions = np.flatnonzero(categories >= num_known)
    if len(positions) == 0:
        return positions
    new = categories[positions] - num_known
    first = np.empty(int(new.max()) + 1, dtype=np.int64)
    first[new[::-1]] = positions[::-1]  # of repeated indices the last one counts
    return first


def _vocabulary(
    counts: _Counts, min_count: int, base: BaseVocabulary | None
) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary, and the id of each code, or -1, i32[U]."""
    if base is None:
        codes = select_tokens(counts.counts, counts.tokens, min_count)
        unknown = np.full(len(counts.tokens), -1, np.int32)
        return _extended(Vocabulary([], np.empty(0, np.int64)), unknown, counts, codes)
    known, order = base.vocabulary, select_tokens(counts.counts, counts.tokens, 1)
    ids = np.array([known.ids.get(token, -1) for token in counts.tokens], np.int32)
    if not base.grows:
        return known, ids
    before = np.array([base.earlier.get(x, 0) for x in counts.tokens], np.int64)
    totals = counts.counts + before
    new = order[(ids[order] < 0) & (totals[order] >= min_count)]
    vocabulary, ids = _extended(known, ids, counts, new)
    vocabulary.counts[len(known) :] += before[new]
    return vocabulary, ids


def _extended(
    known: Vocabulary, ids: np.ndarray, counts: _Counts, new: np.ndarray
) -> tuple[Vocabulary, np.ndarray]:
    """`known` with the tokens of the codes `new` and with all counts added; `ids`.

    Args:
      ids: of each code, -1 where unknown, i32[U]; those of `new` are set in place.
    """
    ids[new] = len(known) + np.arange(len(new), dtype=np.int32)
    total = np.concatenate([known.counts, np.zeros(len(new), np.int64)])
    total[ids[ids >= 0]] += counts.counts[ids >= 0]
    return Vocabulary(known.tokens + [counts.tokens[code] for code in new], total), ids


def _in_memory(
    vocabulary: Vocabulary, counts: _Counts, spool: BinaryIO, id_of_code: np.ndarray
) -> Encoded:
    parts = list(cut_shards(_decode_spool(counts, spool, id_of_code)))
    tokens = np.array([len(part.ids) for part in parts], dtype=np.int64)
    sequences = np.array([len(part.lengths) for part in parts], dtype=np.int64)
    raw_tokens = int(counts.counts.sum())
    arrays = [part.weights for part in parts if part.weights is not None]
    summary = _WeightSummary()
    for each in arrays:
        summary.add(each)
    weights = SequenceWeights(arrays.__getitem__, **summary.facts) if arrays else None
    return Encoded(
        vocabulary,
        tokens,
        sequences,
        lambda shard: (parts[shard].ids, parts[shard].lengths),
        raw_tokens,
        counts.num_bytes,
        weights,
        int(np.count_nonzero(id_of_code < 0)),
    )


class _WeightSummary:
    """The facts about the weights of all shards, which are added one by one."""

    def __init__(self) -> None:
        self._digest, self._total, self.number = hashlib.sha256(), 0.0, 0

    def add(self, weights: np.ndarray) -> None:
        self._digest.update(weights.tobytes())
        self._total += float(weights.sum(dtype=np.float64))
        self.number += len(weights)

    @property
    def facts(self) -> dict[str, Any]:
        mean = self._total / self.number
        return {"digest": self._digest.hexdigest(), "mean": mean}


def _decode_spool(
    counts: _Counts, spool: BinaryIO, id_of_code: np.ndarray
) -> Iterator[EncodedChunk]:
    spool.seek(0)
    for size in counts.sizes:
        codes = np.frombuffer(spool.read(4 * size.tokens), dtype=np.uint32)
        lengths = np.frombuffer(spool.read(8 * size.sequences), dtype=np.int64)
        weights = None
        if size.has_weights:
            weights = np.frombuffer(spool.read(4 * size.sequences), dtype=np.float32)
        yield EncodedChunk(id_of_code[codes], lengths, size.is_open, weights)


def _digest(
    manifest: list[dict[str, Any]], min_count: int, base: BaseVocabulary | None
) -> str:
    known: list[Any] | None = None
    if base is not None:
        known = [base.vocabulary.digest, base.grows]
        known += [sorted(base.earlier.items())] if base.earlier else []
    key = {
        "format": _FORMAT,
        "manifest": manifest,
        "min_count": min_count,
        "shard_tokens": shards.SHARD_TOKENS,
        "known": known,
    }
    return json_digest(key)[:16]


def _write_cache(
    corpus: Corpus, min_count: int, base: BaseVocabulary | None, folder: Path
) -> int:
    """Writes the cache; returns the bytes of memory that counting the tokens took."""
    with atomic_folder(folder) as temporary:
        with tempfile.TemporaryFile(dir=temporary) as spool:
            in_folder = corpus.chunks_in
            chunks = in_folder(temporary) if in_folder else corpus.chunks()
            counts = _count_tokens(corpus.source, chunks, spool)
            vocabulary, id_of_code = _vocabulary(counts, min_count, base)
            tokens, weights = [], _WeightSummary()
            parts = cut_shards(_decode_spool(counts, spool, id_of_code))
            for index, part in enumerate(parts):
                arrays = {"ids": part.ids, "lengths": part.lengths}
                tokens.append(len(part.ids))
                if part.weights is not None:
                    arrays["weights"] = part.weights
                    weights.add(part.weights)
                # The stub of savez takes every array for its argument `allow_pickle`.
                np.savez(_shard_path(temporary, index), **arrays)  # type: ignore[arg-type]
        summary: dict[str, object] = {"raw_tokens": int(counts.counts.sum())}
        summary["shard_tokens"] = tokens
        summary["dropped_types"] = int(np.count_nonzero(id_of_code < 0))
        if weights.number:
            summary["weights"] = weights.facts
        write_vocabulary(vocabulary, temporary / "vocabulary.parquet")
        (temporary / "shards.json").write_text(json.dumps(summary))
        write_digests(temporary, files_in(temporary))
    return counts.num_bytes


def _open_cache(folder: Path) -> Encoded:
    with cached_file(folder / DIGESTS_FILE):
        digests = read_digests(folder)
    with cached_file(folder / "shards.json", digests) as path:
        summary = json.loads(path.read_text())
        raw_tokens = int(summary["raw_tokens"])
        tokens = np.array(summary["shard_tokens"], dtype=np.int64)
        if tokens.ndim != 1 or tokens.min(initial=1) < 1:
            raise InputError("`shard_tokens` must be numbers >= 1")
        if raw_tokens < tokens.sum():
            raise InputError(f"`raw_tokens` is {raw_tokens}, below `shard_tokens`")
        dropped = int(summary["dropped_types"])
        facts = summary.get("weights")
        if facts is not None:
            facts = {"digest": str(facts["digest"]), "mean": float(facts["mean"])}
    with cached_file(folder / "vocabulary.parquet", digests) as path:
        vocabulary = read_vocabulary(path)
    sequences = np.zeros_like(tokens)
    for shard in range(len(tokens)):
        with cached_file(_shard_path(folder, shard)) as path:
            sequences[shard] = _num_sequences(path, int(tokens[shard]))

    def read(shard: int) -> Shard:
        with cached_file(_shard_path(folder, shard), digests) as path:
            return _read_shard(path, int(tokens[shard]), len(vocabulary))

    def read_weights(shard: int) -> np.ndarray:
        with cached_file(_shard_path(folder, shard), digests) as path:
            return _read_weights(path, int(sequences[shard]))

    weights = None if facts is None else SequenceWeights(read_weights, **facts)
    return Encoded(
        *(vocabulary, tokens, sequences, read, raw_tokens),
        sequence_weights=weights,
        dropped_types=dropped,
    )


def _num_sequences(path: Path, num_tokens: int) -> int:
    """Number of sequences of the shard in a file, by its header; an error if the file
    is truncated: its end is read first."""
    with zipfile.ZipFile(path) as archive:
        (number,) = stored_shape(archive, "lengths")
    if not 1 <= number <= num_tokens:
        raise InputError(f"it has {num_tokens} tokens, and claims {number} sequences")
    return number


def _read_shard(path: Path, num_tokens: int, num_rows: int) -> Shard:
    """The shard in a file, checked against the numbers of its tokens and of ids."""
    with zipfile.ZipFile(path) as archive:
        ids, lengths = (read_stored_array(archive, name) for name in ("ids", "lengths"))
    for array in (ids, lengths):
        if array.dtype != np.int32 or array.ndim != 1:
            raise InputError(f"it must hold int32[n], got {array.dtype}{array.shape}")
    if len(ids) != num_tokens or lengths.sum(dtype=np.int64) != num_tokens:
        raise InputError(f"it must hold {num_tokens} tokens, got {len(ids)}")
    if ids.min() < 0 or ids.max() >= num_rows or lengths.min() < 1:
        raise InputError(f"ids must be from 0 to {num_rows - 1}, lengths >= 1")
    return ids, lengths


def _read_weights(path: Path, num_sequences: int) -> np.ndarray:
    """The weights of the sequences of the shard in a file, checked."""
    with zipfile.ZipFile(path) as archive:
        weights = read_stored_array(archive, "weights")
    if weights.dtype != np.float32 or weights.shape != (num_sequences,):
        raise InputError(
            f"`weights` must be float32[{num_sequences}], got "
            f"{weights.dtype}{weights.shape}"
        )
    if not ((weights > 0) & (weights < np.inf)).all():
        raise InputError("`weights` must be finite and above 0")
    return weights


@contextlib.contextmanager
def cached_file(path: Path, digests: Mapping[str, str] | None = None) -> Iterator[Path]:
    """Checks a file of a cache against its digest, if `digests` are given; turns every
    error of reading a damaged one into one InputError."""
    faults = (OSError, ValueError, TypeError, LookupError, EOFError, OverflowError)
    try:
        if digests is not None:
            check_digest(path, digests.get(path.name))
        yield path
    except (*faults, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        reason = short_reason(error)
        raise InputError(
            f"Cache file {path} is damaged ({reason}): delete {path.parent} to rebuild "
            "it."
        ) from error


def _shard_path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.npz"
