"""Compute a call in the only way: short cut (may decline) -> checks -> canonical -> backend -> results."""

from collections.abc import Callable
from typing import Any

from fastgae import _dispatch, _memory, _threads
from fastgae._backends import Backend
from fastgae._call import Call, GAEResult
from fastgae._canonical import Layout, canonical_rollout, checked, has_options, in_one_layout, warn_of_reset_rows
from fastgae._interop import OnDevice
from fastgae._moments import center_and_scale

GAE = "gae"  # the recursion of most estimators


def compute(call: Call, backend: str | None, num_threads: int | None) -> GAEResult[Any]:
    """Compute a checked call."""
    chosen = _dispatch.choose(backend, num_threads)
    threads, target, short_cut = chosen.threads, chosen.target, chosen.short_cut
    # Converted arrays are often plain. For 128 x 8 float32 steps (Zen 5), a try here saves 8 of 21 us for float16 flags
    # and 20 of 47 us for retrace, and the one below saves 5 of 21 us for three axes in Fortran's order.
    filled = None if short_cut is None else short_cut(call, threads, target)
    if filled is not None:
        return filled
    matrices, layout = in_one_layout(call)
    if short_cut is not None and call.normalize is None and not has_options(call):
        filled = short_cut(matrices, threads, target)
    if filled is None:
        filled = _filled(chosen.module, matrices, layout, threads or _threads.usable_cpus(), target)
    return layout.restored(filled, call)


def _filled(module: Backend, matrices: Call, layout: Layout, num_threads: int, target: str | None) -> GAEResult[Any]:
    """Compute matrices of one layout with the backend."""
    if matrices.normalize is not None and matrices.out is not None:
        # Advantages are normalized in place, and an error on the way must not leave the caller's arrays half done.
        own = tuple(None if array is None else _memory.empty_like(array) for array in matrices.out)
        matrices = matrices._replace(out=own)
    rollout, how = canonical_rollout(matrices, layout), (num_threads, target)
    if rollout.rewards.size:
        module.gae(rollout, *how)
        if matrices.normalize is not None:
            moments = center_and_scale(rollout.advantages, rollout.mask, matrices.normalize, layout, module, *how)
            module.rescale(rollout.advantages, rollout.mask, *moments, *how)
    return GAEResult(rollout.advantages, rollout.returns)


def run(
    given: tuple[Any, ...],
    backend: str | None,
    num_threads: int | None,
    checks: Callable[[Call], Call] = checked,
    then: Callable[[Call, str | None, int | None], GAEResult[Any]] = compute,
    recursion: str = GAE,
) -> GAEResult[Any]:
    """Compute an unchecked call: a tuple in the order of ``Call``, whose last arguments may be missing."""
    try:
        chosen = _dispatch.resolve(backend, num_threads)
    except TypeError:  # asking `choose` first would cost a small call 0.1 of 1.4 us (Zen 5)
        chosen = _dispatch.choose(backend, num_threads)
    if chosen.short_cut is not None:
        result = chosen.short_cut(given, chosen.threads, chosen.target)
        if result is not None:
            return result
    call = checks(given if type(given) is Call else Call(*given))
    warn_of_reset_rows(call)
    return where_it_is(call, backend, num_threads, then, recursion)


def where_it_is(
    call: Call,
    backend: str | None,
    num_threads: int | None,
    then: Callable[[Call, str | None, int | None], GAEResult[Any]],
    recursion: str,
) -> GAEResult[Any]:
    """Compute a checked call where its arrays are: on the CPU with ``then``, on a GPU with the named recursion."""
    if isinstance(call.rewards, OnDevice):
        return _dispatch.on_devices("rewards", call.rewards).compute(call, recursion)
    return then(call, backend, num_threads)
