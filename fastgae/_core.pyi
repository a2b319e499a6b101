from collections.abc import Callable

from numpy import bool_, float64, floating
from numpy.typing import NDArray

from fastgae._canonical import Clips, GAEResult

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
def gae_general(
    rewards: NDArray[floating],
    values: NDArray[floating],
    next_values: NDArray[floating],
    last_values: NDArray[floating],
    final_values: NDArray[floating] | None,
    terminated: NDArray[bool_],
    truncated: NDArray[bool_] | None,
    gamma: float | NDArray[floating],
    gamma_lambda: float | NDArray[floating],
    advantages: NDArray[floating] | None,
    returns: NDArray[floating] | None,
    returns_gamma_lambda: float | NDArray[floating] | None,
    tail_lambda: float | NDArray[floating] | None,
    mask: NDArray[bool_] | None,
    mask_passes_values: bool,
    last_advantages: NDArray[floating] | None,
    ratios: NDArray[floating] | None,
    clips: Clips | None,
    num_threads: int,
    target: str | None,
) -> int: ...
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
    num_threads: int,
    target: str | None,
    result_type: type[GAEResult],
    usable_cpus: Callable[[], int],
    /,
) -> GAEResult | None: ...
def gae_optional(
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
    num_threads: int,
    target: str | None,
    result_type: type[GAEResult],
    usable_cpus: Callable[[], int],
    autoreset: object,
    prev_done: object,
    mask: object,
    last_advantages: object,
    returns_lambda: object,
    tail_normalized: object,
    normalize: object,
    eps: float,
    ratios: object,
    clips: Clips | None,
    /,
) -> GAEResult | None: ...
