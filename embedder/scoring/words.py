"""Similarity sets, analogy questions and held-out text, scored by a run."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from embedder.arguments import Evaluate
from embedder.config import Config, with_options
from embedder.errors import InputError
from embedder.evaluation.correlation import correlations
from embedder.evaluation.counting import first_tokens, log_ratios, positive_pmi
from embedder.evaluation.intervals import mean_estimates
from embedder.results import finished_run
from embedder.scoring.report import Report, Scores
from embedder.scoring.training_data import training_sequences
from embedder.tables.artefact import ModelFile, read_model
from embedder.tables.encode import BaseVocabulary, encode
from embedder.tables.heldout import mean_by_sequence, predictions
from embedder.tables.sources import file_corpus
from embedder.tables.split import sequences
from embedder.tables.vocabulary import Vocabulary
from embedder.vectors.evaluate import ScoredPairs, analogies_result, analogy_answers
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
    pairs = ScoredPairs(path, vectors.keys)
    result = pairs.score(vectors.matrix)
    baselines, missing = _counted(run, vectors, pairs.rows)

    def scores(values: np.ndarray) -> Scores:
        found = correlations(values, pairs.scores, seed=seed)
        return {"Spearman": found.spearman, "Pearson": found.pearson}

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
    run: Path, vectors: Vectors, pairs: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Similarities by counts: of frequency, -|log(n_a / n_b)|, and of co-occurrence;
    and why others are missing."""
    found: dict[str, np.ndarray] = {}
    missing: dict[str, str] = {}
    if vectors.counts is None:
        missing[_FREQUENCY] = "RUN has no counts"
    else:
        found[_FREQUENCY] = log_ratios(vectors.counts, pairs)
    try:
        training = first_tokens(training_sequences(run))
        found[_PMI] = positive_pmi(training, pairs, len(vectors))
    except (InputError, OSError) as error:
        missing[_PMI] = str(error).removesuffix(".")
    return found, missing


def score_analogies(
    vectors: Vectors, path: Path, restrict_vocab: int, seed: int
) -> Report:
    """Accuracy on analogy questions; the baseline is the nearest neighbour of c."""
    answers = analogy_answers(vectors, path, restrict_vocab=restrict_vocab)
    result = analogies_result(answers)
    right = np.stack([answers.is_right, answers.is_nearest], axis=1)[answers.is_known]
    model, nearest = mean_estimates(right.astype(np.float64), seed=seed)
    total = result.total
    return Report(
        *("analogies", path.name),
        f"total: {100 * total.accuracy:.1f} %, {total.num_correct} of "
        f"{total.num_used} ({total.num_unknown} out of vocabulary)",
        {"questions": total.num_used, "unknown": total.num_unknown},
        {"restrict_vocab": restrict_vocab, "seed": seed},
        "vectors by b - a + c",
        {"accuracy": model},
        {"nearest to c": {"accuracy": nearest}},
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
    model = _model(run)
    known = BaseVocabulary(Vocabulary(model.tokens, model.counts))
    encoded = encode(file_corpus(source), 1, known)
    options = with_options(Config(), **model.settings | {"block": model.block}).tables
    tables = model.input, model.output, model.counts
    found = predictions(options, *tables, sequences(encoded, 1.0))
    num_unknown = encoded.raw_tokens - encoded.num_tokens
    about = f"{num_unknown} of {encoded.raw_tokens}"
    if not len(found.model):
        raise InputError(
            f"`text` {source} has no line of two tokens or more of the vocabulary of "
            f"{run}; unknown tokens: {about}."
        )
    num_lines = len(np.unique(found.sequence))

    def scores(values: np.ndarray) -> Scores:
        return {"log likelihood": mean_by_sequence(values, found.sequence, seed=seed)}

    counts = {"predictions": len(found.model), "lines": num_lines}
    title = f"{len(found.model)} predictions in {num_lines} lines; unknown tokens, left"
    return Report(
        *("text", source, f"{title} out: {about}"),
        counts | {"tokens": encoded.raw_tokens, "unknown": num_unknown},
        {"seed": seed},
        "model",
        scores(found.model),
        {"unigram": scores(found.baseline)},
        {},
    )


def _model(run: Path) -> ModelFile:
    folder = finished_run(run)
    if folder is None or not folder.model.exists():
        raise InputError(
            f"`text` needs the output table, which a run of a single model has, got "
            f"{run}."
        )
    return read_model(folder.model)
