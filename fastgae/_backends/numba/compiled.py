"""Compile the Python functions of kernels, cache them on disk, and run them on spans of envs side by side."""

import contextlib
import functools
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, from_dtype, njit, prange, typeof, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler import Compiler
from numba.extending import overload

from fastgae._backends import BackendUnavailableError

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and these kernels run only when compiled: unset it to use them")

# A hash of all files that kernels are made from, as they were when they were imported.
_FILES = [*sorted(Path(__file__).parent.glob("*.py")), Path(__file__).parents[2] / "_call.py"]
_SOURCE = hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()


class _NoOverlap(Compiler):  # type: ignore[misc]
    """Promise LLVM that arguments do not overlap, as C's ``restrict`` does.

    Otherwise a loop compares the addresses of all its arrays first, which takes longer than computing a short row.
    """

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.state.flags.noalias = True


# Only kernels are called from Python. Wrappers of the functions in them would take a quarter of the time to compile.
_INNER = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = njit(**_INNER)
no_overlap = njit(pipeline_class=_NoOverlap, **_INNER)  # what such a function writes is passed to it once


def at(numbers, i):
    """Return the i-th number of an array, or the number itself if one stands for all."""


@overload(at, jit_options={"error_model": "numpy"})
def _at(numbers, i):
    return (lambda numbers, i: numbers[i]) if isinstance(numbers, types.Array) else (lambda numbers, i: numbers)


def of_row(numbers, t):
    """Return the coefficient of row t if there is one for each, in a matrix of one column; else ``numbers``."""


@overload(of_row, jit_options={"error_model": "numpy"})
def _of_row(numbers, t):
    is_per_row = isinstance(numbers, types.Array) and numbers.ndim == 2
    return (lambda numbers, t: numbers[t, 0]) if is_per_row else (lambda numbers, t: numbers)


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """The files of a kernel's cache, which begin anew if one of them is damaged.

    Numba compares no digest, and LLVM aborts the process if it meets damaged machine code.
    """

    def save(self, key: Any, data: Any) -> None:
        pickled = self._dump(data)
        super().save(key, (hashlib.sha256(pickled).digest(), pickled))

    def load(self, key: Any) -> Any:
        with contextlib.suppress(Exception):  # pickle may raise any exception for a truncated or damaged file
            found = super().load(key)
            if found is None:
                return None
            digest, pickled = found
            if digest == hashlib.sha256(pickled).digest():
                return pickle.loads(pickled)
        self.flush()
        return None


class _Cache(FunctionCache):  # type: ignore[misc]
    """Add the sources to the cache's key.

    Numba's own key holds the CPU, its features, Numba's version and the kernel's file, but not the files it imports.
    """

    def __init__(self, function: Callable[..., None]):
        super().__init__(function)
        self._cache_file = _Files(
            self.cache_path, self._impl.filename_base, source_stamp=self._impl.locator.get_source_stamp()
        )

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return super()._index_key(signature, codegen), _SOURCE


def signature(arguments: tuple[Any, ...], filled: int) -> Any:
    """Return the signature of a kernel that fills its last ``filled`` arguments; other arrays may be read-only."""
    read = len(arguments) - filled
    return types.void(*(_type(each, place < read) for place, each in enumerate(arguments)))


def _type(argument: Any, is_read: bool) -> Any:
    if isinstance(argument, np.ndarray):
        return types.Array(from_dtype(argument.dtype), argument.ndim, "C", readonly=is_read)
    return typeof(argument)


def compiled(function: Callable[..., None], signature: Any, **options: bool) -> Any:
    """Compile a function for one signature, or load it from the disk.

    The cache's key does not hold the options, so no function may be compiled with two sets of them.
    """
    kernel = njit(nogil=True, error_model="numpy", **options)(function)
    with contextlib.suppress(RuntimeError):  # Numba raises it if there is no directory for the cache.
        kernel._cache = _Cache(function)
    try:
        kernel.compile(signature)
    except Exception as error:
        cache = getattr(kernel._cache, "cache_path", None)
        raise BackendUnavailableError(
            f"the numba backend cannot compile its kernels here ({type(error).__name__}: {error}): "
            + (f"empty the folder of its cache, {cache}, " if cache else "")
            + 'reinstall numba, or choose another backend, such as backend="numpy"'
        ) from error
    kernel.disable_compile()
    return kernel


def _in_parallel(kernel, bounds, arguments):
    for i in prange(len(bounds) - 1):
        kernel(bounds[i], bounds[i + 1], *arguments)


@functools.cache
def parallel(signature: Any) -> Any:
    """Return the function that runs any kernel of this signature on spans of envs side by side.

    It takes the kernel as an argument, by address. Its copy on disk therefore holds only the loop, and the spans are
    computed by the same machine code as in a serial call: the bits cannot depend on the number of threads.
    """
    bounds, arguments = types.Array(types.intp, 1, "C"), types.Tuple(signature.args[2:])
    return compiled(_in_parallel, types.void(types.FunctionType(signature), bounds, arguments), parallel=True)
