"""Rollouts to time: random arrays as keyword arguments of fastgae.gae, and the comparison of two answers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def make_rollout(
    steps: int, envs: int, *, env_major: bool, dtype: str, bootstrap: str, ends: float, extras: Sequence[str]
) -> dict[str, Any]:
    """Return a rollout of ``steps × envs``; one env gives arrays of shape (T,).

    ``ends`` is the share of steps with each flag. ``bootstrap`` is "last_values", with ``terminated`` alone, or
    "next_values" or sparse "final_values", with ``truncated`` too. "cu_seqlens" gives packed sequences in place of an
    env, "parents" a tree, and "decay" the arguments of a reverse scan. ``extras`` are further arguments, each like
    rewards; "gamma" has one number for each step of all envs, and "discounts" are a gamma of each step, in float64.
    """
    rng = np.random.default_rng(0)
    shape = (steps,) if envs == 1 else (envs, steps) if env_major else (steps, envs)

    def numbers(shape: tuple[int, ...]) -> Array:
        return np.asarray(rng.standard_normal(shape, np.float32), dtype)

    def flags(share: float = ends) -> Array:
        return rng.random(shape, np.float32) < share

    if bootstrap == "decay":
        return {"x": numbers(shape), "decay": rng.random(shape, np.float32)}
    if bootstrap == "parents":
        # Half of the nodes follow the node before them, as tokens do, and the others branch off at any node.
        nodes = np.arange(steps)
        parents = np.where(rng.random(steps) < 0.5, nodes - 1, (rng.random(steps) * nodes).astype(int))
        tree = {"rewards": numbers(shape), "values": numbers(shape), "parents": np.where(nodes > 0, parents, -1)}
        return {**tree, "terminated": None, "last_values": 0.5}
    if bootstrap == "cu_seqlens":
        starts = np.concatenate(
            [[0], np.sort(rng.choice(np.arange(1, steps), max(1, steps // 256) - 1, False)), [steps]]
        )
        packed = {
            "rewards": numbers(shape),
            "values": numbers(shape),
            "terminated": flags(),
            "cu_seqlens": starts,
            "last_values": numbers((len(starts) - 1,)),
        }
        return {**packed, "mask": flags(0.8)} if "mask" in extras else packed
    arguments: dict[str, Any] = {"rewards": numbers(shape), "values": numbers(shape), "terminated": flags()}
    if bootstrap != "last_values":
        arguments["truncated"] = flags()
    if bootstrap == "next_values":
        arguments["next_values"] = numbers(shape)
    else:
        arguments["last_values"] = numbers(() if envs == 1 else (envs,))
    if bootstrap == "final_values":
        arguments["final_values"] = numbers((int(np.count_nonzero(arguments["truncated"])),))
    if env_major and envs > 1:
        arguments["time_axis"] = 1
    if "mask" in extras:
        arguments["mask"] = flags(0.8)
    if "ratios" in extras:
        arguments["ratios"] = np.exp(numbers(shape))
    if "gamma" in extras:
        each_step = (steps,) if envs == 1 else (1, steps) if env_major else (steps, 1)
        arguments["gamma"] = rng.random(each_step, np.float32)
    if "discounts" in extras:
        arguments["gamma"] = rng.random(shape)
    return arguments


def same_bits(result: Any, expected: Any) -> bool:
    """Compare the outputs that were computed, as integers: NaN then equals itself, and 0.0 differs from -0.0."""
    pairs = zip(result, expected, strict=True) if isinstance(result, tuple) else [(result, expected)]
    return all(
        got is None or np.array_equal(got.view(f"i{got.itemsize}"), right.view(f"i{right.itemsize}"))
        for got, right in pairs
    )


# Other ways to pass a rollout. fastgae reads the last one in place, and not the others.
GIVEN: Mapping[str, Callable[[str, Any], Any]] = {
    "strided": lambda _, array: np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array,
    "byte-swapped": lambda _, array: array.astype(array.dtype.newbyteorder()),
    "int flags": lambda _, array: array.astype(np.int64) if array.dtype == bool else array,
    "float flags": lambda _, array: array.astype(np.float32) if array.dtype == bool else array,  # as CleanRL has them
    "float64 rewards": lambda name, array: array.astype(np.float64) if name == "rewards" else array,  # as Gymnasium's
    "rank 3": lambda _, array: array.reshape(*array.shape[:-1], 2, -1) if array.ndim else array,  # envs as a matrix
}
