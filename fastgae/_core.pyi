from collections.abc import Callable

from numpy import bool_, float64, floating, int64, uint8
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
def prefetching() -> list[tuple[str, str, int, int, float]]: ...
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
def tree_scan(
    parents: NDArray[int64],
    shares: NDArray[floating],
    terms: NDArray[floating],
    decay: NDArray[floating],
    gate: NDArray[bool_],
    exists: NDArray[bool_] | None,
    follows: NDArray[bool_],
    sums: NDArray[floating],
    y: NDArray[floating],
) -> None: ...
def set_recycled_limit(nbytes: int) -> None: ...
def recycled() -> dict[str, int]: ...
def new_bytes(count: int) -> NDArray[uint8]: ...
def record_call(
    key: str, inputs: tuple[object, ...], outputs: tuple[object, ...], call: Callable[[], object]
) -> None: ...
def xla_handler(minor: int, fallback: Callable[..., object]) -> object: ...
