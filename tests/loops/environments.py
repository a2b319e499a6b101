"""Loops of libraries and courses that train in environments, in NumPy; support/identified.py has more libraries."""

import numpy as np

from . import BOTH, GAE, GIVEN, LAST, LONGER, NO_LAST, Corpus, later, swept

corpus = Corpus()
says = corpus.says


@says(GAE, BOTH)
def stable_baselines3(rewards, values, episode_starts, last_values, dones, gamma, gae_lambda):
    going_on = 1.0 - later(episode_starts, dones)
    advantages = swept(rewards + gamma * later(values, last_values) * going_on - values, going_on, gamma * gae_lambda)
    return advantages, advantages + values


@says(GAE, "returns")
def baselines(mb_rewards, mb_values, mb_dones, last_values, last_dones, gamma, lam):
    return stable_baselines3(mb_rewards, mb_values, mb_dones, last_values, last_dones, gamma, lam)[1]


@says(GAE)
def rl_games(fdones, last_extrinsic_values, mb_fdones, mb_extrinsic_values, mb_rewards, gamma, tau):
    return stable_baselines3(mb_rewards, mb_extrinsic_values, mb_fdones, last_extrinsic_values, fdones, gamma, tau)[0]


@says(
    f"fastgae.gae(rewards, values, terminated=None, {LAST}, {GIVEN})",
    ("normalised advantages (mean 0, std 1)", "rewards to go (returns with lambda 1)"),
)
def spinning_up(rews, vals, last_val, gamma, lam):
    rews, vals = np.append(rews, last_val), np.append(vals, last_val)
    ones = np.ones(len(rews))
    advantages = swept(rews[:-1] + gamma * vals[1:] - vals[:-1], ones, gamma * lam)
    return (advantages - advantages.mean()) / advantages.std(), swept(rews, ones, gamma)[:-1]


@says(GAE, ("returns", "normalised advantages (mean 0, std 1)"))
def rsl_rl(rewards, values, dones, last_values, gamma, lam):
    following = later(values, last_values)
    returns = swept(rewards + gamma * following * (1 - dones) - values, 1 - dones, gamma * lam) + values
    advantages = returns - values
    return returns, (advantages - advantages.mean()) / (advantages.std() + 1e-8)


@says(
    f"fastgae.gae(rewards, values, terminated, truncated, {LAST}, final_values=values, {GIVEN})",
    "returns",
    "value_of_the_same_state",
)
def walk_these_ways(rewards, values, dones, time_outs, last_values, gamma, lam):
    return rsl_rl(rewards + gamma * values * time_outs, values, dones, last_values, gamma, lam)[0]


@says(LONGER, "returns")
def ikostrikov(rewards, value_preds, masks, gamma, gae_lambda):
    deltas = rewards + gamma * value_preds[1:] * masks[1:] - value_preds[:-1]
    return swept(deltas, masks[1:], gamma * gae_lambda) + value_preds[:-1]


@says(f"fastgae.gae(rewards, values[:-1], terminated, {LAST}, {GIVEN})", "returns")
def habitat(rewards, value_preds, masks, next_value, gamma, tau):
    value_preds[len(rewards)] = next_value
    return ikostrikov(rewards, value_preds, masks, gamma, tau)


@says("", "advantages", "value_of_padding", mask="mask")
def batch_ppo(reward, value, mask, discount, gae_lambda):
    return swept(mask * (reward + discount * later(value, 0) - value), np.ones_like(mask), discount * gae_lambda)


@says(
    f"fastgae.gae(np.where(truncated, values[:-1], rewards), values, terminated | truncated, {GIVEN})",
    "returns",
    "truncation_dropped",
)
def mappo(rewards, value_preds, masks, bad_masks, gamma, gae_lambda):
    deltas = rewards + gamma * value_preds[1:] * masks[1:] - value_preds[:-1]
    return swept(deltas * bad_masks[1:], masks[1:] * bad_masks[1:], gamma * gae_lambda) + value_preds[:-1]


@says(GAE, "returns")
def higgsfield(next_value, rewards, masks, values, gamma=0.99, tau=0.95):
    values, gae, returns = values + [next_value], 0, []  # noqa: RUF005 (lists, as there)
    for t in reversed(range(len(rewards))):
        gae = rewards[t] + gamma * values[t + 1] * masks[t] - values[t] + gamma * tau * masks[t] * gae
        returns.insert(0, gae + values[t])
    return returns


@says(GAE, "returns")
def masks_of_observations(next_value, rewards, masks, values, gamma=0.99, tau=0.95):
    values, gae, returns = values + [next_value], 0, []  # noqa: RUF005 (lists, as there)
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * values[t + 1] * masks[t + 1] - values[t]
        gae = delta + gamma * tau * masks[t + 1] * gae
        returns.insert(0, gae + values[t])
    return returns


@says(GAE)
def torch_ac(rewards, values, masks, next_mask, next_value, discount, gae_lambda):
    going_on = later(masks, next_mask)
    return swept(rewards + discount * later(values, next_value) * going_on - values, going_on, discount * gae_lambda)


@says(NO_LAST, BOTH, "last_values_missing")
def cs285(rewards, values, terminals, gamma, gae_lambda):
    values, advantages = np.append(values, 0), np.zeros(len(rewards) + 1)
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * values[t + 1] * (1 - terminals[t]) - values[t]
        advantages[t] = delta + gamma * gae_lambda * (1 - terminals[t]) * advantages[t + 1]
    return advantages[:-1], advantages[:-1] + values[:-1]


@says("", BOTH, "trace_not_cut last_row_dropped")
def philtabor(reward_arr, vals_arr, dones_arr, gamma, gae_lambda):
    advantages = np.zeros(len(reward_arr))
    for t in range(len(reward_arr) - 1):
        discount = 1
        for k in range(t, len(reward_arr) - 1):
            delta = reward_arr[k] + gamma * vals_arr[k + 1] * (1 - int(dones_arr[k])) - vals_arr[k]
            advantages[t] += discount * delta
            discount *= gamma * gae_lambda
    return advantages, advantages + vals_arr


@says("", "advantages", "bootstrap_cut_early last_values_missing")
def ppo_for_beginners(rewards, values, dones, gamma, lam):
    advantages = []
    for rews, vals, ends in zip(rewards, values, dones, strict=True):
        last, of_episode = 0, []
        for t in reversed(range(len(rews))):
            delta = rews[t] - vals[t]
            if t + 1 < len(rews):
                delta += gamma * vals[t + 1] * (1 - ends[t + 1])
            last = delta + gamma * lam * (1 - ends[t]) * last
            of_episode.insert(0, last)
        advantages.extend(of_episode)
    return np.array(advantages)


@says(f"fastgae.gae(rewards, values, terminated, next_values=next_values, {GIVEN})", ("advantages", "TD(0) targets"))
def minimal_rl(r, v, v_next, done_mask, gamma, lmbda):
    td_target = r + gamma * v_next * done_mask
    advantages, advantage = [], 0.0
    for delta, going_on in zip((td_target - v)[::-1], done_mask[::-1], strict=True):
        advantage = gamma * lmbda * advantage * going_on[0] + delta[0]
        advantages.append(advantage)
    return np.array(advantages[::-1]), td_target


@says("", BOTH, "trace_not_cut")
def pfrl(reward, v_pred, next_v_pred, nonterminal, gamma, lambd):
    deltas = reward + gamma * nonterminal * next_v_pred - v_pred
    advantages = swept(deltas, np.ones_like(deltas), gamma * lambd)
    return advantages, advantages + v_pred


@says(f"fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, {GIVEN})", BOTH)
def xinjinghao(r, vs, vs_, dw, done, gamma, lambd):
    advantages = swept(r + gamma * vs_ * (1 - dw) - vs, 1 - done, gamma * lambd)
    return advantages, advantages + vs


@says(f"fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, {GIVEN})")
def di_engine(value, next_value, reward, done, traj_flag, gamma, lambda_):
    return swept(reward + (1 - done) * gamma * next_value - value, 1 - traj_flag, gamma * lambda_)


@says("", BOTH)
def rlpyt(reward, value, done, bootstrap_value, discount, gae_lambda, timeout):
    deltas = reward + discount * later(value, bootstrap_value) * (1 - done) - value
    advantages = swept(deltas, (1 - done) * (1 - later(timeout, 0)), discount * gae_lambda)
    return advantages, advantages + value


@says(f"fastgae.gae(rewards, values, terminated, {GIVEN}, time_axis=1)", BOTH)
def phasic(vpred, reward, first, γ, λ):
    deltas = reward + (1 - first[:, 1:]) * γ * vpred[:, 1:] - vpred[:, :-1]
    advantages = swept(deltas.T, 1 - first[:, 1:].T, γ * λ).T
    return advantages, advantages + vpred[:, :-1]


@says(LONGER, ("advantages", "returns"))
def slm_lab(rewards, dones, v_preds, gamma, lam):
    advantages = swept(rewards + gamma * v_preds[1:] * (1 - dones) - v_preds[:-1], 1 - dones, gamma * lam)
    return advantages, advantages + v_preds[:-1]


@says(f"fastgae.gae(rewards, values, terminated=None, {LAST}, {GIVEN})", ("advantages", "returns"))
def ml_agents(rewards, value_estimates, value_next, gamma, lambd):
    values = np.append(value_estimates, value_next)
    advantages = swept(rewards + gamma * values[1:] - values[:-1], np.ones(len(rewards)), gamma * lambd)
    return advantages, advantages + value_estimates


@says(
    "fastgae.gae(rewards, values, terminated, last_values=last_values, gamma=gamma, gae_lambda=1)",
    ("returns", "advantages"),
)
def a2c(rewards, values, dones, next_value, gamma):
    returns = swept(rewards + gamma * later(0 * rewards, next_value) * (1 - dones), 1 - dones, gamma)
    return returns, returns - values


@says("fastgae.gae(rewards, values, terminated=None, last_values=0.0, gamma=gamma, gae_lambda=1)")
def monte_carlo(rewards, values, gamma):
    return swept(rewards, np.ones(len(rewards)), gamma) - values


@says("fastgae.gae(rewards, values, terminated, last_values=last_values, gamma=gamma, gae_lambda=0.97)")
def lambda_built_in(rewards, values, dones, last_value, gamma):
    return swept(rewards + gamma * later(values, last_value) * (1 - dones) - values, 1 - dones, gamma * 0.97)


@says("fastgae.gae(rewards, values, terminated, last_values=last_values, gamma=0.9, gae_lambda=gae_lambda)")
def gamma_built_in(rewards, values, dones, last_value, lam):
    return swept(rewards + 0.9 * later(values, last_value) * (1 - dones) - values, 1 - dones, 0.9 * lam)


@says("fastgae.gae(rewards, values, terminated, last_values=last_values, gamma=gamma, gae_lambda=0)")
def one_step(rewards, values, dones, last_value, gamma):
    return rewards + gamma * later(values, last_value) * (1 - dones) - values


@says(
    "fastgae.discounted_returns(rewards, terminated, last_values=0.0, gamma=gamma)",
    "normalised returns (mean 0, std 1)",
    "last_values_missing",
)
def reinforce(rewards, dones, gamma):
    returns = swept(rewards, 1 - dones, gamma)
    return (returns - returns.mean()) / (returns.std() + 1e-8)


@says(
    "fastgae.gae(rewards, values, terminated, last_values=0.0, gamma=gamma, gae_lambda=1)",
    ("normalised returns (mean 0, std 1)", "normalised returns minus values"),
    "returns_normalised last_values_missing",
)
def ppo_pytorch(rewards, is_terminals, state_values, gamma):
    returns = reinforce(rewards, is_terminals, gamma)
    return returns, returns - state_values


@says("fastgae.discounted_returns(rewards, terminated=None, last_values=last_values, gamma=gamma)", "returns")
def returns_only(rewards, bootstrap_value, discount):
    return swept(np.append(rewards, bootstrap_value), np.ones(len(rewards) + 1), discount)[:-1]


@says("fastgae.upgo(rewards, values[:-1], terminated=None, last_values=values[-1], gamma=1)", "returns")
def upgo(rewards, bootstrap_values):
    returns, following = np.zeros_like(rewards), bootstrap_values[-1]
    better = rewards + bootstrap_values[1:] >= bootstrap_values[:-1]
    for t in reversed(range(len(rewards))):
        go_on = t + 1 == len(rewards) or better[t + 1]
        returns[t] = following = rewards[t] + (following if go_on else bootstrap_values[t + 1])
    return returns


@says("", "returns")
def epymarl(rewards, values, nsteps, gamma):
    returns = np.zeros_like(rewards)
    for start in range(len(rewards)):
        for step in range(nsteps + 1):
            t = start + step
            if step == nsteps or t == len(rewards):
                returns[start] += gamma**step * values[t]
                break
            returns[start] += gamma**step * rewards[t]
    return returns


@says("", "returns", "one_episode")
def pymarl(rewards, terminated, mask, target_qs, gamma, td_lambda):
    returns = np.zeros_like(target_qs)
    returns[:, -1] = target_qs[:, -1] * (1 - terminated.sum(1))
    for t in reversed(range(rewards.shape[1])):
        now = rewards[:, t] + (1 - td_lambda) * gamma * target_qs[:, t + 1] * (1 - terminated[:, t])
        returns[:, t] = td_lambda * gamma * returns[:, t + 1] + mask[:, t] * now
    return returns[:, :-1]


@says("", ("advantages", "returns"))
def impala(log_rhos, discounts, rewards, values, bootstrap_value):
    ratios = np.minimum(1.0, np.exp(log_rhos))
    deltas = ratios * (rewards + discounts * later(values, bootstrap_value) - values)
    vs = values + swept(deltas, discounts * ratios, 1)
    return ratios * (rewards + discounts * later(vs, bootstrap_value) - values), vs


@says(
    "fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, gamma=gamma, gae_lambda=gae_lambda)",
    BOTH,
)
def stoix(r_t, discount_t, lambda_, v_tm1, v_t, truncation_t):
    deltas = r_t + discount_t * v_t - v_tm1
    advantages = swept(deltas, discount_t * (1 - truncation_t), lambda_)
    return advantages, advantages + v_tm1


@says(
    "fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, gamma=gamma, gae_lambda=gae_lambda)",
)
def dm_env(rewards, discounts, dones, values, next_values, gae_lambda):
    return swept(rewards + discounts * next_values - values, discounts * (1 - dones), gae_lambda)


@says("fastgae.gae(rewards, values, terminated, next_values=next_values, gamma=gamma, gae_lambda=gae_lambda)", BOTH)
def alphagrad(rewards, dones, values, next_values, discounts, gae_lambda):
    discounts = discounts[:] * (1 - dones)
    advantages = swept(rewards + discounts * next_values - values, discounts, gae_lambda)
    return advantages, advantages + values


@says("", "advantages", "bootstrap_at_termination")
def one_discount(rewards, dones, values, next_values, discount, gae_lambda):
    return swept(rewards + discount * next_values - values, discount * (1 - dones), gae_lambda)


@says("", BOTH, "trace_not_cut")
def pearl(reward, state_value, next_state_value, terminated, truncated, discount_factor, trace_decay_param):
    advantages = swept(
        reward + discount_factor * next_state_value * (1 - terminated) - state_value,
        1 - terminated,
        discount_factor * trace_decay_param,
    )
    return advantages, advantages + state_value
