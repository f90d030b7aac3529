"""Similarity sets, analogy questions and held-out text, scored by a run."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from embedder.api.results import finished_run
from embedder.api.word_scores import analogy_answers
from embedder.cli.arguments import Evaluate
from embedder.cli.evaluate.report import Report, Scores
from embedder.cli.evaluate.training_data import training_sequences
from embedder.config import Config, with_options
from embedder.data.encode import BaseVocabulary, encode
from embedder.data.sources import file_corpus
from embedder.data.split import sequences
from embedder.data.vocabulary import Vocabulary
from embedder.data.word_files import read_pairs
from embedder.errors import InputError
from embedder.metrics.counting import first_tokens, log_ratios, positive_pmi
from embedder.metrics.scores import measured
from embedder.metrics.words import ScoredPairs, analogies_result
from embedder.tokens.artefact import read_model
from embedder.tokens.heldout import predictions
from embedder.vectors.vectors import Vectors

_FREQUENCY, _PMI = "frequency", "co-occurrence"


def word_reports(args: Evaluate, run: Path, vectors: Vectors) -> Iterator[Report]:
    """A report for each file of --pairs, --analogies and --text.

    Raises:
      OSError, InputError: a file has another format, or nothing to score.
    """
    for path in args.pairs:
        yield score_pairs(run, vectors, path, args.seed)
    for path in args.analogies:
        yield score_analogies(vectors, path, args.restrict_vocab, args.seed)
    if args.text is not None:
        yield score_text(run, args.text, args.seed)


def score_pairs(run: Path, vectors: Vectors, path: Path, seed: int) -> Report:
    """Correlations of cosines with the scores of a similarity set."""
    pairs = ScoredPairs.of(vectors, read_pairs(path))
    result = pairs.score(vectors.matrix)
    baselines, missing = _counted(run, vectors, pairs)

    def scores(values: np.ndarray) -> Scores:
        return measured("pairs", pairs, values, seed=seed)

    return Report(
        *("pairs", path.name),
        f"Spearman {result.spearman:.3f}, Pearson {result.pearson:.3f}, "
        f"{result.num_used} of {result.num_pairs} pairs ({result.num_unknown} out of "
        "vocabulary)",
        {"pairs": result.num_used, "unknown": result.num_unknown},
        {"seed": seed},
        "vectors by cosine",
        scores(pairs.cosines(vectors.matrix)),
        {name: scores(values) for name, values in baselines.items()},
        missing,
    )


def _counted(
    run: Path, vectors: Vectors, pairs: ScoredPairs
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Similarities by counts: of frequency, -|log(n_a / n_b)|, and of co-occurrence;
    and why others are missing. An unknown word counts once, and occurs with none."""
    similarities: dict[str, np.ndarray] = {}
    missing: dict[str, str] = {}
    if vectors.counts is None:
        missing[_FREQUENCY] = "RUN has no counts"
    else:
        once = np.ones(len(pairs.others), np.int64)
        counts = np.concatenate([vectors.counts, once])
        similarities[_FREQUENCY] = log_ratios(counts, pairs.rows)
    try:
        training = first_tokens(training_sequences(run))
        num_words = len(vectors) + len(pairs.others)
        similarities[_PMI] = positive_pmi(training, pairs.rows, num_words)
    except (InputError, OSError) as error:
        missing[_PMI] = str(error).removesuffix(".")
    return similarities, missing


def score_analogies(
    vectors: Vectors, path: Path, restrict_vocab: int, seed: int
) -> Report:
    """Accuracy on analogy questions; the baseline is the nearest neighbour of c."""
    answers = analogy_answers(vectors, path, restrict_vocab=restrict_vocab)
    result = analogies_result(answers)
    nearest = answers._replace(is_right=answers.is_nearest)
    total = result.total
    return Report(
        *("analogies", path.name),
        f"total: {100 * total.accuracy:.1f} %, {total.num_correct} of "
        f"{total.num_used} ({total.num_unknown} out of vocabulary)",
        {"questions": total.num_used, "unknown": total.num_unknown},
        {"restrict_vocab": restrict_vocab, "seed": seed},
        "vectors by b - a + c",
        measured("analogies", None, answers, seed=seed),
        {"nearest to c": measured("analogies", None, nearest, seed=seed)},
        {},
        result.sections,
    )


def score_text(run: Path, source: str, seed: int) -> Report:
    """Log likelihood of the tokens of a text, (58); the baseline is the unigram model.

    Resamples draw whole sequences.

    Raises:
      OSError, InputError: RUN has no output vectors; the text cannot be read, or has
        no sequence of two known tokens.
    """
    folder = finished_run(run)
    if folder is None or not folder.model.exists():
        raise InputError(
            f"`text` needs the output table, which a run of a single model has, got "
            f"{run}."
        )
    model = read_model(folder.model)
    known = BaseVocabulary(Vocabulary(model.tokens, model.counts))
    encoded = encode(file_corpus(source), 1, known)
    options = with_options(Config(), **model.settings | {"block": model.block}).tables
    tables = model.input, model.output, model.counts
    likelihoods = predictions(options, *tables, sequences(encoded, 1.0))
    num_unknown = encoded.raw_tokens - encoded.num_tokens
    about = f"{num_unknown} of {encoded.raw_tokens}"
    if not len(likelihoods.model):
        raise InputError(
            f"`text` {source} has no line of two tokens or more of the vocabulary of "
            f"{run}; unknown tokens: {about}."
        )
    num_lines = len(np.unique(likelihoods.sequence))

    def scores(values: np.ndarray) -> Scores:
        return measured("sequences", None, (values, likelihoods.sequence), seed=seed)

    num = len(likelihoods.model)
    counts = {"predictions": num, "lines": num_lines}
    title = f"{num} predictions in {num_lines} lines; unknown tokens, left out: {about}"
    return Report(
        *("text", source, title),
        counts | {"tokens": encoded.raw_tokens, "unknown": num_unknown},
        {"seed": seed},
        "model",
        scores(likelihoods.model),
        {"unigram": scores(likelihoods.baseline)},
        {},
    )
