"""Encodes a corpus once: its vocabulary, and its tokens as ids in shards.

The text is read one time. Tokens get provisional codes in the order of appearance,
which are spooled; once the vocabulary is known, codes become ids and are cut into
shards of whole sequences. Shards live in memory, or in a folder that a later run finds
again.
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
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import polars as pl

from embedder.disk.arrays import read_stored_array
from embedder.disk.digests import (
    DIGESTS_FILE,
    check_digest,
    files_in,
    read_digests,
    write_digests,
)
from embedder.disk.files import short_reason
from embedder.disk.folders import atomic_folder, remove_unfinished_folders
from embedder.errors import InputError
from embedder.limits import check_room
from embedder.tables.corpus import Corpus
from embedder.tables.encoded import Encoded
from embedder.tables.vocabulary import (
    Vocabulary,
    read_vocabulary,
    select_tokens,
    write_vocabulary,
)

SHARD_TOKENS = 2_000_000
_TYPE_BYTES = 250  # of memory while counting, measured, beside the text, twice
_FORMAT = 2  # of the cache: a change of it makes a new digest
_log = logging.getLogger(__name__)


class _Scan(NamedTuple):
    """What one reading of a corpus gives; codes are spooled in a file."""

    tokens: list[str]  # by first appearance
    counts: np.ndarray  # i64[number of types]
    sizes: list[tuple[int, int, bool]]  # of each chunk: tokens, sequences, is_open
    num_bytes: int  # of memory for the different tokens


class Known(NamedTuple):
    """The vocabulary of a training that goes on."""

    vocabulary: Vocabulary
    grows: bool = False
    """Whether tokens that are new get ids after the others, and all are counted."""


def encode(corpus: Corpus, min_count: int, known: Known | None = None) -> Encoded:
    """Encodes `corpus` in memory.

    Args:
      min_count: tokens that occur less often are left out, but for such as are known.
      known: None: the corpus has a vocabulary of its own.

    Raises:
      NoTokensError: the corpus has no tokens, or none is left.
    """
    with io.BytesIO() as spool:
        scan = _scan(corpus, spool)
        vocabulary, id_of_code = _vocabulary(scan, min_count, known)
        return _in_memory(vocabulary, scan, spool, id_of_code)


def encode_cached(
    corpus: Corpus, min_count: int, cache: Path, known: Known | None = None
) -> Encoded:
    """Encodes `corpus` into a folder of `cache`, or finds it there.

    The folder is named by a digest of the corpus and the settings, and gets its name
    when it is whole. What a process left that died while it encoded is removed.

    Raises:
      NoTokensError: as `encode`.
      ValueError: the cache is damaged (of a shard perhaps when it is read).
    """
    folder = cache / _digest(corpus, min_count, known)
    remove_unfinished_folders(cache)
    if not folder.exists():
        num_bytes = _write_cache(corpus, min_count, known, folder)
        return dataclasses.replace(_open_cache(folder), counting_bytes=num_bytes)
    return _open_cache(folder)


def _scan(corpus: Corpus, spool: BinaryIO) -> _Scan:
    categories = pl.Categories.random()
    tokens: list[str] = []
    code_ranks = np.empty(0, dtype=np.uint32)  # rank by first appearance of each code
    counts = np.empty(0, dtype=np.int64)
    num_types = num_bytes = 0
    sizes = []
    for chunk in corpus.chunks():
        coded = chunk.tokens.cast(pl.Categorical(categories))
        codes = coded.to_physical().to_numpy()
        new = _first_places(codes, num_types)
        found = chunk.tokens.gather(np.sort(new))
        num_bytes += len(found) * _TYPE_BYTES + 2 * int(found.str.len_bytes().sum())
        _check_counting(num_bytes, len(tokens) + len(found))
        tokens.extend(found.to_list())
        known, num_types = num_types, len(tokens)
        code_ranks = _with_room(code_ranks, num_types)
        code_ranks[known:num_types] = np.argsort(np.argsort(new)) + known
        ranked = code_ranks[codes]
        counts = _with_room(counts, num_types)
        np.add.at(counts, ranked, 1)
        spool.write(ranked.tobytes())
        spool.write(chunk.lengths.tobytes())
        sizes.append((len(codes), len(chunk.lengths), chunk.is_open))
    return _Scan(tokens, counts[:num_types], sizes, num_bytes)


def _check_counting(num_bytes: int, num_types: int) -> None:
    check_room(
        num_bytes,
        f"The corpus has {num_types} different tokens or more, and counting them takes",
        "give a text with fewer",
    )


def _with_room(array: np.ndarray, size: int) -> np.ndarray:
    """`array`, or a copy of twice `size` with zeros at its end if it is shorter."""
    if size <= len(array):
        return array
    return np.concatenate([array, np.zeros(2 * size - len(array), dtype=array.dtype)])


def _first_places(codes: np.ndarray, num_known: int) -> np.ndarray:
    """Place of the first token of each new code, in the order of codes."""
    places = np.flatnonzero(codes >= num_known)
    if len(places) == 0:
        return places
    new = codes[places] - num_known
    first = np.empty(int(new.max()) + 1, dtype=np.int64)
    first[new[::-1]] = places[::-1]  # the last assignment to a code stays
    return first


def _vocabulary(
    scan: _Scan, min_count: int, known: Known | None
) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary, and the id of each code, or -1, i32[U]."""
    if known is None:
        kept = select_tokens(scan.counts, scan.tokens, min_count)
        nothing = np.full(len(scan.tokens), -1, np.int32)
        return _grown(Vocabulary([], np.empty(0, np.int64)), nothing, scan, kept)
    old, order = known.vocabulary, select_tokens(scan.counts, scan.tokens, 1)
    ids = np.array([old.ids.get(token, -1) for token in scan.tokens], np.int32)
    if not known.grows:
        return old, ids
    new = order[(ids[order] < 0) & (scan.counts[order] >= min_count)]
    return _grown(old, ids, scan, new)


def _grown(known: Vocabulary, ids: np.ndarray, scan: _Scan, new: np.ndarray):
    """`known` with the tokens of `new` codes and all counts, and the id of each code.

    `ids` are those of known tokens, and are filled in place.
    """
    ids[new] = len(known) + np.arange(len(new), dtype=np.int32)
    counts = np.concatenate([known.counts, np.zeros(len(new), np.int64)])
    counts[ids[ids >= 0]] += scan.counts[ids >= 0]
    return Vocabulary(known.tokens + [scan.tokens[code] for code in new], counts), ids


def _in_memory(vocabulary, scan: _Scan, spool: BinaryIO, id_of_code) -> Encoded:
    shards = list(_cut_shards(_decode_spool(scan, spool, id_of_code)))
    tokens = np.array([len(ids) for ids, _ in shards], dtype=np.int64)
    num_words = int(scan.counts.sum())
    return Encoded(vocabulary, tokens, shards.__getitem__, num_words, scan.num_bytes)


def _decode_spool(scan: _Scan, spool: BinaryIO, id_of_code: np.ndarray):
    """Ids (-1: unknown), lengths and is_open of each chunk."""
    spool.seek(0)
    for num_tokens, num_sequences, is_open in scan.sizes:
        codes = np.frombuffer(spool.read(4 * num_tokens), dtype=np.uint32)
        lengths = np.frombuffer(spool.read(8 * num_sequences), dtype=np.int64)
        yield id_of_code[codes], lengths, is_open


def _cut_shards(chunks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shards of at most SHARD_TOKENS tokens: ids i32[n], lengths i32[m]."""
    ids, lengths = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    for piece_ids, piece_lengths in _pieces(chunks):
        ids = np.concatenate([ids, piece_ids])
        lengths = np.concatenate([lengths, piece_lengths])
        while len(ids) > SHARD_TOKENS:
            ends = np.cumsum(lengths)
            num = int(np.searchsorted(ends, SHARD_TOKENS, side="right"))
            cut = int(ends[num - 1])
            yield ids[:cut], lengths[:num].astype(np.int32)
            ids, lengths = ids[cut:], lengths[num:]
    if len(ids):
        yield ids, lengths.astype(np.int32)


def _pieces(chunks) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Known ids and lengths of whole sequences, none longer than a shard.

    An open sequence is held back until it ends or fills a shard.
    """
    held = np.empty(0, dtype=np.int32)
    for ids, lengths, is_open in chunks:
        known = ids >= 0
        lengths = _sums(known, lengths)
        ids = np.concatenate([held, ids[known]])
        if len(lengths):
            lengths[0] += len(held)
        rest = int(lengths[-1]) % SHARD_TOKENS if is_open else 0
        held = ids[len(ids) - rest :]
        lengths = _cut_long(lengths)
        if rest:
            lengths = lengths[:-1]
        yield ids[: len(ids) - rest], lengths[lengths > 0]


def _sums(known: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Known tokens of each sequence, i64[m]; sequences may be empty."""
    ends = np.cumsum(lengths)
    total = np.concatenate([[0], np.cumsum(known)])
    return total[ends] - total[ends - lengths]


def _cut_long(lengths: np.ndarray) -> np.ndarray:
    """Cuts lengths above SHARD_TOKENS into pieces of it."""
    if len(lengths) == 0 or lengths.max() <= SHARD_TOKENS:
        return lengths
    _log.warning(
        "A sequence of %d tokens is cut every %d tokens.", lengths.max(), SHARD_TOKENS
    )
    pieces = -(-lengths // SHARD_TOKENS)
    cut = np.full(int(np.maximum(pieces, 1).sum()), SHARD_TOKENS, dtype=np.int64)
    last = np.cumsum(np.maximum(pieces, 1)) - 1
    cut[last] = lengths - np.maximum(pieces - 1, 0) * SHARD_TOKENS
    return cut


def _digest(corpus: Corpus, min_count: int, known: Known | None) -> str:
    key = {
        "format": _FORMAT,
        "manifest": corpus.manifest,
        "min_count": min_count,
        "shard_tokens": SHARD_TOKENS,
        "known": known and [known.vocabulary.digest, known.grows],
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def _write_cache(corpus: Corpus, min_count: int, known, folder: Path) -> int:
    """Writes the cache; returns the bytes of memory that counting the tokens took."""
    with atomic_folder(folder) as part:
        with tempfile.TemporaryFile(dir=part) as spool:
            scan = _scan(corpus, spool)
            vocabulary, id_of_code = _vocabulary(scan, min_count, known)
            tokens = []
            shards = _cut_shards(_decode_spool(scan, spool, id_of_code))
            for index, (ids, lengths) in enumerate(shards):
                np.savez(_shard_path(part, index), ids=ids, lengths=lengths)
                tokens.append(len(ids))
        summary = {"raw_tokens": int(scan.counts.sum()), "shard_tokens": tokens}
        write_vocabulary(vocabulary, part / "vocabulary.parquet")
        (part / "shards.json").write_text(json.dumps(summary))
        write_digests(part, files_in(part))
    return scan.num_bytes


def _open_cache(folder: Path) -> Encoded:
    with _damage_named(folder / DIGESTS_FILE):
        sums = read_digests(folder)
    with _damage_named(folder / "shards.json") as path:
        check_digest(path, sums.get(path.name))
        summary = json.loads(path.read_text())
        raw_tokens = int(summary["raw_tokens"])
        tokens = np.array(summary["shard_tokens"], dtype=np.int64)
        if tokens.ndim != 1 or tokens.min(initial=1) < 1:
            raise InputError("`shard_tokens` must be numbers >= 1")
        if raw_tokens < tokens.sum():
            raise InputError(f"`raw_tokens` is {raw_tokens}, below `shard_tokens`")
    with _damage_named(folder / "vocabulary.parquet") as path:
        check_digest(path, sums.get(path.name))
        vocabulary = read_vocabulary(path)
    for shard in range(len(tokens)):
        with _damage_named(_shard_path(folder, shard)) as path:
            zipfile.ZipFile(path).close()  # looks at the end: finds a file cut short

    def read(shard: int):
        with _damage_named(_shard_path(folder, shard)) as path:
            check_digest(path, sums.get(path.name))
            return _read_shard(path, int(tokens[shard]), len(vocabulary))

    return Encoded(vocabulary, tokens, read, raw_tokens)


def _read_shard(
    path: Path, num_tokens: int, num_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids and lengths, which fit what else the cache says."""
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


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[Path]:
    """Turns what reading a damaged file of a cache raises into one ValueError."""
    faults = (OSError, ValueError, TypeError, LookupError, EOFError, OverflowError)
    try:
        yield path
    except (*faults, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        reason = short_reason(error)
        raise InputError(
            f"Cache file {path} is damaged ({reason}): delete {path.parent} to make it "
            "anew."
        ) from error


def _shard_path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.npz"
