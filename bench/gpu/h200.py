"""Compiles updates for an H200 that is not there; prints what they would launch.

`python -m bench.gpu.h200 CASES` prints one JSON object for each of a JSON list of
cases; it is the child process of `bench.gpu.offline`, which sets its environment. XLA
compiles for a description of the device: kernels, graphs, atomics and memory are those
of the real program, but for autotuning, which needs the device and is off.
"""

import json
import os
import pkgutil
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

TARGET = """
platform_name: "CUDA"
device_description_str: "NVIDIA H200"
runtime_version { major: 12 minor: 9 }
dnn_version_info { major: 9 minor: 7 }
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: 4800000000000
  device_memory_size: 141000000000
  l2_cache_size: 52428800
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_core: 233472
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  threads_per_warp: 32
  threads_per_core_limit: 2048
  threads_per_block_limit: 1024
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}
"""
"""The device, in the text format of XLA; figures of NVIDIA's data sheet of the SXM."""

_THUNK = re.compile(r"^( *)\d+: (k\w+) +\[[^\]]*\] *(\S*)")
_BODY = re.compile(r"^( *)body:")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_WHILE = re.compile(r" while\(.*body=%?([\w.\-]+).*known_trip_count\":\{\"n\":\"(\d+)")
_ENTRY = re.compile(r"\.visible \.entry (\w+)\(")
_ATOMIC = re.compile(r"\b(?:red|atom)\.\S*?(cas|v\d\.f32\.add|add\.\w+)")
_NO_LAUNCH = (
    *("kCommandBuffer", "kSequential", "kDynamicSliceFusion"),
    *("kAsyncStart", "kAsyncDone"),
)
_COPIES = "kCopy", "kPartitionId"
_COLLECTIVES = "kAllGather", "kAllReduce", "kReduceScatter"
CALL_OF_NETWORK = 16  # updates


class Loop(NamedTuple):
    """What a sequence of launches has: the whole call, or the body of a while loop."""

    launches: list[tuple[str, str]]  # kind of XLA, and name of the kernel if it has one
    loops: list["Loop"]  # in the order of the program

    def all_loops(self) -> Iterator["Loop"]:
        """The loops in it, each before the loops in itself."""
        for loop in self.loops:
            yield loop
            yield from loop.all_loops()

    def total(self, trips: Iterator[int]) -> int:
        """Launches with those of its loops, whose trip counts are in their order."""
        return len(self.launches) + sum(
            next(trips) * loop.total(trips) for loop in self.loops
        )


def read_thunks(text: str) -> Loop:
    """The launches in XLA's dump of the thunks of a call.

    Not those of a loop's condition: it is not launched where trips are counted before.
    """
    bodies = [(-1, Loop([], []))]  # with the indentation of their heads
    in_condition = False
    for line in text.splitlines():
        if line.startswith("condition:"):
            in_condition = True
        elif head := _BODY.match(line):
            in_condition = False
            bodies.append((len(head[1]), bodies[-1][1].loops[-1]))
        elif (thunk := _THUNK.match(line)) and not in_condition:
            while len(thunk[1]) <= bodies[-1][0]:
                bodies.pop()
            if thunk[2] == "kWhile":
                bodies[-1][1].loops.append(Loop([], []))
            elif thunk[2] not in _NO_LAUNCH:
                bodies[-1][1].launches.append((thunk[2], thunk[3]))
    return bodies[0][1]


def read_trips(hlo: str) -> list[int]:
    """Trips of the loops of an HLO program, each before those of the loops in it."""
    loops: dict[str, list[tuple[str, int]]] = {}
    name = entry = ""
    for line in hlo.splitlines():
        if head := _COMPUTATION.match(line):
            name = head[1]
            entry = name if line.startswith("ENTRY") else entry
        elif loop := _WHILE.search(line):
            loops.setdefault(name, []).append((loop[1], int(loop[2])))

    def trips(computation: str) -> Iterator[int]:
        for body, number in loops.get(computation, []):
            yield number
            yield from trips(body)

    return [*trips(entry)]


def atomics(ptx: str, kernels: set[str]) -> Counter[str]:
    """Atomic instructions by kind, of the kernels in a PTX text that are named."""
    found: Counter[str] = Counter()
    _, *entries = _ENTRY.split(ptx)
    for name, code in zip(entries[::2], entries[1::2], strict=True):
        if name in kernels:
            found.update(_ATOMIC.findall(code))
    return found


def compile_updates(case: dict[str, Any], num_updates: int, interval: int):
    """The compiled call of `num_updates` updates, and the text files that XLA dumps."""
    return compile_lowered(_lowered(case, num_updates, interval))


def compile_lowered(lowered):
    """A compiled program, and the text files that XLA dumps."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}
        compiled = lowered.compile(compiler_options=options)
        return compiled, {x.name: x.read_text() for x in Path(folder).iterdir()}


def _lowered(case: dict[str, Any], num_updates: int, interval: int):
    """The updates of one device of `case["layout"]`, mapped over all of them."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from embedder.engine.mesh_layout import (
        MeshLayout,
        batch_spec,
        map_batch,
        table_spec,
    )
    from embedder.engine.rules import row_rule
    from embedder.tokens.backends import TABLE_AXES
    from embedder.tokens.subwords import SubwordSizes
    from embedder.tokens.train_step import state_shapes, updates_function

    layout, shape = (
        MeshLayout(*case["layout"]),
        (case["vocabulary"], case["vector_size"]),
    )
    rule = row_rule(case["optimizer"], case["cap"])
    subwords = case.get("subwords")
    updates = updates_function(
        model_of(case),
        rule,
        update="rows",
        loss_interval=interval,
        subwords=subwords and SubwordSizes(subwords["rows"], subwords["longest"]),
    )
    mesh = mesh_of_h200((layout.data_devices, layout.table_devices))
    state = state_shapes(rule, layout.padded_shape(*shape), "float32")
    if subwords:
        state = _with_subwords(state, subwords)
    batch = batch_shapes(case, num_updates)
    specs = (
        jax.tree.map(lambda x: PartitionSpec(*table_spec(layout)[: np.ndim(x)]), state),
        batch_spec(layout, TABLE_AXES),
    )
    if layout.mode == "sharded":
        out = specs[0], PartitionSpec()
        updates = jax.shard_map(
            updates, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False
        )

    def on_devices(x, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    state = jax.tree.map(on_devices, state, specs[0])
    batch = map_batch(on_devices, batch, specs[1])
    return jax.jit(updates, donate_argnums=0).lower(state, batch)


def _with_subwords(state, subwords: dict[str, int]):
    """`state` with the rows of subwords and their lists."""
    import jax
    import numpy as np

    from embedder.tokens.subwords import TABLE, SubwordIndex

    tables = state.params["tables"]
    vocabulary, size = tables["input"].shape
    rows = jax.ShapeDtypeStruct((subwords["rows"], size), np.float32)
    lists = SubwordIndex(
        jax.ShapeDtypeStruct((vocabulary + 1,), np.int32),
        jax.ShapeDtypeStruct((subwords["listed"],), np.int32),
        jax.ShapeDtypeStruct((1,), np.float32),
    )
    return state._replace(params={"tables": tables | {TABLE: rows}}, extras=lists)


def mesh_of_h200(grid: tuple[int, int]):
    """A mesh, data x tables, of described devices."""
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh

    described = topologies.get_topology_desc(
        platform="cuda", target_config=TARGET, topology=f"1x1x{grid[0] * grid[1]}"
    )
    return Mesh(np.array(described.devices).reshape(grid), ("data", "tables"))


def model_of(case: dict[str, Any]):
    """The model of a case, as a device of its layout has it."""
    import numpy as np

    from embedder.config.token_objectives import ARCHITECTURES
    from embedder.engine.mesh_layout import MeshLayout
    from embedder.tokens.backends import tables
    from embedder.tokens.hierarchical import Objective
    from embedder.tokens.prepare import Model

    layout, shape = (
        MeshLayout(*case["layout"]),
        (case["vocabulary"], case["vector_size"]),
    )
    facts = ARCHITECTURES[case["architecture"]]
    architecture = pkgutil.resolve_name(facts.implementation)
    return Model(
        tables(*layout.device_shape(*shape), dtype=np.dtype("float32"), seed=0),
        Objective(architecture, case["negative"] > 0, case.get("depth", 0)),
        case["window"],
        case["negative"],
        layout.exchange,
        case["vector_size"],
    )


def batch_shapes(case: dict[str, Any], num_updates: int):
    """Shapes and dtypes of the batch of a call."""
    import jax
    import numpy as np

    from embedder.data.blocks import BlockShape
    from embedder.tokens.prepare import Batch

    cut = BlockShape(
        case["window"], case["block"], case["tile"], case["noise"], case["blocks"]
    )
    blocks = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((num_updates, *x.shape[1:]), x.dtype),
        cut.updates(case["blocks"]).blocks,  # without weights: an array may be None
    )
    nodes = jax.ShapeDtypeStruct((2 * case["vocabulary"] - 1,), np.int32)
    rates = jax.ShapeDtypeStruct((num_updates,), np.float32)
    return Batch(blocks, rates, above=nodes if case.get("depth") else None)


def counts_of_tables(case: dict[str, Any]) -> dict[str, Any]:
    """What a call of updates would launch, with and without the loss."""
    from embedder.tokens.loader import choose_updates_per_call

    num_updates = choose_updates_per_call(float("inf"), case["blocks"] * case["block"])
    found: dict[str, Any] = {"updates": num_updates}
    for name, interval in (("silent", 16), ("reporting", 1)):
        compiled, dumped = compile_updates(case, num_updates, interval)
        found[name] = launches(compiled, dumped, read_trips(compiled.as_text()))
    return found


def launches(compiled, dumped: dict[str, str], trips: list[int]) -> dict[str, Any]:
    """What a call and its innermost loop would launch, and temporary memory.

    Args:
      dumped: the text files of the compilation.
      trips: of the loops of the call, as `read_trips`.
    """
    [thunks] = (x for n, x in dumped.items() if "sequence_after_thunk_passes" in n)
    ptx = "\n".join(x for n, x in dumped.items() if n.endswith(".ptx"))
    call = read_thunks(thunks)
    innermost = [loop for loop in call.all_loops() if not loop.loops]
    update = max(innermost, key=lambda loop: len(loop.launches))
    kinds = [kind for kind, _ in update.launches]
    kernels = {kernel for _, kernel in update.launches}
    every = {kernel for loop in [call, *call.all_loops()] for _, kernel in loop[0]}
    return {
        "kernels": sum(kind not in _COPIES + _COLLECTIVES for kind in kinds),
        "copies": sum(kind in _COPIES for kind in kinds),
        "collectives": sum(kind in _COLLECTIVES for kind in kinds),
        "scatters": sum("scatter" in kernel for kernel in kernels),
        # jaxlib 0.11 dumps no PTX: nothing is known of its atomics.
        "atomics": atomics(ptx, kernels) if ptx else None,
        "atomics_of_call": atomics(ptx, every) if ptx else None,
        "launches_of_call": call.total(iter(trips)),
        "temporary_bytes": compiled.memory_analysis().temp_size_in_bytes,
    }


def lowered_spirals(case: dict[str, Any]):
    """The updates of a call of K networks, with the examples on the device."""
    import jax
    import numpy as np

    from embedder.config import Config, with_options
    from embedder.encoders.networks.mlp import MLP
    from embedder.encoders.optimizers import make_optimizer
    from embedder.encoders.plan import make_learning
    from embedder.encoders.train_step import (
        Batches,
        Feeding,
        initial_state,
        make_encoder_program,
    )
    from embedder.engine.mesh_layout import MeshLayout

    size, updates, layers = case["examples"], case["updates"], tuple(case["layers"])
    settings = {"layers": layers, "batch_size": size, "loader": "memory"}
    settings |= {"optimizer": "sgd", "learning_rate": 0.01}
    config = with_options(Config(), model="encoder", **settings)
    optimizer, feeding = make_optimizer(config), Feeding(size, True)
    feeding = feeding._replace(has_replicas=case["replicas"] > 1)
    learning = make_learning(config, MLP(layers), layers[:1])
    program = make_encoder_program(learning, optimizer, MeshLayout(), feeding)
    state = initial_state(program.encoder.init(), optimizer.rule())

    def shape(*axes: int, dtype: type = np.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(axes, dtype)

    batch = Batches(
        features=shape(size, layers[0]),
        labels=shape(size, dtype=np.int32),
        ids=shape(updates, size, dtype=np.int32),
        weights=shape(updates, size),
        num=shape(1, dtype=np.int32),
    )
    axes = feeding.replica_axes
    return _lowered_replicas(program, state, batch, axes, case["replicas"])


def lowered_replicas(case: dict[str, Any]):
    """The updates of a call of K models of tables; one in 16 reports its loss."""
    from embedder.config import Config, with_options
    from embedder.engine.mesh_layout import MeshLayout
    from embedder.engine.rules import row_rule
    from embedder.tokens.backends import REPLICA_AXES, place
    from embedder.tokens.train_step import state_shapes

    rule = row_rule(case["optimizer"], case["cap"])
    shape = case["vocabulary"], case["vector_size"]
    program = place(
        model_of(case),
        rule,
        MeshLayout(*case["layout"]),
        shape,
        with_options(Config(), replicas=case["replicas"]),
        loss_interval=16,
    )
    state = state_shapes(rule, shape, "float32")
    batch = batch_shapes(case, case["updates"])
    return _lowered_replicas(program, state, batch, REPLICA_AXES, case["replicas"])


def _lowered_replicas(program, state, batch, axes, replicas: int):
    """`program` for the shapes of one model; of several with axes of replicas."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from embedder.engine.mesh_layout import map_batch

    sharding = NamedSharding(mesh_of_h200((1, 1)), PartitionSpec())

    def on_device(x, axis: int | None):
        shape = np.shape(x)
        if axis is not None and replicas > 1:
            shape = *shape[:axis], replicas, *shape[axis:]
        return jax.ShapeDtypeStruct(shape, x.dtype, sharding=sharding)

    states = jax.tree.map(lambda x: on_device(x, 0), state)
    return program.apply_updates.lower(states, map_batch(on_device, batch, axes))


def counts_of_replicas(case: dict[str, Any]) -> dict[str, Any]:
    """What a call of updates would launch, by update, and the memory of the call."""
    of_case = lowered_spirals if "layers" in case else lowered_replicas
    compiled, dumped = compile_lowered(of_case(case))
    known = read_trips(compiled.as_text())
    memory = compiled.memory_analysis()
    return launches(compiled, dumped, known or [case["updates"]]) | {
        "is_counted": bool(known),  # else the host waits for the condition of the loop
        "argument_bytes": memory.argument_size_in_bytes,
        "state_bytes": memory.alias_size_in_bytes,
    }


def lowered_network(case: dict[str, Any]):
    """The updates of a call, and their network."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    from embedder.config import Config, with_options
    from embedder.encoders.networks.encoder import model_shapes
    from embedder.encoders.networks.registry import network_for
    from embedder.encoders.optimizers import make_optimizer
    from embedder.encoders.plan import make_learning
    from embedder.encoders.train_step import (
        Batches,
        Extras,
        Feeding,
        make_encoder_program,
    )
    from embedder.engine.mesh_layout import MeshLayout
    from embedder.engine.state import TrainState

    settings = {"loader": "memory", "optimizer": "adam", "rate_schedule": "constant"}
    config = with_options(Config(), model="encoder", **settings, **case["settings"])
    shape, size = tuple(case["example_shape"]), config.encoder.batch_size
    network = network_for(config.encoder, shape, case["classes"])
    learning, optimizer = make_learning(config, network, shape), make_optimizer(config)
    program = make_encoder_program(
        learning, optimizer, MeshLayout(), Feeding(size, is_resident=True)
    )
    num = case["examples"]

    def array(*axes: int, dtype: type = np.float32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(axes, dtype)

    model = model_shapes(program.encoder.network)
    state = TrainState(
        model.params,
        jax.eval_shape(optimizer.rule().init, model.params),
        array(dtype=np.int32),
        Extras(model.averages, array(2, dtype=np.uint32)),
    )
    batch = Batches(
        features=array(num, *shape, dtype=np.uint8),
        labels=array(num, dtype=np.int32),
        ids=array(CALL_OF_NETWORK, size, dtype=np.int32),
        weights=array(CALL_OF_NETWORK, size),
        num=array(1, dtype=np.int32),
    )
    sharding = NamedSharding(mesh_of_h200((1, 1)), PartitionSpec())

    def on_device(x):
        return jax.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=sharding)

    placed = jax.tree.map(on_device, (state, batch))
    with mock.patch.object(jax, "default_backend", lambda: "gpu"):  # convolutions
        return program.apply_updates.lower(*placed), network


def counts_of_network(case: dict[str, Any]) -> dict[str, Any]:
    """What an update would launch, and the memory and operations of it."""
    program, network = lowered_network(case)
    compiled, dumped = compile_lowered(program)
    known = read_trips(compiled.as_text())
    memory = compiled.memory_analysis()
    from embedder.encoders.networks.encoder import num_operations, num_params

    return launches(compiled, dumped, known or [CALL_OF_NETWORK]) | {
        "libraries": len(_LIBRARY.findall(compiled.as_text())),
        "parameters": num_params(network),
        "forward_flops": num_operations(network),
        "state_bytes": memory.alias_size_in_bytes,
    }


_LIBRARY = re.compile(r'custom_call_target="__cu(?:dnn|blas)')


def counts(case: dict[str, Any]) -> dict[str, Any]:
    """What a call of a case of any suite would launch."""
    if "example_shape" in case:
        return counts_of_network(case)
    return counts_of_replicas(case) if "replicas" in case else counts_of_tables(case)


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    for given in json.loads(sys.argv[1]):
        print(json.dumps(counts(given)), flush=True)
