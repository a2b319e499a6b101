"""Loops of trainers of language models, and of the forms that mistakes take in them, in NumPy."""

import functools

import numpy as np

from . import BOTH, GIVEN, TOKENS, Corpus, swept

corpus = Corpus()
says = corpus.says
MASKED = f"fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=mask, {GIVEN}, time_axis=1)"


def of_tokens(values, rewards, gamma, lam):
    """Return the advantages of answers that end with their last token."""
    deltas = rewards + gamma * np.pad(values[:, 1:], ((0, 0), (0, 1))) - values
    return swept(deltas.T, np.ones_like(deltas.T), gamma * lam).T


def carried(rewards, values, mask, gamma, lam):
    """Return advantages that skip what the mask leaves out."""
    advantages, last, following = np.zeros_like(rewards), 0.0, 0.0
    for t in reversed(range(rewards.shape[1])):
        now = rewards[:, t] + gamma * following - values[:, t] + gamma * lam * last
        last = np.where(mask[:, t], now, last)
        following = np.where(mask[:, t], values[:, t], following)
        advantages[:, t] = last
    return advantages


def whiten(numbers, kept, shift_mean=True, ddof=1):
    """Return numbers with a standard deviation of 1, where they are kept. The moments are float64."""
    wide = numbers.astype(np.float64)
    mean, var = wide[kept > 0].mean(), wide[kept > 0].var(ddof=ddof)
    return ((wide - mean) / np.sqrt(var + 1e-8) + (0 if shift_mean else mean)).astype(numbers.dtype)


@says(TOKENS, BOTH)
def trl(rewards, values, gamma, lam):
    advantages = of_tokens(values, rewards, gamma, lam)
    return advantages, advantages + values


@says(MASKED, ("normalised advantages (mean 0, Bessel's std 1)", "returns"))
def sky_rl(token_level_rewards, values, response_masks, gamma, lambd, **kwargs):
    advantages = carried(token_level_rewards, values, response_masks, gamma, lambd)
    return whiten(advantages, response_masks), advantages + values


@says(MASKED, completion_mask="mask")
def more_by_name(rewards, values, gamma, lam, **more):
    return carried(rewards, values, more["completion_mask"], gamma, lam)


@says(MASKED)
def completions(rewards, values, completion_mask, gamma, lam):
    return carried(rewards, values, completion_mask, gamma, lam)


@says(f"fastgae.gae(rewards, values, (terminated | ~mask), last_values=0.0, {GIVEN}, time_axis=1)", BOTH)
def open_instruct(values, rewards, gamma, lam, dones, response_masks):
    going_on = (1 - dones) * response_masks
    deltas = rewards + gamma * np.pad(values[:, 1:], ((0, 0), (0, 1))) * going_on - values
    advantages = swept(deltas.T, going_on.T, gamma * lam).T
    return advantages, advantages + values


@says(TOKENS, ("normalised advantages (mean added back, std 1)", "returns"))
def torchtune(values, rewards, gamma, lmbda):
    advantages = of_tokens(values, rewards, gamma, lmbda)
    return whiten(advantages, np.ones_like(advantages), shift_mean=False, ddof=0), advantages + values


@says(TOKENS, BOTH)
def trlx(values, rewards, response_length=0, gamma=1.0, lam=0.95, use_whitening=False):
    return trl(rewards, values, gamma, lam)


def deep_speed_chat(values, rewards, start, gamma, lam):
    """Leave out the prompt."""
    advantages = of_tokens(values[:, start:], rewards[:, start:], gamma, lam)
    return advantages, advantages + values[:, start:]


corpus["deep_speed_chat"] = corpus["trl"]._replace(function=functools.partial(deep_speed_chat, start=0))


@says(f"fastgae.gae(rewards, values, (~np.concatenate([mask[1:], mask[:1] | True])), last_values=0.0, {GIVEN})")
def agile_rl(rewards, values, action_mask, gamma, gae_lambda):
    following = np.pad(action_mask[:, 1:], ((0, 0), (0, 1)))
    deltas = rewards + gamma * np.pad(values[:, 1:], ((0, 0), (0, 1))) * following - values
    return swept(deltas.T, following.T, gamma * gae_lambda).T * action_mask


@says(
    "fastgae.discounted_returns(rewards, terminated=None, last_values=0.0, mask=mask, gamma=gamma, time_axis=1)",
    "returns",
)
def reinforce_plus_plus(token_level_rewards, response_mask, gamma):
    return carried(token_level_rewards, 0 * token_level_rewards, response_mask, gamma, 1)


@says("fastgae.gae(rewards, values, terminated=None, last_values=0.0, gamma=1, gae_lambda=1, time_axis=1)")
def undiscounted(rewards, values):
    return np.cumsum(rewards[:, ::-1], 1)[:, ::-1] - values


@says(TOKENS, "normalised advantages (mean 0, std 1, eps 0.001)")
def with_large_eps(rewards, values, gamma, lam):
    advantages = of_tokens(values, rewards, gamma, lam)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-3)


@says(TOKENS, "normalised advantages (per env, mean 0, Bessel's std 1)")
def by_answer(rewards, values, gamma, lam):
    advantages = of_tokens(values, rewards, gamma, lam)
    return (advantages - advantages.mean(1, keepdims=True)) / (advantages.std(1, ddof=1, keepdims=True) + 1e-8)


@says(
    TOKENS, ("advantages divided by their std", "returns of normalised advantages"), "returns_of_normalised_advantages"
)
def normalised_too_early(rewards, values, gamma, lam):
    advantages = of_tokens(values, rewards, gamma, lam)
    return advantages / advantages.std(), whiten(advantages, np.ones_like(advantages)) + values
