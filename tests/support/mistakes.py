"""Mistakes that people make: each changes the arguments of a correct call, which a recorded rollout gave."""

from functools import partial

import numpy as np


def setting(made):
    """Return a mistake that passes other arguments, which a function makes of the right ones."""
    return lambda call, recorded, value: call.update(made(call))


def shift(call, recorded, value, by):
    for name in ("terminated", "truncated"):
        moved = np.roll(call[name], by, 0)
        moved[0 if by > 0 else -1] = False
        call[name] = moved
    if "final_values" in call:
        call["final_values"] = recorded.values_by(value)[1][call["truncated"]]


late, early = partial(shift, by=1), partial(shift, by=-1)
both = setting(lambda call: {"terminated": call["terminated"] | call["truncated"]})


def merged(call, recorded, value):
    call["terminated"] = call["terminated"] | call.pop("truncated")
    call.pop("final_values", None)


def unflagged(call, recorded, value):
    call["terminated"] = np.zeros_like(call["terminated"])
    del call["truncated"]
    call.pop("final_values", None)


def inverted(call, recorded, value):
    merged(call, recorded, value)
    call["terminated"] = ~call["terminated"]


def with_last(call, last):
    if "last_values" in call:
        return {"last_values": last}
    return {"next_values": np.concatenate([call["next_values"][:-1], last[np.newaxis]])}


no_bootstrap = setting(lambda call: with_last(call, 0 * call["values"][-1]))
own_bootstrap = setting(lambda call: with_last(call, call["values"][-1]))


def with_final(call, dense):
    if "final_values" in call:
        return {"final_values": dense[call["truncated"]]}
    return {"next_values": np.where(call["truncated"], dense, call["next_values"])}


def of_next_episode(call, recorded, value):
    last = recorded.values_by(value)[2]
    call.update(with_final(call, np.concatenate([call["values"][1:], last[np.newaxis]])))


of_same_state = setting(lambda call: with_final(call, call["values"]))
zero_final = setting(lambda call: with_final(call, 0 * call["values"]))


def no_autoreset(call, recorded, value):
    del call["autoreset"]
    if "next_values" not in call:
        call["final_values"] = recorded.values_by(value)[1][call["truncated"]]


def wrong_autoreset(call, recorded, value):
    call["autoreset"] = "next_step"
    call.pop("final_values", None)


swapped_axes = setting(lambda call: {"time_axis": 1})
other_gamma = setting(lambda call: {"gamma": 0.9})
rounded_gamma = setting(lambda call: {"gamma": float(np.float16(0.99))})
rescaled = setting(lambda call: {"rewards": call["rewards"] * 0.1})
clipped = setting(lambda call: {"rewards": np.clip(call["rewards"], -1, 1)})
rewards_late = setting(lambda call: {"rewards": np.roll(call["rewards"], 1, 0)})
rewards_early = setting(lambda call: {"rewards": np.roll(call["rewards"], -1, 0)})
# Row t has the value of observation t - 1, or t + 1, as in a loop that evaluates it after the step.
values_late = setting(lambda call: {"values": np.concatenate([call["values"][:1], call["values"][:-1]])})


def values_of_other_envs(call, recorded, value):
    order = np.random.default_rng(0).permutation(call["values"].shape[1])
    for name in {"values", "next_values", "last_values"} & set(call):
        call[name] = call[name][..., order]
    if "final_values" in call:
        final = np.zeros(call["rewards"].shape, np.float32)
        final[call["truncated"]] = call["final_values"]
        call["final_values"] = final[:, order]


def no_prev_done(call, recorded, value):
    """Begin where an episode ended in the rollout before."""
    done = call["terminated"] | call["truncated"]
    start = int(np.flatnonzero(done.any(1))[0]) + 1
    call.update({name: array[start:] for name, array in call.items() if np.ndim(array) == 2})


def not_a_number(call, recorded, value):
    call["values"] = call["values"].copy()
    call["values"][350, 0] = np.nan


def whitened(call, recorded, value):
    rewards = call["rewards"]
    call["rewards"] = (rewards - rewards.mean()) / (rewards.std() + 1e-8)


def values_early(call, recorded, value):
    call["values"] = np.concatenate([call["values"][1:], recorded.values_by(value)[2][np.newaxis]])


def padded(call, recorded, value):
    """Make a column of each whole episode, and fill it up with zeros, without a mask."""
    done = call["terminated"] | call["truncated"]
    ends = [(n, np.flatnonzero(done[:, n])) for n in range(done.shape[1])]
    spans = [(n, slice(a + 1, b + 1)) for n, rows in ends for a, b in zip([-1, *rows], rows, strict=False)]
    longest = max(rows.stop - rows.start for _, rows in spans)
    columns = {
        name: np.zeros((longest, len(spans)), call[name].dtype)
        for name in ("rewards", "values", "terminated", "truncated")
    }
    columns["values"][:] = value(np.zeros_like(recorded.observations[0, :1]))
    columns["next_values"] = columns["values"].copy()
    following = recorded.values_by(value)[1]
    for column, (n, rows) in enumerate(spans):
        for name, array in columns.items():
            array[: rows.stop - rows.start, column] = (following if name == "next_values" else call[name])[rows, n]
    call.clear()
    call.update(columns)
