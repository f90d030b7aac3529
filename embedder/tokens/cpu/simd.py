"""Vectors of LANES numbers for compiled code, and what else Numba lacks.

Numba compiles loops for the processor that it runs on, but does not keep sums in
registers over two loops. These functions name the vectors; LLVM maps them to the
registers of any processor that it knows. Arrays are C-contiguous, with two axes where
rows are meant; no index is checked.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, cast

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils  # as in Numba's documented example of `extending`
from numba.extending import models, register_model

LANES = 16
_INTP_BITS = 8 * np.dtype(np.intp).itemsize
# No flag that would let a NaN or an infinity vanish. No wrappers for Python, which
# calls the entry alone, and no counts of references, since a kernel has no memory of
# its own: Numba spends a third of its time on these.
compiled = functools.partial(
    njit,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz", "arcp", "afn"},
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    _nrt=False,
)
"""Compiles a function that compiled code calls. Python must not call it."""
entry = functools.partial(compiled, no_cpython_wrapper=False)
"""Compiles a function that Python calls."""
_FUSED = ("contract",)  # products and sums may become fused operations
# Lanes of two vectors, one after the other: from each four lanes the even and the odd
# ones, and from all fours the even and the odd ones. Processors do both in one step.
_HALVES_OF_FOURS = tuple(
    [
        start + 2 * i + odd
        for four in range(0, 16, 4)
        for start in (four, 16 + four)
        for i in (0, 1)
    ]
    for odd in (0, 1)
)
_FOURS = tuple(
    [four + i for four in range(start, 32, 8) for i in range(4)] for start in (0, 4)
)

P = ParamSpec("P")


def intrinsic(function: Callable[Concatenate[Any, P], Any]) -> Callable[P, Any]:
    """Numba's `intrinsic`, typed as compiled code calls it: without the context."""
    return cast(Callable[P, Any], extending.intrinsic(function))


class _Vector(types.Type):
    """LANES numbers of one dtype."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(f"vector({dtype} x {LANES})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


def _element_pointer(context, builder, array, arguments):
    """Pointer to `array[row, column]`; arguments are these three."""
    values = context.make_array(array)(context, builder, arguments[0])
    width = builder.extract_value(values.shape, 1)
    offset = builder.add(builder.mul(arguments[1], width), arguments[2])
    return builder.gep(values.data, [offset])


def _splat(builder, scalar):
    """A vector with `scalar` in every lane."""
    kind = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(kind(ir.Undefined), scalar, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, kind(ir.Undefined), zeros)


def _lanes(builder, low, high, numbers):
    """The lanes `numbers` of the concatenation of two vectors."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), list(numbers))
    return builder.shuffle_vector(low, high, mask)


@intrinsic
def zeros(typingctx, array):
    """A vector of zeros of the dtype of `array`."""
    kind = _Vector(array.dtype)

    def codegen(context, builder, signature, arguments):
        return ir.Constant(context.get_value_type(kind), None)

    return kind(array), codegen


@intrinsic
def load(typingctx, array, row, column):
    """`array[row, column : column + LANES]`."""
    kind = _Vector(array.dtype)

    def codegen(context, builder, signature, arguments):
        pointer = _element_pointer(context, builder, array, arguments)
        of_vector = builder.bitcast(pointer, context.get_value_type(kind).as_pointer())
        return builder.load(of_vector, align=array.dtype.bitwidth // 8)

    return kind(array, types.intp, types.intp), codegen


@intrinsic
def store(typingctx, array, row, column, vector):
    """`array[row, column : column + LANES] = vector`."""

    def codegen(context, builder, signature, arguments):
        pointer = _element_pointer(context, builder, array, arguments)
        of_vector = builder.bitcast(pointer, arguments[3].type.as_pointer())
        builder.store(arguments[3], of_vector, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, vector), codegen


@intrinsic
def four_zeros(typingctx, array):
    """Four vectors of zeros of the dtype of `array`: a tuple, to add more to."""
    kind = types.UniTuple(_Vector(array.dtype), 4)

    def codegen(context, builder, signature, arguments):
        return ir.Constant(context.get_value_type(kind), None)

    return kind(array), codegen


def _add_outer(context, builder, signature, arguments, coefficient):
    """Vector 4 c + q of `sums`, the first argument, plus coefficient(q) times
    `y[row, d + c LANES :][:LANES]`, with y, row, d the last three."""
    sums = cgutils.unpack_tuple(builder, arguments[0], len(signature.args[0]))
    y, row, d = arguments[-3:]
    kind, values = signature.args[-3], []
    scalars = [
        _splat(
            builder, builder.load(_element_pointer(context, builder, *coefficient(q)))
        )
        for q in range(4)
    ]
    for number, total in enumerate(sums):
        column = builder.add(d, d.type(number // 4 * LANES))
        pointer = _element_pointer(context, builder, kind, [y, row, column])
        pointer = builder.bitcast(pointer, total.type.as_pointer())
        vector = builder.load(pointer, align=kind.dtype.bitwidth // 8)
        product = builder.fmul(scalars[number % 4], vector, flags=_FUSED)
        values.append(builder.fadd(total, product, flags=_FUSED))
    return context.make_tuple(builder, signature.return_type, values)


@intrinsic
def add_rows(typingctx, sums, f, i, r, y, row, d):
    """`sums` with `f[i + q, r] * y[row, d + c LANES :]` added to vector 4 c + q."""

    def codegen(context, builder, signature, arguments):
        array, i, r = arguments[1:4]

        def coefficient(q):
            return f, [array, builder.add(i, i.type(q)), r]

        return _add_outer(context, builder, signature, arguments, coefficient)

    index = types.intp
    return sums(sums, f, index, index, y, index, index), codegen


@intrinsic
def add_columns(typingctx, sums, f, r, k, y, row, d):
    """`sums` with `f[r, k + q] * y[row, d + c LANES :]` added to vector 4 c + q."""

    def codegen(context, builder, signature, arguments):
        array, r, k = arguments[1:4]

        def coefficient(q):
            return f, [array, r, builder.add(k, k.type(q))]

        return _add_outer(context, builder, signature, arguments, coefficient)

    index = types.intp
    return sums(sums, f, index, index, y, index, index), codegen


@intrinsic
def store_four(typingctx, array, row, column, vectors):
    """Stores vector 4 c + q in `array[row + q, column + c LANES :]`."""

    def codegen(context, builder, signature, arguments):
        out, row, column, _ = arguments
        for number, vector in enumerate(
            cgutils.unpack_tuple(builder, arguments[3], len(vectors))
        ):
            at = [
                out,
                builder.add(row, row.type(number % 4)),
                builder.add(column, column.type(number // 4 * LANES)),
            ]
            pointer = _element_pointer(context, builder, array, at)
            pointer = builder.bitcast(pointer, vector.type.as_pointer())
            builder.store(vector, pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, vectors), codegen


@intrinsic
def add(typingctx, left, right):
    """`left + right`, lane by lane."""

    def codegen(context, builder, signature, arguments):
        return builder.fadd(*arguments)

    return left(left, left), codegen


@intrinsic
def subtract_scaled(typingctx, total, scalar, vector):
    """`total - scalar * vector`."""

    def codegen(context, builder, signature, arguments):
        total, scalar, vector = arguments
        product = builder.fmul(_splat(builder, scalar), vector, flags=_FUSED)
        return builder.fsub(total, product, flags=_FUSED)

    return total(total, total.dtype, total), codegen


@intrinsic
def add_product(typingctx, total, left, right):
    """`total + left * right`, lane by lane."""

    def codegen(context, builder, signature, arguments):
        total, left, right = arguments
        product = builder.fmul(left, right, flags=_FUSED)
        return builder.fadd(total, product, flags=_FUSED)

    return total(total, total, total), codegen


@intrinsic
def store_sums(typingctx, array, row, column, vectors):
    """Stores the sums of the lanes of sixteen vectors as four rows of four numbers:
    the sum of vector 4 q + c in `array[row + q, column + c]`."""

    def codegen(context, builder, signature, arguments):
        left = cgutils.unpack_tuple(builder, arguments[3], LANES)
        for halves in (_HALVES_OF_FOURS, _HALVES_OF_FOURS, _FOURS, _FOURS):
            left = [
                builder.fadd(*(_lanes(builder, low, high, half) for half in halves))
                for low, high in zip(left[::2], left[1::2], strict=True)
            ]
        for quarter in range(4):
            numbers = range(4 * quarter, 4 * quarter + 4)
            four = _lanes(builder, left[0], left[0], numbers)
            below = builder.add(arguments[1], integer(quarter))
            element = [arguments[0], below, arguments[2]]
            pointer = _element_pointer(context, builder, array, element)
            of_four = builder.bitcast(pointer, four.type.as_pointer())
            builder.store(four, of_four, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    integer = ir.IntType(_INTP_BITS)
    return types.void(array, types.intp, types.intp, vectors), codegen


@intrinsic
def cast_like(typingctx, value, other):
    """`value`, a number, in the dtype of `other`."""

    def codegen(context, builder, signature, arguments):
        return context.cast(builder, arguments[0], value, other)

    return other(value, other), codegen


@intrinsic
def two_to_the(typingctx, power):
    """2 to the `power`, a whole number in a float32 or float64."""
    bits, mantissa, bias = {
        types.float32: (32, 23, 127),
        types.float64: (64, 52, 1023),
    }[power]

    def codegen(context, builder, signature, arguments):
        integer = ir.IntType(bits)
        biased = builder.add(builder.fptosi(arguments[0], integer), integer(bias))
        shifted = builder.shl(biased, integer(mantissa))
        return builder.bitcast(shifted, context.get_value_type(power))

    return power(power), codegen


@intrinsic
def prefetch_row(typingctx, array, row):
    """Prefetches `array[row]` into the caches."""
    return _prefetch(array, to_write=0)


@intrinsic
def prefetch_row_to_write(typingctx, array, row):
    """Prefetches `array[row]` into the caches, to be written by this core."""
    return _prefetch(array, to_write=1)


def _prefetch(array, to_write: int):
    line = 64 // (array.dtype.bitwidth // 8)

    def codegen(context, builder, signature, arguments):
        values = context.make_array(array)(context, builder, arguments[0])
        width = builder.extract_value(values.shape, 1)
        byte_pointer, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte_pointer, *[integer] * 3]),
            "llvm.prefetch.p0",
        )
        zero = width.type(0)
        with cgutils.for_range_slice(builder, zero, width, width.type(line)) as (at, _):
            element = [arguments[0], arguments[1], at]
            pointer = _element_pointer(context, builder, array, element)
            address = builder.bitcast(pointer, byte_pointer)
            builder.call(function, [address, integer(to_write), integer(3), integer(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@intrinsic
def fetch_add(typingctx, counters, index):
    """Adds 1 to `counters[index]`, atomically; returns what it was before."""

    def codegen(context, builder, signature, arguments):
        memory = context.make_array(counters)(context, builder, arguments[0]).data
        pointer = builder.gep(memory, [arguments[1]])
        return builder.atomic_rmw("add", pointer, ir.IntType(64)(1), "seq_cst")

    return types.int64(counters, types.intp), codegen


@intrinsic
def read(typingctx, counters, index):
    """`counters[index]`, read atomically."""

    def codegen(context, builder, signature, arguments):
        memory = context.make_array(counters)(context, builder, arguments[0]).data
        pointer = builder.gep(memory, [arguments[1]])
        return builder.load_atomic(pointer, "seq_cst", 8)

    return types.int64(counters, types.intp), codegen


@intrinsic
def nap(typingctx):
    """Sleeps for ten microseconds, or the shortest time that the system has."""
    name, duration = ("Sleep", 0) if sys.platform == "win32" else ("usleep", 10)

    def codegen(context, builder, signature, arguments):
        integer = ir.IntType(32)
        kind = ir.FunctionType(integer, [integer])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(function, [integer(duration)])
        return context.get_dummy_value()

    return types.void(), codegen
