"""Functions of all forms, and what ``identify`` must say of each: it calls them, and reads their results, in many ways.

The loops of libraries are in the other files.
"""

from functools import partial

import numpy as np

import fastgae

SAID = []


def says(findings, *words, **names):
    """Add a function, and the findings and some words of its report. "unknown": its convention is unknown."""
    return lambda function: SAID.append((function, findings, words, names or None))


def gae(rewards, values, dones, **given):
    return fastgae.gae(rewards, values, dones, **given).advantages


# The arrays that they take, and the rows.
says("", "dones (terminated)", dones="terminated")(
    lambda rewards, values, dones, last_value: gae(rewards, values, dones, last_values=last_value)
)
# ``next_done`` is a flag of the last step, unless no other argument has the flags of the steps.
says("", "next_value (next_values), next_done (done); passed as")(
    lambda reward, value, next_value, next_done: gae(reward, value, next_done, next_values=next_value)
)
# Whoever says that they are flags of the steps is believed, also beside the flag after the last step.
says("", "dones (done), last_value (last_values), next_done; passed as", dones="done")(
    lambda rewards, values, dones, last_value, next_done: gae(rewards, values, dones, last_values=last_value)
)
# A flag of the last step alone
says(
    "",
    "done (next_done); it is terminated[-1], and no other step ends an episode; passed as numpy arrays of shape (T,)",
)(lambda rewards, values, last_value, done: gae(rewards, values, None, last_values=0.0 if done else last_value))
# RLinf
says("", "flags with T + 1 rows, of which step t has row t + 1")(
    lambda rewards, values, dones: gae(rewards, values, dones[1:])
)
# In PufferLib, rows come with the next observation, and there is one result less.
says("", "one row late", "the same bits as this call")(
    lambda rewards, values, dones: gae(rewards[1:], values, dones[1:])
)
says("", "outputs result: advantages")(
    lambda rewards, values, dones: np.pad(gae(rewards, values, dones), [(0, 1), (0, 0)])  # one result more
)
# MorvanZhou's is the one after the last step.
says("", "v_s_ (last_values)")(
    lambda rewards, dones, v_s_: fastgae.discounted_returns(rewards, dones, last_values=v_s_, gamma=0.9)
)
says("", "final_values (last_values), discount_rate (gamma), _lambda (gae_lambda)")(
    lambda rewards, values, dones, final_values, discount_rate, _lambda: gae(
        rewards, values, dones, last_values=final_values, gamma=discount_rate, gae_lambda=_lambda
    )
)
# Loops on GitHub have these names.
says("", "value_new_state (next_values), is_done (done), discounting (gamma), lmb (gae_lambda); passed")(
    lambda reward_seq, value_old_state, value_new_state, is_done, discounting, lmb: gae(
        reward_seq, value_old_state, is_done, next_values=value_new_state, gamma=discounting, gae_lambda=lmb
    )
)
says("", "non_terminal (going_on), bootstrap_val (last_values), gae_lmbda (gae_lambda); non_terminal")(
    lambda episode_rewards, buffer_values, non_terminal, bootstrap_val, gae_lmbda: gae(
        episode_rewards, buffer_values, 1 - non_terminal, last_values=bootstrap_val, gae_lambda=gae_lmbda
    )
)
says("", "reward_lst (rewards), baseline (values), eos_mask (mask), continuation (going_on); eos_mask")(
    lambda reward_lst, baseline, eos_mask, continuation: gae(
        reward_lst, baseline, 1 - continuation, last_values=0.0, mask=eos_mask, time_axis=1
    )
)
# Beside ``next_done``, row t of ``terminations`` is about observation t, as in a loop after CleanRL.
says("", "terminations (starts), next_value (last_values), next_done; row t of terminations", "the same bits")(
    lambda rewards, values, terminations, next_value, next_done: gae(
        rewards, values, np.concatenate([terminations[1:], next_done[np.newaxis]]), last_values=next_value
    )
)
# Calls that slice along time are written for NumPy arrays with time first.
says("last_row_dropped", "the same bits as this call, with arrays of shape (T, N)")(
    lambda rewards, values, dones: gae(rewards[:, :-1], values, dones[:, :-1], time_axis=1)
)
says("last_row_dropped", "the same bits as this call arguments")(
    lambda rewards, values, dones: gae(rewards[:-1], values, dones[:-1])
)
# Arguments without names.
says("inputs_written", "it writes into rewards")(
    lambda rewards, values, dones, last_values, /: gae(
        rewards, values, dones, last_values=last_values, out=(rewards, None)
    )
)


@says("", "passed as numpy arrays of shape (T,), values with T + 1 rows", val="values", d="done")
def of_one_env(rew, val, d, /):
    advantages = []
    for t in reversed(range(len(rew))):
        going_on = not d[t]
        delta = rew[t] + 0.99 * val[t + 1] * going_on - val[t]
        advantages.insert(0, delta + 0.99 * 0.95 * going_on * (advantages[0] if advantages else 0))
    return advantages


@says("", "tuples of T arrays of shape (N,)")
def of_tuples(rewards, values, dones, next_value):
    values = values + (next_value,)  # noqa: RUF005 – a list or an array would take it in another way
    return gae(*map(np.array, (rewards, values, dones)), gamma=0.9, gae_lambda=0.5)


@says("", "arrays of shape (T, 1)")
def of_columns(rewards, values):
    advantages = gae(rewards.reshape(-1, 1), values.reshape(-1, 1), None, last_values=0.0)
    return advantages, advantages + values


@says("", "num_steps (steps)", "the same bits as this call arguments")  # SheepRL
def of_so_many_steps(rewards, values, dones, last_values, num_steps):
    return gae(rewards[:num_steps], values, dones, last_values=last_values)


# A switch is no number.
says("", "last_values, gamma, gae_lambda; passed as")(
    lambda rewards, values, dones, last_values, gamma, gae_lambda, discount=True: gae(
        rewards, values, dones, last_values=last_values, gamma=gamma if discount is True else 1.0, gae_lambda=gae_lambda
    )
)


@says("unknown")  # and no mistakes of the few rollouts in which it has as many results as rewards
def of_finished_episodes(rewards, values, dones):
    advantages, episode = [], []
    for step in zip(rewards, values, dones):  # noqa: B905 (as people write it)
        episode.append(step)
        if step[2]:
            advantages.extend(gae(*np.array(episode).T, last_values=0.0))
            episode = []
    return np.array(advantages)


@says("", "next_mask (next_going_on)")
def with_the_flag_after_the_last_step(rewards, values, not_starts, next_mask, last_values):
    going_on = np.concatenate([not_starts[1:], next_mask[np.newaxis]])
    return gae(rewards, values, 1 - going_on, last_values=last_values)


@says("", "fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, gamma=gamma, ")
def of_discounts(rewards, values, next_values, truncated, discount_t, gae_lambda):
    delta = rewards + discount_t * next_values - values
    return fastgae.reverse_scan(delta, discount_t * gae_lambda * (1 - truncated))


@says(
    "",
    "outputs targets: returns, weights: advantages divided by their std",
    "tail_normalized=True, gamma=gamma, gae_lambda=gae_lambda, time_axis=1)",
)
def tail(rewards, values, terminated, last_values, gamma, gae_lambda):
    given = {"last_values": last_values, "gamma": gamma, "gae_lambda": gae_lambda, "time_axis": 1}
    result = fastgae.gae(rewards, values, terminated, **given, tail_normalized=True)
    return {"targets": result.returns, "weights": result.advantages / result.advantages.std()}


# Calls of functions without flags can be made: they pass flags where fastgae needs some.
@says("last_row_dropped", "(mean 0, std 1) call fastgae.gae(rewards[:-1], values[:-1], terminated=None, last_values=v")
def normalised_over_fewer_rows(rewards, values):
    advantages = gae(rewards[:-1], values, np.zeros_like(rewards[:-1], bool))
    return (advantages - advantages.mean()) / advantages.std()


@says("no_bootstrap", "np.where(np.zeros_like(rewards, bool), 0, np.where(mask, gamma * gae_lambda, 1))")
def without_bootstrap(rewards, values, mask, gamma, gae_lambda):
    return fastgae.reverse_scan((rewards - values) * mask, np.where(mask, gamma * gae_lambda, 1).astype(np.float32))


@says("")
def that_stops_without_rewards(rewards, values, dones, last_values):
    """What it raised while its arguments were tried is no finding."""
    assert rewards.any()
    return gae(rewards, values, dones, last_values=last_values)


@says("", "terminated=None, last_values=0.0, gamma=0.9, gae_lambda=gae_lambda)", "filled_in: no findings")
@partial(partial, mask=None, gamma=0.9)
def filled_in(rewards, values, mask, gamma, gae_lambda):
    given = {"last_values": 0.0, "mask": mask, "gamma": gamma, "gae_lambda": gae_lambda}
    return gae(rewards, values, None, **given)


@says("trace_not_cut", "rewards = [[0], [0]], values = [[0], [0]], episode_starts = [[0], [1]], last_values = [1]")
def that_cuts_no_trace(rewards, values, episode_starts, last_values):
    """In the smallest rollout, no episode ends in the last step: no argument would say so."""
    going_on = np.concatenate([1 - episode_starts[1:], 1 + 0 * episode_starts[:1]])
    following = np.concatenate([values[1:], last_values[np.newaxis]])
    return fastgae.reverse_scan(rewards + np.float32(0.99) * going_on * following - values, np.float32(0.9405))


@says("value_of_padding", "its advantage is 0")
def of_answers(rewards, values, mask, gamma, gae_lambda):
    """A mask says which steps exist, and is no other flag."""
    delta = rewards + gamma * np.concatenate([values[1:], 0 * values[:1]]) - values
    return fastgae.reverse_scan(delta * mask, gamma * gae_lambda * mask)


ZERO = "right only if rewards and V of masked steps are 0: "
says("value_of_padding", f"{ZERO}the mask has no effect", mask="mask")(
    lambda rewards, values, mask: gae(rewards, values, None, last_values=0.0)
)
says("value_of_padding", f"{ZERO}a masked step ends", mask="mask")(
    lambda rewards, values, mask: gae(rewards, values, 1 - mask, last_values=0.0)
)
says("flags_ignored", "the flag of the last step has no effect", "dones (starts)")(
    lambda rewards, values, dones, next_value, next_done: gae(
        rewards, values, np.concatenate([dones[1:], 0 * dones[:1]]), last_values=next_value
    )
)


@says("one_episode")
def of_masked_episodes(rewards, values, terminated, truncated, next_values, mask, gamma, gae_lambda):
    """Nor is a mask one of answers where the loop has a mistake."""
    delta = rewards + gamma * next_values * (1 - terminated) - values
    return fastgae.reverse_scan(delta * mask, gamma * gae_lambda * (1 - terminated) * (1 - truncated) * mask)


@says("unknown")
def beside_rewards_to_go(rewards, values, dones, last_values, gamma, gae_lambda):
    """The other output shows gamma, but gae_lambda has an effect, too."""
    given = {"last_values": last_values, "gamma": gamma}
    advantages = gae(rewards, values, dones, **given, gae_lambda=gae_lambda)
    return np.tanh(advantages), fastgae.discounted_returns(rewards, dones, **given)


# A mask says which steps exist.
says("", "a step before a masked one ends the sequence", mask="mask")(
    lambda rewards, values, mask, last_values: gae(
        rewards, values, ~np.concatenate([mask[1:], mask[:1] | True]), last_values=last_values
    )
)


# Two numbers that are nearly equal have a small std, so any eps counts there.
@says("", "normalised advantages (mean 0, std 1) convention")
def with_another_eps(rewards, values, dones, last_value):
    assert rewards.ndim == 1
    advantages = gae(rewards, values, dones, last_values=last_value, gamma=0.95, gae_lambda=0.95)
    return (advantages - advantages.mean()) / (advantages.std() + 1e-6)


# Coefficients: a reward shows in few rows of n-step advantages, and a value alone shows no gamma in normalised returns.
says("", "n_step_returns(rewards, values, terminated, last_values=last_values, n=2, gamma=0.9) - values")(
    lambda rewards, values, dones, last_values: (
        fastgae.n_step_returns(rewards, values, dones, n=2, gamma=0.9, last_values=last_values) - values
    )
)
says("returns_normalised", "last_values=last_values, gamma=1, gae_lambda=0.9)")(
    lambda rewards, values, dones, last_values: fastgae.normalize(
        fastgae.gae(rewards, values, dones, last_values=last_values, gamma=1.0, gae_lambda=0.9).returns
    )
)


# What they return.
says("", "n_step_returns(rewards, values, terminated, last_values=last_values, n=5, gamma=0.99)")(
    lambda rewards, values, dones, last_values: fastgae.n_step_returns(
        rewards, values, dones, n=5, gamma=0.99, last_values=last_values
    )
)
says("", "equal to this call, but for the dtype or the sign of zeros")(
    lambda rewards, values, dones, last_values: gae(rewards, values, dones, last_values=last_values).astype(np.float64)
)
says("", "outputs result[0]: centred advantages (per env, mean 0), result[1]: centred advantages (mean 0)")(
    lambda rewards, values: (
        (advantages := gae(rewards, values, None, last_values=0.0)) - advantages.mean(0),
        advantages - advantages.mean(),
    )
)
says("returns_normalised", "result[1]: normalised rewards to go")(
    lambda rewards, values, dones, last_values: (
        gae(rewards, values, dones, last_values=last_values),
        fastgae.normalize(fastgae.discounted_returns(rewards, dones, last_values=last_values)),
    )
)
# Outputs that are something else are no reason to read a right loop as a wrong one.
says("output_unknown")(
    lambda rewards, values, dones, last_values: (*fastgae.gae(rewards, values, dones, last_values=last_values), dones)
)
says("output_unknown")(
    lambda rewards, values: ((advantages := gae(rewards, values, None, last_values=0.0)), advantages * values)
)
says("last_row_dropped output_unknown")(  # the other one has a row more
    lambda rewards, values: (gae(rewards[:-1], values[:-1], None, last_values=values[-1]), np.tanh(values))
)
says("last_row_dropped output_unknown", "passed as numpy arrays of shape (T,)")(  # and without the first, it is no loop
    lambda rewards, values: (
        gae(rewards[:-1], values[:-1], None, last_values=values[-1]) if rewards.ndim == 1 else np.zeros(3),
        rewards.copy(),
    )
)
# A mistake is shown beside the same estimator without it.
says(
    "last_values_ignored", "advantages [0.99], by fastgae.upgo(rewards, values, terminated, last_values=last_values, "
)(lambda rewards, values, dones, last_values: fastgae.upgo(rewards, values, dones, last_values=0 * last_values)[0])
says("flags_mixed_up", "terminated = [[1]], for which <lambda> has no argument, final_values = ")(
    lambda rewards, values, truncated, last_values: gae(rewards, values, truncated, last_values=last_values)
)
# rsl_rl and rl_games add gamma V(s_t) to the reward before they compute advantages.
says("value_of_the_same_state", "final_values=values, gamma=0.99", "final_values = [[1]], for which <lambda> has no")(
    lambda rewards, values, dones, time_outs, last_values: gae(
        rewards + np.float32(0.99) * values * time_outs, values, dones, last_values=last_values
    )
)
# There, each number is finite, and results of a function without values are returns.
says("returns_of_normalised_advantages", "differ: rewards = [[0], [0]]")(
    lambda rewards, values: fastgae.normalize(gae(rewards, values, None, last_values=0.0), ddof=1) + values
)
says("unknown", "fastgae returns [1], by fastgae.discounted_returns(")(lambda rewards, gamma: np.tanh(rewards))
says("unknown", "final_values=values")(  # the best that it can do
    lambda rewards, values, terminated, truncated, last_values: np.tanh(
        gae(rewards, values, terminated, truncated=truncated, last_values=last_values, final_values=values)
    )
)


@says("unknown")  # One more row of values would hide it.
def of_a_last_value_that_is_discounted_twice(rewards, values, dones, last_values):
    return gae(rewards, np.concatenate([values, 0.99 * last_values[np.newaxis]])[: len(rewards) + 1], dones)


@says("last_values_of_the_last_step")
def of_ignored_last_values(rewards, values, dones, last_values):
    return gae(rewards, np.concatenate([values, values[-1:]])[: len(rewards) + 1], dones)


@says("flags_ignored", "the last step takes the flag of its own observation")
def of_an_ignored_flag(rewards, values, starts, last_values, next_done):
    return gae(rewards, values, np.concatenate([starts, starts[-1:]])[1:], last_values=last_values)


@says("output_unknown unknown")  # Rewards to go say nothing of the other result.
def of_another_size(rewards, values, last_values, gae_lambda):
    to_go = fastgae.discounted_returns(rewards, terminated=None, last_values=last_values)
    return np.repeat(rewards, 3, axis=0), to_go


@says("not_deterministic unknown")
def of_the_call_before(rewards, values, dones, last_values, left={}):  # noqa: B006 (that is the mistake)
    before, left[last_values.shape] = left.get(last_values.shape, last_values), last_values
    return gae(rewards, values, dones, last_values=before)
