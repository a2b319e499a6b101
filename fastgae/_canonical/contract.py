"""What a call may say, what a backend is given, and what comes back."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Scalar = np.floating[Any]
Output = tuple[Array | None, Array | None]

# Steps that normalize adds up one after the other. Its bits depend on this number: it is no tuning.
MOMENT_STEPS = 128


class GAEResult(NamedTuple):
    """Advantages and returns (value targets); None where ``out`` asked for only the other."""

    advantages: Array
    returns: Array


class Clips(NamedTuple):
    """What V-trace clips importance ratios to: in deltas (rho), in traces (c) and in its advantages."""

    deltas: Any
    traces: Any
    advantages: Any


class Options(NamedTuple):
    """What a call says beyond the plain case; coefficients are numbers, or arrays that were broadcast to rewards."""

    gamma: float | Array
    gamma_lambda: float | Array
    returns_gamma_lambda: float | Array | None = None
    tail_lambda: float | Array | None = None
    mask: Array | None = None
    mask_passes_values: bool = False
    last_advantages: Array | None = None
    ratios: Array | None = None
    clips: Clips | None = None


class Arguments(NamedTuple):
    """A call of which all is checked: the numbers have one dtype and the flags are bool.

    Shapes and memory are the caller's, or (T, N) in one layout. Without options it is a plain call.
    """

    rewards: Array
    values: Array | None  # None: a recursion of rewards alone, in which V and V' have no part
    terminated: Array | None  # None: never
    truncated: Array | None
    last_values: Array | None
    next_values: Array | None
    final_values: Array | None  # like rewards, or one per True of truncated
    gamma: Any
    gae_lambda: Any
    time_axis: int
    out: Output | None
    options: Options | None = None


class Rollout(NamedTuple):
    """What every backend takes: (T, N) views of one dtype, aligned, native, and all in one layout.

    Time-major (unit stride along N) or env-major (unit stride along T); the other stride is free, and negative or
    zero where the caller's was. Arrays of coefficients may also have no stride along the unit axis. The outputs
    overlap nothing.
    """

    rewards: Array
    values: Array
    next_values: Array  # (T - 1, N): V' of all steps but the last; often a view of values
    last_values: Array  # (N,): V' of the last step
    final_values: Array | None  # V' where truncated; undefined elsewhere
    terminated: Array
    truncated: Any  # or None; never where there are final_values
    gamma: Scalar | Array
    gamma_lambda: Scalar | Array
    advantages: Array | None
    returns: Array | None
    returns_gamma_lambda: Scalar | Array | None = None  # of a second recursion, for returns
    tail_lambda: Scalar | Array | None = None  # tail-normalized: lambda, to weigh the steps that are left
    mask: Array | None = None  # the steps that exist; the recursion skips the others, where A = 0 and R = V
    mask_passes_values: bool = False  # V' of a step before skipped ones is V of the next that exists
    last_advantages: Array | None = None  # (N,): A_T
    ratios: Any = None  # V-trace: importance ratios, an array where there are clips
    clips: Clips | None = None

    def all_next_values(self) -> Array:
        """V' of every step, in one array."""
        next_values = np.concatenate([self.next_values, self.last_values[np.newaxis]])[: len(self.rewards)]
        if self.mask is not None and self.mask_passes_values:
            for t in reversed(range(len(next_values) - 1)):
                np.copyto(next_values[t], next_values[t + 1], where=~self.mask[t + 1])
        if self.final_values is not None:
            np.copyto(next_values, self.final_values, where=self.truncated)
        return next_values

    @property
    def is_plain(self) -> bool:
        """Whether nothing is given of what has a default, and the coefficients are numbers."""
        return all(given is None or given is False for given in self[11:]) and not (
            isinstance(self.gamma, np.ndarray) or isinstance(self.gamma_lambda, np.ndarray)
        )
