"""The neighbours of known keys and of sums of keys, by vectors or by replicas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from embedder.arguments import Neighbors
from embedder.lookup.expressions import Expression
from embedder.lookup.found import Keys, Lookup, Near, Result, ranked

if TYPE_CHECKING:
    from embedder.vectors.ensemble import Ensemble, Neighbor


def of_sum(lookup: Lookup, query: Expression, args: Neighbors, among: Keys) -> Result:
    """The neighbours of a sum of known keys, by the vectors."""
    found = lookup.vectors.most_similar(
        query.positive, query.negative, args.topn, among=among, metric=args.metric
    )
    name = "similarity" if args.metric == "cosine" else "product"
    if query.is_key:
        (key,) = query.positive
        return Result((key,), {}, lookup.named(key), ranked(found, name))
    plus, minus = ([*map(lookup.named, keys)] for keys in query)
    title = " - ".join([" + ".join(plus), *minus]).strip()
    about = {"positive": [*query.positive], "negative": [*query.negative]}
    keys = *query.positive, *query.negative
    return Result(keys, about, title, ranked(found, name))


def of_replicas(
    lookup: Lookup,
    ensemble: "Ensemble",
    words: Sequence[str],
    args: Neighbors,
    among: Keys,
) -> list[Result]:
    """The neighbours of known keys by replicas, with intervals."""
    from embedder.vectors.ensemble import has_little_data

    found = ensemble.neighbors(words, args.topn, order=order_of(args), among=among)
    results = []
    for word, share, near in zip(words, ensemble.stability(words), found, strict=True):
        count, stability = int(ensemble.counts[ensemble.index(word)]), float(share)
        is_rare = has_little_data(count, stability)
        about = {"stability": stability, "count": count, "too_little_data": is_rare}
        title = f"{lookup.named(word)}: stability {stability:.2f}, count {count}"
        title += ", too little data" if is_rare else ""
        results.append(Result((word,), about, title, _with_intervals(near, ensemble)))
    return results


def order_of(args: Neighbors) -> Literal["mean", "lower"]:
    """What the neighbours of replicas are sorted by."""
    return "lower" if args.stable else "mean"


def _with_intervals(near: list["Neighbor"], ensemble: "Ensemble") -> list[Near]:
    width = len(str(len(ensemble)))
    found = []
    for token, similarity, lower, upper, frequency in near:
        interval = f"[{lower:5.2f}, {upper:5.2f}]"
        text = f"{similarity:6.3f}  {interval}  {frequency:{width}}/{len(ensemble)}"
        numbers = {"similarity": similarity, "lower": lower, "upper": upper}
        found.append(Near(str(token), numbers | {"replicas": frequency}, text))
    return found
