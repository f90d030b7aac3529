"""Convolutions, in the form that the device computes fastest.

Axis letters: B examples, H height, W width, C channels, N channels of the result; h, w
height and width of a kernel.

XLA has fast convolutions for CPUs in one order of axes alone. The gradients of a
convolution are convolutions in other orders; XLA transposes them in the main program,
but not in the body of a loop (jax-ml/jax issue 12868), and updates are in a loop. There
they take a hundred times as long. So they are written here in that order.
"""

import contextlib
import contextvars
import functools
import math
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp

_ORDER = ("NHWC", "HWIO", "NHWC")
# Values of a patch up to which gradients are faster as matrix products, and examples of
# one convolution above that: bench/README.md#convolutions
_SMALL_PATCH = 36
_EXAMPLES = 32

Pads = list[tuple[int, int]]
"""Pixels before and after, of height and of width."""

_is_plain = contextvars.ContextVar("plain convolutions", default=False)


@contextlib.contextmanager
def plain_convolutions() -> Iterator[None]:
    """Within it, networks are traced by operations that other programs and devices
    have, too: `by_xla`, and maxima of slices. What was compiled before stays."""
    token = _is_plain.set(True)
    try:
        yield
    finally:
        _is_plain.reset(token)


def is_plain() -> bool:
    """Whether networks are traced within `plain_convolutions`."""
    return _is_plain.get()


def convolution(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """[B, H, W, C] by a kernel [h, w, C, N] -> [B, H / stride, W / stride, N].

    Padding is SAME, as XLA's: a pixel that cannot be shared goes to the end.
    """
    if jax.default_backend() != "cpu" or is_plain():
        return by_xla(x, kernel, stride)
    # XLA's fast convolutions for CPUs are of float32.
    if x.dtype != jnp.float32 or math.prod(kernel.shape[:2]) == 1:
        return by_patches(x, kernel, stride)
    return in_order(x, kernel, stride)


def by_xla(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """`convolution`, whose gradients are in the orders of axes that JAX makes."""
    strides = stride, stride
    return jax.lax.conv_general_dilated(
        x, kernel, strides, "SAME", dimension_numbers=_ORDER
    )


def by_patches(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """`convolution` as one matrix product of all patches of the images.

    Patches are h w times as large as the images.
    """
    parts = [each for row in shifted(x, kernel.shape, stride) for each in row]
    patches = parts[0] if len(parts) == 1 else jnp.concatenate(parts, -1)
    num = kernel.shape[-1]
    product = patches.reshape(-1, math.prod(kernel.shape[:3])) @ kernel.reshape(-1, num)
    return product.reshape(*patches.shape[:3], num)


def shifted(
    x: jax.Array, kernel_shape: Sequence[int], stride: int, padding: float = 0
) -> list[list[jax.Array]]:
    """For each row and column of a kernel, the values [B, H', W', C] that it meets.

    Args:
      padding: the value around the images.
    """
    height, width = kernel_shape[:2]
    pads = same_pads(x.shape[1:3], (height, width), stride)
    padded = jnp.pad(x, ((0, 0), *pads, (0, 0)), constant_values=padding)
    ends = [(-(-length // stride) - 1) * stride + 1 for length in x.shape[1:3]]
    return [
        [
            padded[:, i : i + ends[0] : stride, j : j + ends[1] : stride]
            for j in range(width)
        ]
        for i in range(height)
    ]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def in_order(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """`convolution`, whose gradients are convolutions in the same order of axes."""
    return _in_order_forward(x, kernel, stride)[0]


def _in_order_forward(x: jax.Array, kernel: jax.Array, stride: int):
    pads = same_pads(x.shape[1:3], kernel.shape[:2], stride)
    return _ordered(x, kernel, pads, stride=stride), (x, kernel)


def _in_order_backward(
    stride: int, inputs: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The gradients of `x` and `kernel`, of that of the result [B, H', W', N].

    Along an axis y_o = sum_i k_i x_{o s + i - p}, with p pixels of padding before. So
    dx_j = sum_i k_i dy_{(j + p - i) / s}, a convolution of dy with s - 1 zeros between
    its values by the reversed kernel; dk_i = sum_o dy_o x_{o s + i - p}, one of x by dy
    with s - 1 zeros between.
    """
    x, kernel = inputs
    if math.prod(kernel.shape[:3]) <= _SMALL_PATCH:
        _, gradient_of_x = jax.vjp(lambda x: by_patches(x, kernel, stride), x)
        rows = _kernel_gradient_by_rows(x, kernel.shape, gradient, stride)
        return gradient_of_x(gradient)[0], rows
    pads_x: Pads = []
    pads_kernel: Pads = []
    sizes = zip(
        *(x.shape[1:3], kernel.shape[:2], gradient.shape[1:3]),
        same_pads(x.shape[1:3], kernel.shape[:2], stride),
        strict=True,
    )
    for length, size, count, (before, _) in sizes:
        spread = (count - 1) * stride + 1  # with zeros between
        first = size - 1 - before
        pads_x.append((first, length + size - 1 - first - spread))
        pads_kernel.append((before, size - 1 + spread - length - before))
    reverse = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
    dx = _ordered(gradient, reverse, pads_x, x_dilation=stride)
    examples_last, outer = x.transpose(3, 1, 2, 0), gradient.transpose(1, 2, 0, 3)
    # Their time grows faster than the number of examples.
    parts = [
        _ordered(
            examples_last[..., start : start + _EXAMPLES],
            outer[:, :, start : start + _EXAMPLES],
            pads_kernel,
            kernel_dilation=stride,
        )
        for start in range(0, x.shape[0], _EXAMPLES)
    ]
    dkernel = sum(parts[1:], parts[0])
    return dx, dkernel.transpose(1, 2, 0, 3)


def _kernel_gradient_by_rows(
    x: jax.Array, kernel_shape: Sequence[int], gradient: jax.Array, stride: int
) -> jax.Array:
    """The gradient of a kernel as a matrix product for each of its rows."""
    outer = gradient.reshape(-1, gradient.shape[-1])
    products = [
        jnp.concatenate(row, -1).reshape(outer.shape[0], -1).T @ outer
        for row in shifted(x, kernel_shape, stride)
    ]
    return jnp.stack(products).reshape(kernel_shape)


in_order.defvjp(_in_order_forward, _in_order_backward)


def _ordered(
    x: jax.Array,
    kernel: jax.Array,
    pads: Pads,
    stride: int = 1,
    x_dilation: int = 1,
    kernel_dilation: int = 1,
) -> jax.Array:
    """One convolution. Those of K networks follow each other: side by side they would
    be in groups of channels, which XLA's fast convolutions have not."""

    @jax.custom_batching.custom_vmap
    def one(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            pads,
            (x_dilation, x_dilation),
            (kernel_dilation, kernel_dilation),
            _ORDER,
        )

    @one.def_vmap
    def several(num: int, is_batched: list[bool], x: jax.Array, kernel: jax.Array):
        if not is_batched[1]:  # one kernel: one batch of all images
            images = one(x.reshape(-1, *x.shape[2:]), kernel)
            return images.reshape(num, -1, *images.shape[1:]), True
        if not is_batched[0]:
            return jax.lax.map(lambda kernel: one(x, kernel), kernel), True
        return jax.lax.map(lambda pair: one(*pair), (x, kernel)), True

    return one(x, kernel)


def same_pads(lengths: Sequence[int], sizes: Sequence[int], stride: int) -> Pads:
    """Padding with which ceil(length / stride) pixels are left of each axis."""
    pads: Pads = []
    for length, size in zip(lengths, sizes, strict=True):
        total = max((math.ceil(length / stride) - 1) * stride + size - length, 0)
        pads.append((total // 2, total - total // 2))
    return pads
