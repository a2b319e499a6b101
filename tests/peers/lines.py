"""What the libraries compute whose lines are in the tables of docs/my-library.md.

A row of the page that says "its function" runs the library's own function; the others run its loop, written out. Arrays
have the names of the page: ``environments`` and ``tokens`` make them.
"""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Names
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from .installed import function
from .peer_verl import theirs as of_verl

PAGE = Path(__file__).parents[2] / "docs" / "my-library.md"
MARKED = re.compile(r"(<!-- table of (\w+) -->\n\n)((?:\|.*\n)*)")
PAGE_TABLES = {name: rows for _, name, rows in MARKED.findall(PAGE.read_text(encoding="utf-8"))}
COEFFICIENTS = [(0.99, 0.95), (0.9, 0.8), (1.0, 0.9)]


class Row(NamedTuple):
    """A row of the page: one line of fastgae in place of a function of a library."""

    library: str
    replaced: str  # the library's function, and in which form
    line: str
    tolerance: float  # 0: the same bits
    version: str
    is_function: bool  # the library's own; otherwise its loop is written out here


def rows_of(table: str) -> list[Row]:
    """Read the rows of a table of the page."""
    rows = []
    for text in PAGE_TABLES[table].splitlines()[2:]:
        library, replaced, line, numbers, checked = text.removeprefix("| ").removesuffix(" |").split(" | ")
        statements = "\n".join(statement.strip("`") for statement in line.split("<br>"))
        tolerance = 0.0 if numbers == "✓" else float(numbers.removeprefix("to ").partition(":")[0])
        version, _, source = checked.partition(", its ")
        rows.append(Row(library, replaced.replace("`", ""), statements, tolerance, version, source == "function"))
    return rows


class Theirs(NamedTuple):
    """What a library computes from the arrays of a line, in the order of the line's results."""

    compute: Callable[[Names], tuple[Any, ...]]
    package: str = ""  # the library's own function comes from this package; "": the loop is written out
    where: str = ""  # the steps that are compared; "": all


def environments(rng: np.random.Generator, gamma: float, gae_lambda: float) -> Names:
    """Return a rollout, time first. ``dones`` and ``next_done`` say that an observation is the first of an episode."""
    of = Names(gamma=gamma, gae_lambda=gae_lambda, settings={"gamma": gamma, "gae_lambda": gae_lambda})
    of.rewards, of.values, of.next_values = rng.normal(size=(3, 40, 9)).astype(np.float32)
    of.terminated, of.truncated = rng.random((2, 40, 9)) < 0.1
    of.done, of.last_values = of.terminated | of.truncated, of.next_values[-1]
    of.dones, of.next_done = np.vstack([rng.random((1, 9)) < 0.5, of.done[:-1]]), of.done[-1]
    # Of Dreamer's imagination: discounts, and batches in rows.
    of.continues, of.rew, of.boot = gamma * (~of.done).astype(np.float32), of.rewards.T, of.next_values.T
    of.live = gamma * (~of.terminated.T[:, 1:]).astype(np.float32)
    of.cont = gae_lambda * (~of.truncated.T[:, 1:]).astype(np.float32)
    return of


def tokens(rng: np.random.Generator, gamma: float, gae_lambda: float) -> Names:
    """Return answers in rows, of turns of four tokens or more, and one that fills the whole width."""
    of = Names(gamma=gamma, gae_lambda=gae_lambda, high_level_gamma=0.9, q=0.3)
    of.settings = {"gamma": gamma, "gae_lambda": gae_lambda, "time_axis": 1}
    of.rewards, of.values = rng.normal(size=(2, 9, 40)).astype(np.float32)
    of.mask = mask = np.repeat(rng.random((9, 10)) < 0.6, 4, axis=1)
    mask[0] = True
    of.no_eos, of.next_mask = mask.all(axis=1), np.pad(mask[:, 1:], ((0, 0), (0, 1)))
    of.reward_mask = mask & ~of.next_mask
    starts = mask & ~np.pad(mask[:, :-1], ((0, 0), (1, 0)))
    of.turn_ids = np.where(mask, starts.cumsum(axis=1) - 1, -1)
    turn = of.turn_ids[:, :, np.newaxis] == np.arange(of.turn_ids.max() + 1)
    lengths = np.maximum(turn.sum(axis=1, dtype=np.float32), 1)
    of.has_turn, of.turn_sums = turn.any(axis=1), (of.rewards[:, :, np.newaxis] * turn).sum(axis=1)
    of.turn_rewards = of.turn_sums / lengths
    of.turn_values = (of.values[:, :, np.newaxis] * turn).sum(axis=1) / lengths
    of.first_values = np.take_along_axis(of.values, turn.argmax(axis=1), axis=1)
    of.lam = 1 - 1 / np.maximum(0.5 * mask.sum(axis=1, dtype=np.float32), 1)
    of.prompts, of.several = np.repeat(["b", "c", "a"], [4, 4, 1]), np.repeat([True, False], [8, 1])
    of.greedy = rng.normal(size=9).astype(np.float32)
    of.log_probs = -rng.exponential(size=(9, 40)).astype(np.float32)
    of.sum_pi_squared = rng.random((9, 40)).astype(np.float32)
    return of


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


def masked_answers(of, **changed):
    return answers(of, mask=of.mask, **changed)


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


def di_engine(of):
    factors = of.gamma * of.gae_lambda * (~of.done).astype(np.float32)
    deltas = of.rewards + of.gamma * (of.next_values * ~of.terminated) - of.values
    trace, advantages = np.zeros_like(of.last_values), np.empty_like(of.rewards)
    for t in reversed(range(len(advantages))):
        advantages[t] = trace = deltas[t] + factors[t] * trace
    return (advantages,)


def in_float64(of):
    following = np.concatenate([of.values[1:], of.last_values[np.newaxis]])
    advantages = (of.rewards + of.gamma * following - of.values).astype(np.float64)
    for t in reversed(range(len(advantages) - 1)):
        advantages[t] += of.gamma * of.gae_lambda * advantages[t + 1]
    return advantages, advantages + of.values


def xuance(of):
    finish = function("xuance", "xuance/common/memory_tools.py", "DummyOnPolicyBuffer.finish_path", np=np)
    rewards, values, terminals = (each.T.astype(np.float32) for each in (of.rewards, of.values, of.terminated))
    buffer = Names(rewards=rewards, values=values, terminals=terminals, use_gae=True, gamma=of.gamma)
    buffer.advantages, buffer.returns, buffer.gae_lam = np.zeros_like(rewards), np.zeros_like(rewards), of.gae_lambda
    buffer.full, buffer.n_size, buffer.ptr, buffer.start_ids = True, len(of.rewards), 0, np.zeros(len(rewards), int)
    for env, last_value in enumerate(of.last_values):
        finish(buffer, 0.0 if of.terminated[-1, env] else last_value, env)  # as its agents do
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


IKOSTRIKOV = "ikostrikov's a2c-ppo-acktr, MAPPO"
ENVIRONMENTS = {
    ("AgileRL", "RolloutBuffer.compute_returns_and_advantages"): Theirs(agile_rl_buffer, "agilerl"),
    ("DI-engine", "gae"): Theirs(di_engine),
    ("Dreamer v3", "lambda_return"): Theirs(dreamer),
    ("ElegantRL", "get_advantages_origin"): Theirs(elegant_rl("get_advantages_origin"), "elegantrl"),
    ("ElegantRL", "get_advantages_vtrace"): Theirs(elegant_rl("get_advantages_vtrace"), "elegantrl"),
    ("EvoRL", "compute_gae"): Theirs(lambda of: plain(of)[::-1]),
    ("garage", "compute_advantages"): Theirs(garage, "garage"),
    (IKOSTRIKOV, "compute_returns, GAE"): Theirs(lambda of: plain(of)[1:]),
    (IKOSTRIKOV, "compute_returns, GAE, proper time limits"): Theirs(
        lambda of: sweep(of, of.last_values, ~of.done, ~of.truncated)[1:]
    ),
    (IKOSTRIKOV, "compute_returns, no GAE"): Theirs(a2c_returns),
    (IKOSTRIKOV, "compute_returns, no GAE, proper time limits"): Theirs(lambda of: a2c_returns(of, ~of.truncated)),
    ("JaxMARL", "_calculate_gae"): Theirs(plain),
    ("Mava", "_calculate_gae"): Theirs(plain),
    ("Mava, recurrent", "_calculate_gae"): Theirs(
        lambda of: sweep(of, of.last_values, ~np.vstack([of.dones, of.next_done])[1:])
    ),
    ("OmniSafe", "_calculate_adv_and_value_targets"): Theirs(in_float64),
    ("PureJaxRL", "_calculate_gae"): Theirs(plain),
    ("ml-agents", "get_gae"): Theirs(lambda of: in_float64(of)[:1]),
    ("RLinf", "compute_gae_advantages_and_returns"): Theirs(rlinf, "rlinf"),
    ("sheeprl", "gae"): Theirs(sheeprl, "sheeprl"),
    ("sheeprl, Dreamer v3", "compute_lambda_values"): Theirs(sheeprl_dreamer, "sheeprl"),
    ("Stoix", "batch_truncated_generalized_advantage_estimation"): Theirs(stoix),
    ("XuanCe", "DummyOnPolicyBuffer.finish_path"): Theirs(xuance, "xuance"),
}
TOKENS = {
    ("AgileRL, tokens", "_compute_gae_returns_token"): Theirs(agile_rl_tokens, "agilerl", "mask"),
    ("AgileRL, turns", "_compute_gae_returns"): Theirs(agile_rl_turns, "agilerl"),
    ("AReaL", "PPOActor.compute_advantages"): Theirs(areal),
    ("AReaL, relative position", "relative_position_gae_lambda"): Theirs(areal_relative),
    ("AReaL, turns", "_compute_turn_level_gae"): Theirs(areal_turns),
    ("molt", "gae"): Theirs(masked_answers, where="mask"),
    ("molt", "reinforce"): Theirs(molt_reinforce),
    ("NeMo-RL", "GeneralizedAdvantageEstimator"): Theirs(masked_answers),
    ("NeMo-RL, VAPO", "GeneralizedAdvantageEstimator"): Theirs(vapo),
    ("NeMo-RL, gamma and lambda 1", "GeneralizedAdvantageEstimator"): Theirs(nemo_rl_sums),
    ("OpenRLHF", "get_advantages_and_returns"): Theirs(open_rlhf_gae, "openrlhf"),
    ("OpenRLHF", "get_cumulative_returns"): Theirs(open_rlhf_returns, "openrlhf"),
    ("RAGEN, bi-level", "compute_bi_level_gae_advantage_return"): Theirs(ragen, where="mask"),
    ("ColossalChat", "NaiveExperienceMaker.calculate_advantage"): Theirs(lambda of: answers(of)[:1]),
    ("DeepSpeed-Chat", "DeepSpeedPPOTrainer.get_advantages_and_returns"): Theirs(answers),
    ("ROLL", "compute_gae_advantage_return"): Theirs(answers),
    ("SkyRL", "compute_gae_advantage_return"): Theirs(answers),
    ("slime", "vanilla_gae"): Theirs(answers),
    ("TRL", "PPOTrainer.train"): Theirs(answers),
    ("trlX", "PPOConfig.get_advantages_and_returns"): Theirs(answers),
    ("tunix", "compute_gae_advantages"): Theirs(
        lambda of: masked_answers(of, gamma=np.float32(of.gamma), gae_lambda=np.float32(of.gae_lambda))
    ),
    ("slime", "chunked_gae"): Theirs(slime_chunks),
    ("verl, OPO", "compute_opo_outcome_advantage"): Theirs(verl_opo, "verl", "several"),
    ("verl, optimal token baseline", "compute_optimal_token_baseline_advantage"): Theirs(
        verl_token_baseline, "verl", "several"
    ),
    ("verl, ReMax", "compute_remax_outcome_advantage"): Theirs(verl_remax, "verl"),
    ("verl, REINFORCE++", "compute_reinforce_plus_plus_outcome_advantage, returns"): Theirs(
        lambda of: verl_reinforce(of)[1:], "verl", "mask"
    ),
    ("verl, REINFORCE++", "compute_reinforce_plus_plus_outcome_advantage, advantages"): Theirs(
        lambda of: verl_reinforce(of)[:1], "verl", "mask"
    ),
    ("verl, RLOO", "compute_rloo_vectorized_outcome_advantage"): Theirs(verl_rloo, "verl"),
}
TABLES_OF_LINES = {"environments": (environments, ENVIRONMENTS), "tokens": (tokens, TOKENS)}
PACKAGES = sorted(
    {
        f"{of_row.package}=={row.version}"
        for table, (_, theirs) in TABLES_OF_LINES.items()
        for row in rows_of(table)
        if (of_row := theirs[row.library, row.replaced]).package
    }
)


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
