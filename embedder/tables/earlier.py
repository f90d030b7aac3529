"""The corpora that a model was trained on, which an update may replay.

corpus.json of a run has a list of them, those of the runs that it started from first:
the path or URL of each, its columns, and a digest of its manifest.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embedder.config import read_toml
from embedder.disk.copies import local_copy
from embedder.errors import InputError
from embedder.run.inputs import Manifest, base_of, manifest_of, source_of
from embedder.run.workdir import Workdir
from embedder.tables.columns import Columns, columns_of
from embedder.tables.corpus import Corpus
from embedder.tables.demo import demo_corpus
from embedder.tables.sources import file_corpus, is_corpus_file

_log = logging.getLogger(__name__)

Entry = dict[str, Any]
"""`source`, `columns`, `unicode_errors` and `digest` of a corpus."""


def corpora_of_base(path: Path) -> list[Entry]:
    """The corpora that the model of a run, or of a file in one, was trained on.

    []: no run has the file, or it is a run of an earlier version.
    """
    run = Workdir(path if path.is_dir() else path.parent)
    if not (run.is_started and run.corpus.exists()):
        return []
    before = (base_of(run) or {}).get("corpora", [])
    if path == run.base:
        return before
    options = read_toml(run.config).tables
    own = {
        "source": source_of(run),
        "columns": columns_of(options)._asdict(),
        "unicode_errors": options.unicode_errors,
        "digest": _digest(manifest_of(run)),
    }
    return [x for x in before if x["digest"] != own["digest"]] + [own]


def open_earlier(entries: list[Entry], cache: Path | None) -> list[Corpus]:
    """The corpora that can still be read and have not changed; logs the others.

    Raises:
      InputError: there is none.
    """
    opened, reasons = [], []
    for entry in entries:
        try:
            opened.append(_opened(entry, cache))
        except (OSError, InputError) as error:
            reasons.append(str(error))
    if not opened:
        why = reasons[-1] if reasons else "no run has a list of them."
        raise InputError(f"`replay` needs a corpus of the run to resume: {why}")
    for reason in reasons:
        _log.warning("An earlier corpus is not replayed: %s", reason)
    return opened


def files_replayed_twice(manifest: Manifest, earlier: Sequence[Corpus]) -> list[str]:
    """Names of the files of a corpus that are also in one of the `earlier` corpora."""
    known = {_content(file) for each in earlier for file in each.manifest}
    return [file["file"] for file in manifest if _content(file) in known - {None}]


def _content(file: dict[str, Any]) -> tuple[int, str] | None:
    """The size and the digest of an entry of a manifest; None: it is of no file."""
    return (file["bytes"], file["ends_sha256"]) if "ends_sha256" in file else None


def _opened(entry: Entry, cache: Path | None) -> Corpus:
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
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
