"""The compiled kernels: one loop body, several CPU targets, chosen at run time."""

from importlib import resources
from typing import Any

import numpy as np

from fastgae._canonical import Rollout

try:
    import fastgae._core as _core
except ModuleNotFoundError as error:
    # setup.py leaves the compiler's message here where it built without the extension.
    failure = resources.files("fastgae").joinpath("_build_failure.txt")
    reason = failure.read_text() if failure.is_file() else "this installation has no compiled module"
    raise ModuleNotFoundError(f"not built: {reason}", name=error.name) from error

gae_plain = _core.gae_plain
gae_optional = _core.gae_optional
block_sums = _core.block_sums
rescale = _core.rescale


def version() -> str:
    return _core.compiler


def targets() -> tuple[str, ...]:
    return _core.targets()


def gae(rollout: Rollout, num_threads: int, target: str | None) -> None:
    if not rollout.is_plain:
        _core.gae_general(**_with_floats(rollout), num_threads=num_threads, target=target)
        return
    _core.gae(
        rollout.rewards,
        rollout.values,
        rollout.next_values,
        rollout.last_values,
        rollout.final_values,
        rollout.terminated,
        rollout.truncated,
        float(rollout.gamma),
        float(rollout.gamma_lambda),
        rollout.advantages,
        rollout.returns,
        num_threads,
        target,
    )


def _with_floats(rollout: Rollout) -> dict[str, Any]:
    """The fields of a rollout, its coefficients that are numbers as Python's."""
    return {
        name: float(given) if isinstance(given, np.floating) else given for name, given in rollout._asdict().items()
    }
