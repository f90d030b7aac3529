"""The parts of a page about vectors of tokens: the map, and samples of neighbours."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from embedder.base.stages import report_stage
from embedder.data.names import Names
from embedder.report.nearest import Band, by_frequency, samples
from embedder.report.page import Page
from embedder.report.points import Effort, Map, Source, make_map, most_points
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.vectors import Vectors

Texts = Callable[[Sequence[str]], list[str]]
"""Keys -> a text for each of them; "": none."""


class Extras(NamedTuple):
    """What a user adds: names of keys, and labels to colour a map by."""

    names: Texts | None = None
    labels: Texts | None = None
    label_name: str = "label"

    def columns(self, keys: Sequence[str]) -> dict[str, list[str]]:
        """The names and labels of `keys` as columns of a table.

        The name of the labels ends in "(label)" where tables of tokens use it.
        """
        is_used = self.label_name in ("token", "count", "name")
        title = f"{self.label_name} (label)" if is_used else self.label_name
        texts = {"name": self.names, title: self.labels}
        return {title: of(keys) for title, of in texts.items() if of is not None}


NO_EXTRAS = Extras()


def with_names(table: Names | None) -> Extras:
    """The names in a table of names; None: there are none."""
    if table is None:
        return NO_EXTRAS
    return Extras(lambda keys: [table.of_key.get(key, "") for key in keys])


def with_tokens(
    page: Page,
    vectors: Vectors,
    ensemble: Ensemble | None,
    effort: Effort,
    extras: Extras,
) -> Page:
    """`page` with the parts about tokens.

    Args:
      ensemble: of the same tokens; None: there are no replicas.
    """
    report_stage("samples of neighbours")
    bands = samples(*_most_frequent(vectors, ensemble, effort.values))
    return page._replace(
        map=_map(vectors, ensemble, effort, extras),
        bands=tuple(bands),
        names=_names(bands, extras),
    )


def _map(
    vectors: Vectors, ensemble: Ensemble | None, effort: Effort, extras: Extras
) -> Map | None:
    counts, order = vectors.counts, by_frequency(vectors)
    tables = vectors.matrix[np.newaxis] if ensemble is None else ensemble.vectors
    order = order[: most_points(effort, len(tables), tables.shape[2])]
    keys = [vectors.keys[i] for i in order]
    source = Source(
        keys,
        np.stack([np.asarray(table[order]) for table in tables]),
        None if counts is None else counts[order],
        extras.names and extras.names(keys),
        extras.labels and extras.labels(keys),
        extras.label_name,
    )
    return make_map(source, effort)


def _most_frequent(
    vectors: Vectors, ensemble: Ensemble | None, num_values: float
) -> tuple[Vectors, Ensemble | None]:
    """Those of the most frequent tokens, whose vectors have `num_values` at most."""
    num, size = vectors.matrix.shape
    if num * size <= num_values:
        return vectors, ensemble
    rows = by_frequency(vectors)[: max(2, int(num_values / size))]
    keys = [vectors.keys[i] for i in rows]
    counts = None if vectors.counts is None else vectors.counts[rows]
    if ensemble is not None:
        tokens, tables = [ensemble.tokens[i] for i in rows], ensemble.vectors[:, rows]
        ensemble = Ensemble(tokens, tables, ensemble.counts[rows])
    return Vectors(keys, vectors.matrix[rows], counts), ensemble


def _names(bands: list[Band], extras: Extras) -> dict[str, str]:
    """The names of all tokens of samples that have one."""
    if extras.names is None:
        return {}
    all_samples = [sample for band in bands for sample in band.samples]
    near = [each.token for sample in all_samples for each in sample.near]
    tokens = [*(sample.token for sample in all_samples), *near]
    names = zip(tokens, extras.names(tokens), strict=True)
    return {token: name for token, name in names if name}
