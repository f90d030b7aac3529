"""The same updates by `jit`, `sharded` and `pmap`, on one device and on several.

Each number of devices has its own process, since JAX fixes it at its start: devices of
a CPU, or the first GPUs if there are any. Strong scaling: the number of blocks of an
update is fixed; weak scaling: the number of blocks per device is.

`python -m bench.modes DEVICES JSON` measures one number of devices.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.processes import run_on_devices
from bench.results import Results, Table, write_results


def run(
    devices: tuple[int, ...] = (1, 2, 4),
    samples: int = 5,
    vector_size: int = 100,
    blocks: int = 16,
    vocabulary: int = 50_000,
    updates: int = 64,
) -> Table:
    """Updates by jit, sharded and pmap on one device and on several.

    Args:
      devices: numbers of devices; each is measured in its own process.
      samples: number of measurements of each.
      vector_size: dimensions of a vector.
      blocks: blocks of an update; weak scaling: of an update, for each device.
      vocabulary: rows of a table.
      updates: updates of a call.
    """
    settings = {"samples": samples, "vector_size": vector_size}
    settings |= {"vocabulary": vocabulary, "blocks": blocks, "updates": updates}
    results = []
    for num_devices in devices:
        results += run_on_devices("bench.modes", num_devices, settings)
    return table(write_results("modes", settings=settings, samples=results))


def table(results: Results) -> Table:
    """A row for each layout and scaling."""
    samples = results["samples"]
    one = [statistics.median(s["seconds"]) for s in samples if s["mode"] == "jit"]
    rows = []
    for each in samples:
        seconds = statistics.median(each["seconds"])
        rows.append(
            [
                each["scaling"],
                str(each["data_devices"] * each["table_devices"]),
                each["mode"],
                f"{each['tables']} {each['data_devices']} x {each['table_devices']}",
                f"{seconds * 1e6:.0f}",
                f"{seconds / one[0]:.2f}" if one else "",
                f"{each['tokens'] / seconds / 1e6:.2f}",
                f"{each['bytes'] / 1024:.0f}",
                f"{each['compile']:.2f}",
            ]
        )
    columns = ["scaling", "devices", "mode", "tables", "us an update", "to jit"]
    return Table([*columns, "M tokens/s", "KiB exchanged an update", "compile s"], rows)


def measure(num_devices: int, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A result for each layout and scaling on this process's devices."""
    blocks = settings["blocks"]
    _measure(
        _layouts(num_devices)[0], blocks, settings
    )  # warm-up: page faults of new memory
    blocks_by_scaling = {"strong": blocks, "weak": blocks * num_devices}
    for scaling, number in (
        blocks_by_scaling.items() if num_devices > 1 else [("strong", blocks)]
    ):
        for layout in _layouts(num_devices):
            yield {"scaling": scaling, **_measure(layout, number, settings)}


def _layouts(num_devices: int) -> list:
    from embedder.engine.mesh_layout import MeshLayout

    found = [MeshLayout()] if num_devices == 1 else []
    for mode in ("sharded", "pmap"):
        found.append(MeshLayout(mode, "replicated", num_devices, 1))
        if num_devices > 1:
            found.append(MeshLayout(mode, "columns", 1, num_devices))
            found.append(MeshLayout(mode, "rows", 1, num_devices))
    if num_devices > 2:
        found.append(MeshLayout("sharded", "columns", num_devices // 2, 2))
        found.append(MeshLayout("sharded", "rows", num_devices // 2, 2))
    return found


def _measure(layout, blocks: int, settings: dict[str, Any]) -> dict[str, Any]:
    import jax

    from bench.collectives import collectives

    config, batch = _config_and_batch(blocks, settings)
    program = _program(config, layout, settings, interval=16)
    state = program.place_state(_start(program))
    placed = program.place_batch(batch)
    started = time.perf_counter()
    compiled = program.apply_updates.lower(state, placed).compile()
    seconds = {"compile": time.perf_counter() - started}
    times = []
    for _ in range(settings["samples"] + 1):
        start = time.perf_counter()
        state, _ = compiled(state, placed)
        jax.block_until_ready(state)
        times.append((time.perf_counter() - start) / len(batch.rate))
    counted = _program(config, layout, settings, interval=1)  # so that a loop runs once
    one = jax.tree.map(lambda x: x[:1], batch)  # collectives before the loop count, too
    text = counted.apply_updates.lower(
        counted.place_state(_start(counted)), counted.place_batch(one)
    )
    exchanged = collectives(text.compile().as_text())
    return {
        **layout._asdict(),
        **seconds,
        "seconds": times[1:],
        "tokens": blocks * config.tables.block,
        "bytes": sum(each.num_bytes for each in exchanged),
        "collectives": len(exchanged),
        "device": jax.devices()[0].device_kind,
    }


def _config_and_batch(num_blocks: int, settings: dict[str, Any]):
    """Random blocks; ids have the distribution of text."""
    import numpy as np

    from embedder.config import Config, resolve, with_options
    from embedder.data.blocks import Blocks
    from embedder.tokens.prepare import Batch

    config = with_options(
        Config(), blocks_per_update=num_blocks, vector_size=settings["vector_size"]
    )
    config = resolve(config, 10**9)
    data, rng = config.tables, np.random.default_rng(1)
    size = (settings["updates"], num_blocks)
    probability = 1 / np.arange(1, settings["vocabulary"] + 1) ** 0.75
    probability /= probability.sum()

    def ids(*shape: int):
        return rng.choice(len(probability), shape, p=probability).astype(np.int32)

    whole = (*size, data.block)
    blocks = Blocks(
        ids=ids(*whole),
        sequence=np.zeros(whole, np.int32),
        radius=rng.integers(1, data.window + 1, whole, dtype=np.int8),
        noise=ids(*size, data.block // data.tile, data.noise),
    )
    rate = np.full(settings["updates"], config.tables.alpha, np.float32)
    return config, Batch(blocks, rate)


def _program(config, layout, settings: dict[str, Any], interval: int):
    from embedder.config import with_options
    from embedder.tokens.backends import make_program

    config = with_options(config, backend="xla")
    return make_program(settings["vocabulary"], interval, config, layout)


def _start(program):
    from embedder.tokens.train_step import initial_state

    return initial_state(program.model, program.optimizer)


def main(arguments: list[str]) -> None:
    """Prints all results as one line of JSON."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)  # to measure compilation
    print(json.dumps([*measure(int(arguments[0]), json.loads(arguments[1]))]))


BENCHES = {"modes": run}
TABLES = {"modes": table}


if __name__ == "__main__":
    main(sys.argv[1:])
