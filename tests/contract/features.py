"""What can be trained: one line for each feature.

Each is held to all invariants of `test_features`. A new feature is a new line.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from embedder import Vectors, write_vectors
from embedder.cli.main import main

TOKENS = "--vector-size 4 --min-count 1 --block 32 --blocks-per-update 2 --epochs 2"
ENCODER = "--model encoder --batch-size 16 --epochs 2"
IMAGES = f"{ENCODER} --network conv-small --network-args width=2 size=6"
GROW = "--resume old --grow"
WALKS = "--walks 8 --walk-length 20"
SESSIONS = "--session session --item item --order order"
VIEWS = "--objective-args views=2 --augment crop=1 flip"


@dataclasses.dataclass(frozen=True)
class Feature:
    """A way to train.

    Attributes:
      command: `embedder train` with it: the data, and the flags.
      unlike: for an invariant that means nothing here, the reason. Where the reason
        is a line of an error, the program refuses it by this line.
    """

    name: str
    command: str
    unlike: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_encoder(self) -> bool:
        return ENCODER in self.command

    @property
    def is_fast(self) -> bool:
        """Whether it is tested by default; all others are slow."""
        return self.name in FAST

    @property
    def data(self) -> Path:
        return Path(self.command.split()[0])

    def __str__(self) -> str:
        return self.name


def of_tokens(name: str, flags: str, data: str = "text.txt", **unlike: str) -> Feature:
    return Feature(name, f"{data} {TOKENS} {flags}", unlike)


def of_features(name: str, flags: str, **unlike: str) -> Feature:
    return Feature(name, f"examples.npz {ENCODER} {flags}", unlike)


def of_images(name: str, flags: str, **unlike: str) -> Feature:
    """Of small convolutions, where no other network is named."""
    start = ENCODER if "--network" in flags else IMAGES
    return Feature(name, f"images.npz {start} {flags}", unlike)


NO_ARGUMENT = "Python has no argument of it"
ONE_PASS = "an update in Python is one epoch: `more text` has one"
REPLICAS = {
    "replicas": "it is the other side of this invariant",
    "saved": "a folder of replicas is no model",
    "python": "fit_ensemble: a model of it is the run of its seed",
}
FEATURES = [
    of_tokens("skip-gram", ""),
    of_tokens("cbow", "--architecture cbow"),
    of_tokens("cbow of sums", "--architecture cbow --no-cbow-mean"),
    of_tokens("hierarchical softmax", "--hs --negative 0"),
    of_tokens(
        "cbow with hierarchical softmax", "--architecture cbow --hs --negative 0"
    ),
    of_tokens("both objectives", "--hs"),
    of_tokens("subwords", "--subwords 2 3 --buckets 100"),
    of_tokens("cbow of subwords", "--subwords 2 3 --buckets 100 --architecture cbow"),
    of_tokens("Adagrad", "--optimizer adagrad"),
    of_tokens("attributes", "--attributes items.csv colour words:title"),
    of_tokens(
        "attributes of nodes", f"{WALKS} --attributes nodes.parquet", "edges.tsv"
    ),
    of_tokens("cbow by Adagrad", "--optimizer adagrad --architecture cbow"),
    of_tokens("a tight limit of a row's steps", "--max-pairs-per-row 1"),
    of_tokens("no limit of a row's steps", "--max-pairs-per-row inf --alpha 0.01"),
    of_tokens("few tokens kept", "--sample 0.01 --ns-exponent 0 --window 2"),
    of_tokens("whole windows", "--no-shrink-windows", python=NO_ARGUMENT),
    of_tokens("float64", "--dtype float64"),
    of_tokens("walks", f"{WALKS}", "edges.tsv"),
    of_tokens(
        "second-order walks", f"{WALKS} --p 0.5 --q 2 --directed", "weighted.tsv"
    ),
    of_tokens("fixed walks", f"{WALKS} --walks-fixed", "edges.tsv"),
    of_tokens("held-out edges", f"{WALKS} --holdout 0.1", "edges.tsv"),
    of_tokens("sessions", SESSIONS, "baskets.parquet"),
    of_tokens("weights of sessions", f"{SESSIONS} --weights weight", "baskets.parquet"),
    of_tokens(
        "cbow of weighted sessions",
        f"{SESSIONS} --weights weight --architecture cbow",
        "baskets.parquet",
    ),
    of_tokens("names", "--names names.csv", python=NO_ARGUMENT),
    of_tokens("whole sessions", "--window session"),
    of_tokens(
        "bootstrap of whole sessions",
        "--bootstrap --window session",
        python="fit_ensemble has several models",
    ),
    of_tokens("start from vectors", "--init-from start.txt"),
    of_tokens("frozen rows", "--init-from start.txt --freeze known"),
    of_tokens("more text", "--resume old --epochs 1", "more.txt"),
    of_tokens("new tokens", f"{GROW} --epochs 1", "more.txt"),
    of_tokens("replay", f"{GROW} --replay 0.1 --epochs 1", "more.txt"),
    of_tokens("new rates", f"{GROW} --schedule restart", "more.txt", python=ONE_PASS),
    of_tokens("bootstrap", "--bootstrap", python="fit_ensemble has several models"),
    of_tokens("replicas", "--replicas 2", **REPLICAS),
    of_tokens("held-out text", "--holdout 0.2"),
    of_tokens(
        "the best by held-out items",
        "--holdout 0.2 --best-by next-item --eval-every 16 --result best --patience 3",
        python=NO_ARGUMENT,
    ),
    of_tokens("what comes next", "--holdout 0.2 --next-items --window session"),
    of_tokens(
        "what comes next after an update",
        f"{GROW} --next-items --holdout 0.2 --epochs 1",
        "more.txt",
        python="an update in Python holds no text out",
    ),
    of_tokens(
        "cbow by a sampled softmax",
        "--architecture cbow-softmax",
        kernel="embedder: `backend` must be 'xla' with `architecture` 'cbow-softmax', "
        "got 'numba'.",
        threads="threads are of the kernel",
    ),
    of_features("mlp", "--layers 6 4 3"),
    of_features("mlp by momentum", "--optimizer sgd --optimizer-args momentum=0.9"),
    of_features(
        "the best by validation", "--validation-fraction 0.2 --result best --patience 1"
    ),
    of_features(
        "evaluations by updates",
        "--validation-fraction 0.2 --eval-every 4 --patience 3 --result best",
        replicas="the best evaluation is that of the mean of replicas",
    ),
    of_features("steps", "--schedule step --schedule-args boundaries=1 factor=0.5"),
    of_images("convolutions", ""),
    of_images("residual network", "--network resnet --network-args depth=18 width=2"),
    of_images(
        "wide residual network",
        "--network wide-resnet --network-args depth=10 width=1 dropout=0.2",
    ),
    of_images(
        "vision transformer",
        "--network vit --network-args patch=4 width=4 depth=2 heads=2 drop_path=0.5",
    ),
    of_images("arcface", "--objective arcface --objective-args scale=4"),
    of_features("triplets", "--objective triplet"),
    of_images("supervised contrasts", f"--objective supcon {VIEWS}"),
    of_images("contrasts of views", "--objective simclr --augment crop=1 flip"),
    of_images("mixed images", "--augment crop=1 flip mixup=0.4"),
    of_images("cropped and cut images", "--augment resized-crop=0.5 cutout=3"),
    of_images("moving average", "--average 0.9 --schedule cosine --warmup 3"),
    of_images("clipped and decayed", "--clip-norm 0.5 --weight-decay 0.01"),
    of_images("parts of a batch", "--micro-batches 2"),
    of_images("balanced classes", "--class-weights balanced"),
    of_images(
        "half precision",
        "--compute-dtype bfloat16",
        replicas="products of bfloat16 are rounded otherwise for several models",
        devices="products of bfloat16 are rounded otherwise for half a batch",
        processes="as on two devices",
    ),
    of_images("frozen modules", "--freeze conv_0"),
    of_images("bootstrap of images", "--bootstrap", python="as of tokens"),
]


FAST = {
    *("skip-gram", "cbow", "hierarchical softmax", "both objectives", "subwords"),
    "attributes",
    *("cbow by Adagrad", "second-order walks", "weights of sessions", "whole sessions"),
    *("frozen rows", "replay", "replicas", "the best by held-out items"),
    *("mlp by momentum", "the best by validation", "mixed images", "moving average"),
    *("supervised contrasts", "bootstrap of images"),
}
"""Features that differ from each other most."""


def write_inputs(folder: Path) -> None:
    """Writes the data that the commands name, and the run `old`."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 61)
    lines = [
        [f"w{i}" for i in rng.choice(60, size=size, p=share / share.sum())]
        for size in rng.integers(0, 41, size=300)
    ]
    text = [" ".join(line) for line in lines]
    (folder / "text.txt").write_text("\n".join(text))
    more = [f"{line} new{i % 5}" for i, line in enumerate(text[::2])]
    (folder / "more.txt").write_text("\n".join(more))

    ends = rng.integers(40, size=(200, 2))
    edges = "".join(f"{a}\t{b}\n" for a, b in ends)
    (folder / "edges.tsv").write_text(edges)
    weighted = "".join(f"{a}\t{b}\t{1 + (a + b) % 3}\n" for a, b in ends)
    (folder / "weighted.tsv").write_text(weighted)

    rows = [
        (session, item, order, session % 5 / 2)
        for session, line in enumerate(lines)
        for order, item in enumerate(line)
    ]
    names = ["session", "item", "order", "weight"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    frame = frame.sample(fraction=1, shuffle=True, seed=1)
    frame.write_parquet(folder / "baskets.parquet")

    start = Vectors([f"w{i}" for i in range(20)], rng.normal(size=(20, 4)))
    write_vectors(start, folder / "start.txt")
    items = [f"w{i},{'red' if i % 3 else ''},Mug {i % 4} of tin" for i in range(70)]
    (folder / "items.csv").write_text("\n".join(["item,colour,title", *items]))
    nodes = pl.DataFrame(
        {"node": range(40), "kinds": [[i % 2, i % 5] for i in range(40)]}
    )
    nodes.write_parquet(folder / "nodes.parquet")
    (folder / "names.csv").write_text("key,name\nw1,One\nw2,Two\n")
    features = rng.random((150, 6), dtype=np.float32)
    labels = rng.integers(3, size=150)
    np.savez(folder / "examples.npz", X=features, y=labels)
    images = rng.integers(200, size=(150, 8, 8)) + 20 * labels[:, None, None]
    np.savez(folder / "images.npz", X=images.astype(np.uint8), y=labels)

    old = f"train {folder}/text.txt {TOKENS} --epochs 1 --loader memory --no-report"
    old += " --dtype float64"  # that of runs which go on from it
    assert main([*old.split(), "--workdir", str(folder / "old")]) == 0
