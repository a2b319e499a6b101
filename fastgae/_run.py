"""Compute a call in the only way: short cut (may decline) -> checks -> matrices of one layout -> backend -> results."""

from typing import Any

from fastgae import _dispatch, _memory, _threads
from fastgae._call import ABSENT, RECURSIONS, Call, Estimator, GAEResult
from fastgae._canonical import checked, in_one_layout, warn_of_reset_rows
from fastgae._moments import center_and_scale


def run(estimator: Estimator, given: tuple[Any, ...], backend: str | None, num_threads: int | None) -> GAEResult[Any]:
    """Compute an unchecked call: a tuple in the order of ``Call``, whose last arguments may be missing."""
    try:
        chosen = _dispatch.resolve(backend, num_threads)
    except TypeError:  # asking `choose` first would cost a small call 0.1 of 1.4 us (Zen 5)
        chosen = _dispatch.choose(backend, num_threads)
    if chosen.short_cut is not None:
        result = chosen.short_cut(given, chosen.threads, chosen.target)
        if result is not None:
            return result
    call = checked(estimator, Call(*given))
    warn_of_reset_rows(call)
    return without_short_cut(call, chosen)


def run_on_device(
    estimator: Estimator, given: tuple[Any, ...], backend: str | None, num_threads: int | None
) -> GAEResult[Any]:
    """Compute an unchecked call whose arrays are on a GPU, or are computed by JAX."""
    name = estimator.word("rewards")
    module = _dispatch.on_devices(name, given[0], num_threads)
    call = checked(estimator, Call(*given))
    if call.recursion not in module.RECURSIONS:
        raise TypeError(f"{name} is {given[0]!r}, and {call.recursion} computes on the CPU: pass {name}.cpu()")
    return module.gae(Call._make(None if argument is ABSENT else argument for argument in call))


def without_short_cut(call: Call, chosen: _dispatch.Chosen) -> GAEResult[Any]:
    """Compute a checked call."""
    module, how = chosen.module, (chosen.threads or _threads.usable_cpus(), chosen.target)
    matrices, layout, results = in_one_layout(call)
    if not matrices.rewards.size:
        return results
    normalize = matrices.normalize
    if normalize is not None:
        # Advantages are normalized in place, and an error on the way must not leave the caller's arrays half done.
        own = tuple(None if array is None else _memory.empty_like(array) for array in matrices.out)
        matrices = matrices._replace(out=own, normalize=None)
    if matrices.recursion in module.RECURSIONS:
        module.gae(matrices, *how)
    elif (reduced := RECURSIONS[matrices.recursion](matrices)) is not None:
        without_short_cut(reduced._replace(recursion="gae"), chosen)
    if normalize is not None:
        moments = center_and_scale(matrices.out[0], matrices.mask, normalize, layout, module, *how)
        module.rescale(matrices.out[0], matrices.mask, *moments, *how)
    return layout.restored(matrices.out, results)
