"""The reference: the recursion as it is written, one vector step per time index."""

import numpy as np

from fastgae._canonical import Rollout


def version() -> str:
    return f"numpy {np.__version__}"


def targets() -> tuple[str, ...]:
    return ()


def gae_plain(*arguments: object) -> None:
    """There is no short cut."""


def gae(rollout: Rollout, num_threads: int, target: str | None) -> None:
    """delta = (r + gamma V') - V;  A = delta + gamma lambda A_next;  R = A + V; a closed gate leaves its term out."""
    bootstrap = ~rollout.terminated
    trace = bootstrap if rollout.truncated is None else bootstrap & ~rollout.truncated
    next_values = np.concatenate([rollout.next_values, rollout.last_values[np.newaxis]])
    if rollout.final_values is not None:
        np.copyto(next_values, rollout.final_values, where=rollout.truncated)

    # NaN and infinity are data here, and what lies behind a closed gate must not even warn.
    with np.errstate(all="ignore"):
        advantages = rollout.rewards.copy()
        np.add(advantages, rollout.gamma * next_values, out=advantages, where=bootstrap)
        advantages -= rollout.values
        following = np.zeros_like(rollout.last_values)
        for t in reversed(range(len(advantages))):
            np.add(advantages[t], rollout.gamma_lambda * following, out=advantages[t], where=trace[t])
            following = advantages[t]
        if rollout.advantages is not None:
            rollout.advantages[...] = advantages
        if rollout.returns is not None:
            np.add(advantages, rollout.values, out=rollout.returns)
