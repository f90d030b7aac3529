"""The verb `compare`: whether two runs or files of vectors have the same space."""

import dataclasses
import json
from pathlib import Path

from embedder.api.results import ensemble_of, opened_run, vectors_of
from embedder.base.stages import report_stage
from embedder.base.terminal import say, shown
from embedder.cli.arguments import Compare
from embedder.cli.evaluate.report import estimate_text
from embedder.cli.lookup.lookup import plain
from embedder.metrics.compare import Comparison, Moved, Space, compare_spaces
from embedder.run.progress import working


def compare(args: Compare) -> None:
    """Prints how the spaces of two runs or files differ.

    Raises:
      InputError: a run or file cannot be read, or see `compare_spaces`.
    """
    with working(), opened_run(args.a) as a, opened_run(args.b) as b:
        report_stage("reading vectors")
        spaces = compare_spaces(
            *(_space(a, args), _space(b, args), args.topn),
            num_moved=args.moved,
            min_count=args.min_count,
            seed=args.seed,
        )
    if args.json:
        say(json.dumps(plain(dataclasses.asdict(spaces))))
        return
    for line in _lines(spaces):
        say(shown(line))


def _space(run: Path, args: Compare) -> Space:
    ensemble = ensemble_of(run)
    return vectors_of(run, args.key_errors) if ensemble is None else ensemble


def _lines(spaces: Comparison) -> list[str]:
    unit = f"{spaces.num_pairs} pairs of replicas" if spaces.num_pairs > 1 else "tokens"
    lines = [
        f"tokens: {spaces.num_a} in A, {spaces.num_b} in B, {spaces.num_shared} "
        f"shared; intervals over {unit}",
        f"Procrustes error {estimate_text(spaces.error)}; 0: equal but for a "
        "rotation, 2: unrelated",
    ]
    if spaces.within is not None:
        a, b = spaces.within
        lines.append(
            f"replicas of A differ from each other by {a.error:.3f}, with overlap "
            f"{a.overlap:.3f}; those of B by {b.error:.3f}, with {b.overlap:.3f}"
        )
    lines += ["", *_table(spaces)]
    if spaces.moved:
        lines += ["", "moved most, by the cosine after the rotation:"]
        lines += [_moved(each) for each in spaces.moved]
    return lines


def _table(spaces: Comparison) -> list[str]:
    width = max(len(band.name) for band in spaces.bands)
    header = ("cosine", f"share of {spaces.topn} nearest", "Jaccard index")
    lines = [f"{'':{width}}  {'tokens':>8}  " + "  ".join(f"{x:22}" for x in header)]
    for band in spaces.bands:
        estimates = band.cosine, band.overlap, band.jaccard
        scores = "  ".join(f"{estimate_text(x):22}" for x in estimates)
        lines.append(f"{band.name:{width}}  {band.num_tokens:>8}  {scores}")
    lines = [line.rstrip() for line in lines]
    lines.append(f"share of nearest by chance: {spaces.chance:.2g}")
    return lines


def _moved(each: Moved) -> str:
    counts = ""
    if each.count_a is not None and each.count_b is not None:
        counts = f" ({each.count_a}, {each.count_b})"
    near = f"{' '.join(each.nearest_a)} | {' '.join(each.nearest_b)}"
    return f"  {estimate_text(each.cosine)}  {each.token}{counts}: {near}"
