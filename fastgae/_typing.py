"""The types in the signatures of the public functions.

A call returns arrays of the type of its first argument: tensors for tensors, JAX arrays for JAX arrays, and NumPy
arrays with the same dtype. (A float64 array together with float32 arrays gives float64, but these types do not say so.)
Protocols say what these arrays have in common, so nothing here imports torch or JAX, and no type checker needs them.
"""

import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

import numpy as np

if TYPE_CHECKING:  # Type checkers know this module, and Python's own type variables have no defaults before 3.13.
    from numpy.typing import ArrayLike as ArrayLike
    from numpy.typing import NDArray as NDArray
    from typing_extensions import TypeVar
else:
    ArrayLike, NDArray = object, np.ndarray  # to import numpy.typing takes a tenth of the time of `import fastgae`

    def TypeVar(name: str, **_: Any) -> typing.TypeVar:  # noqa: N802
        return typing.TypeVar(name)


class TorchDtype(Protocol):
    """A torch dtype."""

    @property
    def is_floating_point(self) -> bool: ...


class FloatArray(Protocol):
    """An array of floats from NumPy, torch or JAX. A column of a table has no ``flatten``."""

    @property
    def dtype(self) -> np.dtype[np.floating[Any]] | TorchDtype: ...
    def flatten(self) -> Any: ...


class FlagArray(Protocol):
    """An array of bool from NumPy, torch or JAX."""

    @property
    def dtype(self) -> np.dtype[np.bool_] | TorchDtype: ...
    def flatten(self) -> Any: ...


class Column(Protocol):
    """A column of a table, such as a pandas or Polars Series."""

    def to_numpy(self) -> Any: ...


# The type of the results. For a first argument of another type, Numbers or Flags, it is a NumPy array. These types have
# nothing in common with the arrays above, because mypy would then take every array for one of them.
ArrayT = TypeVar("ArrayT", bound=FloatArray, default=NDArray[Any])
FlagsT = TypeVar("FlagsT", bound=FlagArray, default=NDArray[np.bool_])
Numbers = NDArray[np.integer[Any] | np.bool_] | Sequence[Any] | Column
Flags = NDArray[np.number[Any]] | Sequence[Any] | Column


class Misnamed(TypedDict, total=False):
    """The flag of other libraries: a type checker says what the error of the call says."""

    done: Literal["pass terminated, the flags that env.step returned with rewards"]
    dones: Literal["pass terminated, the flags that env.step returned with rewards"]


Output = tuple[ArrayT | None, ArrayT | None]

Autoreset = Literal["next_step", "same_step", "disabled"]
Normalize = Literal["global", "per_env"]
Baseline = Literal["mean", "leave_one_out", "none"]
TreeWeights = Literal["children", "leaves"]
Scale = Literal["std", "batch", "none"]
# The backends of the CPU, best first, the CPU targets of cpp, best first, and the backend of tensors on a GPU.
BackendName = Literal["cpp", "numba", "numpy", "cpp:avx512", "cpp:avx2", "cpp:baseline", "triton"]
