"""What tests of several devices run in a process that has so many.

`python -m tests.parallel.child DEVICES PART` prints one JSON object.
"""

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence

num_devices, part = int(sys.argv[1]), sys.argv[2]
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={num_devices}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from bench.collectives import collectives  # noqa: E402
from embedder.config import (  # noqa: E402
    Config,
    common_config,
    resolve,
    with_options,
)
from embedder.encoders.training import EncoderTraining  # noqa: E402
from embedder.engine.compilation import enable_compilation_cache  # noqa: E402
from embedder.engine.device_loader import DeviceLoader  # noqa: E402
from embedder.engine.epochs import run_epochs  # noqa: E402
from embedder.engine.layout import Layout  # noqa: E402
from embedder.tables import loader  # noqa: E402
from embedder.tables.blocks import Updates  # noqa: E402
from embedder.tables.corpus import sequences_corpus  # noqa: E402
from embedder.tables.earlier import EarlierCorpus  # noqa: E402
from embedder.tables.encode import encode  # noqa: E402
from embedder.tables.encoded import Encoded, SequenceWeights  # noqa: E402
from embedder.tables.estimator import EmbeddingTrainer  # noqa: E402
from embedder.tables.prepare import Batch  # noqa: E402
from embedder.tables.problem import plan as plan_tables  # noqa: E402
from embedder.tables.row_factors import RowFactors  # noqa: E402
from embedder.tables.training import Training  # noqa: E402
from migration.parity.encoder import encoder_ladder  # noqa: E402
from migration.parity.updates import (  # noqa: E402
    Sample,
    random_tables,
    updates_rung,
)
from tests.encoders.replica_cases import make_config, make_examples  # noqa: E402
from tests.parallel.compiling import do_not_optimize  # noqa: E402
from tests.parallel.network_cells import (  # noqa: E402, F401 - parts by their names
    augmented,
    contrasts,
    each_network,
    half_network,
    objectives,
    one_network,
)
from tests.parity.cases import Case  # noqa: E402
from tests.parity.encoder_cases import subject  # noqa: E402

ARCHITECTURES = "skipgram", "cbow"
SHAPE = 97, 10  # V, D: four and eight divide neither
BLOCKS = 6  # of an update: two divide it


def layouts() -> Iterator[Layout]:
    """Every mode and layout of all devices."""
    for mode in ("sharded", "pmap"):
        yield Layout(mode, "replicated", num_devices, 1)
        for tables in ("columns", "rows"):
            yield Layout(mode, tables, 1, num_devices)
            if mode == "sharded":
                for part in {2, num_devices // 2} & set(range(2, num_devices)):
                    yield Layout(mode, tables, num_devices // part, part)


def layouts_of(architecture: str, optimizer: str) -> list[Layout]:
    """Every layout on two devices and, by SGD, on eight; else half of the cells."""
    if num_devices == 2 or (num_devices == 8 and optimizer == "sgd"):
        return [*layouts()]
    return shared_out()[architecture]


def shared_out() -> dict[str, list[Layout]]:
    """Layouts of skip-gram and of CBOW, each of which is in one of the two lists.

    Both have both modes and each way to shard tables; `cells` has the whole product.
    """
    return {name: [*layouts()][k::2] for k, name in enumerate(ARCHITECTURES)}


def some_layouts(first: int) -> dict[str, list[Layout]]:
    """Every second layout of these lists, by `first`, which is 0 to 3: features with
    different ones have all layouts together."""
    every = [*layouts()]
    return {
        name: every[(first + 2 * k) % 4 :: 4] for k, name in enumerate(ARCHITECTURES)
    }


def corpus() -> Encoded:
    """200 sequences of 97 words, each of which occurs."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(SHAPE[0])]
    sequences = [words, *(list(rng.choice(words, size=20)) for _ in range(200))]
    return encode(sequences_corpus(sequences), 1)


def cells(optimizer: str = "sgd") -> Iterator[dict]:
    """For each layout x architecture: one update, an epoch, and what is exchanged.

    Without LLVM's optimizations on eight devices: on two they are on.
    """
    if num_devices == 8:
        do_not_optimize()
    encoded = corpus()
    for architecture in ARCHITECTURES:
        config = with_options(
            Config(),
            optimizer=optimizer,
            loader="memory",
            dtype="float64",
            architecture=architecture,
            vector_size=SHAPE[1],
            blocks_per_update=BLOCKS,
            block=16,
            tile=4,
            noise=6,
            sample=0,
        )
        config = resolve(config, encoded.num_tokens)
        one = Training(config, encoded, range(1))
        assert one.layout == Layout()
        first = superblock_of_one(one)
        whole, place = run_epochs(one, one.initial_state())
        for layout in layouts_of(architecture, optimizer):
            several = with_options(
                config,
                mode=layout.mode,
                tables=layout.tables,
                devices=num_devices,
                table_devices=0 if layout.tables == "replicated" else layout[3],
            )
            training = Training(several, encoded, range(1))
            assert training.layout == layout, (training.layout, layout)
            program = training.program
            state = program.place_state(training.initial_state())
            with jax.enable_x64(True):
                compiled = program.apply_updates.lower(
                    state, program.place_batch(batch_of(several, first))
                ).compile()
            training.program = dataclasses.replace(program, apply_updates=compiled)
            after, own = run_epochs(training, training.initial_state())
            yield {
                "cell": " ".join(map(str, (*layout, architecture))),
                "update": against_oracle(several, training.program, first),
                "epoch": largest_difference(after.params, whole.params),
                "opt_state": largest_difference(after.opt_state, whole.opt_state),
                "loss": abs(own.losses[0] - place.losses[0]),
                "rows": [
                    SHAPE[0],
                    layout.device_shape(*SHAPE)[0],
                    layout.padded_shape(*SHAPE)[0],
                ],
                "moved": [each[:2] for each in collectives(compiled.as_text())],
            }


def adagrad() -> Iterator[dict]:
    """The same with an optimizer that has a state, of arrays [V]."""
    return cells("adagrad")


def against_oracle(config: Config, program, first: Updates) -> list[tuple]:
    """Whether an update gives the tables that the oracle gives, by SGD."""
    if config.run.optimizer != "sgd":
        return []
    tables = random_tables(SHAPE, "float64")
    rung = updates_rung("one update", Sample(config, program, first, 1, *tables))
    return [(found.absolute, found.passed) for found in rung]


def largest_difference(ours, theirs) -> float:
    """Between two trees of arrays, relative to 1 or to what is larger."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return max(
        (float((np.abs(a - b) / np.maximum(np.abs(b), 1)).max()) for a, b in pairs),
        default=0.0,
    )


def superblock_of_one(training: Training) -> Updates:
    """The first superblock of an epoch, of which the first update alone is left."""
    superblock, _ = next(
        loader.epoch_superblocks(
            "memory", training.sources[0], 0, size=training.superblock_size, workers=1
        )
    )
    return loader.pad(loader.cut(superblock, 0, 1), training.superblock_size)


def batch_of(config: Config, updates: Updates) -> Batch:
    """What the compiled updates take."""
    rate = np.full(updates.num_updates, config.tables.alpha)
    return Batch(updates.blocks, rate)


def whole_sequences() -> Iterator[dict]:
    """The same with whole sequences as contexts; most are longer than a block."""
    return epochs(some_layouts(1), bootstrap=True, window="session")


def hierarchical() -> Iterator[dict]:
    """The same with hierarchical softmax in the place of negative sampling."""
    return epochs(some_layouts(2), hs=True, negative=0)


def hierarchical_and_sampled() -> Iterator[dict]:
    """With both, by Adagrad."""
    return epochs(some_layouts(3), hs=True, optimizer="adagrad")


def subwords() -> Iterator[dict]:
    """The same with vectors of words from n-grams."""
    return epochs(some_layouts(0), subwords=(2, 3), buckets=50)


def sums_of_contexts() -> Iterator[dict]:
    """Half of the layouts of CBOW by sums, at a rate at which they do not swing."""
    return epochs({"cbow": shared_out()["cbow"]}, cbow_mean=False, alpha=0.1)


def bootstraps() -> Iterator[dict]:
    """An epoch on a resample: of one model, and of two replicas."""
    return epochs(some_layouts(0), bootstrap=True)


def weights() -> Iterator[dict]:
    """The same where each sequence has a weight of its own, too."""
    return epochs(some_layouts(2), bootstrap=True, has_weights=True)


def epochs(
    cells: dict[str, list[Layout]],
    *,
    has_weights: bool = False,
    **options,
) -> Iterator[dict]:
    """An epoch by each architecture and some layouts, compared with that on one device:
    of one model of skip-gram, of two replicas of CBOW."""
    do_not_optimize()
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(SHAPE[0])]
    sequences = [words, *(list(rng.choice(words, size=20)) for _ in range(100))]
    encoded = encode(sequences_corpus(sequences), 1)
    if has_weights:
        drawn = rng.uniform(0.1, 3, size=len(sequences)).astype(np.float32)
        given = SequenceWeights([drawn].__getitem__, "drawn", 1.0)
        encoded = dataclasses.replace(encoded, sequence_weights=given)
    for architecture, some in cells.items():
        config = with_options(
            Config(),
            replicas=1 + ARCHITECTURES.index(architecture),
            loader="memory",
            dtype="float64",
            architecture=architecture,
            vector_size=SHAPE[1],
            blocks_per_update=BLOCKS,
            block=16,
            sample=0,
            **{"alpha": 0.5} | options,
        )
        config = resolve(config, encoded.num_tokens)
        one = Training(with_options(config, mode="jit"), encoded, range(1))
        whole, place = run_epochs(one, one.initial_state())
        for layout in some:
            if layout.tables == "rows" and config.tables.subwords:
                continue  # refused: words share rows
            several = with_options(
                config,
                mode=layout.mode,
                tables=layout.tables,
                devices=num_devices,
                table_devices=0 if layout.tables == "replicated" else layout[3],
            )
            training = Training(several, encoded, range(1))
            assert training.layout.num_devices == num_devices, training.layout
            after, own = run_epochs(training, training.initial_state())
            yield {
                "cell": " ".join(map(str, (*layout, architecture))),
                "epoch": largest_difference(after.params, whole.params),
                "loss": abs(own.losses[0] - place.losses[0]),
            }


def encoders() -> Iterator[dict]:
    """An encoder by each mode and loader: updates, an epoch, and what is exchanged."""
    for options in ({"optimizer_args": ("momentum=0.9",)}, {"optimizer": "adam"}):
        case = {"dtype": "float64", "batch_size": 10, "learning_rate": 0.01, **options}
        one = subject((5,), np.float64, classes=3, hidden=(4,), **case)
        training = one.training()
        assert training.layout == Layout()
        whole = run_epochs(training, training.initial_state())
        for mode in ("sharded", "pmap"):
            for kind in ("memory", *(["tfdata"] if num_devices == 2 else [])):
                places = {"mode": mode, "devices": num_devices, "loader": kind}
                several = one._replace(config=with_options(one.config, **places))
                training = several.training()
                assert training.layout.num_devices == num_devices
                end = run_epochs(training, training.initial_state())
                rungs = ["one update", "100 updates", "whole epoch"]
                yield {
                    "cell": f"{mode} {kind} {options}",
                    "passed": [
                        line.passed
                        for line in encoder_ladder(several, rungs)
                        if line.dtype == "float64"
                    ],
                    "epoch": max(
                        float(np.abs(a - b).max())
                        for a, b in zip(
                            jax.tree.leaves(end.state.params),
                            jax.tree.leaves(whole.state.params),
                            strict=True,
                        )
                    ),
                    "history": float(
                        np.abs(
                            np.subtract(
                                end.position.history[0], whole.position.history[0]
                            )
                        ).max()
                    ),
                    "moved": exchanged_by(training),
                }


def row_factors() -> Iterator[dict]:
    """An epoch by each layout with factors of rows, a third of which are frozen."""
    do_not_optimize()
    encoded, rng = corpus(), np.random.default_rng(0)
    drawn = rng.choice([0, 0.3, 1], (2, SHAPE[0])).astype(np.float32)
    factors = RowFactors(*drawn)
    options = {"loader": "memory", "dtype": "float64", "vector_size": SHAPE[1]}
    options |= {"blocks_per_update": BLOCKS, "block": 16, "tile": 4, "noise": 6}
    for optimizer, architecture, replicas in (
        ("sgd", "skipgram", 1),
        ("adagrad", "cbow", 2),
    ):
        own = {"optimizer": optimizer, "architecture": architecture}
        config = with_options(Config(), **options, **own, replicas=replicas)
        config = resolve(config, encoded.num_tokens)
        jit = with_options(config, mode="jit")
        one = Training(jit, encoded, range(1), factors=factors)
        start = one.initial_state()
        whole, _ = run_epochs(one, start)
        for layout in shared_out()[architecture]:
            several = with_options(
                config,
                mode=layout.mode,
                tables=layout.tables,
                devices=num_devices,
                table_devices=0 if layout.tables == "replicated" else layout[3],
            )
            training = Training(several, encoded, range(1), factors=factors)
            assert training.layout.num_devices == num_devices, training.layout
            after, _ = run_epochs(training, training.initial_state())
            yield {
                "cell": " ".join(map(str, (*layout, architecture, optimizer))),
                "epoch": largest_difference(after[:2], whole[:2]),
                "frozen": [
                    table[..., factor == 0, :].tobytes()
                    == start.params["tables"][name][..., factor == 0, :].tobytes()
                    for (name, table), factor in zip(
                        after.params["tables"].items(), drawn, strict=True
                    )
                ],
            }


def model_updates() -> Iterator[dict]:
    """Updates of a model, by SGD in half of the layouts, by Adagrad in the others: it
    gets rows for new tokens, takes a quarter of its sequences again, and goes on at the
    rate where it ended."""
    rng = np.random.default_rng(0)
    known = [f"w{i}" for i in range(40)]
    old = [known, *(list(rng.choice(known, size=20)) for _ in range(60))]
    words = [*known[:25], *(f"new{i}" for i in range(13))]
    new = [words, *(list(rng.choice(words, size=20)) for _ in range(40))]
    corpora = sequences_corpus(new), [EarlierCorpus(sequences_corpus(old))]
    options = {"dtype": "float64", "vector_size": SHAPE[1], "min_count": 1}
    options |= {"blocks_per_update": BLOCKS, "block": 16, "sample": 0}
    rules = ("sgd", "skipgram"), ("adagrad", "cbow")
    for number, (optimizer, architecture) in enumerate(rules):
        own = options | {"optimizer": optimizer, "architecture": architecture}
        base = EmbeddingTrainer(**own, epochs=1).fit(old)._model()

        def updated(base=base, own=own, **places):
            again = {"schedule": "continue", "replay": 0.25, "epochs": 2}
            again |= {"loader": "memory"}
            config = with_options(Config(), **own, **again, **places)
            training = plan_tables(
                *(config, corpora[0], None, base), grow=True, earlier=corpora[1]
            )
            start = training.initial_state()
            return training, start, *run_epochs(training, start)

        one, start, whole, place = updated(mode="jit")
        assert one.layout == Layout()
        for layout in [*layouts()][number :: len(rules)]:
            training, _, after, own_place = updated(
                mode=layout.mode,
                tables=layout.tables,
                devices=num_devices,
                table_devices=0 if layout.tables == "replicated" else layout[3],
            )
            assert training.layout == layout, (training.layout, layout)
            yield {
                "cell": " ".join(map(str, (*layout, architecture, optimizer))),
                "rows": len(training.encoded.vocabulary) - len(known),
                "epoch": largest_difference(after[:2], whole[:2]),
                "loss": largest_difference([*own_place.losses], [*place.losses]),
                "moved": largest_difference(whole.params, start.params),
            }


def exchanged_by(training) -> list[list[int]]:
    """Shapes of what a compiled call exchanges."""
    program = training.program
    state = program.place_state(training.initial_state())
    _, _, batch = next(training.host_batches(0))
    with jax.enable_x64(True):
        lowered = program.apply_updates.lower(state, program.place_batch(batch))
        found = collectives(lowered.compile().as_text())
    return [list(shape) for _, shape, *_ in found]


def dense() -> Iterator[dict]:
    """Dense updates, on whole tables, against the oracle."""
    case = Case("is_filled_up", 41, (2, 3, 16), tile=4, noise=6, padding=11)
    for mode in ("sharded", "pmap"):
        layout = Layout(mode, "replicated", num_devices, 1)
        sample = case.sample("skipgram", update="dense", layout=layout)
        found = list(updates_rung("one update", sample))
        yield {
            "cell": " ".join(map(str, layout)),
            "update": [(each.absolute, each.passed) for each in found],
        }


REPLICAS = {
    2: [(4, {}), (3, {}), (2, {"table_sharding": "rows"})],
    4: [(6, {}), (3, {}), (4, {"table_sharding": "columns", "table_devices": 2})],
}
"""For so many devices: numbers of replicas, and options."""


def replicas() -> Iterator[dict]:
    """Replicas on several devices, and the trainings of their seeds on one."""
    encoded = corpus()
    update = {"blocks_per_update": BLOCKS, "block": 16, "tile": 4, "noise": 6}
    update |= {"dtype": "float64", "loader": "memory", "vector_size": SHAPE[1]}

    def trained(**options):
        config = with_options(Config(), **update, **options)
        config = resolve(config, encoded.num_tokens)
        training = Training(config, encoded, range(1))
        return training, run_epochs(training, training.initial_state())

    for optimizer, mode in itertools.product(("sgd", "adagrad"), ("sharded", "pmap")):
        for number, options in REPLICAS[num_devices]:
            if mode == "pmap" and "table_devices" in options:
                continue  # it has one axis
            own = {"mode": mode, "devices": num_devices, **options}
            training, (together, _) = trained(
                replicas=number, seed=7, optimizer=optimizer, **own
            )
            alone = [
                trained(seed=7 + k, optimizer=optimizer)[1].state for k in range(number)
            ]
            yield {
                "cell": f"{optimizer} {training.devices_line}",
                "groups": training.layout.replica_devices,
                "difference": max(
                    largest_difference(jax.tree.map(lambda x, k=k: x[k], together), one)
                    for k, one in enumerate(alone)
                ),
            }


OWN_SETTINGS = (
    {"alpha": 0.3, "window": 2, "negative": 3},
    {"alpha": 0.5, "window": 6, "max_pairs_per_row": 4.0},
    {"seed": 9, "sample": 0.01},
    {"ns_exponent": 0.0, "min_alpha": 0.01},
)
"""Of models of tables that are trained side by side."""
OWN_RATES = (
    {"learning_rate": 0.01, "optimizer_args": ["b1=0.9"]},
    {"learning_rate": 0.1, "optimizer_args": ["b1=0.5"]},
)
"""Of networks that are trained side by side."""


def own_settings() -> Iterator[dict]:
    """Models with settings of their own on several devices, and each on one."""
    encoded = corpus()
    shared = {"blocks_per_update": BLOCKS, "block": 16, "tile": 4, "noise": 6}
    shared |= {"dtype": "float64", "loader": "memory", "vector_size": SHAPE[1]}

    def tables(mode: str, own: Sequence[dict]):
        where = {"mode": mode, "devices": 1 if mode == "jit" else num_devices}
        configs = (with_options(Config(), **shared, **where, **each) for each in own)
        models = [resolve(config, encoded.num_tokens) for config in configs]
        window = max(model.tables.window for model in models)
        common = common_config(models, window=window)
        return Training(common, encoded, range(1), models=models)

    def networks(mode: str, own: Sequence[dict]):
        where = {"mode": mode, "devices": 1 if mode == "jit" else num_devices}
        models = [make_config(**where, **each) for each in own]
        common = common_config(models)
        return EncoderTraining(common, make_examples(), range(3), models)

    for (plan, own), mode in itertools.product(
        ((tables, OWN_SETTINGS), (networks, OWN_RATES)), ("sharded", "pmap")
    ):
        training = plan(mode, own)
        together = run_epochs(training, training.initial_state()).state[:2]
        singles = [plan("jit", [each]) for each in own]
        alone = [run_epochs(one, one.initial_state()).state[:2] for one in singles]
        yield {
            "cell": f"{mode} {training.devices_line}",
            "groups": training.layout.replica_devices,
            "difference": max(
                largest_difference(jax.tree.map(lambda x, k=k: x[k], together), one)
                for k, one in enumerate(alone)
            ),
        }


def loading() -> Iterator[dict]:
    """What a DeviceLoader reads, and whether what it gives is what was there."""
    ids = np.arange(2 * 8 * 6, dtype=np.int32).reshape(2, 8, 6)

    class Counted:
        def __init__(self):
            self.reads = []

        def shape(self, name):
            return ids.shape

        def read(self, name, index):
            self.reads.append([(part.start, part.stop) for part in index])
            return ids[index]

    for shape in ((8, 1), (4, 2), (2, 4), (1, 8)):
        mesh = Mesh(np.array(jax.devices()).reshape(shape), ("data", "tables"))
        for spec in (P(), P(None, "data"), P(None, ("data", "tables")), P("tables")):
            if spec == P("tables") and shape[1] > 2:
                continue
            batch = Counted()
            with DeviceLoader([batch], mesh, {"ids": spec}) as loader:
                array = next(loader)["ids"]
            sharding = NamedSharding(mesh, spec)
            yield {
                "cell": f"{shape} {spec}",
                "equal": bool((np.asarray(array) == ids).all()),
                "placed": array.sharding == sharding,
                "reads": len(batch.reads),
                "different": len({str(index) for index in batch.reads}),
                "elements": sum(
                    int(np.prod([stop - start for start, stop in index]))
                    for index in batch.reads
                ),
            }


if __name__ == "__main__":
    enable_compilation_cache()
    assert len(jax.devices()) == num_devices
    print(json.dumps(list(globals()[part]())))
