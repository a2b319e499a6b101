"""Run every detector on the arguments of a call of ``gae``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Unpack

import numpy as np

from fastgae._call import Call
from fastgae._canonical.checks import checked
from fastgae._canonical.frame import frame_of
from fastgae._diagnose import bootstrap, fit, flags, numerics, rows
from fastgae._diagnose.report import Diagnosis, Finding, Overview, Places
from fastgae._diagnose.steps import Steps, episode_lengths, number_of
from fastgae._engine.declared import public
from fastgae._typing import ArrayLike, Autoreset, Misnamed, Normalize
from fastgae.estimators.gae import gae

# Mistakes that affect the whole call are reported before those that affect some steps.
DETECTORS: dict[str, Callable[[Steps], Iterator[Finding]]] = {
    "coefficient_rounded": numerics.coefficients,
    "non_finite": numerics.non_finite,
    "flags_inverted": flags.inverted,
    "axes_swapped": flags.axes,
    "envs_shuffled": fit.envs_shuffled,
    "padding": rows.padding,
    "rewards_masked": rows.rewards_masked,
    "flags_shifted": flags.shift,
    "flags_missing": flags.missing,
    "truncation_as_termination": flags.merged,
    "truncation_bootstrap": bootstrap.at_truncation,
    "last_row_bootstrap": bootstrap.last_row,
    "reset_rows": rows.reset_rows,
    "not_next_step": rows.not_next_step,
    "prev_done": rows.prev_done,
    "normalizer": numerics.normaliser,
}

# These compare values with rewards. Any of the mistakes above would disturb that, so they run only if none was found.
OF_FIT: dict[str, Callable[[Steps], Iterator[Finding]]] = {
    "terminated_by_limit": fit.terminated_by_limit,
    "rewards_shifted": fit.rewards_shifted,
    "gamma_or_scale": fit.gamma_or_scale,
}

# After one of these, nobody can tell where episodes end, so the findings of later detectors would mislead.
DECISIVE = ("flags_inverted", "axes_swapped", "envs_shuffled", "values_shifted", "padding")


@public
def diagnose(
    rewards: ArrayLike,
    values: ArrayLike,
    terminated: ArrayLike | None = None,
    truncated: ArrayLike | None = None,
    *,
    last_values: ArrayLike | None = None,
    next_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    autoreset: Autoreset | Enum | None = None,
    prev_done: ArrayLike | None = None,
    last_advantages: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    gae_lambda: float | ArrayLike = 0.95,
    returns_lambda: float | ArrayLike | None = None,
    normalize: Normalize | None = None,
    tail_normalized: bool = False,
    carry_over: bool = False,
    time_axis: int = 0,
    **misnamed: Unpack[Misnamed],
) -> Diagnosis:
    r"""Look for traces of mistakes in the arguments of a call of ``gae``.

    The detectors compare each row with the next, because values jump where an episode ends. They report a finding only
    if the rollout gives clear evidence, a count and a ratio, and they report the evidence too. A rollout with few
    episode ends, or with constant values, may hide a mistake. A finding is not a proof.

    They look for: flags, or values, one step late or early; flags that are missing or inverted; time limits flagged as
    terminated; V' of another episode, of the same state, or 0 at truncated steps; no bootstrap after the last row;
    reset rows and padding that count as steps, or steps that count as reset rows; rewards outside of the mask; swapped
    axes; values of envs in another order; gamma or lambda rounded to 16 bits; numbers that are not finite, and whether
    a flag hides them; advantages that cannot be normalised. If they find none of these, they also look for values
    larger than the rewards can add up to, because of another gamma or of scaled or clipped rewards; whitened rewards;
    rewards one step late or early; and limits flagged as terminated. Values that are too small may have only begun to
    learn.

    The report ends with an overview: episodes and their lengths, how much of the variance of the returns the values
    explain, and the TD errors.

    Parameters
    ----------
    rewards, values, terminated, truncated, ...
        As in ``gae``, which has some more that change no number. They are not written to.

    Returns
    -------
    Diagnosis
        A sequence of ``Finding(what, where, why, change, detector)``, which is true if there are any findings.
        ``overview`` has the numbers with which the report ends. ``str`` gives the report for people, and ``plot`` a
        picture; ``as_dict`` and ``to_json`` are for programs.

    Raises
    ------
    ValueError, TypeError
        The errors that ``gae`` raises for the same arguments, because such an error already says what is wrong.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rng = np.random.default_rng(0)
    >>> rewards, values = rng.normal(size=(2, 64, 4))
    >>> found = fastgae.diagnose(rewards, values, np.zeros((64, 4)), last_values=np.zeros(4))
    >>> [finding.detector for finding in found]
    ['last_row_bootstrap']
    """
    given = Call(
        rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask,
        gamma, gae_lambda, time_axis, None, normalize, last_advantages, returns_lambda, tail_normalized, carry_over,
    )  # fmt: skip
    call = checked(gae.declaration, given)  # type: ignore[attr-defined]
    steps = Steps(call, frame_of("rewards", call.rewards, call.time_axis).flags_or_none("mask", mask))
    with np.errstate(all="ignore"):  # NaN and infinity in the data need no warning
        found = (_found(DETECTORS, steps) or _found(OF_FIT, steps)) if steps.exists.any() else []
        places = [finding.where for finding in found] or [Places()]
        return Diagnosis(found, overview(steps), [steps.column(each) for each in places])


def _found(detectors: dict[str, Callable[[Steps], Iterator[Finding]]], steps: Steps) -> list[Finding]:
    found: list[Finding] = []
    for name, detect in detectors.items():
        found += [finding._replace(detector=finding.detector or name) for finding in detect(steps)]
        if found and found[-1].detector in DECISIVE:
            break
    return found


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
