"""Make a batch of calls for jax.vmap. The batch axes of an array come before the axes that it has in one call."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastgae._call import Array, Role, names_of

BROADCAST = names_of(Role.COEFFICIENT, Role.FACTORS)
PER_ENV = names_of(Role.ENVS, Role.MOMENTS)
ENV_FLAGS = names_of(Role.ENV_FLAGS)
# The arguments whose arrays may get more environments. Any other argument is one value for a whole call.
OF_ENVS = (*names_of(Role.STEPS, Role.STEP_FLAGS), *PER_ENV, *ENV_FLAGS, *BROADCAST)
SETTINGS = names_of(Role.SETTING)

Shape = tuple[int, ...]


def may_join(settings: dict[str, Any], shapes: dict[str, Shape], like: Shape) -> bool:
    """Return whether calls may become environments of one call. ``shapes`` are those of the arrays in one call."""
    return (
        all(name in OF_ENVS for name in shapes)
        # Global moments are taken over all environments of a call, and would mix different calls.
        and not any(settings.get(name) == "global" for name in SETTINGS)
        # A number of one env stands for the envs of all calls.
        and all(settings.get(name) is None for name in ENV_FLAGS)
        and shapes.get("final_values", like) == like
    )


class Batch:
    """The arrays and the other arguments of a batch of calls; the results have the shape of the first array.

    ``ranks`` has the number of axes of each array in one call.
    """

    def __init__(
        self, function: Callable[..., Any], settings: dict[str, Any], arrays: dict[str, Array], ranks: dict[str, int]
    ):
        self.function, self.settings, self.arrays, self.ranks = function, settings, arrays, ranks
        self.shape = np.broadcast_shapes(*map(self.front, arrays))
        first = next(iter(arrays))
        self.rank, self.first_shape = ranks[first], self.own(first)

    def front(self, name: str) -> Shape:
        """Return the lengths of an array's batch axes: 1 if the array is the same for all calls."""
        return self.arrays[name].shape[: self.arrays[name].ndim - self.ranks[name]]

    def own(self, name: str) -> Shape:
        """Return the shape of an array in one call."""
        return self.arrays[name].shape[self.arrays[name].ndim - self.ranks[name] :]

    def results(self) -> tuple[Array, ...]:
        """Return the results of all calls, with the axes of the batch first: of one call with more envs, or of many."""
        if not self.shape:
            return self.call(self.arrays)
        if not self.are_environments():
            return self.one_by_one()
        time_axis = self.settings["time_axis"]
        moved = time_axis + len(self.shape) if time_axis >= 0 else time_axis
        return self.call({name: self.in_front(name) for name in self.arrays}, time_axis=moved)

    def call(self, arrays: dict[str, Array], **changed: Any) -> tuple[Array, ...]:
        """Return the results of one call."""
        results = self.function(**{**self.settings, **arrays, **changed})
        return results if isinstance(results, tuple) else (results,)

    def are_environments(self) -> bool:
        """Return whether the batch may become more environments of one call, which is much faster than many calls."""
        return (
            may_join(self.settings, {name: self.own(name) for name in self.arrays}, self.first_shape)
            and all(self.ranks[name] in (0, self.rank) for name in BROADCAST if name in self.arrays)
            and "time_axis" in self.settings  # Functions without it have no axis for environments.
            and -self.rank <= self.settings["time_axis"] < self.rank
        )

    def in_front(self, name: str) -> Array:
        """Return an array with the axes of the batch before those that it has in one call."""
        if name in PER_ENV and not self.own(name):  # one number in a call stands for its envs
            axes = (1,) * (self.rank - 1)
            without_time = np.delete(self.first_shape, self.settings["time_axis"])
            return np.broadcast_to(self.arrays[name].reshape(*self.front(name), *axes), (*self.shape, *without_time))
        if name not in BROADCAST:
            return self.everywhere(name)
        # One number in a call gets the axes of the first argument, so that the batch stays in front.
        front = self.front(name) or (1,) * len(self.shape)
        return self.arrays[name].reshape(*front, *(1,) * (self.rank - self.ranks[name]), *self.own(name))

    def everywhere(self, name: str) -> Array:
        """Return an array broadcast to the whole batch."""
        return np.broadcast_to(self.arrays[name], self.shape + self.own(name))

    def one_by_one(self) -> tuple[Array, ...]:
        """Return the results of a call for every index of the batch."""
        arrays = {name: self.everywhere(name) for name in self.arrays}
        calls = [self.call({name: array[index] for name, array in arrays.items()}) for index in np.ndindex(*self.shape)]
        return tuple(np.reshape(results, self.shape + self.first_shape) for results in zip(*calls, strict=True))
