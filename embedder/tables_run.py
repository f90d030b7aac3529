"""Runs of tables over a text: what is read at their beginning and left at their end."""

import logging
import threading
from pathlib import Path

import numpy as np

from embedder.config import Config, options_of, resolve
from embedder.data import loader
from embedder.data.corpus import Corpus, text_corpus
from embedder.data.demo import demo_corpus
from embedder.data.encode import encode, encode_cached
from embedder.data.vocabulary import NoTokensError, write_vocabulary
from embedder.epochs import Snapshot
from embedder.model.file import MODEL_SETTINGS, ModelFile, write_model
from embedder.training import Training
from embedder.vectors.export import write_vectors
from embedder.vectors.vectors import Vectors
from embedder.workdir import Workdir

_log = logging.getLogger(__name__)


class TablesJob:
    """Trains tables of the tokens of a text.

    Raises:
      OSError, ValueError: there is no text at `source`.
    """

    def __init__(self, source: str | None):
        self._corpus = open_corpus(source)
        self.name = self._corpus.name
        self.manifest = self._corpus.manifest

    def plan(self, config: Config, cache: Path | None) -> Training:
        """See `plan`."""
        if config.data.loader == "tfdata":  # takes seconds: it loads while we encode
            threading.Thread(target=loader.import_tensorflow).start()
        return plan(config, self._corpus, cache)

    def begin(self, run: Workdir, training: Training) -> None:
        """Writes what is known before the first update."""
        write_vocabulary(training.encoded.vocabulary, run.vocabulary)

    def vectors(self, training: Training, end: Snapshot) -> Vectors:
        """What was learned."""
        vocabulary = training.encoded.vocabulary
        table = np.asarray(end.state.params["tables"]["input"])
        return Vectors(vocabulary.tokens, table, vocabulary.counts)

    def finish(self, run: Workdir, training: Training, end: Snapshot) -> Vectors:
        """Writes all results."""
        model = _model(training, end)
        write_model(run.model, model)
        return write_results(run, model)


def open_corpus(source: str | None) -> Corpus:
    """The corpus at `source`: a file, a glob or a folder; None: the demo corpus."""
    return demo_corpus() if source is None else text_corpus(source)


def plan(config: Config, corpus: Corpus, cache: Path | None) -> Training:
    """The training of `config` over `corpus`, encoded in `cache` or, None, in memory.

    Raises:
      OSError, ValueError: the corpus cannot be read, or leaves no token to train.
    """
    min_count = config.data.min_count
    try:
        if cache is None:
            encoded = encode(corpus, min_count)
        else:
            encoded = encode_cached(corpus, min_count, cache)
    except NoTokensError as error:
        raise ValueError(f"Corpus {corpus.source}: {error}") from error
    resolved = resolve(config, encoded.num_tokens)
    return Training(resolved, encoded, range(config.train.epochs))


def write_results(run: Workdir, model: ModelFile) -> Vectors:
    """Writes the vectors of a trained model; the run is finished with that."""
    vectors = Vectors(model.tokens, model.input, model.counts)
    if any(len(token.encode().split()) > 1 for token in model.tokens):
        _log.warning("Tokens have white space: there is no vectors.txt.")
    else:
        write_vectors(vectors, run.text_vectors)
    write_vectors(vectors, run.vectors)  # the last: it tells that the run is finished
    return vectors


def _model(training: Training, end: Snapshot) -> ModelFile:
    """The model file of a run. `workers` are threads here, processes in `legacy`."""
    options = options_of(training.config) | {"workers": 1}
    tables = end.state.params["tables"]
    return ModelFile(
        settings={name: options[name] for name in MODEL_SETTINGS},
        block=training.config.data.block,
        tokens=training.encoded.vocabulary.tokens,
        counts=training.encoded.vocabulary.counts,
        input=np.asarray(tables["input"]),
        output=np.asarray(tables["output"]),
        loss_history=end.place.losses,
    )
