"""Words that the kernels need and Numba lacks: addresses, ``restrict``, and a transposition in vectors."""

import functools
from typing import Any, NamedTuple

from llvmlite import binding, ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_FEATURES = config.CPU_FEATURES or binding.get_host_cpu_features().flatten()
VECTOR_BYTES = 32 if "+avx2" in _FEATURES else 16
# Only kernels are called from Python. Wrappers of the functions in them would take a quarter of the time to compile.
inner = functools.partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)
SIDE = 16  # of the squares that ``transpose`` copies; a multiple of the numbers in every vector


class View(NamedTuple):
    """A matrix of steps by envs without its owner; a row is a matrix of one step.

    Numba counts the references to an array, and that takes longer than computing a short row.
    """

    first: Any
    steps: Any
    step_stride: Any  # in elements
    env_stride: Any


def _pointer(array):
    """Return the type of an address in an array; flags are bytes."""
    return types.CPointer(types.uint8 if array.dtype == types.boolean else array.dtype)


@intrinsic
def views(typing_context, fields, arguments):
    """Return a named tuple of the class ``fields``: the arguments, with a View in place of each array."""

    def type_of(argument):
        if isinstance(argument, types.Array):
            return types.NamedTuple((_pointer(argument), *[types.intp] * 3), View)
        return argument

    def view(context, builder, array, argument):
        owner = make_array(array)(context, builder, argument)
        shape, strides = (cgutils.unpack_tuple(builder, each, array.ndim) for each in (owner.shape, owner.strides))
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array.dtype)))
        zero, one = (context.get_constant(types.intp, number) for number in (0, 1))
        step_stride, env_stride = (builder.sdiv(stride, itemsize) for stride in [zero, *strides][-2:])
        steps = [one, *shape][-2]
        return context.make_tuple(builder, type_of(array), (owner.data, steps, step_stride, env_stride))

    def build(context, builder, signature, values):
        given = [
            view(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(arguments, cgutils.unpack_tuple(builder, values[1]), strict=True)
        ]
        return context.make_tuple(builder, signature.return_type, given)

    return types.NamedTuple([type_of(kind) for kind in arguments], fields.instance_class)(fields, arguments), build


@intrinsic
def at(typing_context, numbers, t, n):
    """Return the address of an element of an array or View; a number, or None, stands for every element."""

    def address(context, builder, signature, arguments):
        matrix, t, n = arguments
        if isinstance(numbers, types.Array):
            return cgutils.get_item_pointer(
                context, builder, numbers, make_array(numbers)(context, builder, matrix), [t, n]
            )
        if not isinstance(numbers, types.NamedTuple):
            return matrix
        first, _, step_stride, env_stride = cgutils.unpack_tuple(builder, matrix)
        return builder.gep(first, [builder.add(builder.mul(t, step_stride), builder.mul(n, env_stride))])

    if isinstance(numbers, types.Array):
        return _pointer(numbers)(numbers, types.intp, types.intp), address
    kind = numbers.types[0] if isinstance(numbers, types.NamedTuple) else numbers
    return kind(numbers, types.intp, types.intp), address


@inner(forceinline=True)
def at_or(matrix, t, n, otherwise):
    """Return the address of an element of a View, or ``otherwise`` where the View has no steps."""
    return at(matrix, t, n) if matrix.steps else otherwise


@intrinsic
def element(typing_context, numbers, i):
    """Return the i-th number after an address, or the number itself if a number is given instead."""

    def load(context, builder, signature, arguments):
        if isinstance(numbers, types.CPointer):
            return builder.load(builder.gep(arguments[0], [arguments[1]]))
        return arguments[0]

    return getattr(numbers, "dtype", numbers)(numbers, types.intp), load


@intrinsic
def words_of(typing_context, flags):
    """Return the address of flags as that of words of 32 bits, which hold four flags each."""

    def cast(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint32)(flags), cast


@intrinsic
def if_given(typing_context, field, otherwise, chosen):
    """Return ``chosen``, or ``otherwise`` if the field is None in this kernel."""
    place = 1 if field == types.none else 2
    given = otherwise if field == types.none else chosen
    return given(field, otherwise, chosen), lambda context, builder, signature, arguments: arguments[place]


@inner(forceinline=True)
def keep(*arrays):
    """Do nothing with some arrays, at the end of a kernel that takes addresses in them.

    Numba frees an array after its last use, and it does not count access through an address as a use.
    """


@intrinsic
def restrict(typing_context):
    """Promise C's __restrict for every pointer that the calling function takes."""

    def mark(context, builder, signature, arguments):
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.none(), mark


@intrinsic
def transpose(typing_context, source, source_stride, target, target_stride):
    """Copy a square of SIDE rows of SIDE numbers, transposed. The strides are the distances of two rows.

    LLVM loads or stores every number alone in loops for this, and they take 1.5 times as long as the recursion between.
    """
    number = source.dtype
    size = number.bitwidth // 8
    length = min(VECTOR_BYTES // size, SIDE)

    def copy(context, builder, signature, arguments):
        source, source_stride, target, target_stride = arguments
        vector = ir.VectorType(context.get_data_type(number), length)

        def place(matrix, stride, row, column):
            offset = builder.add(builder.mul(stride, stride.type(row)), stride.type(column))
            return builder.bitcast(builder.gep(matrix, [offset]), vector.as_pointer())

        def shuffled(one, other, lanes):
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), length), lanes))

        for row in range(0, SIDE, length):
            for column in range(0, SIDE, length):
                square = [
                    builder.load(place(source, source_stride, row + i, column), align=size) for i in range(length)
                ]
                apart = 1
                while apart < length:  # swap the squares of this size that lie off the diagonals of larger ones
                    kept = [i if not i & apart else i - apart + length for i in range(length)]
                    swapped = [i + apart if not i & apart else i + length for i in range(length)]
                    for i in range(length):
                        if not i & apart:
                            pair = square[i], square[i + apart]
                            square[i], square[i + apart] = shuffled(*pair, kept), shuffled(*pair, swapped)
                    apart *= 2
                for i in range(length):
                    builder.store(square[i], place(target, target_stride, column + i, row), align=size)
        return context.get_dummy_value()

    return types.none(source, types.intp, target, types.intp), copy
