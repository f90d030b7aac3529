"""The tokens of a map: their positions, colours and neighbours, as JSON for the page.

Axis letters: K replicas (1: one model), P tokens of the map, D dimensions.
"""

import base64
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from embedder.base.stages import report_stage
from embedder.report import projection
from embedder.report.nearest import Neighbors, all_neighbors
from embedder.report.text import short
from embedder.vectors.vectors import unit_rows

NUM_NEIGHBORS = 10
_GROUPS = 24  # at most, that have names
_PER_GROUP = 20  # tokens at least, on average
_TEXT_BYTES = 2_500_000  # of tokens and names in UTF-8
_CATEGORIES = (
    *("#4e79c7", "#e07b39", "#3f9d5a", "#d1495b", "#8e6bbf"),
    *("#9c755f", "#d478b2", "#7f8c3a", "#2aa3b5", "#c9a227"),
)
_OTHER = "#8a8f98"
_SCALE = ("#4f79c4", "#2f93ab", "#3fa37c", "#7fa83f", "#c9a227", "#dc7f33", "#cf5058")
"""Colours that are seen on white and on black."""


class Effort(NamedTuple):
    """How much work a map may be."""

    points: int  # tokens at most
    products: float  # multiplications at most, to find neighbours
    method: Literal["components", "quick", "best"] = "best"  # of the projection
    image_bytes: float = float("inf")  # of data that are read again for thumbnails
    values: float = float("inf")  # of the vectors among which samples have neighbours
    fewest: int = 3  # tokens of a map: with fewer there is none


AFTER_TRAINING = Effort(10_000, 3e10, "quick", 2**28, 1e8, fewest=50)
"""Of the report that a training ends with: some 10 s at most. The library of maps
alone takes longer to load than a training with less than 50 tokens."""
FULL = Effort(20_000, 1e12)
"""Of the report that the user asks for."""


class Source(NamedTuple):
    """What a map is made of: tokens, the most frequent first, or examples."""

    texts: Sequence[str]  # keys [P]
    vectors: np.ndarray  # f[K, P, D]
    counts: np.ndarray | None = None  # i64[P]
    names: Sequence[str] | None = None  # [P]; "": none
    labels: Sequence[str] | None = None  # [P]; "": none
    label_name: str = "label"
    what: str = "tokens"

    def first(self, num: int) -> "Source":
        """The first `num` of them."""
        lists = (self.texts, self.names, self.labels)
        texts, names, labels = (each and each[:num] for each in lists)
        assert texts is not None, "there is a token"
        return self._replace(
            texts=texts,
            vectors=self.vectors[:, :num],
            counts=None if self.counts is None else self.counts[:num],
            names=names,
            labels=labels,
        )


class Colouring(NamedTuple):
    """A colour for each token, by one of its properties."""

    name: str
    colours: list[str]
    meanings: list[str]  # of each colour
    numbers: np.ndarray  # of the colours of tokens, u8[P]


class Map(NamedTuple):
    """What the page shows and searches."""

    source: Source
    projection: projection.Projection
    neighbors: Neighbors
    colourings: list[Colouring]
    groups: list[int]  # tokens whose texts name groups of points, of the largest first


def make_map(source: Source, effort: Effort) -> Map | None:
    """The map of the first tokens of `source`; None: there are too few."""
    source = source.first(_num_points(source, effort))
    if len(source.texts) < effort.fewest:
        return None
    vectors = np.asarray(source.vectors)
    units = unit_rows(vectors[0])
    about = f"the map of {len(source.texts):,} {source.what}"
    report_stage(f"{about}: neighbours")
    is_plain = effort.method == "components"
    topn = NUM_NEIGHBORS if is_plain else projection.NUM_NEIGHBORS
    neighbors = all_neighbors(vectors, topn)
    report_stage(f"{about}: positions")
    if is_plain:
        projected = projection.by_components(units)
    else:
        is_quick = effort.method == "quick"
        projected = projection.best_projection(units, neighbors, is_quick=is_quick)
    neighbors = neighbors.first(NUM_NEIGHBORS)
    labels = source.labels if source.counts is None else None  # shown for the keys
    groups = name_groups(projected.positions, labels)
    return Map(source, projected, neighbors, _colourings(source, neighbors), groups)


def map_of_examples(
    keys: Sequence[str],
    matrix: np.ndarray,
    labels: Sequence[str] | None,
    effort: Effort,
) -> Map | None:
    """The map of a random sample of embeddings f[n, E]; None: there are too few."""
    num = min(len(keys), effort.points)
    rows = np.sort(np.random.default_rng(0).choice(len(keys), num, replace=False))
    source = Source(
        [keys[i] for i in rows],
        matrix[rows][np.newaxis],
        labels=labels and [labels[i] for i in rows],
        what="examples",
    )
    return make_map(source, effort)


def name_groups(
    positions: np.ndarray, labels: Sequence[str] | None = None
) -> list[int]:
    """A token for each group of near points, the largest group first.

    k-means finds the groups. The token is the first one, hence the most frequent, of
    the half that is nearest to the centre; with labels the first one there that has the
    most frequent label.

    Args:
      positions: f[P, 2].
      labels: [P]; None: there are none.

    Reference: Arthur and Vassilvitskii 2007, SODA (the start).
    """
    from scipy.cluster.vq import kmeans2

    num = min(_GROUPS, len(positions) // _PER_GROUP)
    if num < 2:
        return []
    points = positions.astype(np.float64)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of equal points some groups stay empty
        centres, group = kmeans2(points, num, minit="++", rng=0)
    distances = np.linalg.norm(points - centres[group], axis=1)
    tokens = []
    for each, _ in Counter(group.tolist()).most_common():
        rows = np.flatnonzero(group == each)
        rows = rows[distances[rows] <= np.median(distances[rows])]
        if labels is not None:
            (common, _), *_ = Counter(labels[row] for row in rows).most_common(1)
            rows = rows[[labels[row] == common for row in rows]]
        tokens.append(int(rows[0]))
    return tokens


def most_points(effort: Effort, num_replicas: int, size: int) -> int:
    """Tokens of a map at most, of vectors of `size` numbers."""
    times = 1 if num_replicas == 1 else 2  # stability searches once more
    affordable = int((effort.products / (times * num_replicas * size)) ** 0.5)
    return min(effort.points, max(3, affordable))


def _num_points(source: Source, effort: Effort) -> int:
    """Tokens of the map: by the effort, and by the size of their texts."""
    num_replicas, num, size = source.vectors.shape
    num = min(num, most_points(effort, num_replicas, size))
    sizes = np.zeros(num, np.int64)
    for texts in (source.texts, source.names, source.labels):
        if texts is not None:
            sizes += [len(short(text).encode()) for text in texts[:num]]
    return int((np.cumsum(sizes) <= _TEXT_BYTES).sum())


def _colourings(source: Source, neighbors: Neighbors) -> list[Colouring]:
    colourings = []
    if source.labels is not None and any(source.labels):
        colourings.append(_by_label(source.label_name, source.labels))
    if source.counts is not None:
        colourings.append(_by_count(source.counts))
    if neighbors.stability is not None:
        colourings.append(_by_stability(neighbors.stability))
    if not colourings:
        index = np.zeros(len(source.texts), np.uint8)
        colourings.append(Colouring("none", [_SCALE[0]], [f"all {source.what}"], index))
    return colourings


def _by_label(name: str, labels: Sequence[str]) -> Colouring:
    """A colour for each of the most frequent labels; the others share one."""
    common = Counter(each for each in labels if each).most_common()
    shown = sorted(label for label, _ in common[: len(_CATEGORIES)])
    number = {label: i for i, label in enumerate(shown)}
    index = np.array([number.get(each, len(shown)) for each in labels], np.uint8)
    colours, meanings = list(_CATEGORIES[: len(shown)]), [*map(short, shown)]
    if (index == len(shown)).any():
        colours.append(_OTHER)
        meanings.append("other or none")
    return Colouring(short(name), colours, meanings, index)


def _by_count(counts: np.ndarray) -> Colouring:
    decades = np.floor(np.log10(np.maximum(counts, 1))).astype(int)
    low = int(decades.min())
    index = np.minimum(decades - low, len(_SCALE) - 1).astype(np.uint8)
    num = int(index.max()) + 1
    meanings = [f"{10**k:,} to {10 ** (k + 1) - 1:,}" for k in range(low, low + num)]
    if decades.max() - low >= len(_SCALE):
        meanings[-1] = f"{10 ** (low + num - 1):,} and more"
    return Colouring("frequency", _spread(num), meanings, index)


def _by_stability(stability: np.ndarray) -> Colouring:
    index = np.minimum((stability * 5).astype(int), 4).astype(np.uint8)
    meanings = [f"{k / 5:.1f} to {(k + 1) / 5:.1f}" for k in range(5)]
    return Colouring("stability", _spread(5), meanings, index)


def _spread(num: int) -> list[str]:
    """`num` colours of the scale, from its start to its end."""
    places = np.linspace(0, len(_SCALE) - 1, num).round().astype(int)
    return [_SCALE[i] for i in places]


def as_json(map_: Map) -> dict[str, Any]:
    """What the page's script reads: arrays are base64 of little-endian numbers, and
    similarities i16 in units of 1 / 10,000."""
    source, neighbors = map_.source, map_.neighbors
    intervals = {"lower": neighbors.lower, "upper": neighbors.upper}
    return {
        "texts": [*map(short, source.texts)],
        "names": source.names and [*map(short, source.names)],
        "labels": source.labels and [*map(short, source.labels)],
        "counts": None if source.counts is None else source.counts.tolist(),
        "groups": map_.groups,
        "num_neighbors": neighbors.ids.shape[1],
        "ids": _encoded(neighbors.ids, "<u2"),
        "similarity": _encoded(neighbors.similarity * 10_000, "<i2"),
        **{
            name: None if x is None else _encoded(x * 10_000, "<i2")
            for name, x in intervals.items()
        },
        "stability": None
        if neighbors.stability is None
        else _encoded(neighbors.stability * 100, "<u1"),
        "colourings": [
            each._asdict() | {"numbers": _encoded(each.numbers, "<u1")}
            for each in map_.colourings
        ],
    }


def _encoded(values: np.ndarray, dtype: str) -> str:
    return base64.b64encode(np.rint(values).astype(dtype).tobytes()).decode()
