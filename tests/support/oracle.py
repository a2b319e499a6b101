"""GAE from its definition, in float64. Shares no code with the package, so that both cannot be wrong in the same way.

delta_t = r_t + gamma V'_t - V_t        V'_t left out where the episode terminated
A_t     = sum over k of (gamma lambda)^k delta_{t+k}, over the steps up to the end of the episode
"""

import numpy as np


def gae_oracle(
    rewards,
    values,
    terminated,
    truncated=None,
    *,
    last_values=None,
    next_values=None,
    final_values=None,
    gamma=0.99,
    gae_lambda=0.95,
):
    """Return (advantages, returns) of a (T, N) rollout with final_values like rewards."""
    steps, envs = rewards.shape
    advantages = np.empty((steps, envs))
    returns = np.empty((steps, envs))
    for env in range(envs):
        deltas = []
        ends = []
        for t in range(steps):
            cut = truncated is not None and bool(truncated[t, env])
            if next_values is not None:
                following = next_values[t, env]
            elif cut:
                following = final_values[t, env]
            elif t + 1 < len(values):
                following = values[t + 1, env]
            else:
                following = last_values[env]
            delta = float(rewards[t, env]) - float(values[t, env])
            if not terminated[t, env]:
                delta += gamma * float(following)
            deltas.append(delta)
            if terminated[t, env] or cut or t == steps - 1:
                ends.append(t + 1)
        start = 0
        for end in ends:
            episode = np.array(deltas[start:end])
            ahead = np.arange(end - start) - np.arange(end - start)[:, np.newaxis]  # k of (row t, column t + k)
            weights = np.where(ahead >= 0, (gamma * gae_lambda) ** np.maximum(ahead, 0), 0.0)
            advantages[start:end, env] = weights @ episode
            returns[start:end, env] = advantages[start:end, env] + values[start:end, env].astype(float)
            start = end
    return advantages, returns
