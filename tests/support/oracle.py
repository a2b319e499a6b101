"""Estimators from their definitions: sums in float64, where the package has recursions. Shares no code with it."""

import numpy as np


def parts_of(gamma, *, rewards, values, terminated, truncated=None, last_values=None, next_values=None,
             final_values=None, **others):  # fmt: skip
    """Return V', the TD errors and the ends of episodes of a (T, N) rollout with final_values like rewards."""
    following, ends = next_values, terminated
    if following is None:
        following = np.vstack([values[1:], last_values])
    if truncated is not None:
        following = following if final_values is None else np.where(truncated, final_values, following)
        ends = terminated | truncated
    following = np.where(terminated, 0.0, following)
    return following, rewards + gamma * following - values, ends


def summed(terms, decays, ends, most=None):
    """Return, for each step, the sum of the terms of its episode from there on, each times all decays before it.

    Of these terms, ``most`` are added up.
    """
    steps, total = len(terms), np.zeros(terms.shape)
    for start in range(steps):
        weight = np.ones(terms.shape[1])
        for t in range(start, min(start + (most or steps), steps)):
            total[start] += weight * terms[t]
            weight = weight * np.broadcast_to(decays, total.shape)[t] * ~ends[t]
    return total


def gae_oracle(gamma, gae_lambda, **rollout):
    """Return (advantages, returns): A_t = sum over k of (gamma lambda)^k delta_{t+k}, to the end of the episode."""
    _, deltas, ends = parts_of(gamma, **rollout)
    advantages = summed(deltas, gamma * gae_lambda, ends)
    return advantages, advantages + rollout["values"]
