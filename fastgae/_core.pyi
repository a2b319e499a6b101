from collections.abc import Callable

from numpy import bool_, floating
from numpy.typing import NDArray

from fastgae._canonical import GAEResult

compiler: str

def targets() -> tuple[str, ...]: ...
def gae(
    rewards: NDArray[floating],
    values: NDArray[floating],
    next_values: NDArray[floating],
    last_values: NDArray[floating],
    final_values: NDArray[floating] | None,
    terminated: NDArray[bool_],
    truncated: NDArray[bool_] | None,
    gamma: float,
    gamma_lambda: float,
    advantages: NDArray[floating] | None,
    returns: NDArray[floating] | None,
    num_threads: int,
    target: str | None,
) -> int: ...
def gae_plain(
    rewards: object,
    values: object,
    terminated: object,
    truncated: object,
    last_values: object,
    next_values: object,
    final_values: object,
    gamma: object,
    gae_lambda: object,
    time_axis: object,
    out: object,
    num_threads: object,
    target: str | None,
    result_type: type[GAEResult],
    resolve_threads: Callable[[int | None], int],
    /,
) -> GAEResult | None: ...
