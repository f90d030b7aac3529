"""The corpora that a model was trained on, which an update may replay.

corpus.json of a run has a list of them, those of the runs that it started from first:
the path or URL of each, its columns, a digest of its manifest, the share that was held
out, and the number of tokens that the model had.
"""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.config import read_toml
from embedder.data import shards
from embedder.data.columns import Columns, columns_of
from embedder.data.corpus import Corpus, demo_corpus
from embedder.data.encoded import Encoded
from embedder.data.shards import Shard
from embedder.data.sources import file_corpus, is_corpus_file
from embedder.data.split import held_out
from embedder.disk.copies import local_copy
from embedder.disk.digests import file_digest, json_digest, read_digests
from embedder.disk.run_record import Manifest, base_of, manifest_of, source_of
from embedder.disk.workdir import Workdir
from embedder.errors import InputError

_log = logging.getLogger(__name__)

Entry = dict[str, Any]
"""`source`, `columns`, `unicode_errors`, `digest`, `holdout` and `num_tokens`."""


class EarlierCorpus(NamedTuple):
    """A corpus that a model was trained on."""

    corpus: Corpus
    holdout: float = 0.0  # share of its sequences that was held out
    num_tokens: int = 0  # of the model then, which has more now


def corpora_of_base(path: Path, num_tokens: int) -> list[Entry]:
    """The corpora that the model of a run, or the same model in a file beside it, was
    trained on.

    []: the file is not a model that the run wrote.

    Args:
      num_tokens: of the model.
    """
    run = Workdir(path if path.is_dir() else path.parent)
    if not (run.is_started and run.corpus.exists()):
        return []
    model = run.model if path.is_dir() else path
    before = (base_of(run) or {}).get("corpora", [])
    if _is_written(model, run.base):
        return before
    if model.exists() and not _is_written(model, run.model):
        return []
    options = read_toml(run.config).tables
    own = {
        "source": source_of(run),
        "columns": columns_of(options)._asdict(),
        "unicode_errors": options.unicode_errors,
        "digest": _digest(manifest_of(run)),
        "holdout": options.sequence_holdout,
        "num_tokens": num_tokens,
    }
    return [x for x in before if x["digest"] != own["digest"]] + [own]


def _is_written(path: Path, written: Path) -> bool:
    """Whether `path` has what a run wrote to `written`, by the checksums of the run."""
    try:
        digest = read_digests(written.parent).get(written.name)
    except (OSError, ValueError):
        return path == written
    return digest is not None and path.exists() and file_digest(path) == digest


def open_earlier(entries: list[Entry], cache: Path | None) -> list[EarlierCorpus]:
    """The corpora that can still be read and have not changed; logs the others. Raises
    InputError if there is none."""
    opened, reasons = [], []
    for entry in entries:
        try:
            facts = entry["holdout"], entry["num_tokens"]
            opened.append(EarlierCorpus(_open_corpus(entry, cache), *facts))
        except (OSError, InputError) as error:
            reasons.append(str(error))
        except KeyError as error:
            reasons.append(f"the record of the run lacks {error}.")
    if not opened:
        why = reasons[-1] if reasons else "it is no model that a run wrote."
        raise InputError(f"`replay` needs a corpus of the run to resume: {why}")
    for reason in reasons:
        _log.warning("An earlier corpus is not replayed: %s", reason)
    return opened


def without_held_out(encoded: Encoded, share: float, num_tokens: int) -> Encoded:
    """`encoded` without the sequences that a run on its corpus held out, (57).

    Which these are depends on their positions in the shards of that run, which had the
    tokens below `num_tokens` alone: sequences without one of them had no position.
    Raises InputError if a sequence is as long as a shard: the run may have cut it
    elsewhere.
    """
    positions = _Positions()
    masks, tokens, sequences = [], [], []
    for shard in range(len(encoded.shard_tokens)):
        ids, lengths = encoded.read(shard)
        if lengths.max(initial=0) >= shards.SHARD_TOKENS:
            raise InputError(
                "`replay` cannot tell what was held out of a corpus with sequences of "
                f"{shards.SHARD_TOKENS} tokens or more."
            )
        starts = np.cumsum(lengths) - lengths
        known = np.add.reduceat((ids < num_tokens).astype(np.int64), starts)
        mask = np.ones(len(lengths), bool)  # others were not trained on either
        parts = positions.of(known[known > 0])
        were_out = [held_out(z, at + num, share)[at:] for z, at, num in parts]
        mask[known > 0] = ~np.concatenate([np.zeros(0, bool), *were_out])
        masks.append(mask)
        tokens.append(int(lengths[masks[-1]].sum()))
        sequences.append(int(masks[-1].sum()))

    def read(shard: int) -> Shard:
        ids, lengths = encoded.read(shard)
        mask = masks[shard]
        return ids[np.repeat(mask, lengths)], lengths[mask]

    return dataclasses.replace(
        encoded,
        read=read,
        shard_tokens=np.array(tokens, np.int64),
        shard_sequences=np.array(sequences, np.int64),
    )


class _Positions:
    """Counts sequences into shards as `shards.cut_shards` cuts them."""

    def __init__(self) -> None:
        self._shard = self._tokens = self._sequences = 0  # of the shard so far

    def of(self, lengths: np.ndarray) -> list[tuple[int, int, int]]:
        """Where the next sequences are: a shard, the first position in it, and their
        number, for each shard that has some of them.

        Args:
          lengths: none 0, i64[m].
        """
        parts = []
        while len(lengths):
            ends = self._tokens + np.cumsum(lengths)
            num = int(np.searchsorted(ends, shards.SHARD_TOKENS, side="right"))
            parts.append((self._shard, self._sequences, num))
            if num == len(lengths):
                self._tokens = int(ends[-1])
                self._sequences += num
            else:
                self._shard, self._tokens, self._sequences = self._shard + 1, 0, 0
            lengths = lengths[num:]
        return parts


def files_replayed_twice(
    manifest: Manifest, earlier: Sequence[EarlierCorpus]
) -> list[str]:
    """Names of the files of a corpus that are also in one of the `earlier` corpora."""
    known = {_content(file) for each in earlier for file in each.corpus.manifest}
    return [file["file"] for file in manifest if _content(file) in known - {None}]


def _content(file: dict[str, Any]) -> tuple[int, str] | None:
    """The size and the digest of an entry of a manifest; None: it is of no file."""
    return (file["bytes"], file["ends_sha256"]) if "ends_sha256" in file else None


def _open_corpus(entry: Entry, cache: Path | None) -> Corpus:
    source = entry["source"]
    if source is None:
        return demo_corpus()
    path = local_copy(source, cache, is_corpus_file)
    columns = Columns(**entry["columns"])
    corpus = file_corpus(path, entry["unicode_errors"], columns)
    if _digest(corpus.manifest) != entry["digest"]:
        raise InputError(f"{source} has changed.")
    return corpus


def _digest(manifest: Manifest) -> str:
    """SHA-256 of a manifest without the times of its files."""
    files = [{k: x for k, x in file.items() if k != "mtime_ns"} for file in manifest]
    return json_digest(files)
