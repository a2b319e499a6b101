"""A call -> a backend -> its results."""

from enum import Enum
from typing import Any

from numpy.typing import ArrayLike

from fastgae import _dispatch
from fastgae._canonical import (
    Arguments,
    Clips,
    GAEResult,
    autoreset_mode,
    canonical_rollout,
    check_normalize,
    checked_arguments,
    in_one_layout,
)
from fastgae._moments import EPS, center_and_scale


def run_with_options(
    given: tuple[Any, ...],
    backend: str | None,
    num_threads: int | None,
    *,
    autoreset: str | Enum | None = None,
    prev_done: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    last_advantages: ArrayLike | None = None,
    returns_lambda: Any = None,
    tail_normalized: bool = False,
    normalize: str | None = None,
    ratios: ArrayLike | None = None,
    clips: Clips | None = None,
    lambda_name: str = "gae_lambda",
) -> GAEResult:
    """By the backend's short cut, or all the way; given: what checked_arguments takes by place."""
    module, target, threads = _dispatch.choose(backend, num_threads)
    result: GAEResult | None = module.gae_optional(
        *given,
        threads,
        target,
        GAEResult,
        _dispatch.usable_cpus,
        autoreset_mode(autoreset),
        prev_done,
        mask,
        last_advantages,
        returns_lambda,
        tail_normalized,
        normalize,
        EPS,
        ratios,
        clips,
    )
    if result is not None:
        return result
    arguments = checked_arguments(
        *given,
        autoreset=autoreset,
        last_advantages=last_advantages,
        prev_done=prev_done,
        mask=mask,
        returns_lambda=returns_lambda,
        tail_normalized=tail_normalized,
        ratios=ratios,
        clips=clips,
        lambda_name=lambda_name,
    )
    check_normalize(normalize, arguments.out)
    return run(arguments, backend, num_threads, normalize)


def run(given: Arguments, backend: str | None, num_threads: int | None, normalize: str | None = None) -> GAEResult:
    """What was checked, computed by the backend that was asked for, in the arrays that were asked for."""
    module, target, threads = _dispatch.choose(backend, num_threads)
    how = (threads, target, GAEResult, _dispatch.usable_cpus)
    if given.options is None and normalize is None:
        # What was only of several dtypes is plain by now.
        result: GAEResult | None = module.gae_plain(*given[:11], *how)
        if result is not None:
            return result
    matrices, layout = in_one_layout(given)
    if normalize is not None and matrices.out is not None:
        # They are normalized in place, and an error on the way must not leave the caller's arrays half done.
        own = [None if array is None else layout.empty(array.dtype) for array in matrices.out]
        matrices = matrices._replace(out=(own[0], own[1]))
    filled: GAEResult | None = None if matrices.options else module.gae_plain(*matrices[:11], *how)
    if filled is None:
        rollout = canonical_rollout(matrices, layout)
        if rollout.rewards.size:
            module.gae(rollout, threads or _dispatch.usable_cpus(), target)
        filled = GAEResult(rollout.advantages, rollout.returns)  # type: ignore[arg-type]
    if normalize is not None:
        advantages, mask = filled.advantages, matrices.options.mask if matrices.options else None
        if advantages.size:
            on = (threads or _dispatch.usable_cpus(), target)
            module.rescale(advantages, mask, *center_and_scale(advantages, mask, normalize, layout, module, *on), *on)
    return layout.restored(filled, given)
