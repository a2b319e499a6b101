"""The line that replaces the loop of each library: the rows of docs/my-library.md, and what the libraries compute.

A row of a package runs the library's own function; the others run its loop, written out. Arrays have the names of the
page: ``environments`` and ``tokens`` make them.
"""

from collections.abc import Callable
from types import SimpleNamespace as Names
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from .installed import function
from .peer_verl import theirs as of_verl

COEFFICIENTS = [(0.99, 0.95), (0.9, 0.8), (1.0, 0.9)]


class Row(NamedTuple):
    """One line of fastgae, and what the library computes from the same arrays."""

    library: str
    version: str
    replaced: str  # the library's function
    line: str
    theirs: Callable[[Names], tuple[Any, ...]]  # in the order of the line's results
    package: str = ""  # the library's own function comes from this package; "": the loop is written out
    tolerance: float = 0.0  # 0: the same bits
    note: str = ""
    where: str = ""  # the steps that are compared; "": all


def environments(rng: np.random.Generator, gamma: float, gae_lambda: float) -> Names:
    """Return a rollout, time first. ``dones`` and ``next_done`` say that an observation is the first of an episode."""
    size = 40, 9
    rewards, values, next_values = rng.normal(size=(3, *size)).astype(np.float32)
    terminated, truncated = rng.random((2, *size)) < 0.1
    done = terminated | truncated
    return Names(
        rewards=rewards,
        values=values,
        next_values=next_values,
        last_values=next_values[-1],
        terminated=terminated,
        truncated=truncated,
        done=done,
        dones=np.vstack([rng.random((1, size[1])) < 0.5, done[:-1]]),
        next_done=done[-1],
        gamma=gamma,
        gae_lambda=gae_lambda,
        settings={"gamma": gamma, "gae_lambda": gae_lambda},
        # Of Dreamer's imagination: discounts, and batches in rows.
        continues=gamma * (~done).astype(np.float32),
        rew=rewards.T,
        boot=next_values.T,
        live=gamma * (~terminated.T[:, 1:]).astype(np.float32),
        cont=gae_lambda * (~truncated.T[:, 1:]).astype(np.float32),
    )


def tokens(rng: np.random.Generator, gamma: float, gae_lambda: float) -> Names:
    """Return answers in rows, of turns of four tokens or more, and one that fills the whole width."""
    size = 9, 40
    rewards, values = rng.normal(size=(2, *size)).astype(np.float32)
    mask = np.repeat(rng.random((size[0], size[1] // 4)) < 0.6, 4, axis=1)
    mask[0] = True
    starts = mask & ~np.pad(mask[:, :-1], ((0, 0), (1, 0)))
    turn_ids = np.where(mask, starts.cumsum(axis=1) - 1, -1)
    turn = turn_ids[:, :, np.newaxis] == np.arange(turn_ids.max() + 1)
    lengths = np.maximum(turn.sum(axis=1, dtype=np.float32), 1)
    next_mask = np.pad(mask[:, 1:], ((0, 0), (0, 1)))
    return Names(
        rewards=rewards,
        values=values,
        mask=mask,
        next_mask=next_mask,
        no_eos=mask.all(axis=1),
        turn_ids=turn_ids,
        has_turn=turn.any(axis=1),
        reward_mask=mask & ~next_mask,
        turn_rewards=(rewards[:, :, np.newaxis] * turn).sum(axis=1) / lengths,
        turn_values=(values[:, :, np.newaxis] * turn).sum(axis=1) / lengths,
        turn_sums=(rewards[:, :, np.newaxis] * turn).sum(axis=1),
        first_values=np.take_along_axis(values, turn.argmax(axis=1), axis=1),
        lam=1 - 1 / np.maximum(0.5 * mask.sum(axis=1, dtype=np.float32), 1),
        q=0.3,
        prompts=np.repeat(["b", "c", "a"], [4, 4, 1]),
        several=np.repeat([True, False], [8, 1]),
        greedy=rng.normal(size=size[0]).astype(np.float32),
        log_probs=-rng.exponential(size=size).astype(np.float32),
        sum_pi_squared=rng.random(size).astype(np.float32),
        gamma=gamma,
        gae_lambda=gae_lambda,
        high_level_gamma=0.9,
        settings={"gamma": gamma, "gae_lambda": gae_lambda, "time_axis": 1},
    )


def sweep(of, last_values, gate=1.0, kept=1.0, mask=1.0, **changed):
    """Return what the loop gives that most libraries have, time first.

    ``gate`` multiplies V and A of the next step, ``kept`` multiplies A, and steps outside ``mask`` pass both on.
    """
    of = Names(**{**vars(of), **changed})
    factors = (np.asarray(each, np.float32) for each in (gate, kept, mask))
    gate, kept, mask = (np.broadcast_to(each, of.rewards.shape) for each in factors)
    following, trace, advantages = last_values, np.zeros_like(of.rewards[0]), np.empty_like(of.rewards)
    for t in reversed(range(len(advantages))):
        delta = of.rewards[t] + of.gamma * following * gate[t] - of.values[t]
        new = (delta + of.gamma * of.gae_lambda * gate[t] * trace) * kept[t]
        following = of.values[t] * mask[t] + (1 - mask[t]) * following
        advantages[t] = trace = new * mask[t] + (1 - mask[t]) * trace
    return advantages, advantages + of.values


def answers(of, last_values=0.0, mask=1.0, **changed):
    """Return what the same loop gives with answers in rows."""
    ends = np.broadcast_to(np.asarray(last_values, np.float32), len(of.rewards))
    by_token = {"rewards": of.rewards.T, "values": of.values.T, **changed}
    return tuple(each.T for each in sweep(of, ends, mask=np.transpose(mask), **by_token))


def plain(of):
    return sweep(of, of.last_values, ~of.done)


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(each)) for each in arrays]


def agile_rl_buffer(of):
    path, names = "agilerl/components/rollout_buffer.py", {"np": np, "torch": torch, "narrow_tensor": lambda each: each}
    compute = function("agilerl", path, "compute_returns_and_advantages", **names)
    arrays = {"rewards": of.rewards, "dones": of.dones, "values": of.values}
    arrays |= {"advantages": np.zeros_like(of.rewards), "returns": np.zeros_like(of.rewards)}
    filled = Names(buffer=dict(zip(arrays, tensors(*arrays.values()), strict=True)))
    filled.capacity, filled.num_envs = of.rewards.shape
    filled.gamma, filled.gae_lambda, filled.use_gae, filled.full = of.gamma, of.gae_lambda, True, True
    compute(filled, of.last_values, of.next_done)
    return filled.buffer["advantages"], filled.buffer["returns"]


def agile_rl(name, *given, gamma, **names):
    """Return advantages and returns of a method of AgileRL's PPO for language models."""
    agent = Names(gamma=gamma, whiten_advantages=False, turn_value_reduction="mean")
    return function("agilerl", "agilerl/algorithms/ppo_llm.py", name, torch=torch, **names)(agent, *given)[::-1]


def agile_rl_tokens(of):
    arrays = tensors(of.rewards, of.values, of.mask)
    return agile_rl("_compute_gae_returns_token", *arrays, of.gae_lambda, gamma=of.gamma)


def agile_rl_turns(of):
    pool = function("agilerl", "agilerl/utils/llm_utils.py", "pool_by_turns", torch=torch)
    arrays = tensors(of.rewards, of.values, of.mask, of.turn_ids)
    by_token = agile_rl("_compute_gae_returns", *arrays, of.gae_lambda, gamma=of.gamma, pool_by_turns=pool)
    by_turn = np.zeros((2, *of.has_turn.shape), np.float32)  # all tokens of a turn have its numbers
    for results, of_tokens in zip(by_turn, by_token, strict=True):
        results[np.nonzero(of.mask)[0], of.turn_ids[of.mask]] = of_tokens.numpy()[of.mask]
    return tuple(by_turn)


def dreamer(of):
    carried, results = of.boot[:, -1], []
    for t in reversed(range(of.live.shape[1])):
        x = of.rew[:, t + 1] + (1 - of.cont[:, t]) * of.live[:, t] * of.boot[:, t + 1]
        carried = x + of.live[:, t] * of.cont[:, t] * carried
        results.append(carried)
    return (np.stack(results[::-1], axis=1),)


def elegant_rl(name):
    def theirs(of):
        compute = function("elegantrl", "elegantrl/agents/AgentPPO.py", name, torch=torch)
        agent = Names(gamma=of.gamma, lambda_gae_adv=of.gae_lambda, last_state=of.last_values, cri=torch.from_numpy)
        return (compute(agent, *tensors(of.rewards, (~of.done).astype(np.float32), of.values)),)

    return theirs


def garage(of):
    compute = function("garage", "garage/torch/_functions.py", "compute_advantages", torch=torch, F=F)
    rewards, values = tensors(of.rewards, of.values)
    return (compute(of.gamma, of.gae_lambda, rewards.shape[1], values, rewards),)


def a2c_returns(of, kept=True):
    """Return the discounted rewards; where ``kept`` is False, the value takes their place."""
    kept, carried = np.broadcast_to(kept, of.rewards.shape).astype(np.float32), of.last_values
    returns = np.empty_like(of.rewards)
    for t in reversed(range(len(returns))):
        going_on = carried * of.gamma * (~of.done[t]).astype(np.float32) + of.rewards[t]
        returns[t] = carried = going_on * kept[t] + (1 - kept[t]) * of.values[t]
    return (returns,)


def rlinf(of):
    compute = function("rlinf", "rlinf/algorithms/advantages.py", "compute_gae_advantages_and_returns", torch=torch)
    values, flags = np.vstack([of.values, of.last_values]), np.vstack([of.dones, of.next_done])
    rewards, values, flags = tensors(of.rewards, values, flags)
    return compute(rewards, of.gamma, of.gae_lambda, values, normalize_advantages=False, dones=flags)


def sheeprl(of):
    names = {"np": np, "torch": torch, "_to_numpy": lambda tensor: tensor.numpy()}
    arrays = tensors(of.rewards, of.values, of.done.astype(np.float32), of.last_values)
    compute = function("sheeprl", "sheeprl/utils/utils.py", "gae", **names)
    return compute(*arrays, len(of.rewards), of.gamma, of.gae_lambda)[::-1]


def sheeprl_dreamer(of):
    compute = function("sheeprl", "sheeprl/algos/dreamer_v3/utils.py", "compute_lambda_values", torch=torch)
    return (compute(*tensors(of.rewards, of.values, of.continues), of.gae_lambda),)


def stoix(of):
    gamma, gae_lambda = np.float32(of.gamma), np.float32(of.gae_lambda)
    discounts, trace, advantages = gamma * ~of.terminated, np.zeros_like(of.last_values), np.empty_like(of.rewards)
    for t in reversed(range(len(advantages))):
        delta = of.rewards[t] + discounts[t] * of.next_values[t] - of.values[t]
        advantages[t] = trace = delta + discounts[t] * gae_lambda * trace * ~of.truncated[t]
    return advantages, of.values + advantages


def xuance(of):
    finish = function("xuance", "xuance/common/memory_tools.py", "DummyOnPolicyBuffer.finish_path", np=np)
    rewards, values, terminals = (each.T.astype(np.float32) for each in (of.rewards, of.values, of.done))
    buffer = Names(rewards=rewards, values=values, terminals=terminals, use_gae=True, gamma=of.gamma)
    buffer.advantages, buffer.returns, buffer.gae_lam = np.zeros_like(rewards), np.zeros_like(rewards), of.gae_lambda
    buffer.full, buffer.n_size, buffer.ptr, buffer.start_ids = True, len(of.rewards), 0, np.zeros(len(rewards), int)
    for env, last_value in enumerate(of.last_values):
        finish(buffer, last_value, env)
    return buffer.advantages.T, buffer.returns.T


def areal(of):
    rows = Names(**{**vars(of), "rewards": of.rewards[:, :-1], "values": of.values[:, :-1]})
    return answers(rows, of.values[:, -1] * of.no_eos, of.mask[:, :-1])


def areal_relative(of):
    """GAE whose lambda keeps the same share q of the last reward at the first token of every answer."""
    steps = np.maximum(of.mask.sum(axis=1) - 1, 1).astype(np.float32)
    return areal(Names(**{**vars(of), "gamma": 1.0, "gae_lambda": np.exp(np.log(np.float32(of.q)) / steps)}))


def areal_turns(of):
    """GAE between turns, each with the sum of its rewards and V at its first token; its tokens get its results."""
    advantages, returns = np.zeros_like(of.rewards), of.values.copy()
    for n, turn_ids in enumerate(of.turn_ids):
        trace, following = np.float32(0), of.values[n, -1] * of.no_eos[n]
        for turn in range(turn_ids.max(), -1, -1):
            (tokens_of_turn,) = np.nonzero(turn_ids == turn)
            value = of.values[n, tokens_of_turn[0]]
            trace = (
                of.rewards[n, tokens_of_turn].sum() + of.gamma * following - value + of.gamma * of.gae_lambda * trace
            )
            advantages[n, tokens_of_turn], returns[n, tokens_of_turn], following = trace, trace + value, value
    return advantages, returns


def molt_reinforce(of):
    """Return the discounted rewards of the tokens in the mask, also across the gaps between them."""
    carried, returns = np.zeros_like(of.rewards[:, 0]), np.empty_like(of.rewards)
    for t in reversed(range(returns.shape[1])):
        returns[:, t] = carried = of.rewards[:, t] * of.mask[:, t] + of.gamma * carried
    return (returns,)


def nemo_rl_sums(of):
    """Return the sum of the rewards from each token on, less V of the next token in the mask."""
    to_go = np.cumsum((of.rewards * of.mask)[:, ::-1], axis=1)[:, ::-1]
    width = of.rewards.shape[1]
    place = np.minimum.accumulate(np.where(of.mask, np.arange(width), width)[:, ::-1], axis=1)[:, ::-1]
    advantages = to_go - np.take_along_axis(np.pad(of.values, ((0, 0), (0, 1))), place, axis=1)
    return advantages, advantages + of.values


def open_rlhf(name, *arrays):
    return function("openrlhf", "openrlhf/trainer/ppo_utils/experience_maker.py", name, torch=torch)(None, *arrays)


def open_rlhf_gae(of):
    arrays = tensors(of.values, of.rewards, of.mask)
    return open_rlhf("get_advantages_and_returns", *arrays, of.gamma, of.gae_lambda)


def open_rlhf_returns(of):
    return (open_rlhf("get_cumulative_returns", *tensors(of.rewards, of.mask), of.gamma),)


def ragen(of):
    """GAE between the tokens with a reward, and then GAE of each turn with the first result as its reward."""
    targets, advantages = of.rewards.copy(), np.zeros_like(of.rewards)
    high, low = of.high_level_gamma, of.gamma
    for n, ends in enumerate(of.reward_mask):
        trace = following = np.float32(0)
        for t in np.flatnonzero(ends)[::-1]:
            trace = of.rewards[n, t] + high * following - of.values[n, t] + high * of.gae_lambda * trace
            following, targets[n, t] = of.values[n, t], trace + of.values[n, t]
        for t in np.flatnonzero(of.mask[n])[::-1]:
            if ends[t]:
                trace = following = np.float32(0)
            trace = targets[n, t] + low * following - of.values[n, t] + low * of.gae_lambda * trace
            following, advantages[n, t] = of.values[n, t], trace
    return advantages, advantages + of.values


def slime_chunks(of, size=16):
    """Multiply each chunk by the powers of gamma lambda, from the last one to the first."""
    deltas = of.rewards + of.gamma * np.pad(of.values[:, 1:], ((0, 0), (0, 1))) - of.values
    powers = ((of.gamma * of.gae_lambda) ** np.arange(size + 1)).astype(np.float32)
    products = np.triu(powers[np.abs(np.subtract.outer(np.arange(size), np.arange(size)))])
    advantages, carried = np.empty_like(deltas), np.zeros_like(deltas[:, :1])
    for end in range(deltas.shape[1], 0, -size):
        start = max(end - size, 0)
        local = deltas[:, start:end] @ products[: end - start, : end - start].T
        advantages[:, start:end] = local + carried * powers[end - start : 0 : -1]
        carried = advantages[:, start : start + 1]
    return advantages, advantages + of.values


def verl_reinforce(of):
    """Return the advantages and the returns."""
    arrays = tensors(of.rewards, of.mask.astype(np.int64))
    return of_verl("compute_reinforce_plus_plus_outcome_advantage")(*arrays, Names(gamma=of.gamma))


def verl_opo(of):
    return of_verl("compute_opo_outcome_advantage")(*tensors(of.rewards, of.mask), of.prompts)[:1]


def verl_token_baseline(of):
    baseline = of_verl("compute_optimal_token_baseline_advantage")
    rewards, mask, *of_policy = tensors(of.rewards, of.mask, of.log_probs, of.sum_pi_squared)
    return baseline(rewards, mask.float(), of.prompts, *of_policy, handle_zero_tail=False)[:1]


def verl_remax(of):
    rewards, greedy, mask = tensors(of.rewards, of.greedy, of.mask)
    return of_verl("compute_remax_outcome_advantage")(rewards, greedy, mask)[:1]


def verl_rloo(of):
    return of_verl("compute_rloo_vectorized_outcome_advantage")(*tensors(of.rewards, of.mask), of.prompts)[:1]


def vapo(of):
    """The advantages with a lambda of each answer's length, and the returns with lambda 1."""
    of_lengths, of_ones = (answers(of, mask=of.mask, gamma=1.0, gae_lambda=each) for each in (of.lam, 1.0))
    return of_lengths[0], of_ones[1]


ENDED = "ended = np.concatenate([dones[1:], next_done[np.newaxis]])\n"
GAE = "fastgae.gae(rewards, values, done, last_values=last_values, **settings)"
ROUNDED = "settings = {name: np.float32(each) for name, each in settings.items()}\n"
LIMITS = "rewards = np.where(truncated, values, rewards)\n"
DISCOUNTED = "fastgae.discounted_returns(rewards, done, last_values=last_values, gamma=gamma)"
A2C = {
    "GAE": (f"{GAE}.returns", lambda of: plain(of)[1:]),
    "GAE, proper time limits": (
        f"{LIMITS}{GAE}.returns",
        lambda of: sweep(of, of.last_values, ~of.done, ~of.truncated)[1:],
    ),
    "no GAE": (DISCOUNTED, a2c_returns),
    "no GAE, proper time limits": (f"{LIMITS}{DISCOUNTED}", lambda of: a2c_returns(of, ~of.truncated)),
}
ENVIRONMENTS = [
    Row(
        "AgileRL",
        "2.58.0",
        "RolloutBuffer.compute_returns_and_advantages",
        f"{ENDED}fastgae.gae(rewards, values, ended, last_values=last_values, **settings)",
        agile_rl_buffer,
        package="agilerl",
        tolerance=2e-6,
        note="it computes partly in float64",
    ),
    Row(
        "Dreamer v3",
        "at e3f0224",
        "lambda_return",
        "x = rew[:, 1:] + (1 - cont) * live * boot[:, 1:]\n"
        "fastgae.reverse_scan(x, live * cont, initial=boot[:, -1], time_axis=1)",
        dreamer,
    ),
    Row(
        "ElegantRL",
        "0.3.6",
        "get_advantages_origin",
        f"{ROUNDED}{GAE}.advantages",
        elegant_rl("get_advantages_origin"),
        package="elegantrl",
    ),
    Row(
        "ElegantRL",
        "0.3.6",
        "get_advantages_vtrace",
        "fastgae.gae(rewards, values, done, last_values=0.0, **settings).advantages",
        elegant_rl("get_advantages_vtrace"),
        package="elegantrl",
        tolerance=2e-6,
        note="it adds in another order",
    ),
    Row(
        "garage",
        "2021.3.0",
        "compute_advantages",
        "fastgae.gae(rewards, values, terminated=None, last_values=0.0, **settings, time_axis=1).advantages",
        garage,
        package="garage",
        tolerance=2e-6,
        note="a convolution",
    ),
    *(
        Row("ikostrikov's a2c-ppo-acktr, MAPPO", "at 41332b7 and de66d7a", f"compute_returns, {form}", *of_form)
        for form, of_form in A2C.items()
    ),
    *(
        Row(library, at, "_calculate_gae", GAE, plain)
        for library, at in (("JaxMARL", "at c793d09"), ("Mava", "at 57c8e64"), ("PureJaxRL", "at 31756b1"))
    ),
    Row(
        "ml-agents",
        "1.1.0",
        "get_gae",
        "fastgae.gae(rewards, values, terminated=None, last_values=last_values, **settings)",
        lambda of: sweep(of, of.last_values),
    ),
    Row(
        "RLinf",
        "0.3.0",
        "compute_gae_advantages_and_returns",
        f"{ENDED}returns = fastgae.gae(rewards, values, ended, last_values=last_values, **settings).returns\n"
        "returns - values, returns",
        rlinf,
        package="rlinf",
    ),
    Row(
        "sheeprl",
        "0.8.4",
        "gae",
        GAE,
        sheeprl,
        package="sheeprl",
        tolerance=2e-6,
        note="it multiplies by gamma, and then by lambda",
    ),
    Row(
        "sheeprl, Dreamer v3",
        "0.8.4",
        "compute_lambda_values",
        "x = rewards + continues * values * (1 - gae_lambda)\n"
        "fastgae.reverse_scan(x, continues * gae_lambda, initial=values[-1])",
        sheeprl_dreamer,
        package="sheeprl",
    ),
    Row(
        "Stoix",
        "at 8fff19c",
        "batch_truncated_generalized_advantage_estimation",
        f"{ROUNDED}fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, **settings)",
        stoix,
    ),
    Row("XuanCe", "1.4.4", "DummyOnPolicyBuffer.finish_path", ROUNDED + GAE, xuance, package="xuance"),
]

RETURNS = "fastgae.discounted_returns(rewards, terminated=None, last_values=0.0, mask=mask, gamma=gamma, time_axis=1)"
ANSWERS = "fastgae.gae(rewards, values, terminated=None, last_values=0.0, **settings)"
TOKENS = [
    Row(
        "AgileRL, tokens",
        "2.58.0",
        "_compute_gae_returns_token",
        "fastgae.gae(rewards, values, ~next_mask, last_values=0.0, mask=mask, **settings)",
        agile_rl_tokens,
        package="agilerl",
        where="mask",
    ),
    Row(
        "AgileRL, turns",
        "2.58.0",
        "_compute_gae_returns",
        "fastgae.gae(turn_rewards, turn_values, terminated=None, last_values=0.0, mask=has_turn, **settings)",
        agile_rl_turns,
        package="agilerl",
        tolerance=2e-6,
        note="the sums of a turn",
    ),
    Row(
        "AReaL",
        "1.0.4",
        "PPOActor.compute_advantages",
        "end = values[:, -1] * no_eos\n"
        "rewards, values, mask = rewards[:, :-1], values[:, :-1], mask[:, :-1]\n"
        "fastgae.gae(rewards, values, terminated=None, last_values=end, mask=mask, carry_over=True, **settings)",
        areal,
    ),
    Row(
        "AReaL, relative position",
        "at 8966ca1",
        "relative_position_gae_lambda",
        "end, lam = values[:, -1] * no_eos, q ** (1 / np.maximum(mask.sum(axis=1) - 1, 1))\n"
        "rewards, values, mask = rewards[:, :-1], values[:, :-1], mask[:, :-1]\n"
        "settings = {**settings, 'gamma': 1.0, 'gae_lambda': lam[:, np.newaxis]}\n"
        "fastgae.gae(rewards, values, terminated=None, last_values=end, mask=mask, carry_over=True, **settings)",
        areal_relative,
        tolerance=2e-6,
        note="a lambda of float32",
    ),
    Row(
        "AReaL, turns",
        "at 8966ca1",
        "_compute_turn_level_gae",
        "settings['last_values'] = values[:, -1] * no_eos\n"
        "by_turn = fastgae.gae(turn_sums, first_values, terminated=None, mask=has_turn, **settings)\n"
        "advantages, returns = (np.take_along_axis(each, turn_ids.clip(0), axis=1) for each in by_turn)\n"
        "np.where(mask, advantages, 0), np.where(mask, returns, values)",
        areal_turns,
        tolerance=2e-6,
        note="the sums of a turn",
    ),
    Row(
        "molt",
        "at 01432bb",
        "gae",
        "fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=mask, **settings)",
        lambda of: answers(of, mask=of.mask),
        where="mask",
    ),
    Row(
        "molt",
        "at 01432bb",
        "reinforce",
        "fastgae.discounted_returns(rewards * mask, terminated=None, last_values=0.0, gamma=gamma, time_axis=1)",
        molt_reinforce,
    ),
    Row(
        "NeMo-RL",
        "at 7ea279a",
        "GeneralizedAdvantageEstimator",
        "fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=mask, carry_over=True, **settings)",
        lambda of: answers(of, mask=of.mask),
    ),
    Row(
        "NeMo-RL, VAPO",
        "at 7ea279a",
        "GeneralizedAdvantageEstimator",
        "settings = {**settings, 'gamma': 1.0, 'gae_lambda': lam[:, np.newaxis], 'returns_lambda': 1.0}\n"
        "fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=mask, carry_over=True, **settings)",
        vapo,
    ),
    Row(
        "NeMo-RL, gamma and lambda 1",
        "at 00925dd",
        "GeneralizedAdvantageEstimator",
        "settings = {**settings, 'gamma': 1.0, 'gae_lambda': 1.0}\n"
        "fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=mask, carry_over=True, **settings)",
        nemo_rl_sums,
        tolerance=2e-6,
        note="a cumulative sum",
    ),
    Row(
        "OpenRLHF",
        "0.11.2",
        "get_advantages_and_returns",
        "fastgae.gae(rewards * mask, values * mask, terminated=None, last_values=0.0, **settings)",
        open_rlhf_gae,
        package="openrlhf",
    ),
    Row(
        "OpenRLHF",
        "0.11.2",
        "get_cumulative_returns",
        "fastgae.discounted_returns(rewards * mask, terminated=None, last_values=0.0, gamma=gamma, time_axis=1)",
        open_rlhf_returns,
        package="openrlhf",
    ),
    Row(
        "RAGEN, bi-level",
        "at 5eb79b8",
        "compute_bi_level_gae_advantage_return",
        "high = {**settings, 'gamma': high_level_gamma}\n"
        "turns = fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=reward_mask, **high)\n"
        "rewards = np.where(reward_mask, turns.returns, rewards)\n"
        "fastgae.gae(rewards, values, reward_mask, last_values=0.0, mask=mask, **settings)",
        ragen,
        where="mask",
    ),
    *(
        Row(library, at, replaced, ANSWERS, answers)
        for library, at, replaced in (
            ("DeepSpeed-Chat", "at 3b45859", "DeepSpeedPPOTrainer.get_advantages_and_returns"),
            ("ROLL", "at 8eb27cc", "compute_gae_advantage_return"),
            ("SkyRL", "at 041ed9e", "compute_gae_advantage_return"),
            ("slime", "at 624b824", "vanilla_gae"),
            ("TRL", "1.12.0", "PPOTrainer.train"),
            ("trlX", "at 0021f2f", "PPOConfig.get_advantages_and_returns"),
        )
    ),
    Row(
        "tunix",
        "at 4388a57",
        "compute_gae_advantages",
        "settings = {**settings, 'gamma': np.float32(gamma), 'gae_lambda': np.float32(gae_lambda)}\n"
        "fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=mask, carry_over=True, **settings)",
        lambda of: answers(of, mask=of.mask, gamma=np.float32(of.gamma), gae_lambda=np.float32(of.gae_lambda)),
    ),
    Row("slime", "at 624b824", "chunked_gae", ANSWERS, slime_chunks, tolerance=2e-6, note="products of matrices"),
    Row(
        "verl, OPO",
        "0.9.1",
        "compute_opo_outcome_advantage",
        "scores, lengths = rewards.sum(axis=1), mask.sum(axis=1)\n"
        "_, group = np.unique(prompts, return_inverse=True)\n"
        "baseline = (np.bincount(group, lengths * scores) / np.bincount(group, lengths))[group]\n"
        "fastgae.group_advantages(scores, prompts, baseline=baseline, scale='none')[:, np.newaxis] * mask",
        verl_opo,
        package="verl",
        tolerance=1e-6,
        note="the sums",
        where="several",
    ),
    Row(
        "verl, optimal token baseline",
        "0.9.1",
        "compute_optimal_token_baseline_advantage",
        "to_go = fastgae.discounted_returns(rewards * mask, None, last_values=0.0, gamma=1.0, time_axis=1)\n"
        "weights = np.cumsum((1 - 2 * np.exp(log_probs) + sum_pi_squared) * mask, axis=1) * mask\n"
        "same = (prompts[:, np.newaxis] == prompts).astype(np.float32)\n"
        "(to_go - same @ (to_go * weights) / (same @ weights + 1e-8)) * mask",
        verl_token_baseline,
        package="verl",
        tolerance=1e-5,
        note="the sums",
        where="several",
    ),
    Row(
        "verl, ReMax",
        "0.9.1",
        "compute_remax_outcome_advantage",
        "to_go = fastgae.discounted_returns(rewards * mask, None, last_values=0.0, gamma=1.0, time_axis=1)\n"
        "to_go - greedy[:, np.newaxis] * mask",
        verl_remax,
        package="verl",
        tolerance=1e-6,
        note="a cumulative sum",
    ),
    Row(
        "verl, REINFORCE++",
        "0.9.1",
        "compute_reinforce_plus_plus_outcome_advantage, returns",
        RETURNS,
        lambda of: verl_reinforce(of)[1:],
        package="verl",
        where="mask",
    ),
    Row(
        "verl, REINFORCE++",
        "0.9.1",
        "compute_reinforce_plus_plus_outcome_advantage, advantages",
        f"returns = {RETURNS}\nfastgae.normalize(returns, mask, ddof=1)",
        lambda of: verl_reinforce(of)[:1],
        package="verl",
        tolerance=1e-6,
        note="the moments",
        where="mask",
    ),
    Row(
        "verl, RLOO",
        "0.9.1",
        "compute_rloo_vectorized_outcome_advantage",
        "how = {'baseline': 'leave_one_out', 'scale': 'none'}\n"
        "fastgae.group_advantages(rewards.sum(axis=1), prompts, **how)[:, np.newaxis] * mask",
        verl_rloo,
        package="verl",
        tolerance=1e-6,
        note="the sums",
    ),
]
PACKAGES = sorted({f"{row.package}=={row.version}" for row in ENVIRONMENTS + TOKENS if row.package})


class Hook(NamedTuple):
    """The line that makes a library call fastgae; its versions are those of ``LIBRARY`` in fastgae.compat."""

    library: str
    line: str
    tolerance: float = 0.0
    note: str = ""
    section: str = ""  # of docs/hooks.md; "": that of the library
    versions: str = ""


HOOKS = [
    Hook("Stable-Baselines3", "`rollout_buffer_class=RolloutBuffer`, or `stable_baselines3.install()`"),
    Hook("sb3-contrib", "stable_baselines3.install()", section="Stable-Baselines3", versions="2.9.2"),
    Hook("torchrl", "from fastgae.compat.torchrl import GAE", 1e-5, "if `vectorized`, a convolution; else the bits"),
    Hook("Tianshou", "tianshou.install()"),
    Hook("skrl", "skrl.install()", 2e-6, "it adds in another order"),
    Hook("rl_games", "rl_games.install()"),
    Hook("rsl_rl", '"class_name": "fastgae.compat.rsl_rl:PPO"'),
    Hook("RLlib", "learner_class=PPOTorchLearner"),
    Hook("verl", "verl.install()"),
    Hook("sample-factory", "sample_factory.install()"),
    Hook("PufferLib", "pufferlib.install()"),
    Hook("CleanRL", "`compute_gae` in place of the loop", versions="its scripts"),
]
