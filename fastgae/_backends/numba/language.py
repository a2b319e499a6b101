"""Words that the kernels need and Numba lacks: addresses, views of matrices without an owner, and ``restrict``."""

from typing import Any, NamedTuple

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array


def _pointer(array):
    """Return the type of an address in an array; flags are bytes."""
    return types.CPointer(types.uint8 if array.dtype == types.boolean else array.dtype)


@intrinsic
def at(typing_context, array, *index):
    """Return the address of an element.

    LLVM sees that the elements after an address are contiguous; the type of an array with free strides hides that.
    """

    def address(context, builder, signature, arguments):
        owner = make_array(array)(context, builder, arguments[0])
        indices = cgutils.unpack_tuple(builder, arguments[1])
        return cgutils.get_item_pointer(context, builder, array, owner, indices)

    return _pointer(array)(array, types.StarArgTuple([types.intp] * len(index))), address


@intrinsic
def after(typing_context, pointer, count):
    """Return the address ``count`` elements after another."""

    def address(context, builder, signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.intp), address


@intrinsic
def same(typing_context, pointer, other):
    """Return whether two addresses are one."""

    def compare(context, builder, signature, arguments):
        return builder.icmp_unsigned("==", *arguments)

    return types.boolean(pointer, other), compare


@intrinsic
def element(typing_context, numbers, i):
    """Return the i-th number after an address, or the number itself if a number is given instead."""

    def load(context, builder, signature, arguments):
        if isinstance(numbers, types.CPointer):
            return builder.load(builder.gep(arguments[0], [arguments[1]]))
        return arguments[0]

    return getattr(numbers, "dtype", numbers)(numbers, types.intp), load


class View(NamedTuple):
    """A matrix of steps by envs without its owner; a row is a matrix of one step, and nothing has no steps.

    Numba counts the references to an array, and that takes longer than computing a short row.
    """

    first: Any
    steps: Any
    step_stride: Any  # in elements; 0 along an axis of one
    env_stride: Any


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
        itemsize = context.get_abi_sizeof(context.get_data_type(array.dtype))
        zero, one, itemsize = (context.get_constant(types.intp, number) for number in (0, 1, itemsize))
        steps, envs = [one, *shape][-2:]
        step_stride, env_stride = (
            builder.select(builder.icmp_signed("==", size, one), zero, builder.sdiv(stride, itemsize))
            for size, stride in zip((steps, envs), [zero, *strides][-2:], strict=True)
        )
        return context.make_tuple(builder, type_of(array), (owner.data, steps, step_stride, env_stride))

    def build(context, builder, signature, values):
        given = [
            view(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(arguments, cgutils.unpack_tuple(builder, values[1]), strict=True)
        ]
        return context.make_tuple(builder, signature.return_type, given)

    return types.NamedTuple([type_of(kind) for kind in arguments], fields.instance_class)(fields, arguments), build


@intrinsic
def at_view(typing_context, matrix, t, n):
    """Return the address of an element of a View."""

    def address(context, builder, signature, arguments):
        first, _, step_stride, env_stride = cgutils.unpack_tuple(builder, arguments[0])
        return builder.gep(
            first, [builder.add(builder.mul(arguments[1], step_stride), builder.mul(arguments[2], env_stride))]
        )

    return matrix.types[0](matrix, types.intp, types.intp), address


@njit(forceinline=True)
def keep(*arrays):
    """Do nothing with some arrays, at the end of a kernel that takes addresses in them.

    Numba frees an array after its last use, and it does not count access through an address as a use.
    """


@njit(forceinline=True)
def at_view_or(matrix, t, n, otherwise):
    """Return the address of an element of a View, or ``otherwise`` where the View has no steps."""
    return at_view(matrix, t, n) if matrix.steps else otherwise


@intrinsic
def restrict(typing_context):
    """Promise C's __restrict for every pointer that the calling function takes."""

    def mark(context, builder, signature, arguments):
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.none(), mark
