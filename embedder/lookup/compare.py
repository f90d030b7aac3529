"""The verb `compare`: whether two runs or files of vectors have the same space."""

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

from embedder.arguments import Compare
from embedder.results import ensemble_of, opened_run, vectors_of
from embedder.stages import report_stage
from embedder.terminal import say, shown

if TYPE_CHECKING:
    from pathlib import Path

    from embedder.evaluation.compare import Band, Comparison, Moved, Space
    from embedder.evaluation.intervals import Estimate


def compare(args: Compare) -> None:
    """Prints how the spaces of two runs or files differ.

    Raises:
      InputError: a run or file cannot be read, or see `compare_spaces`.
    """
    from embedder.evaluation.compare import compare_spaces
    from embedder.run.progress import working

    with working(), opened_run(args.a) as a, opened_run(args.b) as b:
        report_stage("reading vectors")
        found = compare_spaces(
            *(_space(a), _space(b), args.topn),
            num_moved=args.moved,
            min_count=args.min_count,
            seed=args.seed,
        )
    if args.json:
        say(json.dumps(_plain(dataclasses.asdict(found))))
        return
    for line in _lines(found):
        say(shown(line))


def _space(run: "Path") -> "Space":
    ensemble = ensemble_of(run)
    return vectors_of(run) if ensemble is None else ensemble


def _lines(found: "Comparison") -> list[str]:
    unit = f"{found.num_pairs} pairs of replicas" if found.num_pairs > 1 else "tokens"
    lines = [
        f"tokens: {found.num_a} in A, {found.num_b} in B, {found.num_shared} shared; "
        f"intervals over {unit}",
        f"Procrustes error {_text(found.error)}; 0: equal but for a rotation, "
        "2: unrelated",
    ]
    if found.within is not None:
        a, b = found.within
        lines.append(
            f"replicas of A differ from each other by {a.error:.3f}, with overlap "
            f"{a.overlap:.3f}; those of B by {b.error:.3f}, with {b.overlap:.3f}"
        )
    lines += ["", *_table(found)]
    if found.moved:
        lines += ["", "moved most, by the cosine after the rotation:"]
        lines += [_moved(each) for each in found.moved]
    return lines


def _table(found: "Comparison") -> list[str]:
    width = max(len(band.name) for band in found.bands)
    header = ("cosine", f"share of {found.topn} nearest", "Jaccard index")
    lines = [f"{'':{width}}  {'tokens':>8}  " + "  ".join(f"{x:22}" for x in header)]
    for band in found.bands:
        scores = "  ".join(f"{_text(x):22}" for x in _scores(band))
        lines.append(f"{band.name:{width}}  {band.num_tokens:>8}  {scores}")
    lines = [line.rstrip() for line in lines]
    lines.append(f"share of nearest by chance: {found.chance:.2g}")
    return lines


def _scores(band: "Band") -> tuple["Estimate", ...]:
    return band.cosine, band.overlap, band.jaccard


def _moved(each: "Moved") -> str:
    counts = ""
    if each.count_a is not None and each.count_b is not None:
        counts = f" ({each.count_a}, {each.count_b})"
    near = f"{' '.join(each.nearest_a)} | {' '.join(each.nearest_b)}"
    return f"  {_text(each.cosine)}  {each.token}{counts}: {near}"


def _text(estimate: "Estimate") -> str:
    value, lower, upper = estimate
    if math.isnan(lower):
        return f"{value:.3f}"
    return f"{value:.3f} [{lower:.3f}, {upper:.3f}]"


def _plain(value: Any) -> Any:
    """A value as JSON: tuples with names become objects, NaN null."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    match value:
        case dict():
            return {key: _plain(x) for key, x in value.items()}
        case list() | tuple():
            return [_plain(x) for x in value]
        case float():
            return None if math.isnan(value) else value
    return value
