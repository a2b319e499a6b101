"""Compute the overview of a rollout."""

from typing import Any

import numpy as np

from fastgae._diagnose.report import Overview
from fastgae._diagnose.steps import Steps, episode_lengths, number_of


def overview(steps: Steps) -> Overview:
    """Return the size of a rollout, its episodes, and how far its values are from its returns."""
    ends = steps.done & steps.exists
    lengths = np.count_nonzero(steps.exists, 0) if steps.sequences else episode_lengths(ends, steps.exists)[ends]
    errors, rewards, values = (each[steps.exists] for each in (steps.td_errors, steps.rewards, steps.values))
    return Overview(
        *steps.shape,
        tokens=number_of(steps.exists) if steps.sequences else None,
        flags=steps.given.terminated is not None or steps.given.truncated is not None,
        episodes=number_of(ends),
        truncated=number_of(ends & ~steps.terminated),
        lengths=(int(lengths.min()), int(np.median(lengths)), int(lengths.max())) if lengths.size else None,
        explained_variance=steps.explained_variance,
        mean_reward=_finite(rewards.mean()) if rewards.size else None,
        mean_value=_finite(values.mean()) if values.size else None,
        mean_td_error=_finite(errors.mean()) if errors.size else None,
        std_td_error=_finite(errors.std()) if errors.size else None,
    )


def _finite(number: Any) -> float | None:
    """Return a number for JSON, which has no NaN."""
    return float(number) if np.isfinite(number) else None
