from collections.abc import Callable
from contextvars import Context

from numpy import bool_, float32, float64, floating, int64
from numpy.typing import NDArray

from fastgae._call import GAEResult

compiler: str
arguments: tuple[str, ...]
recursions: tuple[str, ...]
compiled_targets: tuple[str, ...]
moment_steps: int
least_recycled: int

def connect(
    result_type: type[GAEResult], new_output: object, absent: object, usable_cpus: Callable[[], int], eps: float
) -> None: ...
def supports(name: str) -> bool: ...
def cache_sizes() -> tuple[int, int, int]: ...
def gae(call: tuple[object, ...], num_threads: int, target: str | None, /) -> GAEResult: ...
def redone() -> int: ...
def short_cut(call: tuple[object, ...], num_threads: int, target: str | None, /) -> GAEResult | None: ...
def block_sums(
    matrix: NDArray[floating],
    mask: NDArray[bool_] | None,
    center: NDArray[float64] | None,
    num_threads: int,
    target: str | None,
) -> NDArray[float64]: ...
def rescale(
    matrix: NDArray[floating],
    mask: NDArray[bool_] | None,
    center: NDArray[float64],
    scale: NDArray[float64],
    num_threads: int,
    target: str | None,
) -> None: ...
def exact_sums(
    matrix: NDArray[floating], mask: NDArray[bool_] | None
) -> tuple[NDArray[int64], tuple[int, int, int, int]]: ...
def streaming_add(a: NDArray[float32], b: NDArray[float32], out: NDArray[float32]) -> None: ...
def set_recycled_limit(nbytes: int) -> None: ...
def recycled() -> dict[str, int]: ...
def recycling(nbytes: int) -> Context | None: ...
