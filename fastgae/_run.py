"""A checked call -> a backend -> its results."""

from fastgae import _dispatch
from fastgae._canonical import Arguments, GAEResult, canonical_rollout, in_one_layout
from fastgae._moments import normalize_in_place


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
    filled: GAEResult | None = None if matrices.options else module.gae_plain(*matrices[:11], *how)
    if filled is None:
        rollout = canonical_rollout(matrices, layout)
        if rollout.rewards.size:
            module.gae(rollout, threads or _dispatch.usable_cpus(), target)
        filled = GAEResult(rollout.advantages, rollout.returns)  # type: ignore[arg-type]
    if normalize is not None:
        mask = matrices.options.mask if matrices.options else None
        normalize_in_place(filled.advantages, mask, normalize, layout, module, threads, target)
    return layout.restored(filled, given)
