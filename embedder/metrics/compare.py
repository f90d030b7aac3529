"""Whether two spaces are the same, ALGORITHM.md (87) and (88).

Vectors of two trainings are rotated against each other, so they are compared after the
best rotation, by the tokens that both have, and by their nearest tokens.

Axis letters: n shared tokens, D dimensions, K replicas, N nearest tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from embedder.base.stages import report_stage
from embedder.errors import InputError
from embedder.metrics.intervals import RESAMPLES, Estimate, estimate, resamples
from embedder.vectors.ensemble import FREQUENT, Ensemble, interval, nearest_orthogonal
from embedder.vectors.search import cosines, unit_rows
from embedder.vectors.vectors import Vectors, check_positive_integer

Space = Vectors | Ensemble
_TOKENS = 2000  # of a band whose nearest tokens are compared
_SHOWN = 3  # nearest tokens of one that moved


class Band(NamedTuple):
    """Scores of the tokens of a range of frequency."""

    name: str
    num_tokens: int
    cosine: Estimate  # (88), the mean
    overlap: Estimate  # share of the nearest tokens that both have
    jaccard: Estimate  # of the sets of nearest tokens


class Moved(NamedTuple):
    """A token that moved."""

    token: str
    cosine: Estimate  # (88); nan where there are no replicas
    count_a: int | None
    count_b: int | None
    nearest_a: list[str]
    nearest_b: list[str]


class Within(NamedTuple):
    """How two replicas of one space differ: the means over pairs of them."""

    error: float
    overlap: float


@dataclass(frozen=True)
class Comparison:
    """How two spaces A and B differ."""

    num_a: int  # tokens
    num_b: int
    num_shared: int
    topn: int
    error: Estimate  # (87): 0: the same but for a rotation; 2: unrelated
    within: tuple["Within", "Within"] | None  # of A and B; None: there are no replicas
    chance: float  # overlap of unrelated spaces
    bands: list[Band]  # of all tokens, then from the most frequent
    moved: list[Moved]  # the lowest cosine first
    num_pairs: int  # of replicas; 1: there are none, intervals are over tokens


def compare_spaces(
    a: Space,
    b: Space,
    topn: int = 10,
    *,
    num_moved: int = 10,
    min_count: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Compares the vectors of the tokens that `a` and `b` share.

    All tokens have equal weight in the rotation. Nearest tokens are those among shared
    tokens, compared for at most 2,000 tokens of each band of frequency, drawn at
    random; "all" weighs bands by their tokens. Counts are those of `a`, or of `b` if
    `a` has none; without counts bands are by the order of `a`. Of two ensembles,
    replica k of `a` is compared with replica k of `b`, and intervals are from the 5th
    to the 95th percentile of these pairs; else they are 95 % by resamples of tokens. An
    ensemble beside vectors counts by its mean.

    Args:
      num_moved: number of tokens that moved most; 0: none.
      min_count: tokens with fewer occurrences in `a` or `b` are not among them; None:
        100, and 0 if there are fewer than `num_moved` such tokens.

    Raises:
      InputError: fewer than two tokens are shared, or a number is out of bounds.

    References: Schönemann 1966, Psychometrika 31; Hamilton et al. 2016,
    arXiv:1605.09096.
    """
    check_positive_integer("topn", topn)
    for name, value in {"moved": num_moved, "min_count": min_count or 0}.items():
        if value < 0:
            raise InputError(f"`{name}` must be >= 0, got {value}.")
    if isinstance(a, Ensemble) != isinstance(b, Ensemble):
        a, b = (x.mean() if isinstance(x, Ensemble) else x for x in (a, b))
    rows = _shared(_keys(a), _keys(b))
    bands = _bands(_counts(a, rows[0]), _counts(b, rows[1]), len(rows[0]), seed)
    chosen = np.concatenate([band.chosen for band in bands])
    first, second = (
        _Side(x, r, chosen, topn) for x, r in zip((a, b), rows, strict=True)
    )
    pairs = [(k, k) for k in range(min(first.num, second.num))]
    report_stage(f"comparing {len(rows[0]):,} shared tokens")
    between = [_agreement(first, second, pair) for pair in pairs]
    has_replicas = len(pairs) > 1
    report_stage("intervals, and the tokens that moved most")
    scores = (_over_replicas if has_replicas else _over_tokens)(between, bands, seed)
    cosine = scores[0].cosine
    return Comparison(
        num_a=len(_keys(a)),
        num_b=len(_keys(b)),
        num_shared=len(rows[0]),
        topn=topn,
        error=Estimate(*(2 - 2 * cosine[i] for i in (0, 2, 1))),  # (87) by (88)
        within=(_within(first, bands), _within(second, bands))
        if has_replicas
        else None,
        chance=min(1.0, topn / (len(rows[0]) - 1)),
        bands=scores,
        moved=_moved(first, second, between, num_moved, min_count),
        num_pairs=len(pairs),
    )


def cosines_after_alignment(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The cosine of each row of f[n, D] with that of another space, after the best
    rotation, (88), f64[n].

    The space of fewer dimensions gets zeros in the others.
    """
    size = max(first.shape[1], second.shape[1])
    x, y = (
        np.pad(unit_rows(m.astype(np.float64)), ((0, 0), (0, size - m.shape[1])))
        for m in (first, second)
    )
    return cosines(x @ nearest_orthogonal(x.T @ y), y)


class _Band(NamedTuple):
    name: str
    tokens: np.ndarray  # i64, rows of shared tokens
    chosen: np.ndarray  # i64, those whose nearest tokens are compared


class _Agreement(NamedTuple):
    """How a replica of A and one of B agree."""

    cosines: np.ndarray  # f64[n], of all shared tokens
    overlap: np.ndarray  # f64[m], of the chosen tokens
    jaccard: np.ndarray


class _Side:
    """The shared tokens of one space."""

    def __init__(self, space: Space, rows: np.ndarray, chosen: np.ndarray, topn: int):
        self.space, self.rows = space, rows
        self.num = len(space) if isinstance(space, Ensemble) else 1
        self.tokens = [_keys(space)[row] for row in rows]
        self.counts = _counts(space, rows)
        self._chosen, self._topn = chosen, topn
        self._nearest: dict[int, np.ndarray] = {}

    def vectors(self, replica: int) -> Vectors:
        """The vectors of a replica, with shared tokens alone."""
        matrix = (
            self.space.vectors[replica]
            if isinstance(self.space, Ensemble)
            else self.space.matrix
        )
        return Vectors(self.tokens, np.asarray(matrix)[self.rows])

    def nearest(self, replica: int) -> np.ndarray:
        """Ids of the nearest tokens of the chosen ones, i64[m, N]."""
        if replica not in self._nearest:
            vectors = self.vectors(replica)
            found = vectors.neighbors_of_rows(self._chosen, self._topn)
            self._nearest[replica] = found[0]
        return self._nearest[replica]


def _keys(space: Space) -> list[str]:
    return space.texts if isinstance(space, Ensemble) else space.keys


def _counts(space: Space, rows: np.ndarray) -> np.ndarray | None:
    return None if space.counts is None else space.counts[rows]


def _shared(a: list[str], b: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Rows in `a` and in `b` of the tokens of both, in the order of `a`."""
    in_b = {key: row for row, key in enumerate(b)}
    rows = [(row, in_b[key]) for row, key in enumerate(a) if key in in_b]
    if len(rows) < 2:
        found = f"got {len(rows)} of {len(a)} and {len(b)}"
        raise InputError(f"A and B must share 2 tokens or more, {found}.")
    first, second = np.array(rows, np.int64).T
    return first, second


def _bands(
    a: np.ndarray | None, b: np.ndarray | None, num: int, seed: int
) -> list[_Band]:
    """Bands of powers of ten, by the counts or by the order of the tokens."""
    counts = a if a is not None else b
    values = np.arange(1, num + 1) if counts is None else counts
    powers = np.floor(np.log10(np.maximum(values, 1))).astype(int)
    powers = np.clip(powers, 0, 5) if counts is not None else np.clip(powers, 2, 7)
    rng, bands = np.random.default_rng(seed), []
    order = np.unique(powers)
    for power in order if counts is None else order[::-1]:
        tokens = np.flatnonzero(powers == power)
        chosen = np.sort(rng.permutation(tokens)[:_TOKENS])
        bands.append(_Band(_band_name(power, counts is None), tokens, chosen))
    return bands


def _band_name(power: int, is_rank: bool) -> str:
    if is_rank:
        first = 1 if power == 2 else 10**power
        return f"rank {first:,} to {10 ** (power + 1) - 1:,}"
    if power == 5:
        return f"count from {10**power:,}"
    return f"count {10**power if power else 0:,} to {10 ** (power + 1) - 1:,}"


def _agreement(first: _Side, second: _Side, pair: tuple[int, int]) -> _Agreement:
    x, y = first.vectors(pair[0]).matrix, second.vectors(pair[1]).matrix
    near = first.nearest(pair[0]), second.nearest(pair[1])
    num = near[0].shape[1]
    shared = (near[0][:, :, None] == near[1][:, None, :]).sum(axis=(1, 2))
    return _Agreement(
        cosines_after_alignment(x, y), shared / num, shared / (2 * num - shared)
    )


def _means(found: _Agreement, bands: Sequence[_Band]) -> np.ndarray:
    """Mean cosine, overlap and Jaccard index of all tokens, and of b bands,
    f64[1 + b, 3]."""
    stops = np.cumsum([len(band.chosen) for band in bands])
    means = []
    for band, stop in zip(bands, stops, strict=True):
        own = slice(stop - len(band.chosen), stop)
        cosine = found.cosines[band.tokens].mean()
        means.append([cosine, found.overlap[own].mean(), found.jaccard[own].mean()])
    return np.vstack([_weights(bands) @ means, means])


def _weights(bands: Sequence[_Band]) -> np.ndarray:
    sizes = np.array([len(band.tokens) for band in bands])
    return sizes / sizes.sum()


def _over_replicas(
    between: Sequence[_Agreement], bands: Sequence[_Band], seed: int
) -> list[Band]:
    """Scores with intervals over pairs of replicas."""
    means = np.array([_means(each, bands) for each in between])
    ends = interval(means, 90.0)
    return _named(np.stack([means.mean(axis=0), *ends], axis=-1), bands)


def _over_tokens(
    between: Sequence[_Agreement], bands: Sequence[_Band], seed: int
) -> list[Band]:
    """Scores with intervals by resamples of the tokens of each band, (75)."""
    (found,) = between
    means, stop, samples = _means(found, bands), 0, []
    for number, band in enumerate(bands):
        own = slice(stop, stop := stop + len(band.chosen))
        cases = np.column_stack(
            [found.cosines[band.chosen], found.overlap[own], found.jaccard[own]]
        )
        chunks = resamples(len(cases), RESAMPLES, seed + number)
        drawn = np.concatenate([counts @ cases for counts in chunks]) / len(cases)
        samples.append(drawn + means[number + 1] - cases.mean(axis=0))
    samples.insert(0, np.tensordot(_weights(bands), samples, 1))
    estimates = [
        [estimate(float(x), column) for x, column in zip(row, drawn.T, strict=True)]
        for row, drawn in zip(means, samples, strict=True)
    ]
    return _named(np.array(estimates), bands)


def _named(scores: np.ndarray, bands: Sequence[_Band]) -> list[Band]:
    """Bands of scores f64[1 + b, 3, 3]: value, lower and upper of each."""
    num = sum(len(band.tokens) for band in bands)
    names = [("all", num), *((band.name, len(band.tokens)) for band in bands)]
    return [
        Band(*name, *(Estimate(*map(float, x)) for x in row))
        for name, row in zip(names, scores, strict=True)
    ]


def _within(side: _Side, bands: Sequence[_Band]) -> Within:
    """How pairs of replicas that follow each other differ."""
    last = [(side.num - 1, 0)] if side.num > 2 else []
    pairs = [*zip(range(side.num - 1), range(1, side.num), strict=True), *last]
    means = [_means(_agreement(side, side, pair), bands)[0] for pair in pairs]
    cosine, overlap, _ = np.mean(means, axis=0)
    return Within(float(2 - 2 * cosine), float(overlap))


def _moved(
    first: _Side,
    second: _Side,
    between: Sequence[_Agreement],
    num: int,
    min_count: int | None,
) -> list[Moved]:
    cosines = np.array([each.cosines for each in between])
    means, kept = cosines.mean(axis=0), np.ones(cosines.shape[1], bool)
    counts = first.counts, second.counts
    for each in counts:
        if each is not None:
            kept &= each >= (FREQUENT if min_count is None else min_count)
    if min_count is None and kept.sum() < num:
        kept[:] = True
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(means[rows], kind="stable")[:num]]
    ends = np.full((2, len(means)), np.nan)
    if len(cosines) > 1:
        ends = interval(cosines, 90.0)
    near_a, near_b = (
        [[side.tokens[i] for i in ids] for ids in found]
        for side in (first, second)
        for found, _ in [side.vectors(0).neighbors_of_rows(rows, _SHOWN)]
    )
    return [
        Moved(
            token=first.tokens[row],
            cosine=Estimate(float(means[row]), *map(float, ends[:, row])),
            count_a=None if counts[0] is None else int(counts[0][row]),
            count_b=None if counts[1] is None else int(counts[1][row]),
            nearest_a=near_a[place],  # of the first replica
            nearest_b=near_b[place],
        )
        for place, row in enumerate(rows)
    ]
