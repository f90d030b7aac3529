"""The next item of held-out sessions, ranked by a run and by counting."""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from embedder.disk.copies import local_copy
from embedder.errors import InputError
from embedder.evaluation.counting import followed_most_often, same_session
from embedder.evaluation.intervals import mean_estimates
from embedder.evaluation.ranking import (
    Cases,
    Scorer,
    Seen,
    Sequences,
    by_popularity,
    by_vectors,
    case_scores,
    check_decay,
    last_items,
    split_cases,
    target_ranks,
)
from embedder.results import finished_run
from embedder.scoring.report import Report, Scores
from embedder.scoring.training_data import training_sequences
from embedder.tables.artefact import read_model
from embedder.tables.columns import NO_ORDER, Columns
from embedder.tables.encode import BaseVocabulary, encode
from embedder.tables.sessions import frame_corpus
from embedder.tables.sources import file_corpus, is_corpus_file
from embedder.tables.table_files import FirstReading, scan_tables, table_files
from embedder.tables.vocabulary import Vocabulary
from embedder.vectors.vectors import Vectors, check_positive_integer

ScoreBy = Literal["auto", "output", "cosine"]
_NAMES = {
    "popularity": "popularity",
    "same": "same session",
    "followed": "followed most often",
}


class Settings(NamedTuple):
    """How the next items are scored."""

    topn: int
    seen: Seen
    score_by: ScoreBy
    decay: float  # as of `recency_weights`
    seed: int


class _Given(NamedTuple):
    """The sequences of a file: sessions, or the sessions of a user in their order."""

    sequences: Sequences
    num_items: int  # in the file
    num_unknown: int
    is_target: np.ndarray | None  # bool[n], of users; None: the last items


def score_sessions(
    run: Path,
    vectors: Vectors,
    source: str,
    columns: Columns,
    user: str,
    settings: Settings,
) -> Report:
    """How well a run ranks the last item of each session in a file; with `user`, the
    items of the last session of each user.

    Raises:
      OSError, InputError: the file is no table of sessions, or has no case.
    """
    check_positive_integer("topn", settings.topn)
    check_decay(settings.decay)
    model = _model(run, settings.score_by)
    read = (_of_users if user else _of_sessions)(source, columns, user, vectors.keys)
    cases = _cases(read, settings.seen)
    _check_cases(read, cases, run, source, user)
    names = _score_names(settings.topn, bool(user))
    input, output = model or (vectors.matrix, None)
    scorers, missing = _baselines(run, vectors, settings.decay)

    def scores(each: Scorer) -> Scores:
        ranks = target_ranks(each, cases, len(vectors))
        found = mean_estimates(case_scores(ranks, settings.topn), seed=settings.seed)
        return dict(zip(names, found, strict=False))  # one target: recall is HR

    return Report(
        *("sessions", source, *_summary(read, cases, user)),
        settings._asdict() | {"user": user or None} | columns._asdict(),
        "vectors by " + ("cosine" if model is None else "output table"),
        scores(by_vectors(input, output, settings.decay)),
        {name: scores(each) for name, each in scorers.items()},
        missing,
    )


def _check_cases(
    given: _Given, cases: Cases, run: Path, source: str, user: str
) -> None:
    if given.num_unknown == given.num_items:
        raise InputError(
            f"`sessions` {source}: none of its {given.num_items} items is in the "
            f"vocabulary of {run}."
        )
    if not cases.num:
        what = "users" if user else "sessions"
        new = ", and not seen before" if cases.seen == "excluded" else ""
        raise InputError(
            f"`sessions` {source} has no case: it needs {what} with an item to find "
            f"and others before it, of the vocabulary{new}."
        )


def _model(run: Path, by: ScoreBy) -> tuple[np.ndarray, np.ndarray] | None:
    """The input and output tables of the run; None: score by cosine."""
    if by == "cosine":
        return None
    folder = finished_run(run)
    if folder is not None and folder.model.exists():
        model = read_model(folder.model)
        if (output := model.token_output) is not None:
            return model.input, output
        what = "hierarchical softmax alone has none"
    else:
        what = "a run of a single model has one"
    if by == "output":
        raise InputError(
            f"`score_by` 'output' needs the output rows of tokens, and {what}, got "
            f"{run}: give --score-by cosine."
        )
    return None


def _score_names(topn: int, has_users: bool) -> list[str]:
    names = [f"HR@{topn}", f"NDCG@{topn}", "MRR"]
    return [*names, f"recall@{topn}"] if has_users else names


def _baselines(
    run: Path, vectors: Vectors, decay: float
) -> tuple[dict[str, Scorer], dict[str, str]]:
    """Scorers that count, and why others are missing."""
    found: dict[str, Scorer] = {}
    missing: dict[str, str] = {}
    if vectors.counts is None:
        missing[_NAMES["popularity"]] = "RUN has no counts"
    else:
        found[_NAMES["popularity"]] = by_popularity(vectors.counts)
    try:
        parts = [*training_sequences(run)]
    except (InputError, OSError) as error:
        reason = str(error).removesuffix(".")
        return found, missing | dict.fromkeys(
            [_NAMES["same"], _NAMES["followed"]], reason
        )
    ids, lengths = map(np.concatenate, zip(*parts, strict=True))
    training = ids, lengths
    found[_NAMES["same"]] = same_session(training, len(vectors), decay)
    found[_NAMES["followed"]] = followed_most_often(training, len(vectors))
    return found, missing


def _cases(given: _Given, seen: Seen) -> Cases:
    if given.is_target is None:
        return last_items(given.sequences, seen)
    return split_cases(given.sequences, given.is_target, seen)


def _summary(given: _Given, cases: Cases, user: str) -> tuple[str, dict[str, int]]:
    num = len(given.sequences[1])
    counts = {
        "users" if user else "sessions": num,
        "cases": cases.num,
        "targets": len(cases.targets[0]),
        "items": given.num_items,
        "unknown_items": given.num_unknown,
    }
    kind = "users" if user else "sessions"
    title = f"{cases.num} cases of {num} {kind}; unknown items, left out: "
    return f"{title}{given.num_unknown} of {given.num_items}", counts


def _of_sessions(source: str, columns: Columns, user: str, keys: list[str]) -> _Given:
    corpus = file_corpus(source, columns=columns)
    known = Vocabulary(keys, np.ones(len(keys), np.int64))
    encoded = encode(corpus, 1, BaseVocabulary(known))
    shards = [encoded.shard(z, 0, 0) for z in range(len(encoded.shard_tokens))]
    ids = np.concatenate([np.empty(0, np.int32), *(shard[0] for shard in shards)])
    lengths = np.concatenate([np.empty(0, np.int64), *(shard[1] for shard in shards)])
    num_unknown = encoded.raw_tokens - encoded.num_tokens
    return _Given((ids, lengths), encoded.raw_tokens, num_unknown, None)


def _of_users(source: str, columns: Columns, user: str, keys: list[str]) -> _Given:
    """The rows of each user, in their order; those of the session of the last one are
    targets."""
    chosen = file_corpus(source, columns=columns).manifest[-1].get("columns", {})
    if not chosen.get("session"):
        raise InputError(
            f"`user` needs a table with a row for each item, got {source}: name its "
            "columns by --session, --item and --order."
        )
    files = table_files(local_copy(source, is_wanted=is_corpus_file), is_table=True)
    rows = scan_tables(files)
    names = rows.collect_schema().names()
    _check_user(user, names, {chosen[kind] for kind in ("session", "item", "order")})
    kept = _whole_rows(rows, [user, chosen["session"], chosen["item"]])
    items, sessions = (
        _column(kept, Columns(user, chosen[kind], chosen["order"]), source, files)
        for kind in ("item", "session")
    )
    if not np.array_equal(items[1], sessions[1]):
        raise InputError(f"`sessions` {source}: an item or a session is too long.")
    ids = items[0].replace_strict(
        keys, range(len(keys)), default=-1, return_dtype=pl.Int32
    )
    return _with_targets(ids.to_numpy(), sessions[0], items[1])


def _check_user(user: str, names: list[str], used: set[str]) -> None:
    if user not in names or user in used:
        others = ", ".join(name for name in names if name not in used) or "none"
        raise InputError(
            f"`user` must be a column besides those of session, item and order, got "
            f"{user!r}; the others are: {others}."
        )


def _whole_rows(rows: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
    """Rows with a value in each of the columns; sessions as text."""
    schema = rows.collect_schema()
    for name in names:
        if schema[name].is_float():
            rows = rows.with_columns(pl.col(name).fill_nan(None))
    texts = [name for name in names if schema[name] == pl.String]
    rows = rows.filter(*(pl.col(name).is_not_null() for name in names))
    rows = rows.filter(*(pl.col(name) != "" for name in texts)) if texts else rows
    return rows.with_columns(pl.col(names[1]).cast(pl.String))


def _column(
    rows: pl.LazyFrame, columns: Columns, source: str, files: list[Path]
) -> tuple[pl.Series, np.ndarray]:
    """The items of all sessions, and how many each has."""
    order = columns.order or NO_ORDER
    corpus = frame_corpus(
        rows, columns._replace(order=order), source, first=FirstReading(files)
    )
    chunks = [*corpus.chunks()]
    items = pl.concat([pl.Series("", [], dtype=pl.String), *(x.tokens for x in chunks)])
    return items, np.concatenate([np.empty(0, np.int64), *(x.lengths for x in chunks)])


def _with_targets(ids: np.ndarray, sessions: pl.Series, lengths: np.ndarray) -> _Given:
    users = np.repeat(np.arange(len(lengths)), lengths)
    last = sessions.gather(np.cumsum(lengths) - 1).gather(users)
    is_target = (sessions == last).to_numpy()
    is_known = ids >= 0
    known = np.bincount(users[is_known], minlength=len(lengths))
    num_unknown = int(np.count_nonzero(~is_known))
    return _Given((ids[is_known], known), len(ids), num_unknown, is_target[is_known])
