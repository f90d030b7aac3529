"""Convolutions on the device that JAX has, in different forms.

Each form is compiled as a training does: an update of the kernel in a loop whose number
of updates is an argument; and once more without the loop. Forms take turns.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench.results import Results, Table, spread, write_results

SHAPES = (
    (128, 28, 1, 3, 1, 32),
    (128, 14, 32, 3, 1, 64),
    (32, 32, 64, 3, 1, 64),
    (32, 32, 64, 3, 2, 128),
    (32, 32, 64, 1, 2, 128),
    (32, 4, 512, 3, 1, 512),
)
"""Images, their height and width, channels, size of the kernel, stride, channels of
the result: of conv-small, wide-resnet and resnet."""

_LONG = 1.0  # seconds; what takes longer is not repeated
_COLUMNS = [
    "images",
    "kernel",
    "form",
    "forward, ms",
    "update without a loop, ms",
    "update in a loop, ms",
    "in a loop, to the program's",
    "compile s",
    "temporary MiB",
]


class Form(NamedTuple):
    """Compiled programs of one form."""

    programs: list[Callable]  # forward, update, update in a loop
    compile: float  # seconds of the last
    temporary: int  # its bytes beside arguments and results


def form_functions() -> dict[str, Callable]:
    """Name in the table -> function of images, kernel and stride."""
    from embedder.encoders.networks import convolution as ours

    return {
        "the program's": ours.convolution,
        "XLA's": ours.by_xla,
        "patches": ours.by_patches,
        "a product a pixel": by_pixels,
    }


def by_pixels(x, kernel, stride: int):
    """The sum of the products of the images by each pixel of the kernel."""
    import jax.numpy as jnp

    from embedder.encoders.networks.convolution import same_pads

    height, width, channels, num = kernel.shape
    pads = same_pads(x.shape[1:3], (height, width), stride)
    padded = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    rows = [-(-length // stride) for length in x.shape[1:3]]
    ends = [(count - 1) * stride + 1 for count in rows]
    total: Any = 0
    for i in range(height):
        for j in range(width):
            part = padded[:, i : i + ends[0] : stride, j : j + ends[1] : stride]
            total = total + part.reshape(-1, channels) @ kernel[i, j]
    return total.reshape(len(x), *rows, num)


def run(
    forms: tuple[str, ...] = (
        *("the program's", "XLA's", "patches"),
        "a product a pixel",
    ),
    samples: int = 5,
    shapes: int = len(SHAPES),
) -> Table:
    """Convolutions and their gradients in different forms, in a loop and without.

    Args:
      forms: which to run; default: all.
      samples: number of measurements of each.
      shapes: how many of the shapes.
    """
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    known = form_functions()
    if unknown := {*forms} - {*known}:
        raise SystemExit(f"bench: `forms` must be of {[*known]}, got {[*unknown]}.")
    results = []
    for shape in SHAPES[:shapes]:
        arrays = _arrays(shape)
        compiled = {name: _compiled(known[name], shape[4], arrays) for name in forms}
        times = _times(compiled, arrays, samples)
        for name, form in compiled.items():
            about = {"shape": shape, "form": name, "seconds": times[name]}
            about |= {"compile": form.compile, "temporary": form.temporary}
            results.append(about)
    device = jax.devices()[0].device_kind
    return table(write_results("convolutions", device=device, samples=results))


def _arrays(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Random images and a kernel."""
    num, length, channels, size, _, out = shape
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num, length, length, channels))
    kernel = rng.normal(size=(size, size, channels, out)) / size / channels**0.5
    return x.astype(np.float32), kernel.astype(np.float32)


def _compiled(form: Callable, stride: int, arrays) -> Form:
    import jax

    from embedder.engine.compilation import convolution_options

    x, kernel = arrays

    def forward(x, kernel, num):
        return form(x, kernel, stride)

    def update(x, kernel):
        """Uses the gradients of images and kernel, as layers in the middle do."""
        dx, dkernel = jax.grad(
            lambda x, kernel: (form(x, kernel, stride) ** 2).mean(), (0, 1)
        )(x, kernel)
        return kernel - 1e-3 * dkernel - 1e-3 * dx.mean()

    def once(x, kernel, num):
        return update(x, kernel)

    def loop(x, kernel, num):
        return jax.lax.fori_loop(0, num, lambda i, kernel: update(x, kernel), kernel)

    programs, seconds = [], 0.0
    for function in (forward, once, loop):
        began = time.perf_counter()
        jitted = jax.jit(function, compiler_options=convolution_options())
        programs.append(jitted.lower(x, kernel, 1).compile())
        seconds = time.perf_counter() - began
    memory = programs[-1].memory_analysis()
    return Form(programs, seconds, memory.temp_size_in_bytes if memory else 0)


def _times(compiled: dict[str, Form], arrays, samples: int) -> dict[str, list]:
    """Seconds of each program of each form, after a first call; of long ones also
    that."""
    import jax

    placed = *map(jax.numpy.asarray, arrays), 1
    times: dict[str, list] = {name: [[], [], []] for name in compiled}
    for number in range(samples + 1):
        for name, form in compiled.items():
            for program, kept in zip(form.programs, times[name], strict=True):
                if kept and kept[0] > _LONG:
                    continue
                began = time.perf_counter()
                jax.block_until_ready(program(*placed))
                seconds = time.perf_counter() - began
                if number or seconds > _LONG:
                    kept.append(seconds)
    return times


def table(results: Results) -> Table:
    """A row for each shape and form: medians, ratios within a sample, ranges."""
    rows = []
    own: list[float] = []
    for sample in results["samples"]:
        num, length, channels, size, stride, out = sample["shape"]
        loop = sample["seconds"][2]
        own = loop if sample["form"] == "the program's" else own
        ratios = [a / b for a, b in zip(loop, own, strict=False)]
        by = f", every {stride}nd pixel" if stride > 1 else ""
        rows.append(
            [
                f"{num} x {length} x {length} x {channels}",
                f"{size} x {size} to {out}{by}",
                sample["form"],
                *(spread(1000 * x for x in each) for each in sample["seconds"]),
                spread(ratios, 2) if ratios else "-",
                f"{sample['compile']:.1f}",
                f"{sample['temporary'] / 2**20:.0f}",
            ]
        )
    return Table(_COLUMNS, rows)


BENCHES = {"convolutions": run}
TABLES = {"convolutions": table}
