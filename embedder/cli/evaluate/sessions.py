"""The next item of held-out sessions, ranked by a run and by counting."""

import logging
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from embedder.api.results import finished_run, read_next_items
from embedder.cli.arguments import Evaluate
from embedder.cli.evaluate.report import Report, Scores
from embedder.cli.evaluate.training_data import training_sequences
from embedder.data.columns import NO_ORDER, Columns, roles_of
from embedder.data.encode import BaseVocabulary, encode
from embedder.data.sessions import frame_corpus, one_line_errors
from embedder.data.sources import file_corpus, is_corpus_file
from embedder.data.table_files import table_files
from embedder.data.tables.reader import open_table
from embedder.data.vocabulary import Vocabulary
from embedder.disk.copies import local_copy
from embedder.errors import InputError
from embedder.metrics.counting import num_repeated, same_session
from embedder.metrics.near_sessions import STAN, VSKNN, Sessions
from embedder.metrics.next_item_baselines import PairRules
from embedder.metrics.next_item_scores import NextItems, SessionCounts
from embedder.metrics.ranking import (
    DECAY,
    Cases,
    RankedItems,
    Scorer,
    Seen,
    Sequences,
    by_popularity,
    by_vectors,
    check_decay,
    last_items,
    select,
    split_cases,
    target_ranks,
)
from embedder.metrics.scores import measured
from embedder.tokens.artefact import read_model
from embedder.vectors.vectors import Vectors, check_positive_integer

ScoreBy = Literal["auto", "output", "cosine"]
_SEEN: dict[str, Seen] = {
    **dict.fromkeys(("exclude", "excluded"), "excluded"),
    **dict.fromkeys(("include", "included"), "included"),
}
_COUNTS = (1, 5), (6, 20)
"""Occurrences of targets that are reported together; and those above."""
_COUNTED = (
    *("same session", "followed most often", "SR", "AR", "VSKNN", "STAN"),
    "STAN with idf",
)
"""Baselines that need the training data, in the order of rows."""
_LONG = 4  # items of sessions that are hardly equal by chance
_MAX_REPEATED = 0.05  # share of sessions that may be equal to ones of the training
_log = logging.getLogger(__name__)


class _Corpus(NamedTuple):
    """The sequences of a file: sessions, or the sessions of a user in their order."""

    sequences: Sequences
    num_items: int  # in the file
    num_unknown: int
    scored: Sequences  # sessions with the items to find


def score_sessions(
    args: Evaluate, run: Path, vectors: Vectors, source: str
) -> list[Report]:
    """How well a run ranks the last item of each session in a file; with `user`, the
    items of the last session of each user. With `targets` also reports of cases by
    their target.

    Raises:
      OSError, InputError: the file is no table of sessions, or has no case.
    """
    user, columns = args.user, Columns(args.session, args.item, args.order, args.items)
    by_default = 1.0 if user else DECAY
    decay = by_default if args.decay is None else args.decay
    for topn in args.topn:
        check_positive_integer("topn", topn)
    check_decay(decay)
    seen = _SEEN[args.seen]
    model = _model(run, args.score_by)
    folder = finished_run(run)
    has_counts = folder is not None and folder.mixture.exists()
    counted = read_next_items(run) if has_counts else None
    num_seen = len(vectors)
    if counted is not None and len(counted.keys) > num_seen:  # by their attributes
        vectors, tables = _with_unseen(vectors, counted)
        model = model and tables
    if user:
        read, is_target = _of_users(source, columns, user, vectors.keys)
        cases = split_cases(read.sequences, is_target, seen)
    else:
        read = _of_sessions(source, columns, vectors.keys)
        cases = last_items(read.sequences, seen)
    _check_cases(read, cases, run, source, user)
    if user:
        for name, default in (("targets", "all"), ("new_items", None)):
            if (value := getattr(args, name)) != default:
                raise InputError(f"`{name}` does not go with `user`, got {value!r}.")
    if counted is None and args.new_items is not None:
        raise InputError(
            f"`new_items` needs a run of --next-items, got {args.new_items} for {run}."
        )
    groups = _groups(args, run, vectors, counted, cases, num_seen)
    input, output = model or (vectors.matrix, None)
    counts = _training_counts(run, counted, len(vectors))
    if isinstance(counts, SessionCounts):
        _warn_of_trained(read.scored, counts.sessions, run, source)
    scorers, missing = _baselines(vectors, counts, decay)
    is_several = len(args.topn) > 1
    settings: dict[str, Any] = {
        "topn": args.topn if is_several else args.topn[0],
        "seen": seen,
    }
    settings |= {"score_by": args.score_by, "decay": decay, "seed": args.seed}
    settings["user"] = user or None
    mixture = None
    if counted is not None and not user:  # it weighs the newest items most
        mixture = counted.mixture(seen, args.new_items)
        settings["new_items"] = mixture.new_items

    def ranks(each: Scorer) -> Sequences:
        return target_ranks(each, cases, len(vectors))

    mixed = None if mixture is None else ranks(mixture)
    of_vectors = ranks(by_vectors(input, output, decay))
    of_baselines = {name: ranks(each) for name, each in scorers.items()}

    def report(group: str, is_in: np.ndarray) -> Report:
        targets, queries = (select(x, is_in) for x in (cases.targets, cases.queries))
        mine = cases._replace(queries=queries, targets=targets)

        def scores(of_all: Sequences) -> Scores:
            by_name: Scores = {}
            for topn in args.topn:
                data = RankedItems(mine, len(vectors), topn, 5)
                chosen = select(of_all, is_in)
                values = measured("items", data, chosen, seed=args.seed)
                if not user:  # one target: recall is HR
                    del values["recall@{topn}"]
                del values["MRR" if is_several else "MRR@{topn}"]
                by_name |= {name.format(topn=topn): x for name, x in values.items()}
            return by_name

        return Report(
            *("sessions", source, *_summary(read, mine, user, group)),
            settings | {"targets": group} | columns._asdict(),
            "vectors by " + ("cosine" if model is None else "output table"),
            scores(of_vectors),
            {name: scores(each) for name, each in of_baselines.items()},
            missing,
            mixture=None if mixed is None else scores(mixed),
        )

    return [report(*each) for each in groups.items()]


def _groups(
    args: Evaluate,
    run: Path,
    vectors: Vectors,
    counted: NextItems | None,
    cases: Cases,
    num_seen: int,
) -> dict[str, np.ndarray]:
    """The cases of each report, bool[N], by what their targets are; those without a
    case are left out.

    Args:
      num_seen: items of the vocabulary; those after them have attributes alone.
    """
    groups = {"all": np.ones(cases.num, bool)}
    if args.targets == "all":
        return groups
    items = cases.targets[0]
    is_unseen = items >= num_seen
    groups["items that no session has"] = is_unseen
    if args.targets == "new":
        if counted is None or counted.num_old == len(vectors):
            raise InputError(
                "`targets` 'new' needs a run of --next-items with items that --grow "
                f"added, got {run}."
            )
        is_new = (items >= counted.num_old) & ~is_unseen
        groups["items that updates added"] = is_new
        groups["other items"] = ~is_new & ~is_unseen
    elif vectors.counts is None:
        raise InputError(
            f"`targets` 'count' needs counts of items, and {run} has none."
        )
    else:
        counts = vectors.counts[items]
        for low, high in _COUNTS:
            name = f"items that occur {low} to {high} times"
            groups[name] = (low <= counts) & (counts <= high)
        groups[f"items that occur more than {high} times"] = counts > high
    return {name: is_in for name, is_in in groups.items() if is_in.any()}


def _with_unseen(
    vectors: Vectors, counted: NextItems
) -> tuple[Vectors, tuple[np.ndarray, np.ndarray]]:
    """The vectors with those of items that no session has, by their attributes, and
    both tables of the mixture."""
    mixture = counted.mixtures["excluded"]
    assert vectors.attributes is not None, "the run has them"
    unseen, rows = vectors.attributes().unseen(vectors.keys)
    counts = vectors.counts
    if counts is not None:
        counts = np.pad(counts, (0, len(unseen)))
    matrix = np.concatenate([vectors.matrix, rows.astype(vectors.matrix.dtype)])
    whole = Vectors([*vectors.keys, *unseen], matrix, counts, vectors.key_type)
    return whole, (mixture.input, mixture.output)


def _check_cases(
    read: _Corpus, cases: Cases, run: Path, source: str, user: str
) -> None:
    if read.num_unknown == read.num_items:
        raise InputError(
            f"`sessions` {source}: none of its {read.num_items} items is in the "
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


def _training_counts(
    run: Path, counted: NextItems | None, num_items: int
) -> SessionCounts | str:
    """What is counted in the training sessions of a run, or why nothing is.

    Args:
      counted: what the run keeps, after updates of all its corpora; None: counts are of
        its corpus.
    """
    if counted is not None:
        return counted.mixtures["excluded"].counts.with_items(num_items)
    try:
        return SessionCounts.fit(training_sequences(run), num_items)
    except (InputError, OSError) as error:
        return str(error).removesuffix(".")


def _warn_of_trained(
    sessions: Sequences, training: Sequences, run: Path, source: str
) -> None:
    """Warns of sessions that the run was trained on, as far as they are long."""
    least = max(2, min(_LONG, int(sessions[1].max())))
    num, num_long = num_repeated(sessions, training, least)
    if num > _MAX_REPEATED * num_long:
        _log.warning(
            "%s: %d of %d sessions of %d items or more are equal to ones that %s was "
            "trained on, so the scores are too good: give others, such as later ones.",
            *(source, num, num_long, least, run),
        )


def _baselines(
    vectors: Vectors, counts: SessionCounts | str, decay: float
) -> tuple[dict[str, Scorer], dict[str, str]]:
    """Scorers that count, and why others are missing."""
    scorers: dict[str, Scorer] = {}
    missing: dict[str, str] = {}
    if vectors.counts is None:
        missing["popularity"] = "RUN has no counts"
    else:
        scorers["popularity"] = by_popularity(vectors.counts)
    if isinstance(counts, str):
        return scorers, missing | dict.fromkeys(_COUNTED, counts)
    num = len(vectors)
    sessions = Sessions.fit(counts.sessions, num)
    of_counts: tuple[Scorer, ...] = (
        *(same_session(counts.sessions, num, decay), PairRules(counts.followers)),
        *(PairRules(counts.rules, decay), PairRules(counts.associations, decay)),
        *(VSKNN(sessions), STAN(sessions), STAN.of_mixture(sessions)),
    )
    return scorers | dict(zip(_COUNTED, of_counts, strict=True)), missing


def _summary(
    read: _Corpus, cases: Cases, user: str, group: str
) -> tuple[str, dict[str, int]]:
    num, kind = len(read.sequences[1]), "users" if user else "sessions"
    counts = {
        kind: num,
        "cases": cases.num,
        "targets": len(cases.targets[0]),
        "items": read.num_items,
        "unknown_items": read.num_unknown,
    }
    if group != "all":
        return f"{cases.num} cases whose targets are {group}", counts
    title = f"{cases.num} cases of {num} {kind}; unknown items, left out: "
    return f"{title}{read.num_unknown} of {read.num_items}", counts


def _of_sessions(source: str, columns: Columns, keys: list[str]) -> _Corpus:
    corpus = file_corpus(source, columns=columns)
    known = Vocabulary(keys, np.ones(len(keys), np.int64))
    encoded = encode(corpus, 1, BaseVocabulary(known))
    shards = [encoded.shard(z, 0, 0) for z in range(len(encoded.shard_tokens))]
    ids = np.concatenate([np.empty(0, np.int32), *(shard[0] for shard in shards)])
    lengths = np.concatenate([np.empty(0, np.int64), *(shard[1] for shard in shards)])
    num_unknown = encoded.raw_tokens - encoded.num_tokens
    sessions = ids, lengths
    return _Corpus(sessions, encoded.raw_tokens, num_unknown, sessions)


def _of_users(
    source: str, columns: Columns, user: str, keys: list[str]
) -> tuple[_Corpus, np.ndarray]:
    """The rows of each user, in their order, and which are targets, bool[n]: those of
    the session of the last one."""
    chosen = file_corpus(source, columns=columns).manifest[-1].get("columns", {})
    if not chosen.get("session"):
        raise InputError(
            f"`user` needs a table with a row for each item, got {source}: name its "
            "columns by --session, --item and --order."
        )
    files = table_files(local_copy(source, is_wanted=is_corpus_file), is_table=True)
    used = [chosen[kind] for kind in ("session", "item", "order")]
    asked = tuple(name for name in (user, *used) if name not in ("", NO_ORDER))
    table = open_table(files, roles_of(columns)._replace(asked=asked), source)
    _check_user(user, table.names, {*used})
    wanted = [*dict.fromkeys(asked)]
    with one_line_errors(source):
        table.check_rows(wanted)
        rows = table.read(wanted, keys=wanted[:3])
    rows = rows.filter(
        pl.col(name).is_not_null() & (pl.col(name) != "") for name in wanted[:3]
    )
    items, sessions = (
        _column(rows.lazy(), Columns(user, chosen[kind], chosen["order"]), source)
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


def _column(
    rows: pl.LazyFrame, columns: Columns, source: str
) -> tuple[pl.Series, np.ndarray]:
    """The items of all sessions, and how many each has."""
    order = columns.order or NO_ORDER
    corpus = frame_corpus(rows, columns._replace(order=order), source)
    chunks = [*corpus.chunks()]
    items = pl.concat([pl.Series("", [], dtype=pl.String), *(x.tokens for x in chunks)])
    return items, np.concatenate([np.empty(0, np.int64), *(x.lengths for x in chunks)])


def _with_targets(
    ids: np.ndarray, sessions: pl.Series, lengths: np.ndarray
) -> tuple[_Corpus, np.ndarray]:
    users = np.repeat(np.arange(len(lengths)), lengths)
    last = sessions.gather(np.cumsum(lengths) - 1).gather(users)
    is_target = (sessions == last).to_numpy()
    is_known = ids >= 0
    known = np.bincount(users[is_known], minlength=len(lengths))
    num_unknown = int(np.count_nonzero(~is_known))
    of_users, is_target = (ids[is_known], known), is_target[is_known]
    num_targets = np.bincount(users[is_known][is_target], minlength=len(lengths))
    scored = of_users[0][is_target], num_targets
    return _Corpus(of_users, len(ids), num_unknown, scored), is_target
