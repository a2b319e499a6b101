"""Detect that rewards and values do not belong together: another gamma, scale, env or row.

A value function that was never trained, or that hardly differs between states, fits anything. So each detector first
requires that the values fit the rewards well once its mistake is corrected.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from fastgae._call import Array
from fastgae._diagnose.flags import rewards_look_shifted
from fastgae._diagnose.report import Finding, Places
from fastgae._diagnose.steps import Steps, median, number_of

# Common discounts.
GAMMAS = (0.95, 0.97, 0.98, 0.99, 0.995, 0.997, 0.999, 1.0)
FEWEST = 64  # steps


class Fit(NamedTuple):
    """How rewards fit values, over the steps that exist.

    Both numbers of a step cover the rest of its episode, or of the rollout: the discounted rewards, and the rewards
    that the values expect, V minus the discounted V after that rest.
    """

    rewards: Array
    expected: Array
    # Makes the same with one value at all states, the mean of V. Few fits need it, and it takes one more pass.
    by_one: Callable[[], Array]

    def error(self) -> float:
        """Return the mean squared error of the values, in variances of the rewards."""
        return _error(self.rewards, self.expected)

    def scaled_error(self) -> float:
        """Return the same for the values at their best scale."""
        return _error(self.rewards / _ratio(self.rewards, self.expected), self.expected)

    def informative(self) -> bool:
        """Return whether the values explain more, at their best scale, than one value at all states."""
        return self.scaled_error() < min(0.7, 0.8 * self._replace(expected=self.by_one()).scaled_error())

    def agrees(self) -> bool:
        """Return whether rewards are about as large as expected, by their means and by the variation around these."""
        rewards, expected = self.rewards - self.rewards.mean(), self.expected - self.expected.mean()
        scales = float(self.rewards.mean() / self.expected.mean()), _ratio(rewards, expected)
        return all(1 / 1.5 < scale < 1.5 for scale in scales)


def _ratio(rewards: Array, expected: Array) -> float:
    return float((rewards * expected).sum() / (expected * expected).sum())


def _error(rewards: Array, expected: Array) -> float:
    return float(np.mean((rewards - expected) ** 2) / rewards.var())


def fit(steps: Steps, **changed: object) -> Fit:
    """Return the fit of the call, with some arguments changed."""
    whole = {"gae_lambda": 1.0, **changed}
    zeros = {"rewards": np.zeros_like(steps.given.rewards)}
    missed = steps.advantages(**whole)
    expected = -steps.advantages(**{**whole, **zeros})
    kept = steps.exists

    def by_one() -> Array:
        # With V = 1 at all states and no rewards, the same call gives the share of any one value that is expected.
        ones = {
            name: np.ones_like(array)
            for name in ("values", "last_values", "next_values", "final_values")
            if (array := getattr(steps.given, name)) is not None
        }
        expected: Array = -steps.advantages(**{**whole, **zeros, **ones})[kept] * steps.values[kept].mean()
        return expected

    return Fit((missed + expected)[kept], expected[kept], by_one)


def gamma_or_scale(steps: Steps) -> Iterator[Finding]:
    """Find a gamma, or a scale of the rewards, under which the values would fit far better."""
    # The tokens of a sequence are one piece of evidence, because nearly all of its reward is the score at its end.
    evidence = steps.shape[1] if steps.sequences else number_of(steps.exists)
    if np.ndim(steps.given.gamma) or evidence < FEWEST:
        return
    gamma = float(steps.given.gamma)
    real, errors = steps.rewards[steps.exists], steps.td_errors[steps.exists]
    rewards, values = np.abs(real), np.abs(steps.values[steps.exists])
    # Values that are too small may have only begun to learn. Nothing teaches them to be larger than rewards can add up,
    # but they may overshoot, and before they foresee anything, they may have any size.
    most = rewards.max() / (1.0 - gamma) if gamma < 1.0 else np.inf
    large = np.mean(values > 1.5 * most) > 0.5 and np.mean(rewards > 0.0) > 0.5
    explained = (steps.explained_variance or 0.0) > 0.5
    bias = float(errors.mean() / errors.std()) if errors.std() > 0.0 else 0.0
    surprising = abs(bias) > 0.1 and explained
    whitened = abs(real.mean()) < 1e-4 and abs(real.std() - 1.0) < 1e-4
    if whitened and (large or surprising):
        yield Finding(
            "rewards have mean 0 and standard deviation 1, as if whitened, and values do not expect that, unless they "
            f"have only begun to learn: the mean TD error is {bias:.2g} standard deviations",
            Places(),
            "a shift of all rewards changes what long and short episodes are worth, and most advantages have one sign",
            "pass the rewards on which the values were trained, or divide rewards by their standard deviation alone",
            "rewards_whitened",
        )
        return
    if not (large or steps.sequences):
        return
    if found := _other_gamma(steps, gamma):
        yield found
    elif large and ((explained and fit(steps).scaled_error() < 0.5) or fit(steps).informative()):
        yield Finding(
            "values are larger than these rewards can add up to, unless they have only begun to learn: |V| is "
            f"{values.mean():.3g} on average, and at most {rewards.max():.3g} in each step adds up to {most:.3g} with "
            f"a gamma of {gamma:g}",
            Places(),
            "either the rewards or V count for next to nothing in the advantages",
            "pass the gamma and the rewards with which the values were trained, scaled and clipped as they were then",
        )


def _other_gamma(steps: Steps, gamma: float) -> Finding | None:
    """Return the finding if the values fit the rewards far better with a larger gamma.

    Values that do not foresee what is far ahead have only begun to learn, and look as if they discounted it more.
    """
    given, fits = fit(steps), {other: fit(steps, gamma=other) for other in GAMMAS if other > gamma}
    if given.agrees() or not fits:
        return None
    other = min(fits, key=lambda each: fits[each].error())
    found, error = fits[other], fits[other].error()
    longer = (1.0 - gamma + 1e-3) / (1.0 - other + 1e-3)
    if not (longer > 2.5 and found.agrees() and found.informative() and error < 0.5 and given.error() > 3.0 * error):
        return None
    return Finding(
        f"looks like values of another gamma than {gamma:g}: with {other:g} they miss the discounted rewards by "
        f"{math.sqrt(error):.2g} standard deviations, and with {gamma:g} by {math.sqrt(given.error()):.2g}",
        Places(),
        "the values do not fit the rewards under this discount, so the sign of an advantage shows that misfit and not "
        "whether the action was good",
        "pass the gamma with which the values were trained",
    )


def terminated_by_limit(steps: Steps) -> Iterator[Finding]:
    """Find terminated steps at which V expects more rewards, as it does where a limit cuts an episode off."""
    following = steps.next_row if steps.next_step else steps.next_values
    if following is None or steps.truncated.any():
        return
    ends = steps.terminated & steps.exists & np.isfinite(following)
    ended, going_on = np.abs(steps.td_errors), np.abs(steps.rewards + steps.discounts * following - steps.values)
    usual = max(median(ended[steps.exists & ~ends]), 10.0 * steps.tolerance)
    surprised = ends & (ended > 8.0 * usual) & (going_on < 3.0 * usual)
    count, total, foreseen = number_of(surprised), number_of(ends), number_of(ended[ends] < 3.0 * usual)
    # Values that never learned of any end are surprised by every end, so they must also prove good elsewhere.
    if foreseen >= max(3, 0.2 * total):
        proven = count + foreseen >= 0.8 * total
    else:
        proven = count >= 0.7 * total and _fits_as_truncated(steps)
    if count >= 4 and proven:
        yield Finding(
            f"looks like limits flagged as terminated: at {count:,} of {total:,} flags the TD error is "
            f"{median(ended[surprised]):.3g} with a bootstrap of 0, and {median(going_on[surprised]):.3g} with V of "
            f"the next observation; at other steps it is {usual:.3g}",
            steps.places(surprised),
            "the values expect the episode to go on there: a bootstrap of 0 takes these expected rewards away from all "
            "earlier advantages",
            "pass terminated and truncated as env.step returned them, not terminated | truncated",
        )


def _fits_as_truncated(steps: Steps) -> bool:
    """Return whether values and rewards fit if every end is a limit."""
    none = np.zeros_like(steps.given.terminated)
    found = fit(steps, terminated=none, truncated=steps.given.terminated)
    return found.informative() and found.error() < 0.5


def envs_shuffled(steps: Steps) -> Iterator[Finding]:
    """Find values whose envs are in another order than the envs of the rewards and flags."""
    num_steps, num_envs = steps.shape
    finite = np.isfinite(steps.rewards).all() and np.isfinite(steps.td_errors[steps.exists]).all()
    if not 4 <= num_envs <= 1024 or num_steps < 32 or steps.mask is not None or not finite:
        return
    half = (num_steps - 1) // 2
    whole, *halves = (_nearest(steps, rows) for rows in (slice(0, -1), slice(0, half), slice(half, -1)))
    moved = whole != np.arange(num_envs)
    permuted = len(set(whole.tolist())) == num_envs
    repeated = min(np.mean(each[moved] == whole[moved]) for each in halves) if moved.any() else 0.0
    if permuted and number_of(moved) >= 0.5 * num_envs and repeated > 0.75:
        first = np.flatnonzero(moved)[:4]
        listed = ", ".join(f"the values of env {n} to env {whole[n]}" for n in first[:3])
        yield Finding(
            f"looks like envs in two orders: the values of {number_of(moved):,} of {num_envs:,} envs best fit the "
            "rewards and flags of another env, each of a different one, in both halves of the rollout",
            steps.places_of_envs(moved),
            f"the values belong to other envs than the rewards and flags at the same index: {listed} ...",
            "use one order of envs everywhere, also after a shuffle of minibatches, after a reshape, and with results "
            "that arrive in any order",
        )


def _nearest(steps: Steps, rows: slice) -> Array:
    """Return, for the values of each env, the env whose rewards and flags give the smallest TD errors."""
    change = (steps.discounts * steps.next_row - steps.values)[rows]
    inside = (steps.exists & ~steps.done)[rows]
    kept = np.where(np.isfinite(change).all(1, keepdims=True), inside, False).astype(np.float64)
    change, rewards = np.nan_to_num(change), steps.rewards[rows]
    # (r + change)^2, multiplied out, for every pair of envs at once.
    squares = 2.0 * change.T @ (kept * rewards) + (change * change).T @ kept + (kept * rewards * rewards).sum(0)
    nearest: Array = (squares / np.maximum(kept.sum(0), 1.0)).argmin(1)
    return nearest


def rewards_shifted(steps: Steps) -> Iterator[Finding]:
    """Find rewards that are one step late or early: one marks the ends beside the flags, and V jumps at the flags."""
    marked = rewards_look_shifted(steps)
    if marked is not None:
        yield Finding(
            f"rewards look one step {'late' if marked.by > 0 else 'early'}: {marked.seen}; the values change far more "
            "at the flags",
            steps.places(marked.flags),
            "each action is credited with the reward of another one",
            "store the reward that env.step returned in the row of the observation and the action that went into it",
        )
