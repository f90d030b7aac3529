"""The data that a run was trained on, for baselines that count in them.

The encoded corpus in the folder of the run is enough. Without it the corpus is read
again, if it is on this machine and unchanged.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from embedder.api.results import finished_run, is_encoder_run
from embedder.config import Config, read_toml
from embedder.data.columns import columns_of
from embedder.data.encode import BaseVocabulary, encode, open_encoded
from embedder.data.encoded import Encoded
from embedder.data.graph import Walks, encode_graph, open_encoded_graph, open_graph
from embedder.data.split import trained_sequences
from embedder.data.vocabulary import Vocabulary
from embedder.disk.run_record import base_of, check_sound, manifest_of, source_of
from embedder.disk.urls import is_url
from embedder.disk.workdir import Workdir
from embedder.errors import InputError
from embedder.tokens.artefact import read_model
from embedder.tokens.task import open_corpus


def training_sequences(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ids and lengths of the sequences of each shard that were not held out.

    Raises:
      InputError: RUN is no run of a text or of sessions, or its data cannot be read.
      OSError: its data cannot be read.
    """
    run, config = _run(path)
    if config.tables.walks:
        raise InputError("the run was trained on a graph")
    yield from trained_sequences(_encoded(run, config), config.tables.sequence_holdout)


def training_graph(path: Path) -> sparse.csr_array:
    """1 for each edge of the graph of a run, both ways where it is undirected, [V, V].

    Raises:
      InputError: RUN is no run of walks, or its graph cannot be read.
      OSError: its graph cannot be read.
    """
    run, config = _run(path)
    if not config.tables.walks:
        raise InputError("the run was not trained on a graph")
    return _walks(run, config).graph.adjacency()


def is_directed(path: Path) -> bool:
    """Whether RUN was trained on a directed graph."""
    run = finished_run(path)
    if run is None or not run.is_started:
        return False
    tables = read_toml(run.config).tables
    return bool(tables.walks) and tables.directed


def _run(path: Path) -> tuple[Workdir, Config]:
    run = finished_run(path)
    if run is None or not run.is_started:
        raise InputError("RUN has no training data")
    if is_encoder_run(path):
        raise InputError("the run is of an encoder")
    check_sound(run)
    return run, read_toml(run.config)


def _encoded(run: Workdir, config: Config) -> Encoded:
    manifest, options, base = manifest_of(run), config.tables, None
    if run.base.exists():
        model, facts = read_model(run.base), base_of(run)
        vocabulary = Vocabulary(model.tokens, model.counts)
        base = BaseVocabulary(vocabulary, facts is not None and facts["grow"])
    encoded = open_encoded(manifest, options.min_count, run.cache, base)
    if encoded is not None:
        return encoded
    columns = columns_of(options)
    corpus = open_corpus(_source(run), options.unicode_errors, columns)
    _check_same(run, corpus.manifest, manifest)
    return encode(corpus, options.min_count, base)


def _walks(run: Workdir, config: Config) -> Walks:
    manifest = manifest_of(run)
    walks = open_encoded_graph(manifest, config.tables, run.cache)
    if walks is not None:
        return walks
    files = open_graph(_source(run), config.tables)
    _check_same(run, files.manifest, manifest)
    return encode_graph(files, config.tables, None)


def _source(run: Workdir) -> str | None:
    source = source_of(run)
    if source is not None and is_url(source):
        raise InputError(f"the corpus is at {source}, and RUN has no cache of it")
    return source


def _check_same(run: Workdir, now: list[Any], before: list[Any]) -> None:
    if now != before:
        raise InputError(f"the corpus {source_of(run)} has changed since the run")
