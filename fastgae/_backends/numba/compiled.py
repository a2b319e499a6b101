"""Compile the Python functions of kernels, cache them on disk, and run them on spans of envs side by side.

Every kernel is called as ``kernel(first, last, arguments)``. It computes the envs from ``first`` to before ``last``;
``arguments`` is a tuple of arrays and numbers. Python passes a tuple of 18 as fast as 18 arguments, and a call of the
parallel loop takes 0.05 ms with the tuple and 0.12 with the arguments.
"""

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

from fastgae._backends import BackendUnavailableError

if config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and these kernels run only when compiled: unset it to use them")

# A hash of all files that kernels are made from, as they were when they were imported. The names, the order and the
# numbers that kernels share with the rest of the package are in _call.py and _canonical.
_FOLDER = Path(__file__).parent
_PACKAGE = _FOLDER.parents[1]
_FILES = sorted([*_FOLDER.glob("*.py"), *_PACKAGE.glob("_canonical/*.py"), _PACKAGE / "_call.py"])
_SOURCE = hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """The files of a kernel's cache, which begin anew if one of them is damaged.

    Numba compares no digest, and LLVM aborts the process if it meets damaged machine code.
    """

    def save(self, key: Any, data: Any) -> None:
        pickled = self._dump(data)
        super().save(key, (hashlib.sha256(pickled).digest(), pickled))

    def load(self, key: Any) -> Any:
        try:
            found = super().load(key)
            if found is None:
                return None
            digest, pickled = found
            if digest == hashlib.sha256(pickled).digest():
                return pickle.loads(pickled)
        except Exception:  # pickle may raise any exception for a truncated or damaged file
            pass
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


def signature(arguments: tuple[Any, ...]) -> Any:
    """Return the signature of a kernel for these arguments, and for the same ones of any size and any strides.

    Arrays are declared read-only because a caller's input may be. The kernels write results through addresses.
    """
    return types.void(types.intp, types.intp, types.BaseTuple.from_types([_type(each) for each in arguments]))


def _type(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return types.Array(from_dtype(argument.dtype), argument.ndim, "A", readonly=True)
    return typeof(argument)


def compiled(function: Callable[..., None], signature: Any, **options: bool) -> Any:
    """Compile a function for one signature, or load it from the disk.

    The cache's key does not hold the options, so no function may be compiled with two sets of them.
    """
    kernel = njit(nogil=True, **options)(function)
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
        kernel(bounds[i], bounds[i + 1], arguments)


@functools.cache
def parallel(signature: Any) -> Any:
    """Return the function that runs any kernel of this signature on spans of envs side by side.

    It takes the kernel as an argument, by address. Its copy on disk therefore holds only the loop, and the spans are
    computed by the same machine code as in a serial call: the bits cannot depend on the number of threads.
    """
    bounds = types.Array(types.intp, 1, "C")
    return compiled(_in_parallel, types.void(types.FunctionType(signature), bounds, signature.args[2]), parallel=True)
