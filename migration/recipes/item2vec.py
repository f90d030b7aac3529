"""item2vec by gensim: items of baskets, and the items that complete a basket.

The order of a basket has no meaning, so its items are shuffled before each epoch, and
the window is wide (Barkan and Koenigstein 2016, arXiv:1603.04259).
"""

import argparse
import json
import random
import time

import polars as pl
from gensim.models import Word2Vec

TOPN = 10


class ShuffledBaskets:
    """Baskets, their items in another order each time."""

    def __init__(self, baskets: list[list[str]], seed: int):
        self.baskets = baskets
        self.random = random.Random(seed)

    def __iter__(self):
        for basket in self.baskets:
            yield self.random.sample(basket, len(basket))


def read_baskets(path: str, limit: int | None) -> list[list[str]]:
    """Lists of different items, two or more each."""
    of_basket = (
        pl.read_parquet(path)
        .group_by("session", maintain_order=True)
        .agg(pl.col("item").unique(maintain_order=True))
    )
    return [items for items in of_basket["item"].to_list() if len(items) > 1][:limit]


def hit_rate(wv, baskets: list[list[str]]) -> float:
    """How often the last item is among the ten most similar to the other items."""
    hits = cases = 0
    for *others, last in baskets:
        known = [item for item in others if item in wv]
        if known and last in wv and last not in known:
            found = wv.most_similar(positive=known, topn=TOPN)
            hits += last in [item for item, _ in found]
            cases += 1
    return hits / cases


parser = argparse.ArgumentParser()
parser.add_argument("baskets")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--limit", type=int, help="baskets that are read")
arguments = parser.parse_args()

baskets = read_baskets(arguments.baskets, arguments.limit)
random.Random(0).shuffle(baskets)
num_held_out = len(baskets) // 10
train, held_out = baskets[num_held_out:], baskets[:num_held_out]
start = time.perf_counter()
model = Word2Vec(
    ShuffledBaskets(train, arguments.seed),
    sg=1,
    vector_size=100,
    window=20,
    min_count=5,
    negative=10,
    ns_exponent=0.5,
    sample=1e-4,
    epochs=10,
    workers=2,
    seed=arguments.seed,
)
seconds = time.perf_counter() - start
scores = {"hit rate at 10": hit_rate(model.wv, held_out)}
print(json.dumps({"seconds": seconds, "scores": scores}))
