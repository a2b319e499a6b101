"""Random calls of the functions that take no rollout of states and values."""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import contents
from .calls import REAL, Call, coefficient, finish, handed_over, number_array, rollout_call, rollout_shape
from .choices import Choices


def gae_packed(choose: Choices) -> Call:
    dtype = choose.pick(REAL)
    lengths = [contents.length(choose) * (not choose.chance(10)) for _ in range(choose.below(9))]
    if choose.chance(5):
        lengths += [1 + choose.below(60) for _ in range(200)]
    total = sum(lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(choose.pick((np.int64, np.int32, np.uint64)))
    call = Call("gae_packed", {"rewards": handed_over(choose, number_array(choose, (total,), dtype))})
    add = call.arguments
    add["values"] = handed_over(choose, number_array(choose, (total,), dtype))
    add["cu_seqlens"] = handed_over(choose, starts)
    if choose.chance(50):
        add["terminated"] = handed_over(choose, contents.flags(choose, contents.truths(choose, (total,))))
    if choose.chance(50):
        add["last_values"] = handed_over(choose, number_array(choose, (len(lengths),), dtype))
    if choose.chance(30):
        add["mask"] = handed_over(choose, contents.flags(choose, contents.truths(choose, (total,))))
    for name, percent in (("gamma", 60), ("gae_lambda", 60), ("returns_lambda", 15)):
        if choose.chance(percent):
            add[name] = _per_sequence(choose, total, len(lengths))
    if choose.chance(15):
        add["normalize"] = "global"
    finish(choose, call)
    return call


def _per_sequence(choose: Choices, total: int, sequences: int) -> Any:
    """Return a number, or numbers per sequence or per step."""
    length = choose.pick((0, sequences, total))
    if not length:
        return choose.pick((0.99, 1.0, 0.5, 0.0))
    return handed_over(choose, contents.rng_of(choose).random(length).astype(choose.pick(REAL)))


def discounted_returns(choose: Choices) -> Call:
    shape, axis = rollout_shape(choose)
    dtype, without_time = choose.pick(REAL), shape[:axis] + shape[axis + 1 :]
    rewards, ended = number_array(choose, shape, dtype), contents.broadcast(choose, contents.truths(choose, shape))
    exists = contents.truths(choose, shape) if choose.chance(30) else None
    if exists is not None and 0 not in rewards.strides:
        contents.poison(choose, rewards, ~exists)
    call = Call("discounted_returns", {"rewards": handed_over(choose, rewards)}, axis)
    add = call.arguments
    add["terminated"] = handed_over(choose, contents.flags(choose, ended))
    if choose.chance(50):
        cut = contents.broadcast(choose, contents.truths(choose, shape))
        add["truncated"] = handed_over(choose, contents.flags(choose, cut))
        final = number_array(choose, (np.count_nonzero(cut),) if choose.chance(50) else shape, dtype)
        add["final_values"] = handed_over(choose, final)
    if exists is not None:
        add["mask"] = handed_over(choose, contents.flags(choose, exists))
    if choose.chance(90):
        add["last_values"] = handed_over(choose, number_array(choose, without_time, dtype))
    else:
        call.broken = "last_values may be missing"
    if choose.chance(80):
        add["gamma"] = coefficient(choose, shape)
    _time_axis(choose, call)
    finish(choose, call)
    return call


def reverse_scan(choose: Choices) -> Call:
    shape, axis = rollout_shape(choose)
    dtype, without_time = choose.pick(REAL), shape[:axis] + shape[axis + 1 :]
    call = Call("reverse_scan", {"x": handed_over(choose, number_array(choose, shape, dtype))}, axis)
    kept = shape[choose.below(len(shape)) :] if choose.chance(30) else shape
    kept = tuple(1 if choose.chance(30) else n for n in kept)
    number = choose.chance(30)
    call.arguments["decay"] = 0.5 if number else handed_over(choose, number_array(choose, kept, dtype))
    if choose.chance(50):
        call.arguments["initial"] = handed_over(choose, number_array(choose, without_time, dtype))
    _time_axis(choose, call)
    finish(choose, call)
    return call


def valid_steps(choose: Choices) -> Call:
    shape, axis = rollout_shape(choose)
    truth = contents.broadcast(choose, contents.truths(choose, shape))
    call = Call("valid_steps", {"terminated": handed_over(choose, contents.flags(choose, truth))}, axis)
    if choose.chance(60):
        call.arguments["truncated"] = handed_over(choose, contents.flags(choose, contents.truths(choose, shape)))
    if choose.chance(50):
        row = contents.truths(choose, shape[:axis] + shape[axis + 1 :])
        call.arguments["prev_done"] = handed_over(choose, contents.flags(choose, row))
    _time_axis(choose, call)
    finish(choose, call)
    return call


def normalize(choose: Choices) -> Call:
    shape, axis = rollout_shape(choose)
    numbers = number_array(choose, shape, choose.pick(REAL))
    call = Call("normalize", {"advantages": handed_over(choose, numbers)}, axis)
    if choose.chance(40):
        call.arguments["mask"] = handed_over(choose, contents.flags(choose, contents.truths(choose, shape)))
    if choose.chance(50):
        call.arguments["by"] = choose.pick(("global", "per_env"))
    if choose.chance(30):
        call.arguments["eps"] = choose.pick((1e-8, 0.0, 1, 1e-3))
    _time_axis(choose, call)
    finish(choose, call)
    return call


def _time_axis(choose: Choices, call: Call) -> None:
    ndim = call.first.plain.ndim
    if call.time_axis or choose.chance(20):
        call.arguments["time_axis"] = call.time_axis - ndim if choose.chance(30) else call.time_axis


def _rollout(function: str) -> Callable[[Choices], Call]:
    return lambda choose: rollout_call(choose, function)


# Every public function that computes, and how often it comes.
GENERATORS: dict[str, tuple[int, Callable[[Choices], Call]]] = {
    "gae": (50, _rollout("gae")),
    "vtrace": (10, _rollout("vtrace")),
    "td_lambda": (8, _rollout("td_lambda")),
    "n_step_returns": (4, _rollout("n_step_returns")),
    "gae_packed": (12, gae_packed),
    "discounted_returns": (8, discounted_returns),
    "reverse_scan": (8, reverse_scan),
    "normalize": (6, normalize),
    "valid_steps": (3, valid_steps),
    "diagnose": (2, _rollout("diagnose")),
}


def random_call(choose: Choices, functions: tuple[str, ...] = tuple(GENERATORS)) -> Call:
    """Return a call of one of these functions."""
    choose.order = choose.pick(("C", None, None, None, "C", "F"))
    names = [name for name in functions for _ in range(GENERATORS[name][0])]
    return GENERATORS[choose.pick(names)][1](choose)
