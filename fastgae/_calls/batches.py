"""What jax.vmap makes of a call: the same one for every index of axes in front of the arrays' own."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastgae._call import Array

COEFFICIENTS = ("gamma", "gae_lambda", "lambda_", "returns_lambda", "decay")  # they broadcast to the first argument
WITHOUT_TIME = ("last_values", "last_advantages", "prev_done", "initial")
CLIPS = ("rho_clip", "c_clip", "advantage_clip")
# Where steps of several environments are mixed, or where there are none.
NOT_OF_ENVS = ("gae_packed", "normalize")


class Batch:
    """Arguments; ``ranks`` says how many axes an array has of its own, and ``first`` is the first of them."""

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any], ranks: dict[str, int], first: str):
        self.function = function
        self.arrays = {name: given for name, given in arguments.items() if isinstance(given, np.ndarray)}
        self.others = {name: given for name, given in arguments.items() if name not in self.arrays}
        self.ranks = {name: ranks.get(name, array.ndim) for name, array in self.arrays.items()}
        self.shape = np.broadcast_shapes(*(self.front(name) for name in self.arrays))
        self.rank, self.first_shape = self.ranks[first], self.own(first)

    def front(self, name: str) -> tuple[int, ...]:
        """The axes of the batch: 1 where an array is the same for all."""
        shape: tuple[int, ...] = self.arrays[name].shape
        return shape[: len(shape) - self.ranks[name]]

    def own(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.arrays[name].shape
        return shape[len(shape) - self.ranks[name] :]

    def results(self) -> tuple[Array, ...]:
        if not self.shape:
            return self.call(self.arrays)
        return self.as_environments() if self.are_environments() else self.one_by_one()

    def call(self, arrays: dict[str, Array], **changed: Any) -> tuple[Array, ...]:
        results = self.function(**{**self.others, **arrays, **changed})
        return results if isinstance(results, tuple) else (results,)

    def are_environments(self) -> bool:
        """Whether the batch may be more environments of one call, which is much faster than many calls."""
        given = self.others
        return (
            self.function.__name__ not in NOT_OF_ENVS
            and given.get("normalize") != "global"
            and not any(name in self.arrays for name in CLIPS)
            and all(given.get(name) is None for name in WITHOUT_TIME)
            and not any(isinstance(each, list | tuple) for each in given.values())
            and ("final_values" not in self.arrays or self.own("final_values") == self.first_shape)
            and all(self.ranks[name] <= self.rank for name in COEFFICIENTS if name in self.arrays)
            and -self.rank <= given["time_axis"] < self.rank
        )

    def as_environments(self) -> tuple[Array, ...]:
        time_axis = self.others["time_axis"]
        return self.call(
            {name: self.in_front(name) for name in self.arrays},
            time_axis=time_axis + len(self.shape) if time_axis >= 0 else time_axis,
        )

    def in_front(self, name: str) -> Array:
        if name not in COEFFICIENTS:
            return self.everywhere(name)
        front = self.front(name) or (1,) * len(self.shape)
        return self.arrays[name].reshape(*front, *(1,) * (self.rank - self.ranks[name]), *self.own(name))

    def everywhere(self, name: str) -> Array:
        return np.broadcast_to(self.arrays[name], self.shape + self.own(name))

    def one_by_one(self) -> tuple[Array, ...]:
        arrays = {name: self.everywhere(name) for name in self.arrays}
        calls = [self.call({name: array[index] for name, array in arrays.items()}) for index in np.ndindex(*self.shape)]
        return tuple(np.reshape(results, self.shape + self.first_shape) for results in zip(*calls, strict=True))
