"""Compute the answers from the equations alone, one step of one environment after the other.

Every operation is one of NumPy's scalars of the working dtype, which rounds it: the answers are exact, bit for bit.
Skipped steps are cut out of the arrays and put back, as the definition of ``mask`` says. Shares no code with fastgae.
"""

import bisect
import functools
import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .calls import Call

MOST_STEPS = 1200  # a scalar step takes a microsecond or two


@dataclass
class Env:
    """The steps of one environment that exist."""

    rewards: list[Any]
    values: list[Any]
    next_values: list[Any]
    terminated: list[bool]
    truncated: list[bool]
    real: list[bool]  # False: a reset row
    gamma: list[float]
    last_advantage: Any
    more: dict[str, Any] = field(default_factory=dict)


def answers(call: Call) -> Iterator[tuple[str, tuple[Any, ...], np.ndarray]]:
    """Yield (output, index, expected numbers) for all steps of some environments."""
    if call.function in ANSWERS:
        with np.errstate(all="ignore"):
            yield from ANSWERS[call.function](call)


def _columns(call: Call, reserve: int = 1) -> Iterator[tuple[Any, ...]]:
    """Yield the index of every environment, or of as many as there is time for, spread over all of them."""
    shape, axis = call.shape, call.time_axis
    others = shape[:axis] + shape[axis + 1 :]
    count = int(np.prod(others))
    take = min(count, max(2, MOST_STEPS // max(1, shape[axis] * reserve)))
    for number in sorted({int(i) for i in np.linspace(0, count - 1, take)}) if count else ():
        index = np.unravel_index(number, others)
        yield (*index[:axis], slice(None), *index[axis:])


def _without_time(column: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(i for i in column if not isinstance(i, slice))


class _Rollout:
    """The arguments of a call, by environment."""

    def __init__(self, call: Call):
        self.call, self.real = call, call.working_dtype().type
        self.shape, self.axis = call.shape, call.time_axis
        self.arrays: dict[str, Any] = {}
        cut, final = call.plain("truncated"), call.plain("final_values")
        if final is not None and final.shape != self.shape:  # one by one, in C order
            dense = np.zeros(self.shape, final.dtype.newbyteorder("="))
            dense[np.asarray(cut) != 0] = final
            final = dense
        self.final = final

    def array(self, name: str) -> np.ndarray | None:
        if name not in self.arrays:
            given = self.call.plain(name)
            self.arrays[name] = None if given is None else np.asarray(given)
        return self.arrays[name]

    def column(self, name: str, column: tuple[Any, ...]) -> list[Any] | None:
        array = self.array(name)
        return None if array is None else self.numbers(array[column])

    def numbers(self, array: np.ndarray) -> list[Any]:
        return [self.real(x) for x in array.astype(self.real)]

    def flags(self, name: str, column: tuple[Any, ...], missing: bool) -> list[bool]:
        array = self.array(name)
        steps = self.shape[self.axis]
        return [missing] * steps if array is None else (array[column] != 0).tolist()

    def row(self, name: str, column: tuple[Any, ...]) -> Any:
        array = self.array(name)
        return None if array is None else self.real(array[_without_time(column) if array.ndim else ()])

    def coefficients(self, name: str, default: float, column: tuple[Any, ...]) -> list[float]:
        """Return float64, because coefficients are multiplied before they are rounded."""
        given = self.array(name)
        wide = np.asarray(default if given is None else given, np.float64)
        return np.broadcast_to(wide, self.shape)[column].tolist()

    def env(self, column: tuple[Any, ...]) -> tuple[list[int], Env]:
        """Return the indices of the steps that exist, and their arguments."""
        call = self.call
        existing = [t for t, exists in enumerate(self.flags("mask", column, True)) if exists]
        values = self.column("values", column) or []
        last = self.row("last_values", column)
        if len(values) > self.shape[self.axis]:
            last = values[-1]
        following, final = self.column("next_values", column), None
        if self.final is not None:
            final = self.numbers(self.final[column])
        terminated, truncated = self.flags("terminated", column, False), self.flags("truncated", column, False)
        next_values, real = [], []
        started = self.array("prev_done")
        before = started is not None and bool(started[_without_time(column)])
        next_step = str(call.arguments.get("autoreset")).lower() == "next_step"
        for t, after in zip(existing, [*existing[1:], None], strict=False):
            if following is not None:
                next_values.append(following[t])
            elif truncated[t] and final is not None:
                next_values.append(final[t])
            else:
                next_values.append(last if after is None else values[after])
            real.append(not (next_step and before))
            before = terminated[t] or truncated[t]
        rewards, gammas = self.column("rewards", column) or [], self.coefficients("gamma", 0.99, column)
        rewards, values, terminated, truncated, gammas = (
            [each[t] for t in existing] for each in (rewards, values, terminated, truncated, gammas)
        )
        last = self.row("last_advantages", column)
        return existing, Env(rewards, values, next_values, terminated, truncated, real, gammas, last)


def _deltas(env: Env, real: Any) -> list[Any]:
    """Return delta = (r + gamma V') - V, without the bootstrap where terminated."""
    return [
        (r if ended else r + real(g) * following) - v
        for r, v, following, ended, g in zip(
            env.rewards, env.values, env.next_values, env.terminated, env.gamma, strict=True
        )
    ]


def _scan(env: Env, terms: list[Any], decays: list[Any], last: Any) -> tuple[list[Any], list[Any]]:
    """Return y = x + decay y_next, and y_next. Where the episode ends y is x, and at reset rows y is y_next."""
    y, nexts, following = [last] * len(terms), [last] * len(terms), last
    for i in reversed(range(len(terms))):
        nexts[i] = following
        if env.real[i]:
            ends = env.terminated[i] or env.truncated[i]
            following = terms[i] if ends else terms[i] + decays[i] * following
        y[i] = following
    return y, nexts


def _gae_of(env: Env, real: Any, lambdas: list[float]) -> tuple[list[Any], list[Any]]:
    """Return A and R of the steps of one environment, in the form that ``env.more`` names."""
    zero, one, more = real(0), real(1), env.more
    deltas, decays = _deltas(env, real), [real(g * trace) for g, trace in zip(env.gamma, lambdas, strict=True)]
    start = zero if env.last_advantage is None else env.last_advantage
    if "clips" in more:
        rho, c, advantage, leaky = (real(np.inf if clip is None else clip) for clip in more["clips"])

        def weight(ratio: Any, clip: Any) -> Any:
            clipped = clip if ratio > clip else ratio  # NaN stays
            return clipped if leaky == 0 else (one - leaky) * clipped + leaky * ratio

        weighted = [weight(ratio, rho) * delta for ratio, delta in zip(more["ratios"], deltas, strict=True)]
        traces = [weight(ratio, c) * decay for ratio, decay in zip(more["ratios"], decays, strict=True)]
        traced, nexts = _scan(env, weighted, traces, start)
        advantages = []
        for i, (delta, ratio) in enumerate(zip(deltas, more["ratios"], strict=True)):
            ends = env.terminated[i] or env.truncated[i]
            advantages.append((delta if ends else delta + decays[i] * nexts[i]) * weight(ratio, advantage))
    elif "tail" in more:
        left, _ = _scan(env, [one] * len(deltas), [real(trace) for trace in lambdas], zero)
        weighted, _ = _scan(env, [d * delta for d, delta in zip(left, deltas, strict=True)], decays, zero)
        advantages = traced = [g / d for g, d in zip(weighted, left, strict=True)]
    else:
        advantages, _ = _scan(env, deltas, decays, start)
        traced = advantages
    if "returns_lambda" in more:
        decays = [real(g * trace) for g, trace in zip(env.gamma, more["returns_lambda"], strict=True)]
        traced, _ = _scan(env, deltas, decays, zero)
    if "carry_over" in more:
        return advantages, traced
    returns = [a + v if exists else v for a, v, exists in zip(traced, env.values, env.real, strict=True)]
    return [a if exists else zero for a, exists in zip(advantages, env.real, strict=True)], returns


def _lambdas(call: Call, rollout: _Rollout, column: tuple[Any, ...]) -> Any:
    """Return lambda of every step, which is 1 if the function has none."""
    takes = call.parameters()
    for name in ("lambda_", "gae_lambda"):
        if name in takes:
            return rollout.coefficients(name, takes[name].default, column)
    return [1.0] * rollout.shape[rollout.axis]


def _cut_before_bad_steps(env: Env, real: Any) -> None:
    """Cut every step whose next step has a TD error below 0, or NaN, or does not exist."""
    upwards = False
    for i, delta in reversed([*enumerate(_deltas(env, real))]):
        if env.real[i]:
            env.truncated[i] = env.truncated[i] or not upwards
            upwards = bool(delta >= 0)


def _scattered(existing: list[int], results: list[Any], otherwise: list[Any], dtype: Any) -> np.ndarray:
    array = np.array(otherwise, dtype)
    array[existing] = results
    return array


def _gae(call: Call) -> Iterator[tuple[str, tuple[Any, ...], np.ndarray]]:
    rollout = _Rollout(call)
    real, steps = rollout.real, rollout.shape[rollout.axis]
    takes = call.parameters()
    for column in _columns(call):
        existing, env = rollout.env(column)
        if call.arguments.get("returns_lambda") is not None:
            second = rollout.coefficients("returns_lambda", 0.0, column)
            env.more["returns_lambda"] = [second[t] for t in existing]
        if call.arguments.get("tail_normalized"):
            env.more["tail"] = True
        ratios = rollout.column("ratios", column) or []
        lambdas = _lambdas(call, rollout, column)
        if call.function == "upgo":
            _cut_before_bad_steps(env, real)
        elif call.function == "retrace":
            traces = [lambdas[t] * float(np.minimum(ratios[t], real(1))) for t in existing]
            lambdas = dict(zip(existing, [*traces[1:], 0.0], strict=False))
        elif "ratios" in takes:
            env.more["ratios"] = [ratios[t] for t in existing]
            env.more["clips"] = [
                call.arguments.get(name, takes[name].default)
                for name in ("rho_clip", "c_clip", "advantage_clip", "leaky")
            ]
        values = (rollout.column("values", column) or [])[:steps]
        if call.arguments.get("carry_over"):
            env.more["carry_over"] = True
            after = [bisect.bisect_left(existing, t) for t in range(steps)]  # where the next step that exists stands
            last = real(0) if env.last_advantage is None else env.last_advantage
            passed, traced = ([*y, last] for y in _gae_of(env, real, [lambdas[t] for t in existing]))
            yield "advantages", column, np.array([passed[i] for i in after], real)
            yield "returns", column, np.array([traced[i] + v for i, v in zip(after, values, strict=True)], real)
            continue
        advantages, returns = _gae_of(env, real, [lambdas[t] for t in existing])
        if call.arguments.get("normalize") is None and call.function not in ("td_lambda", "retrace"):
            yield "advantages", column, _scattered(existing, advantages, [real(0)] * steps, real)
        yield "returns", column, _scattered(existing, returns, values, real)


def _gae_packed(call: Call) -> Iterator[tuple[str, tuple[Any, ...], np.ndarray]]:
    rollout, takes = _Rollout(call), call.parameters()
    real, everything = rollout.real, (slice(None),)
    starts = [int(start) for start in call.plain("cu_seqlens")]
    rewards, values = rollout.column("rewards", everything), rollout.column("values", everything)
    mask, ended = rollout.flags("mask", everything, True), rollout.flags("terminated", everything, False)
    last = call.plain("last_values")

    def per_step(name: str) -> list[float]:
        given = call.plain(name) if name in call.arguments else takes[name].default
        if np.ndim(given) == 2:
            given = np.repeat(np.asarray(given)[:, 0], np.diff(starts))
        return [float(x) for x in np.broadcast_to(np.asarray(given, np.float64), (len(rewards or []),))]

    gammas, lambdas = per_step("gamma"), per_step("gae_lambda")
    second = None if call.arguments.get("returns_lambda") is None else per_step("returns_lambda")
    budget = MOST_STEPS
    for i, (begin, end) in enumerate(itertools.pairwise(starts)):
        existing = [t for t in range(begin, end) if mask[t]]
        if end == begin or (budget := budget - (end - begin)) < 0:
            continue
        after = real(0) if last is None else real(last[i] if np.ndim(last) else last)
        r, v, terminated, gamma = ([each[t] for t in existing] for each in (rewards, values, ended, gammas))
        count = len(existing)
        env = Env(r, v, [*v[1:], after][:count], terminated, [False] * count, [True] * count, gamma, None)
        if existing and last is None:
            env.terminated[-1] = True
        elif existing:
            env.truncated[-1] = True
        if second:
            env.more["returns_lambda"] = [second[t] for t in existing]
        advantages, returns = _gae_of(env, real, [lambdas[t] for t in existing])
        here, places = (slice(begin, end),), [t - begin for t in existing]
        if call.arguments.get("normalize") is None:
            yield "advantages", here, _scattered(places, advantages, [real(0)] * (end - begin), real)
        yield "returns", here, _scattered(places, returns, values[begin:end], real)


def _gae_tree(call: Call) -> Iterator[tuple[str, tuple[Any, ...], np.ndarray]]:
    """Go through lists of the children of each node. Sums begin with the last child."""
    parents, everything = np.asarray(call.plain("parents")).tolist(), (slice(None),)
    if len(parents) > MOST_STEPS:
        return
    rollout, takes, nodes = _Rollout(call), call.parameters(), range(len(parents))
    real, children = rollout.real, [[] for _ in nodes]  # type: tuple[Any, list[list[int]]]
    for node in reversed(nodes):
        if parents[node] >= 0:
            children[parents[node]].append(node)
    share = _shares(call, real, children)
    rewards, exists = rollout.column("rewards", everything) or [], rollout.flags("mask", everything, True)
    ended, values = rollout.flags("terminated", everything, False), [real(0)] * len(parents)
    if np.ndim(call.plain("values")):
        values = rollout.column("values", everything) or []
    after, last = [real(0)] * len(parents), call.plain("last_values")
    leaves = [node for node in nodes if not children[node]]
    if last is not None:
        given = np.broadcast_to(last, len(leaves) if np.shape(last) != (len(parents),) else len(parents))
        for node, number in zip(leaves if len(given) == len(leaves) else nodes, rollout.numbers(given), strict=True):
            after[node] = number
    gammas = rollout.coefficients("gamma", 0.0, everything)

    def traces(name: str) -> list[Any]:
        """Return A with this lambda at nodes that exist, and what others hand on; None: nothing."""
        lambdas, traced = rollout.coefficients(name, takes[name].default, everything), [None] * len(parents)
        for node in reversed(nodes):
            total: Any = None
            for child in children[node]:
                if traced[child] is not None:
                    part = share[child] * traced[child]
                    total = part if total is None else total + part
            if exists[node]:
                delta = rewards[node] if ended[node] else rewards[node] + real(gammas[node]) * after[node]
                delta = delta - values[node]
                total = delta if total is None else delta + real(gammas[node] * lambdas[node]) * total
            traced[node] = total
        return traced

    for node in reversed(nodes):
        parts = [share[child] * (values[child] if exists[child] else after[child]) for child in children[node]]
        if parts:
            after[node] = functools.reduce(operator.add, parts)
    advantages = traces("gae_lambda")
    targets = advantages if call.arguments.get("returns_lambda") is None else traces("returns_lambda")
    existing = [node for node in nodes if exists[node]]
    if call.arguments.get("normalize") is None:
        zeros = [real(0)] * len(parents)
        yield "advantages", everything, _scattered(existing, [advantages[node] for node in existing], zeros, real)
    yield "returns", everything, _scattered(existing, [targets[n] + values[n] for n in existing], values, real)


def _shares(call: Call, real: Any, children: list[list[int]]) -> list[Any]:
    """Return the share of each node among its siblings: one division in float64, rounded once."""
    weights = call.plain("weights") if "weights" in call.arguments else "children"
    numbers = [1.0] * len(children) if isinstance(weights, str) else np.asarray(weights, np.float64).tolist()
    if isinstance(weights, str) and weights == "leaves":
        for node in reversed(range(len(children))):
            numbers[node] = sum(numbers[child] for child in children[node]) or 1.0
    share = [real(0)] * len(children)
    for siblings in children:
        total = functools.reduce(operator.add, (numbers[child] for child in siblings), 0.0)
        for child in siblings:
            share[child] = real(numbers[child] / total)
    return share


def _discounted_returns(call: Call) -> Iterator[tuple[str, tuple[Any, ...], np.ndarray]]:
    rollout = _Rollout(call)
    real = rollout.real
    for column in _columns(call):
        rewards, gammas = rollout.column("rewards", column) or [], rollout.coefficients("gamma", 0.99, column)
        ended, cut = rollout.flags("terminated", column, False), rollout.flags("truncated", column, False)
        exists = rollout.flags("mask", column, True)
        final = None if rollout.final is None else rollout.numbers(rollout.final[column])
        last, known = rollout.row("last_values", column), rollout.column("next_values", column)
        if known is not None:
            final, last = known, next((known[t] for t in reversed(range(len(known))) if exists[t]), None)
        following, result = real(0) if last is None else last, [real(0)] * len(rewards)
        for t in reversed(range(len(rewards))):
            if not exists[t]:
                continue
            following = rewards[t] if ended[t] else rewards[t] + real(gammas[t]) * (final[t] if cut[t] else following)
            result[t] = following
        yield "result", column, np.array(result, real)


def _reverse_scan(call: Call) -> Iterator[tuple[str, tuple[Any, ...], np.ndarray]]:
    rollout = _Rollout(call)
    decay = np.broadcast_to(np.asarray(call.plain("decay")), rollout.shape)
    for column in _columns(call):
        x, decays = rollout.column("x", column) or [], rollout.numbers(decay[column])
        first = rollout.row("initial", column)
        following, result = rollout.real(0) if first is None else first, list(x)
        for t in reversed(range(len(x))):
            result[t] = following = x[t] + decays[t] * following
        yield "result", column, np.array(result, rollout.real)


def _n_step_returns(call: Call) -> Iterator[tuple[str, tuple[Any, ...], np.ndarray]]:
    rollout = _Rollout(call)
    real, n = rollout.real, call.arguments["n"]
    for column in _columns(call, n):
        existing, env = rollout.env(column)
        result = (rollout.column("values", column) or [])[: rollout.shape[rollout.axis]]
        live = [i for i, exists in enumerate(env.real) if exists]  # n counts these alone

        def one_step(i: int, env: Env = env) -> Any:
            return env.rewards[i] if env.terminated[i] else env.rewards[i] + real(env.gamma[i]) * env.next_values[i]

        target = {i: one_step(i) for i in live}
        for _ in range(min(n, len(live)) - 1):
            target = {
                i: one_step(i)
                if after is None or env.terminated[i] or env.truncated[i]
                else env.rewards[i] + real(env.gamma[i]) * target[after]
                for i, after in zip(live, [*live[1:], None], strict=False)
            }
        for i, number in target.items():
            result[existing[i]] = number
        yield "result", column, np.array(result, real)


def _valid_steps(call: Call) -> Iterator[tuple[str, tuple[Any, ...], np.ndarray]]:
    rollout = _Rollout(call)
    for column in _columns(call):
        ended, cut = rollout.flags("terminated", column, False), rollout.flags("truncated", column, False)
        before = call.plain("prev_done")
        first = before is None or not np.asarray(before)[_without_time(column)]
        done = [a or b for a, b in zip(ended, cut, strict=True)]
        yield "result", column, np.array([first, *(not d for d in done[:-1])][: len(done)], bool)


# For any other function, invariance.py compares calls with each other.
ANSWERS = {
    "gae": _gae,
    "vtrace": _gae,
    "td_lambda": _gae,
    "upgo": _gae,
    "retrace": _gae,
    "gae_packed": _gae_packed,
    "gae_tree": _gae_tree,
    "discounted_returns": _discounted_returns,
    "reverse_scan": _reverse_scan,
    "n_step_returns": _n_step_returns,
    "valid_steps": _valid_steps,
}
