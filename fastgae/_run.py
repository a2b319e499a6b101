"""The one way of a call: short cut (may decline) -> checks -> canonical -> backend -> results."""

from collections.abc import Callable
from typing import Any

from fastgae import _dispatch, _threads
from fastgae._call import Call, GAEResult
from fastgae._canonical import canonical_rollout, checked, has_options, in_one_layout
from fastgae._moments import center_and_scale


def run(
    given: tuple[Any, ...],
    backend: str | None,
    num_threads: int | None,
    checks: Callable[[Call], Call] = checked,
) -> GAEResult:
    """Compute a call that nobody has checked yet: a tuple in the order of ``Call``, which may leave out the end."""
    _, target, threads, short_cut = _dispatch.choose(backend, num_threads)
    if short_cut is not None:
        result: GAEResult | None = short_cut(given, threads, target)
        if result is not None:
            return result
    return compute(checks(Call(*given)), backend, num_threads)


def compute(call: Call, backend: str | None, num_threads: int | None) -> GAEResult:
    """Compute a checked call."""
    module, target, threads, short_cut = _dispatch.choose(backend, num_threads)
    matrices, layout = in_one_layout(call)
    filled: GAEResult | None = None
    if short_cut is not None and call.normalize is None and not has_options(call):
        filled = short_cut(matrices, threads, target)
    if filled is None:
        if call.normalize is not None and matrices.out is not None:
            # Advantages are normalized in place, and an error on the way must not leave the caller's arrays half done.
            own = tuple(None if array is None else layout.empty(array.dtype) for array in matrices.out)
            matrices = matrices._replace(out=own)
        rollout = canonical_rollout(matrices, layout)
        on = (threads or _threads.usable_cpus(), target)
        if rollout.rewards.size:
            module.gae(rollout, *on)
            if call.normalize is not None:
                moments = center_and_scale(rollout.advantages, rollout.mask, call.normalize, layout, module, *on)
                module.rescale(rollout.advantages, rollout.mask, *moments, *on)
        filled = GAEResult(rollout.advantages, rollout.returns)
    return layout.restored(filled, call)
