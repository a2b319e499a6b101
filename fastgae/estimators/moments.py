"""Exact statistics of advantages that are in several files, blocks or processes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastgae._backends import Backend
from fastgae._call import EPS, Array
from fastgae._canonical.arguments import of_one_dtype, shown
from fastgae._canonical.frame import frame_of
from fastgae._canonical.memory import in_place
from fastgae._engine import dispatch
from fastgae._engine.declared import public
from fastgae._equation.exact_sums import MOST_AT_ONCE, SUM_UNIT, quotient, root_of_quotient, totals
from fastgae._interop.arrays import OnDevice
from fastgae._typing import ArrayLike, ArrayT, BackendName, Numbers
from fastgae.estimators.normalize import normalize


@dataclass(frozen=True, slots=True, repr=False)
class Moments:
    r"""Count, mean and standard deviation of numbers, from sums without any rounding; ``+`` merges two of them.

    ::

        mean     = sum of x / count
        variance = sum of x^2 / count - mean^2        (the population's)
        std      = sqrt(variance)

    Each of the three is the float64 nearest to the exact quotient or root. You may split numbers into parts in any way,
    and merge the parts in any order: the result is the same, bit for bit. ``Moments()`` stands for no numbers, so
    ``sum(parts, Moments())`` merges many parts.

    A Moments is immutable, can be pickled, and equals another one if all six fields do. The fields are integers, so
    ``Moments(**json.loads(json.dumps(dataclasses.asdict(moments))))`` gives an equal object.

    Attributes
    ----------
    count : int
        How many numbers there are, NaN and infinities included.
    nans, positive_infinities, negative_infinities : int
        How many of them are not finite.
    total, total_of_squares : int
        The sum of the finite numbers in units of ``2**-1074``, which is the smallest float64, and the sum of their
        squares in units of ``2**-2148``. So the numbers of float32 and float64 arrays can be merged.
    mean : float
        NaN or an infinity where IEEE additions in any order would give it; NaN if ``count`` is 0.
    variance, std : float
        NaN if any number is not finite, and if ``count`` is 0. ``variance`` is infinite if it is too large for float64.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> fastgae.moments(np.array([1.0, 2.0])) + fastgae.moments(np.array([3.0, 4.0], np.float32))
    Moments(count=4, mean=2.5, std=1.118033988749895)
    """

    count: int = 0
    nans: int = 0
    positive_infinities: int = 0
    negative_infinities: int = 0
    total: int = 0
    total_of_squares: int = 0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            number = getattr(self, name)
            if type(number) is not int:
                raise TypeError(f"{name} must be an int, got {shown(number)}")
            if number < 0 and name != "total":
                raise ValueError(f"{name} must not be negative, got {number}")
        finite = self.count - self.nans - self.positive_infinities - self.negative_infinities
        if finite < 0:
            raise ValueError(f"count is {self.count}, but {self.count - finite} numbers are not finite")
        if finite * self.total_of_squares < self.total**2:
            raise ValueError("total_of_squares is too small: no numbers have this count and this total")

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return Moments(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __repr__(self) -> str:
        return f"Moments(count={self.count}, mean={self.mean!r}, std={self.std!r})"

    @property
    def mean(self) -> float:
        if self._not_finite():
            return sum(self._not_finite())
        return quotient(self.total, self.count << -SUM_UNIT) if self.count else math.nan

    @property
    def variance(self) -> float:
        return quotient(*self._exact_variance()) if self._has_variance() else math.nan

    @property
    def std(self) -> float:
        return root_of_quotient(*self._exact_variance()) if self._has_variance() else math.nan

    def normalize(
        self,
        advantages: ArrayT | Numbers,
        mask: ArrayLike | None = None,
        *,
        out: ArrayT | None = None,
        eps: float = EPS,
        num_threads: int | None = None,
        backend: BackendName | None = None,
    ) -> ArrayT:
        """Call ``fastgae.normalize`` with this mean and standard deviation.

        ::

            x = (A - mean) * (1 / (std + eps))

        The advantages may be any part of the numbers from which the moments come, or other numbers.

        Parameters
        ----------
        advantages, mask, out, eps, num_threads, backend
            As in ``fastgae.normalize``.

        Returns
        -------
        array like ``advantages`` in the working dtype, without units. It is 0 where ``mask`` is False.

        Raises
        ------
        ValueError, TypeError, BackendUnavailableError
            As ``fastgae.normalize``.

        Examples
        --------
        >>> import numpy as np, fastgae
        >>> moments = fastgae.moments(np.array([1.0, 2.0, 3.0, 4.0]))
        >>> moments.normalize(np.array([1.0, 4.0]), eps=0.0)
        array([-1.34164079,  1.34164079])
        """
        return normalize(
            advantages, mask, mean=self.mean, std=self.std, eps=eps, out=out, num_threads=num_threads, backend=backend
        )

    def _not_finite(self) -> list[float]:
        """Return NaN, infinity and -infinity, each once if it occurs; their sum is the mean."""
        kinds = ((math.nan, self.nans), (math.inf, self.positive_infinities), (-math.inf, self.negative_infinities))
        return [number for number, count in kinds if count]

    def _has_variance(self) -> bool:
        return self.count > 0 and not self._not_finite()

    def _exact_variance(self) -> tuple[int, int]:
        """Return numerator and denominator of the variance."""
        return self.count * self.total_of_squares - self.total**2, self.count**2 << -2 * SUM_UNIT


@public
def moments(advantages: ArrayLike, mask: ArrayLike | None = None, *, backend: BackendName | None = None) -> Moments:
    """Return the exact statistics of advantages, which can be merged with the statistics of other arrays.

    ::

        sum of x  and  sum of x^2     over all steps that exist, without any rounding

    Use it if no process has all advantages at once: compute the moments of each part, merge them with ``+``, and
    normalize each part with ``Moments.normalize``. For a single array, use ``fastgae.normalize``. It rounds its sums,
    so its results may differ in the last bits.

    Parameters
    ----------
    advantages : array of shape (T, N), (T,), or any rank
        Libraries and dtypes as in ``gae``. You may pass any other array of numbers, such as rewards or returns. Tensors
        on a GPU are added up there; the call then waits for the GPU, because it returns numbers.
    mask : array like ``advantages``, optional; bool, or numbers that are 0 or 1
        False: the step does not exist.
    backend : str, optional
        As in ``gae``. ``cpp`` takes 2 ns per number; the other backends use NumPy, which takes 20 times as long.

    Returns
    -------
    Moments
        In the units of ``advantages``. It is the same for every backend and memory layout.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``fastgae.normalize``.

    Notes
    -----
    A finite float is an integer times a power of two. To add these integers up, with one accumulator for each exponent,
    follows Neal, "Fast exact summation using small and large superaccumulators", 2015,
    https://arxiv.org/abs/1505.05571.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> parts = np.array([1e100, 1.0, -1e100]), np.array([2.0])
    >>> fastgae.moments(parts[0]) + fastgae.moments(parts[1]) == fastgae.moments(np.concatenate(parts))
    True
    >>> fastgae.moments(np.concatenate(parts)).mean
    0.75
    """
    (numbers,) = of_one_dtype(advantages=advantages)
    exists = frame_of("advantages", numbers, 0, names_time_axis=False).flags_or_none("mask", mask)
    if isinstance(numbers, OnDevice):
        module: Any = dispatch.on_devices("advantages", numbers)  # of torch, because JAX never gets here
        bins, counts = module.exact_sums(numbers, exists)
        return Moments(*counts, *totals(bins))
    return _moments_of(numbers, exists, dispatch.choose(backend, None).module)


def _moments_of(numbers: Array, exists: Array | None, module: Backend) -> Moments:
    if numbers.size > MOST_AT_ONCE:
        axis = int(np.argmax(numbers.shape))
        halves = np.array_split(numbers, 2, axis)
        existing = (None, None) if exists is None else np.array_split(exists, 2, axis)
        return _moments_of(halves[0], existing[0], module) + _moments_of(halves[1], existing[1], module)
    if not numbers.size:
        return Moments()
    matrix, mask, _ = in_place(numbers, exists, 0)
    bins, counts = module.exact_sums(matrix, mask)
    return Moments(*counts, *totals(bins))
