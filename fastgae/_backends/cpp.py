"""The compiled kernels: one loop body, several CPU targets, chosen at run time."""

from importlib import resources

import numpy as np

try:
    import fastgae._core as _core
except ModuleNotFoundError as error:
    # setup.py leaves the compiler's message here where it built without the extension.
    failure = resources.files("fastgae").joinpath("_build_failure.txt")
    reason = failure.read_text() if failure.is_file() else "this installation has no compiled module"
    raise ModuleNotFoundError(f"not built: {reason}", name=error.name) from error

block_sums = _core.block_sums
rescale = _core.rescale


def version() -> str:
    return _core.compiler


def targets() -> tuple[str, ...]:
    return _core.targets()


def short_cut(call, num_threads, target):
    from fastgae import _threads
    from fastgae._call import EPS, NEW, Call, GAEResult

    c = Call(*call)
    if (c.ratios is None) != (c.rho_clip is None):
        return None
    if isinstance(c.out, tuple) and any(o is NEW for o in c.out):
        return None
    plain = (
        c.rewards,
        c.values,
        c.terminated,
        c.truncated,
        c.last_values,
        c.next_values,
        c.final_values,
        c.gamma,
        c.gae_lambda,
        c.time_axis,
        c.out,
        num_threads,
        target,
        GAEResult,
        _threads.usable_cpus,
    )
    clips = None if c.ratios is None else (c.rho_clip, c.c_clip, c.advantage_clip)
    if (
        c.autoreset is c.last_advantages is c.prev_done is c.mask is c.returns_lambda is c.normalize is c.ratios is None
        and c.tail_normalized is False
    ):
        r = _core.gae_plain(*plain)
        if r is not None:
            return r
    return _core.gae_optional(
        *plain,
        c.autoreset,
        c.prev_done,
        c.mask,
        c.last_advantages,
        c.returns_lambda,
        c.tail_normalized,
        c.normalize,
        EPS,
        c.ratios,
        clips,
    )


def gae(rollout, num_threads, target):
    d = rollout._asdict()
    d["clips"] = d.pop("constants")
    d = {n: float(g) if isinstance(g, np.floating) else g for n, g in d.items()}
    _core.gae_general(**d, num_threads=num_threads, target=target)
