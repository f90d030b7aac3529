"""Every bench runs from its command line, with tiny sizes."""

import importlib.util
import re

import pytest

from bench import commands, registry
from bench.gpu.offline import PLUGIN

RUNS = r"""
cpu --programs 'legacy, 1 worker' --epochs 1 --vector-size 8
    1 3 5: legacy, 1 worker
small --reference {data}/vectors.txt --seeds 1 --programs 'legacy, skip-gram'
    : legacy, skip-gram; chance
dropin --samples 1 --programs legacy 'drop-in, first'
    1 2 4: legacy; drop-in, first
stages --corpus {data}/corpus.txt --samples 1 --vector-size 8
    : import TensorFlow; vocabulary and encoding; loader, tfdata; loader, memory; xla:
    trace; xla: compile; xla: updates alone; xla: training, all together; numba:
    compile, or find in the cache; numba: updates alone; numba: training, all together
parts --corpus {data}/corpus.txt --samples 1 --vector-size 8 --blocks-per-update 1 2
    2 3: 1 | contexts, keys, weights, lists; 1 | rows: load; 1 | products and errors; 1
    | rows of buckets: find; 1 | rows: apply; 1 | all, 1 thread; 2 | contexts, keys,
    weights, lists
threads --corpus {data}/corpus.txt --samples 1 --updates 2 --vector-size 8
  --blocks-per-update 4 8
    2 6 8: 4 | 1; 4 | 2; 4 | 4; 8 | 1; 8 | 2; 8 | 4; 8 | 8
vocabulary --samples 1 --sizes 100 200 --updates 16
    2 4: 100 |; 200 |
beside --samples 1 --seconds 0.01 --vocabulary-size 100 --updates 16 --blocks-per-update
  1 2
    3 4 5: 1 | none | 1; 1 | nice 19 | 1; 1 | nice 0 | 1; 2 | none | 1
loader --devices 2 --samples 1 --rows 4 --tokens 8 --images 4
    4 7: blocks in memory | 2; images of 224 x 224 x 3 | 2; images of 30 x 30 | 2
modes --devices 1 --samples 1 --vector-size 8 --blocks 2 --vocabulary 100 --updates 16
    4 5: strong | 1 | jit; strong | 1 | sharded; strong | 1 | pmap
quality --programs 'legacy, 1 worker' --epochs 1 2
    2: legacy, 1 worker | 0; legacy, 1 worker | 0
composition --corpus {data}/corpus.txt --blocks-per-update 1 4 --epochs 1
    4 9: embedder | 1 | 16:32 | 1 (64), default; embedder | 1 | 16:32 | 4 (256)
graphs --programs embedder --walks 4 --walk-length 10 --vector-size 8 --shares 50
  --splits 2 --seeds 1 2
    5: most frequent labels |  |  |  | ; most frequent labels |  |  |  | ; degree |  |
    |  | ; degree |  |  |  | ; embedder | ; embedder |
items --data wikispeedia --programs 'embedder, preset items' --seeds 1
    2 3 4: wikispeedia | counting, followed most often; wikispeedia | counting, same
    session; wikispeedia | the most popular items; wikispeedia | embedder, preset items
next-items --data wikispeedia --baselines MK STAN
    2 3 4 5 6: wikispeedia | MK; wikispeedia | STAN
new-items --limit 3000 --programs update --factors 0.001 1
    1: update | 0.001; update | 1
attributes --data wikispeedia
    2: wikispeedia | after an unseen item; wikispeedia | to an unseen item
days --data wikispeedia --num-days 2
    5: wikispeedia | from the start; wikispeedia | update
judges --graphs karate --programs node2vec --seeds 1
    3 4: karate | node2vec | gensim; karate | node2vec | embedder
recipes --programs item2vec node2vec text --seeds 1 --limit 300
    4: item2vec | hit rate at 10; node2vec | micro F1; text | WS-353
updates --programs 'from the start' update 'counting, followed most often' --seeds 1
  --days 2
    1 2: from the start; update | ; counting, followed most often
checkpoints --names wiki --saves 1 --seconds 0.5
    : tables, V = 68 k
memory --times 1e-5 --sample 0.1
    2 3: 0.001; 0.001
memory-sessions --times 1e-5 --sample 0.1
    3 5: 0.000 | 0.02; 0.000 | 0.02
memory-estimates --names 'wiki, memory'
    1: wiki, memory
encoder --systems 'embedder, scan' --samples 1
    1: embedder, scan
convolutions --forms "the program's" "XLA's" --samples 1 --shapes 1
    3 4 5: 128 x 28 x 28 x 1 | 3 x 3 to 32 | the program's; 128 x 28 x 28 x 1
rates --subjects 'baskets, CBOW' --factors 2 --seeds 1
    2: baskets, CBOW | HR@10
accuracy --cases mlp supcon --seeds 1 --epochs 1 --batch-size 16
    3 4 5: fashion-mnist | pixels; fashion-mnist | mlp; fashion-mnist | supcon
folders --images 300 --samples 1 --network-args width=2 size=4
    1 2 3 4: embedder, folder; embedder, idx file; loop over the files
retrieval --objectives softmax supcon --seeds 1 --epochs 1 --width 2
    1 4: pixels; chance; softmax; supcon
search --data clustered --rows 2000 --samples 1 --seconds 0.05
    3 4 5: clustered | 2,000 | embedder, exact; clustered | 2,000 | embedder, index;
    clustered | 2,000 | NumPy, argpartition; clustered | 2,000 | gensim
search-batch --rows 500 --queries 50 200 --most-exact 100
    3 4 5 6: 500 | 50 | embedder, exact; 500 | 50 | embedder, index; 500 | 200 |
    embedder, index
encoder-modes --net mlp --devices 1 --samples 1
    2: jit, 1; sharded, 1; pmap, 1
replicas --subjects spirals wiki --samples 1 --most 1
  --programs 'side by side' 'one after another'
    3 4 5 6: spirals | side by side | 1; spirals | one after another | 1; wiki | side by
    side | 1
spirals --networks 2 --steps 3
    3: within 0.1 of a point; farther than 0.5 from all points
subwords --programs embedder 'gensim, 2 workers' --epochs 1 --vector-size 8 --buckets
  500
    1 3: embedder; gensim, 2 workers
encoder-busy --updates-of-a-call 1
    2: no cache, no prefetch; no cache, prefetch; cache, no prefetch; cache, prefetch
gpu-offline --blocks 1 --vector-sizes 8
    3 4: skipgram, sgd | 8 | 1
gpu-replicas --networks 1 2 --models 2 --vocabulary 1000 --vector-size 8 --blocks 1
    2 3: spirals | 1; spirals | 2; skipgram | 2
gpu-networks --networks conv-small --batch-size 8 --examples 50
    3 5 9: conv-small | 28 x 28 | float32; conv-small | 28 x 28 | bfloat16
"""
"""A run of each bench, and below it columns of numbers above 0 and how the first rows
of its table begin."""
NEEDS = {"judges": "node2vec"}
NEEDS |= dict.fromkeys(("gpu-offline", "gpu-replicas", "gpu-networks"), PLUGIN)
"""Packages without which a bench has no table."""


def all_steps_are_made(samples) -> bool:
    """4 walks of 10 nodes from each of 60; expected visits of the port are rounded."""
    trained = [sample for sample in samples if "seed" in sample]
    return len(trained) == 2 and all(
        sample["walk_steps"] == 4 * 9 * 60 and abs(sample["words"] - 2400) <= 30
        for sample in trained
    )


def neighbours_are_found(samples) -> bool:
    """All of them; by the index nearly all; float32 confuses rows that all but tie."""
    recalls = {sample["program"]: sample["recall"] for sample in samples}
    is_exact = recalls["embedder, exact"] == 1.0
    others = recalls["NumPy, argpartition"], recalls["gensim"]
    return is_exact and recalls["embedder, index"] > 0.9 and min(others) > 0.999


def updates_keep_what_is_known(samples) -> bool:
    """Old baskets are found as often as after a training from the start, about."""
    scores = {sample["program"]: sample["scores"][0] for sample in samples}
    return scores["update"] > 0.8 * scores["from the start"] > 0.2


def counted_more_often_new_items_are_found(samples) -> bool:
    """No fewer of the new ones, and no more of the old ones."""
    rare, usual = ([score[0] for score in x["scores"]] for x in samples)
    return 0.2 < rare[0] <= usual[0] and rare[1] >= usual[1] > 0.2


RIGHT = {
    "new-items": counted_more_often_new_items_are_found,
    "dropin": lambda samples: all(
        x["fit"] > x["compile"] and (x["compile"] > 0) == (x["program"] != "legacy")
        for x in samples
    ),
    "graphs": all_steps_are_made,
    # More often than by chance, 1 in 6.
    "items": lambda samples: 1 / 3 < samples[0]["scores"][0] <= 1,
    "recipes": lambda samples: len({(x["recipe"], *x["scores"]) for x in samples}) == 3,
    "updates": updates_keep_what_is_known,
    "checkpoints": lambda samples: all(
        0 < save["blocked"] <= save["whole"] for save in samples["wiki"]["saves"]
    ),
    # Images of a class are alike, so that it is learned.
    "encoder": lambda samples: 0.2 < samples["embedder, scan"][0]["accuracy"][4] <= 1,
    "folders": lambda samples: all(
        each["difference"] < 1e-5 for x in samples.values() for each in x
    ),
    "search": neighbours_are_found,
}
"""Of samples in the results."""


SUITES = {
    "gpu-offline": "tables",
    "gpu-replicas": "replicas",
    "gpu-networks": "networks",
}
"""Results of the suites of `bench gpu offline`."""


def runs():
    """Name, arguments, columns and rows of each run."""
    parts = re.findall(
        r"^([\w-]+) (.*?)\n {4}([\d ]*):(.*?)(?=\n\w|\Z)", RUNS, re.M | re.S
    )
    for name, arguments, columns, rows in parts:
        starts = [" ".join(row.split()) for row in rows.split(";")]
        given = name, arguments, [*map(int, columns.split())], [*filter(None, starts)]
        yield pytest.param(*given, id=name)


def test_every_bench_has_a_smoke_run():
    names = {each.id for each in runs()} - {*SUITES}
    assert names == {*commands.BENCHES}  # those of GPUs: see test_gpu_session
    assert {*registry.OWN_COMMANDS} == {"gpu", "gpu-kit", "gpu-session"}


@pytest.mark.spread(1)
@pytest.mark.parametrize(("name", "arguments", "columns", "starts"), [*runs()])
def test_bench_runs(run_bench, name, arguments, columns, starts):
    is_possible = importlib.util.find_spec(NEEDS.get(name, "bench")) is not None
    starts = starts if is_possible else []
    suite = f"offline {SUITES[name]} " if name in SUITES else ""
    ran = run_bench("gpu" if suite else name, suite + arguments)
    assert len(ran.rows) >= len(starts)
    for row, start in zip(ran.rows, starts, strict=False):
        assert " ".join(" | ".join(row).split()).startswith(start)
        assert all(float(row[column].split()[0]) > 0 for column in columns), row
    if is_possible:
        kept = ran.results.pop("encoder-mlp" if name == "encoder" else name)
        assert RIGHT.get(name, bool)(kept["samples"])
    assert not ran.results
