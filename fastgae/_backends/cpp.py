"""The compiled kernels: one loop body, several CPU targets, chosen at run time."""

from importlib import resources
from typing import Any

from fastgae._backends import CPU_TARGETS
from fastgae._call import EPS, NEW, Array, GAEResult
from fastgae._canonical import Clips, Rollout
from fastgae._threads import usable_cpus

try:
    import fastgae._core as _core
except ModuleNotFoundError as error:
    # setup.py leaves the compiler's message here where it built without the extension.
    failure = resources.files("fastgae").joinpath("_build_failure.txt")
    reason = failure.read_text() if failure.is_file() else "this installation has no compiled module"
    raise ModuleNotFoundError(f"not built: {reason}", name=error.name) from error

_core.connect(GAEResult, NEW, usable_cpus, EPS)


def version() -> str:
    return _core.compiler


def targets() -> tuple[str, ...]:
    return tuple(name for name in CPU_TARGETS if _core.supports(name))


# Adapters to callers that pass neither the record of a call nor the name of every target.
_BEST = targets()[0]


def gae(rollout: Rollout, num_threads: int, target: str | None) -> int:
    return _core.gae(rollout, num_threads, target or _BEST)


def gae_plain(*given: Any) -> GAEResult | None:
    *arrays, gamma, gae_lambda, time_axis, out, num_threads, target, _, _ = given
    call = (*arrays, None, None, None, None, gamma, gae_lambda, None, None, False, time_axis, out)
    return _core.short_cut(call, num_threads, target or _BEST)


def gae_optional(*given: Any) -> GAEResult | None:
    plain, options = given[:15], given[15:]
    *arrays, gamma, gae_lambda, time_axis, out, num_threads, target, _, _ = plain
    autoreset, prev_done, mask, last_advantages, returns_lambda, tail_normalized, normalize, _, ratios, clips = options
    constants: Clips | tuple[()] = clips or ()
    call = (
        *(*arrays, autoreset, last_advantages, prev_done, mask, gamma, gae_lambda, returns_lambda, normalize),
        *(tail_normalized, time_axis, out, ratios, *constants),
    )
    return _core.short_cut(call, num_threads, target or _BEST)


def block_sums(matrix: Array, mask: Array | None, center: Array | None, num_threads: int, target: str | None) -> Array:
    return _core.block_sums(matrix, mask, center, num_threads, target or _BEST)


def rescale(
    matrix: Array, mask: Array | None, center: Array, scale: Array, num_threads: int, target: str | None
) -> None:
    _core.rescale(matrix, mask, center, scale, num_threads, target or _BEST)
