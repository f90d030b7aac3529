"""Compiles updates of replicas for an H200 that is not there, as `bench.h200`.

`python -m bench.h200_replicas CASES` prints one JSON object for each of a JSON list of
cases; it is the child process of `bench.gpu_replicas`. The programs are those that a
training on one device runs: of one model without an axis of replicas.
"""

import json
import os
import sys
from typing import Any

from bench import h200


def lowered_networks(case: dict[str, Any]):
    """The updates of a call of K networks, with the examples on the device."""
    import jax
    import numpy as np

    from embedder.config import Config, with_options
    from embedder.encoders.networks.mlp import MLP
    from embedder.encoders.program import make_encoder_program
    from embedder.encoders.update import Batches, initial_state, replica_axes
    from embedder.engine.layout import Layout

    size, updates, layers = case["examples"], case["updates"], tuple(case["layers"])
    settings = {"layers": layers, "batch_size": size, "loader": "memory"}
    settings |= {"optimizer": "sgd", "learning_rate": 0.01}
    config = with_options(Config(), model="encoder", **settings)
    program = make_encoder_program(
        MLP(layers),
        config.encoder,
        config.run.optimizer,
        config.run.dtype,
        config.run.seed,
        Layout(),
        is_resident=True,
        has_replicas=case["replicas"] > 1,
    )
    state = initial_state(program.encoder.init(), program.optimizer)

    def shape(*axes: int, dtype: type = np.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(axes, dtype)

    batch = Batches(
        features=shape(size, layers[0]),
        labels=shape(size, dtype=np.int32),
        ids=shape(updates, size, dtype=np.int32),
        weights=shape(updates, size),
        num=shape(1, dtype=np.int32),
    )
    axes = replica_axes(is_resident=True, bootstrap=False)
    return _lowered(program, state, batch, axes, case["replicas"])


def lowered_tables(case: dict[str, Any]):
    """The updates of a call of K models of tables; one in 16 reports its loss."""
    from embedder.engine.layout import Layout
    from embedder.engine.rules import row_rule
    from embedder.tables.placement import REPLICA_AXES, place
    from embedder.tables.update import state_shapes

    rule = row_rule(case["optimizer"], case["cap"])
    shape = case["vocabulary"], case["vector_size"]
    program = place(
        h200.model_of(case),
        rule,
        Layout(*case["layout"]),
        shape,
        update="rows",
        loss_interval=16,
        has_replicas=case["replicas"] > 1,
    )
    state = state_shapes(rule, shape, "float32")
    batch = h200.batch_shapes(case, case["updates"])
    return _lowered(program, state, batch, REPLICA_AXES, case["replicas"])


def _lowered(program, state, batch, axes, replicas: int):
    """`program` for the shapes of one model; of several with axes of replicas."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from embedder.engine.layout import map_batch

    sharding = NamedSharding(h200.mesh_of_h200((1, 1)), PartitionSpec())

    def on_device(x, axis: int | None):
        shape = np.shape(x)
        if axis is not None and replicas > 1:
            shape = *shape[:axis], replicas, *shape[axis:]
        return jax.ShapeDtypeStruct(shape, x.dtype, sharding=sharding)

    states = jax.tree.map(lambda x: on_device(x, 0), state)
    return program.apply_updates.lower(states, map_batch(on_device, batch, axes))


def counts(case: dict[str, Any]) -> dict[str, Any]:
    """What a call of updates would launch, by update, and the memory of the call."""
    of_case = lowered_networks if "layers" in case else lowered_tables
    compiled, dumped = h200.compile_lowered(of_case(case))
    known = h200.read_trips(compiled.as_text())
    memory = compiled.memory_analysis()
    return h200.launches(compiled, dumped, known or [case["updates"]]) | {
        "is_counted": bool(known),  # else the host waits for the condition of the loop
        "argument_bytes": memory.argument_size_in_bytes,
        "state_bytes": memory.alias_size_in_bytes,
    }


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    for given in json.loads(sys.argv[1]):
        print(json.dumps(counts(given)), flush=True)
