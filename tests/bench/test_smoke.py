"""Every bench runs from its command line, with tiny sizes."""

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from bench import commands, gpu_offline, registry

HAS_PLUGIN = importlib.util.find_spec(gpu_offline.PLUGIN) is not None
HAS_NODE2VEC = importlib.util.find_spec("node2vec") is not None


class Smoke(NamedTuple):
    """Arguments of a short run, and the expected table."""

    arguments: str
    rows: list[str]  # how the first ones begin, cells joined by " | "
    positive: tuple[int, ...] = ()  # columns of numbers above 0
    writes: str = ""  # results, where they are not named as the bench; "-": none
    is_right: Callable[[Any], bool] = bool  # of the samples in the results
    slow: bool = True


def only_the_port_compiles(samples) -> bool:
    return all(
        sample["fit"] > sample["compile"]
        and (sample["compile"] > 0) == (sample["program"] != "legacy")
        for sample in samples
    )


def stages_took_time(samples) -> bool:
    return all(seconds > 0 for times in samples.values() for seconds in times)


def all_steps_are_made(samples) -> bool:
    """4 walks of 10 nodes from each of 60; expected visits of the port are rounded."""
    trained = [sample for sample in samples if "seed" in sample]
    return len(trained) == 2 and all(
        sample["walk_steps"] == 4 * 9 * 60 and abs(sample["words"] - 2400) <= 30
        for sample in trained
    )


def items_are_found(samples) -> bool:
    """More often than by chance, 1 in 6."""
    [sample] = samples
    return 1 / 3 < sample["scores"][0] <= 1


def scores_are_told(samples) -> bool:
    """Two samples of each recipe, whose scores have the same names."""
    names = {(x["recipe"], *x["scores"]) for x in samples}
    programs = [sample["program"] for sample in samples]
    return len(names) == 3 and programs == 3 * ["gensim", "embedder"]


def neighbours_are_found(samples) -> bool:
    """All of them; by the index nearly all; float32 confuses rows that all but tie."""
    recalls = {sample["program"]: sample["recall"] for sample in samples}
    is_exact = recalls["embedder, exact"] == 1.0
    others = recalls["NumPy, argpartition"], recalls["gensim"]
    return is_exact and recalls["embedder, index"] > 0.9 and min(others) > 0.999


def vectors_are_equal(samples) -> bool:
    """By the command and by the loop."""
    return all(each["difference"] < 1e-5 for x in samples.values() for each in x)


def updates_keep_what_is_known(samples) -> bool:
    """Old baskets are found as often as after a training from the start, about."""
    scores = {sample["program"]: sample["scores"][0] for sample in samples}
    return scores["update"] > 0.8 * scores["from the start"] > 0.2


def saves_took_time(samples) -> bool:
    """One save was measured, after the first."""
    wiki = samples["wiki"]
    return len(wiki["lost"]) == 1 and all(
        0 < save["blocked"] <= save["whole"] for save in wiki["saves"]
    )


def accuracy_is_known(samples) -> bool:
    """After each of 5 epochs; images of a class are alike, so that it is learned."""
    [sample] = samples["embedder, scan"]
    return len(sample["accuracy"]) == 5 and 0.2 < sample["accuracy"][-1] <= 1


SMOKE = {
    "cpu": Smoke(
        "--programs 'legacy, 1 worker' --epochs 1 --vector-size 8",
        ["legacy, 1 worker"],
        positive=(1, 3, 5),
        slow=False,
    ),
    "small": Smoke(
        "--reference {data}/vectors.txt --seeds 1 --programs 'legacy, skip-gram'",
        ["legacy, skip-gram", "chance"],
        slow=False,
    ),
    "dropin": Smoke(
        "--samples 1 --programs legacy 'drop-in, first'",
        ["legacy", "drop-in, first"],
        positive=(1, 2, 4),
        is_right=only_the_port_compiles,
    ),
    "stages": Smoke(
        "--corpus {data}/corpus.txt --samples 1 --vector-size 8",
        [
            *("import TensorFlow", "vocabulary and encoding", "loader, tfdata"),
            *("loader, memory", "xla: trace", "xla: compile", "xla: updates alone"),
            *("xla: training, all together", "numba: compile, or find in the cache"),
            *("numba: updates alone", "numba: training, all together"),
        ],
        is_right=stages_took_time,
    ),
    "parts": Smoke(
        "--corpus {data}/corpus.txt --samples 1 --vector-size 8 "
        "--blocks-per-update 1 2",
        [
            *("1 | contexts, keys, weights, lists", "1 | rows: load"),
            *("1 | products and errors", "1 | rows of buckets: find"),
            *("1 | rows: apply", "1 | all, 1 thread"),
            "2 | contexts, keys, weights, lists",
        ],
        positive=(2, 3),
    ),
    "threads": Smoke(
        "--corpus {data}/corpus.txt --samples 1 --updates 2 --vector-size 8 "
        "--blocks-per-update 4 8",
        ["4 | 1", "4 | 2", "4 | 4", "8 | 1", "8 | 2", "8 | 4", "8 | 8"],
        positive=(2, 6, 8),
    ),
    "vocabulary": Smoke(
        "--samples 1 --sizes 100 200 --updates 16",
        ["100 |", "200 |"],
        positive=(2, 4),
    ),
    "beside": Smoke(
        "--samples 1 --seconds 0.01 --vocabulary-size 100 --updates 16 "
        "--blocks-per-update 1 2",
        ["1 | none | 1", "1 | nice 19 | 1", "1 | nice 0 | 1", "2 | none | 1"],
        positive=(3, 4, 5),
    ),
    "loader": Smoke(
        "--devices 2 --samples 1 --rows 4 --tokens 8 --images 4",
        [
            "blocks in memory | 2",
            "images of 224 x 224 x 3 | 2",
            "images of 30 x 30 | 2",
        ],
        positive=(4, 7),
        slow=False,
    ),
    "modes": Smoke(
        "--devices 1 --samples 1 --vector-size 8 --blocks 2 --vocabulary 100 "
        "--updates 16",
        [f"strong | 1 | {mode}" for mode in ("jit", "sharded", "pmap")],
        positive=(4, 5),
    ),
    "quality": Smoke(
        "--programs 'legacy, 1 worker' --epochs 1 2",
        ["legacy, 1 worker | 0", "legacy, 1 worker | 0"],
        positive=(2,),
        slow=False,
    ),
    "composition": Smoke(
        "--corpus {data}/corpus.txt --blocks-per-update 1 4 --epochs 1",
        ["embedder | 1 | 16:32 | 1 (64), default", "embedder | 1 | 16:32 | 4 (256)"],
        positive=(4, 9),
    ),
    "graphs": Smoke(
        "--programs embedder --walks 4 --walk-length 10 --vector-size 8"
        " --shares 50 --splits 2 --seeds 1 2",
        [
            *["most frequent labels |  |  |  | "] * 2,
            *["degree |  |  |  | "] * 2,
            *["embedder | "] * 2,
        ],
        positive=(5,),
        is_right=all_steps_are_made,
    ),
    "items": Smoke(
        "--data wikispeedia --programs 'embedder, preset items' --seeds 1",
        [
            "wikispeedia | counting, followed most often",
            "wikispeedia | counting, same session",
            "wikispeedia | the most popular items",
            "wikispeedia | embedder, preset items",
        ],
        positive=(2, 3, 4),
        is_right=items_are_found,
    ),
    "judges": Smoke(
        "--graphs karate --programs node2vec --seeds 1",
        ["karate | node2vec | gensim", "karate | node2vec | embedder"]
        if HAS_NODE2VEC
        else [],
        positive=(3, 4) if HAS_NODE2VEC else (),
        writes="" if HAS_NODE2VEC else "-",
    ),
    "recipes": Smoke(
        "--programs item2vec node2vec text --seeds 1 --limit 300",
        ["item2vec | hit rate at 10", "node2vec | micro F1", "text | WS-353"],
        positive=(4,),
        is_right=scores_are_told,
    ),
    "updates": Smoke(
        "--programs 'from the start' update 'counting, followed most often'"
        " --seeds 1 --days 2",
        ["from the start", "update | ", "counting, followed most often"],
        positive=(1, 2),
        is_right=updates_keep_what_is_known,
    ),
    "checkpoints": Smoke(
        "--names wiki --saves 1 --seconds 0.5",
        ["tables, V = 68 k"],
        is_right=saves_took_time,
    ),
    "memory": Smoke("--times 1e-5 --sample 0.1", ["0.001", "0.001"], positive=(2, 3)),
    "memory-sessions": Smoke(
        "--times 1e-5 --sample 0.1", ["0.000 | 0.02", "0.000 | 0.02"], positive=(3, 5)
    ),
    "memory-estimates": Smoke(
        "--names 'wiki, memory'", ["wiki, memory"], positive=(1,)
    ),
    "encoded": Smoke(
        "--corpus {data}/corpus.txt --to {tmp}/ids.npz", [], writes="-", slow=False
    ),
    "encoder": Smoke(
        "--systems 'embedder, scan' --samples 1",
        ["embedder, scan"],
        positive=(1,),
        writes="encoder-mlp",
        is_right=accuracy_is_known,
        slow=False,
    ),
    "convolutions": Smoke(
        '--forms "the program\'s" "XLA\'s" --samples 1 --shapes 1',
        ["128 x 28 x 28 x 1 | 3 x 3 to 32 | the program's", "128 x 28 x 28 x 1"],
        positive=(3, 4, 5),
    ),
    "rates": Smoke(
        "--subjects 'baskets, CBOW' --factors 2 --seeds 1",
        ["baskets, CBOW | HR@10"],
        positive=(2,),
    ),
    "accuracy": Smoke(
        "--cases mlp supcon --seeds 1 --epochs 1 --batch-size 16",
        ["fashion-mnist | pixels", "fashion-mnist | mlp", "fashion-mnist | supcon"],
        positive=(3, 4, 5),
    ),
    "folders": Smoke(
        "--images 300 --samples 1 --network-args width=2 size=4",
        ["embedder, folder", "embedder, idx file", "loop over the files"],
        positive=(1, 2, 3, 4),
        is_right=vectors_are_equal,
    ),
    "retrieval": Smoke(
        "--objectives softmax supcon --seeds 1 --epochs 1 --width 2",
        ["pixels", "chance", "softmax", "supcon"],
        positive=(1, 4),
    ),
    "search": Smoke(
        "--data clustered --rows 2000 --samples 1 --seconds 0.05",
        [
            "clustered | 2,000 | embedder, exact",
            "clustered | 2,000 | embedder, index",
            "clustered | 2,000 | NumPy, argpartition",
            "clustered | 2,000 | gensim",
        ],
        positive=(3, 4, 5),
        is_right=neighbours_are_found,
    ),
    "search-batch": Smoke(
        "--rows 500 --queries 50 200 --most-exact 100",
        [
            "500 | 50 | embedder, exact",
            "500 | 50 | embedder, index",
            "500 | 200 | embedder, index",
        ],
        positive=(3, 4, 5, 6),
    ),
    "encoder-modes": Smoke(
        "--net mlp --devices 1 --samples 1",
        ["jit, 1", "sharded, 1", "pmap, 1"],
        positive=(2,),
    ),
    "replicas": Smoke(
        "--subjects spirals wiki --samples 1 --most 1 "
        "--programs 'side by side' 'one after another'",
        [
            *("spirals | side by side | 1", "spirals | one after another | 1"),
            "wiki | side by side | 1",
        ],
        positive=(3, 4, 5, 6),
    ),
    "spirals": Smoke(
        "--networks 2 --steps 3",
        ["within 0.1 of a point", "farther than 0.5 from all points"],
        positive=(3,),
        slow=False,
    ),
    "subwords": Smoke(
        "--programs embedder 'gensim, 2 workers' --epochs 1 --vector-size 8 "
        "--buckets 500",
        ["embedder", "gensim, 2 workers"],
        positive=(1, 3),
    ),
    "encoder-busy": Smoke(
        "--updates-of-a-call 1",
        [
            *("no cache, no prefetch", "no cache, prefetch"),
            *("cache, no prefetch", "cache, prefetch"),
        ],
        positive=(2,),
    ),
    "gpu": Smoke(
        "{data}/encoded.npz --blocks 1 2 --samples 1 --vector-sizes 8",
        ["8 | 1 | 1", "8 | 1 | 2"],
        positive=(4, 5),
        slow=False,
    ),
    "gpu-offline": Smoke(
        "--blocks 1 --vector-sizes 8",
        ["skipgram, sgd | 8 | 1"] if HAS_PLUGIN else [],
        positive=(3, 4) if HAS_PLUGIN else (),
        writes="" if HAS_PLUGIN else "-",
        slow=HAS_PLUGIN,
    ),
    "gpu-replicas": Smoke(
        "--networks 1 2 --models 2 --vocabulary 1000 --vector-size 8 --blocks 1",
        ["spirals | 1", "spirals | 2", "skipgram | 2"] if HAS_PLUGIN else [],
        positive=(2, 3) if HAS_PLUGIN else (),
        writes="" if HAS_PLUGIN else "-",
        slow=HAS_PLUGIN,
    ),
    "gpu-networks": Smoke(
        "--networks conv-small --batch-size 8 --examples 50",
        ["conv-small | 28 x 28 | float32", "conv-small | 28 x 28 | bfloat16"]
        if HAS_PLUGIN
        else [],
        positive=(3, 5, 9) if HAS_PLUGIN else (),
        writes="" if HAS_PLUGIN else "-",
        slow=HAS_PLUGIN,
    ),
}
"""One run of each bench; four have a table only where a package is installed."""


def test_every_bench_has_a_smoke_run():
    of_gpus = {"gpu-kit", "gpu-session"}  # see test_gpu_session
    assert {*SMOKE} | of_gpus == {*commands.BENCHES, *registry.OWN_COMMANDS}


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if smoke.slow else [])
        for name, smoke in SMOKE.items()
    ],
)
def test_bench_runs(run_bench, name):
    smoke = SMOKE[name]
    ran = run_bench(name, smoke.arguments)
    assert len(ran.rows) >= len(smoke.rows)
    for row, start in zip(ran.rows, smoke.rows, strict=False):
        assert " | ".join(row).startswith(start)
        assert all(float(row[column].split()[0]) > 0 for column in smoke.positive), row
    if smoke.writes != "-":
        kept = ran.results.pop(smoke.writes or name)
        assert smoke.is_right(kept["samples"])
    assert not ran.results
