"""The compiled kernels: one loop body, several CPU targets, chosen at run time."""

from importlib import resources

from fastgae._canonical import Rollout

try:
    import fastgae._core as _core
except ModuleNotFoundError as error:
    # setup.py leaves the compiler's message here where it built without the extension.
    failure = resources.files("fastgae").joinpath("_build_failure.txt")
    reason = failure.read_text() if failure.is_file() else "this installation has no compiled module"
    raise ModuleNotFoundError(f"not built: {reason}", name=error.name) from error

gae_plain = _core.gae_plain


def version() -> str:
    return _core.compiler


def targets() -> tuple[str, ...]:
    return _core.targets()


def gae(rollout: Rollout, num_threads: int, target: str | None) -> None:
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
