"""Loops in torch."""

import torch

from . import BESSEL, BOTH, GAE, GIVEN, LAST, LONGER, TOKENS, Corpus, later, swept

corpus = Corpus()
says = corpus.says


@says(f"fastgae.gae(rewards, values, terminated, {GIVEN}, time_axis=1)", "returns")
def lucidrains(rewards, values, masks, gamma=0.99, lam=0.95):
    values, following = values[:, :-1], values[:, 1:]
    deltas = rewards + gamma * following * masks - values
    return swept(deltas.T, masks.T, gamma * lam).T + values


@says(GAE, BESSEL)
def one_env(rewards, values, dones, next_value, gamma=0.99, gae_lambda=0.95):
    values = torch.cat([values, next_value.reshape(1)])
    advantages = swept(rewards + gamma * values[1:] * (1 - dones) - values[:-1], 1 - dones, gamma * gae_lambda)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


@says(GAE, "normalised advantages (per env, mean 0, Bessel's std 1)")
def by_env(rewards, values, dones, next_value, gamma, gae_lambda):
    values = torch.cat([values, next_value[None]])
    advantages = swept(rewards + gamma * values[1:] * (1 - dones) - values[:-1], 1 - dones, gamma * gae_lambda)
    return (advantages - advantages.mean(0)) / (advantages.std(0) + 1e-8)


@says(f"fastgae.gae(rewards, values, terminated, next_values=next_values, {GIVEN})", ("TD(0) targets", "advantages"))
def minimal_rl(r, v, v_prime, done_mask, gamma, lmbda):
    target = r + gamma * v_prime * done_mask
    advantages, advantage = [], 0.0
    for delta, going_on in zip((target - v).numpy()[::-1], done_mask.numpy()[::-1], strict=True):
        advantage = gamma * lmbda * advantage * going_on[0] + delta[0]
        advantages.append([advantage])
    return target, torch.tensor(advantages[::-1], dtype=torch.float)


@says(f"fastgae.gae(rewards, values, terminated, {LAST}, {GIVEN})", ("advantages", "returns"))
def flattened(rewards, values, dones, next_value, next_done, gamma, lam):
    going_on = ~later(dones, next_done).bool()
    advantages = swept(rewards + gamma * later(values, next_value) * going_on - values, going_on, gamma * lam)
    return advantages.reshape(-1), (advantages + values).reshape(-1)


@says("", BOTH, "trace_not_cut last_values_missing")
def homework(rewards, values, dones, gamma, lam):
    following = torch.cat([values[1:], torch.zeros(1)])
    deltas = rewards + gamma * following * (1 - dones) - values
    advantages = swept(deltas, torch.ones_like(deltas), gamma * lam)
    return advantages, advantages + values


@says(GAE, ("returns", BESSEL))
def skrl(rewards, dones, values, next_values, discount_factor, lambda_coefficient):
    going_on = dones.logical_not()
    deltas = rewards - values + discount_factor * going_on * later(values, next_values)
    returns = swept(deltas, going_on, discount_factor * lambda_coefficient) + values
    return returns, (returns - values - (returns - values).mean()) / ((returns - values).std() + 1e-8)


@says(GAE, ("advantages", "returns"))
def of_numbers(rewards, values, is_terminals, next_value, gamma, lam):
    advantages, gae, values = [], 0, [*values, next_value]
    for t in reversed(range(len(rewards))):
        going_on = 0.0 if is_terminals[t] else 1.0
        gae = rewards[t] + gamma * going_on * values[t + 1] - values[t] + gamma * lam * going_on * gae
        advantages = [gae, *advantages]
    return torch.tensor(advantages), torch.tensor(advantages) + torch.tensor(values[:-1])


@says(TOKENS, (BESSEL, "returns"))
def rlhf(values, rewards, gamma, lam):
    deltas = rewards + gamma * torch.nn.functional.pad(values[:, 1:], (0, 1)) - values
    advantages = swept(deltas.T, torch.ones_like(deltas.T), gamma * lam).T
    return (advantages - advantages.mean()) * torch.rsqrt(advantages.var() + 1e-8), advantages + values


@says(
    "fastgae.vtrace(rewards, values, terminated, last_values=last_values, ratios=ratios, gamma=gamma, lambda_=1)",
    ("returns", "advantages"),
)
def torchbeast(log_rhos, discounts, rewards, values, bootstrap_value):
    ratios = log_rhos.exp().clamp(max=1.0)
    deltas = ratios * (rewards + discounts * later(values, bootstrap_value) - values)
    vs = values + swept(deltas, discounts * ratios, 1)
    return vs, ratios * (rewards + discounts * later(vs, bootstrap_value) - values)


@says(GAE, BOTH, "inputs_written")
def in_place(rewards, values, dones, next_value, gamma, lam):
    rewards += gamma * torch.cat([values[1:], next_value[None]]) * (1 - dones) - values
    advantages = swept(rewards, 1 - dones, gamma * lam)
    return advantages, advantages + values


@says(LONGER, "returns")
def di_engine(bootstrap_values, rewards, gammas, lambda_, done):
    weights = later(torch.full_like(rewards, 1 - lambda_), 1)  # the last step has only V'
    return swept(rewards + (1 - done) * gammas * weights * bootstrap_values[1:], 1 - done, gammas * lambda_)
