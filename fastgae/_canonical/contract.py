"""The input of every backend."""

from operator import is_
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import Array

Scalar = np.floating[Any]

# normalize adds up this many steps one after the other. Do not tune it, because the bits of a sum depend on it.
MOMENT_STEPS = 128


class CanonicalRollout(NamedTuple):
    """A rollout as (T, N) views of one dtype, aligned, in native byte order, and all in one layout.

    Time-major views have unit stride along N, and env-major ones along T. The other stride is free: negative or zero
    where the caller's array had it so. Arrays of coefficients may also have stride 0 along the unit axis. The outputs
    overlap no input.
    """

    rewards: Array
    values: Array
    next_values: Array  # (T - 1, N): V' of all steps but the last; often a view of values
    last_values: Array  # (N,): V' of the last step
    final_values: Array | None  # V' where truncated; undefined elsewhere
    terminated: Array
    truncated: Any  # an array, or None; always an array if there are final_values
    gamma: Scalar | Array
    gamma_lambda: Scalar | Array
    advantages: Any  # an array to fill, or None
    returns: Any  # an array to fill, or None
    returns_gamma_lambda: Scalar | Array | None = None  # for a second recursion, from which the returns come
    tail_lambda: Scalar | Array | None = None  # tail-normalized: the lambda of D_t = 1 + lambda D_{t+1}
    mask: Array | None = None  # False where a step does not exist: it is skipped, A = 0 and R = V there
    mask_passes_values: bool = False  # V' of a step before skipped steps is V of the next step that exists
    carry_over: bool = False  # a skipped step gets A of the next step that exists, and R = A + V
    last_advantages: Array | None = None  # (N,): A_T
    ratios: Any = None  # V-trace: importance ratios
    constants: tuple[Scalar, ...] | None = None  # V-trace: the constants that ``CONSTANTS`` in fastgae/_call.py lists

    def all_next_values(self) -> Array:
        """Return V' of every step in one array."""
        next_values = np.concatenate([self.next_values, self.last_values[np.newaxis]])[: len(self.rewards)]
        if self.mask is not None and self.mask_passes_values:
            for t in reversed(range(len(next_values) - 1)):
                np.copyto(next_values[t], next_values[t + 1], where=~self.mask[t + 1])
        if self.final_values is not None:
            np.copyto(next_values, self.final_values, where=self.truncated)
        return next_values

    def one_step_returns(self, next_values: Array, bootstrap: Array) -> Array:
        """Return r + gamma V' where the bootstrap gate is open, and r elsewhere; V' of every step is given."""
        returns = self.rewards.copy()
        np.add(returns, self.gamma * next_values, out=returns, where=bootstrap)
        return returns

    @property
    def is_plain(self) -> bool:
        """Return whether the rollout has no options, and its coefficients are numbers."""
        numbers = not (isinstance(self.gamma, np.ndarray) or isinstance(self.gamma_lambda, np.ndarray))
        return numbers and all(map(is_, self[-len(NO_OPTIONS) :], NO_OPTIONS))


NO_OPTIONS = tuple(CanonicalRollout._field_defaults.values())
