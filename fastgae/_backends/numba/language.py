"""What the kernels need and Numba has no word for, and how they are compiled and cached."""

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from fastgae._backends import BackendUnavailableError

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and these kernels run only when compiled: unset it to use them")

LANES = 8  # envs side by side, as many as a vector has float32


@intrinsic
def at(typing_context, array, *index):
    """The address of an element: what follows it along the unit axis is contiguous, which the type does not tell."""

    def address(context, builder, signature, arguments):
        owner = make_array(array)(context, builder, arguments[0])
        indices = cgutils.unpack_tuple(builder, arguments[1])
        return cgutils.get_item_pointer(context, builder, array, owner, indices)

    element = types.uint8 if array.dtype == types.boolean else array.dtype
    return types.CPointer(element)(array, types.StarArgTuple([types.intp] * len(index))), address


@intrinsic
def after(typing_context, pointer, count):
    """The address of the element that many after the one that is pointed to."""

    def address(context, builder, signature, arguments):
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.intp), address


class View(NamedTuple):
    """A matrix without its owner: Numba counts references, and that takes longer than a short row."""

    first: Any
    steps: Any
    step_stride: Any  # in elements
    env_stride: Any


@njit(forceinline=True)
def view(matrix):
    step, env = matrix.strides
    return View(at(matrix, 0, 0), len(matrix), step // matrix.itemsize, env // matrix.itemsize)


@njit(forceinline=True)
def at_view(matrix, t, n):
    return after(matrix.first, t * matrix.step_stride + n * matrix.env_stride)


@intrinsic
def restrict(typing_context):
    """C's __restrict on every pointer that the calling function takes."""

    def mark(context, builder, signature, arguments):
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.none(), mark


@intrinsic
def transpose(typing_context, source, first, apart, target, to, to_apart):
    """LANES x LANES elements in three rounds of shuffles, each one instruction of AVX2. For the plain loops LLVM finds
    several times as many: advantages of 1024 x 128 float32 took 121 us, and take 106.
    """
    # Which two rows meet, how much further right the second half of their elements is, and the first half.
    rounds = (
        (1, 2, (0, 8, 1, 9, 4, 12, 5, 13)),
        (2, 2, (0, 1, 8, 9, 4, 5, 12, 13)),
        (4, 4, (0, 1, 2, 3, 8, 9, 10, 11)),
    )
    result = (0, 2, 1, 3, 4, 6, 5, 7)  # the order in which that leaves the rows

    def shuffle(context, builder, signature, arguments):
        source_pointer, source_first, source_apart, target_pointer, target_first, target_apart = arguments
        element = context.get_data_type(source.dtype)
        vector, alignment = ir.VectorType(element, LANES), context.get_abi_sizeof(element)

        def row(pointer, begin, distance, i):
            index = builder.add(begin, builder.mul(distance, distance.type(i)))
            return builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())

        rows = [builder.load(row(source_pointer, source_first, source_apart, i), align=alignment) for i in range(LANES)]
        for pair, further, half in rounds:
            for i in range(LANES):
                if not i & pair:
                    halves = (
                        ir.Constant(ir.VectorType(ir.IntType(32), LANES), [lane + right for lane in half])
                        for right in (0, further)
                    )
                    upper, lower = rows[i], rows[i + pair]
                    rows[i], rows[i + pair] = (builder.shuffle_vector(upper, lower, mask) for mask in halves)
        for i, vector_row in zip(result, rows, strict=True):
            builder.store(vector_row, row(target_pointer, target_first, target_apart, i), align=alignment)
        return context.get_dummy_value()

    return types.none(source, types.intp, types.intp, target, types.intp, types.intp), shuffle


# --- from a function to machine code ---------------------------------------------------------------------------------


# Of all files that kernels are made from, as they were when they were imported.
_SOURCE = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's key holds the CPU, its features, Numba's version and the kernel's own file, but not what that imports."""

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return super()._index_key(signature, codegen), _SOURCE


def array_of(element: Any, ndim: int, readonly: bool = True) -> Any:
    """With any strides, so that nothing compiles twice."""
    return types.Array(element, ndim, "A", readonly=readonly)


def compiled(function: Callable[..., None], signature: Any, **options: bool) -> Callable[..., None]:
    """The key does not hold the options either: no function may be compiled with two sets of them."""
    kernel = njit(nogil=True, **options)(function)
    with contextlib.suppress(RuntimeError):  # no directory to cache in
        kernel._cache = _Cache(function)
    try:
        kernel.compile(signature)
    except Exception as error:
        raise BackendUnavailableError(
            f"the numba backend cannot compile its kernels here ({type(error).__name__}: {error}): reinstall numba, or "
            'choose another backend, such as backend="numpy"'
        ) from error
    kernel.disable_compile()
    result: Callable[..., None] = kernel
    return result
