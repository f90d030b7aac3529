"""Compiles updates of networks for an H200 that is not there, as `bench.h200`.

`python -m bench.h200_networks CASES` prints one JSON object for each of a JSON list of
cases; it is the child process of `bench.gpu_networks`. The programs are those of a
training on one device that has all examples there.
"""

import json
import os
import re
import sys
from typing import Any
from unittest import mock

from bench import h200

CALL = 16  # updates


def lowered(case: dict[str, Any]):
    """The updates of a call, and their network."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from embedder.config import Config, with_options
    from embedder.encoders.networks.encoder import model_shapes
    from embedder.encoders.networks.registry import network_for
    from embedder.encoders.program import make_encoder_program
    from embedder.encoders.update import Batches, Extras
    from embedder.engine.layout import Layout
    from embedder.engine.state import TrainState

    settings = {"loader": "memory", "optimizer": "adam", "rate_schedule": "constant"}
    config = with_options(Config(), model="encoder", **settings, **case["settings"])
    shape, size = tuple(case["example_shape"]), config.encoder.batch_size
    network = network_for(config.encoder, shape, case["classes"])
    program = make_encoder_program(
        network,
        config.encoder,
        config.run.optimizer,
        config.run.dtype,
        config.run.seed,
        Layout(),
        is_resident=True,
    )
    num = case["examples"]

    def array(*axes: int, dtype: type = np.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(axes, dtype)

    model = model_shapes(program.encoder.network)
    state = TrainState(
        model.params,
        jax.eval_shape(program.optimizer.init, model.params),
        array(dtype=np.int32),
        Extras(model.averages, array(2, dtype=np.uint32)),
    )
    batch = Batches(
        features=array(num, *shape, dtype=np.uint8),
        labels=array(num, dtype=np.int32),
        ids=array(CALL, size, dtype=np.int32),
        weights=array(CALL, size),
        num=array(1, dtype=np.int32),
    )
    sharding = NamedSharding(h200.mesh_of_h200((1, 1)), PartitionSpec())

    def on_device(x):
        return jax.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=sharding)

    placed = jax.tree.map(on_device, (state, batch))
    with mock.patch.object(jax, "default_backend", lambda: "gpu"):  # convolutions
        return program.apply_updates.lower(*placed), network


def counts(case: dict[str, Any]) -> dict[str, Any]:
    """What an update would launch, and the memory and operations of it."""
    program, network = lowered(case)
    compiled, dumped = h200.compile_lowered(program)
    known = h200.read_trips(compiled.as_text())
    memory = compiled.memory_analysis()
    from embedder.encoders.networks.encoder import num_operations, num_params

    return h200.launches(compiled, dumped, known or [CALL]) | {
        "libraries": len(_LIBRARY.findall(compiled.as_text())),
        "parameters": num_params(network),
        "forward_flops": num_operations(network),
        "state_bytes": memory.alias_size_in_bytes,
    }


_LIBRARY = re.compile(r'custom_call_target="__cu(?:dnn|blas)')

if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # Tiles of XLA's own products need autotuning: cuBLAS computes them.
    os.environ["XLA_FLAGS"] += " --xla_gpu_enable_triton_gemm=false"
    for given in json.loads(sys.argv[1]):
        print(json.dumps(counts(given)), flush=True)
