"""The equation of ``group_advantages``, for arrays of NumPy, JAX and torch with one entry per answer.

A mean is over the answers of a group that count, and every answer of the group gets it. JAX and torch never look at a
number: they sort the labels, and make room for as many sums as there are answers, because there cannot be more groups.
"""

import functools
import importlib
import operator
from typing import Any

import numpy as np

from fastgae._equation.exact_sums import means_by_group
from fastgae._interop.arrays import OnDevice
from fastgae._interop.libraries import kind_of

PASSES = 3  # of a sum, each of which cuts off the upper half of the bits that are left


class Groups:
    """NumPy, whose sums are rounded once. ``counted`` is True where all answers count."""

    xp: Any = np

    def means(self, numbers: Any, group: Any, counted: Any) -> tuple[Any, Any]:
        """Return for each answer the mean of its group, and the number of answers that count in the group."""
        used, theirs = (numbers, group) if counted is True else (numbers[counted], group[counted])
        counts = np.bincount(theirs, minlength=int(group.max(initial=-1)) + 1)
        return means_by_group(used, theirs, counts)[group], counts.astype(np.float64)[group]

    def times(self, one: Any, other: Any) -> Any:
        return one * other


class GroupsOfTensors(Groups):
    """torch, on the device of the tensors. Sums are exact, and so in any order the same, over a range of 2**90."""

    def __init__(self) -> None:
        self.xp = importlib.import_module("torch")
        self.wide = self.xp.float64

    def flat(self, given: Any, dtype: Any = None) -> Any:
        return given.array.to(dtype).reshape(-1)

    def back(self, flat: Any, like: OnDevice) -> Any:
        return flat.to(getattr(self.xp, like.dtype.name)).reshape(like.shape)

    def sums(self, numbers: Any, group: Any) -> Any:
        return self.xp.zeros_like(numbers).index_add_(0, group, numbers)

    def largest(self, numbers: Any, group: Any) -> Any:
        return self.xp.zeros_like(numbers).scatter_reduce_(0, group, numbers, "amax")

    def plus(self, one: Any, other: Any) -> Any:
        return one + other

    def means(self, numbers: Any, group: Any, counted: Any) -> tuple[Any, Any]:
        xp = self.xp
        finite = xp.isfinite(numbers)
        others = xp.where(counted & ~finite, numbers, 0)  # NaN and infinities in any order
        rest = xp.where(counted & finite, numbers, 0)
        # The greatest power of two in the largest number. JAX computes its frexp later, when float64 may be off again.
        exact = xp.finfo(self.wide)
        integer, digits = {32: xp.int32, 64: xp.int64}[exact.bits], -round(np.log2(exact.eps))
        power = (self.largest(abs(rest), group).view(integer) & (-1 << digits)).view(self.wide)
        unit = xp.where(power > 0, power, exact.tiny)
        rest, parts = rest / unit[group], []  # below 2
        # Adding a large number rounds to a unit that is so coarse that no sum of rounded numbers needs another bit.
        exponent = len(numbers).bit_length() + 1
        for i in range(PASSES):
            anchor = 1.5 * 2.0 ** (exponent + i * (exponent - digits - 2))
            rounded = self.plus(rest, anchor) - anchor
            parts.append(rounded)
            rest = rest - rounded
        # All sums in one, because a program of JAX compiles each on its own.
        columns = xp.stack([xp.where(counted, xp.ones_like(numbers), 0), others, *parts, rest], 1)
        counts, others, *parts = self.sums(columns, group).T
        total = functools.reduce(lambda sums, part: part + sums, parts[::-1])
        return (total / xp.clip(counts, 1, None) * unit + others)[group], counts[group]

    def numbered(self, *labels: Any) -> tuple[Any, Any]:
        """Return a small integer for each combination of labels, and whether an answer is the first of its own."""
        order = self.xp.argsort(labels[-1], stable=True)
        for each in labels[-2::-1]:
            order = order[self.xp.argsort(each[order], stable=True)]
        starts = functools.reduce(operator.or_, (each[order][1:] != each[order][:-1] for each in labels))
        first = self.xp.concatenate([order[:1] >= 0, starts])
        number, back = self.xp.cumsum(first, 0) - 1, self.xp.argsort(order)
        return number[back], first[back]


class GroupsOfJax(GroupsOfTensors):
    """JAX, in its widest floats."""

    def __init__(self) -> None:
        self.xp, jax = (importlib.import_module(name) for name in ("jax.numpy", "fastgae._interop.jax"))
        self.canonical = jax.canonical
        self.wide = jax.canonical(np.float64)

    def flat(self, given: Any, dtype: Any = None) -> Any:
        return self.xp.broadcast_to(self.xp.asarray(given.array, dtype), given.shape).reshape(-1)

    def back(self, flat: Any, like: OnDevice) -> Any:
        return flat.astype(self.canonical(like.dtype)).reshape(like.shape)

    def sums(self, numbers: Any, group: Any) -> Any:
        return self.xp.zeros_like(numbers).at[group].add(numbers)

    def largest(self, numbers: Any, group: Any) -> Any:
        return self.xp.zeros_like(numbers).at[group].max(numbers)

    # XLA would round a product and a sum once, and leave out a number that is added and subtracted.
    def plus(self, one: Any, other: Any) -> Any:
        return self.xp.where(one == one, one + other, one)

    def times(self, one: Any, other: Any) -> Any:
        return self.xp.where(one == one, one * other, one)


def on_device(
    rewards: OnDevice, labels: dict[str, Any], exists: OnDevice | None, baseline: Any, scale: str, ddof: int, eps: float
) -> Any:
    """Return the advantages of arrays of torch or JAX. The first sample of a trajectory counts."""
    groups = GroupsOfJax() if kind_of(rewards.array) == "jax" else GroupsOfTensors()
    for name, each in labels.items():
        if each.dtype.kind not in "biu":
            raise TypeError(f"{name} has dtype {each.dtype}; expected integers on a GPU and in a program of JAX")
    xp, flat = groups.xp, groups.flat(rewards, groups.wide)
    integers = [groups.flat(each) for each in labels.values()]
    here = integers[0] == integers[0] if exists is None else groups.flat(exists) != 0
    group, _ = groups.numbered(integers[0])
    counted = here & groups.numbered(*integers, 1 * here)[1] if len(integers) > 1 else here
    if isinstance(baseline, OnDevice):
        baseline = groups.flat(baseline, groups.wide)
    elif not isinstance(baseline, str):
        baseline = float(baseline)
    advantages = relative(flat, groups, group, counted, baseline, scale, ddof, eps)
    return groups.back(xp.where(here, advantages, 0), rewards)


def relative(
    rewards: Any, groups: Groups, group: Any, counted: Any, baseline: Any, scale: str, ddof: int, eps: float
) -> Any:
    """Return the advantages of rewards in float64; ``group`` has a small integer for each answer."""
    xp = groups.xp
    centered, counts = _centered(rewards, groups, group, counted)
    leaves_out = isinstance(baseline, str) and baseline == "leave_one_out"
    growth = counts / (counts - 1.0 * (counts > 1))  # r minus the mean of the others is (r - mean) n / (n - 1)
    if not isinstance(baseline, str):
        advantages = rewards - baseline
    else:
        advantages = rewards if baseline == "none" else centered * growth if leaves_out else centered
    if scale == "none":
        return advantages
    if scale == "batch":
        leaves_out, group = False, xp.zeros_like(group)
        centered, counts = _centered(rewards, groups, group, counted)
    if leaves_out:
        total, counts = _squares_of_others(rewards, centered, groups, group, counted, growth), counts - 1
    else:
        total = counts * groups.means(centered**2, group, counted)[0]
    std = xp.sqrt(xp.where(counts > ddof, total / (counts - ddof), 0.0))
    return advantages / xp.where(std == 0, 1.0, std + eps)


def _centered(rewards: Any, groups: Groups, group: Any, counted: Any) -> tuple[Any, Any]:
    """Return the differences of rewards from the mean of their group, and the number of answers of the group."""
    means, counts = groups.means(rewards, group, counted)
    centered = rewards - means
    return centered - groups.means(centered, group, counted)[0], counts  # minus the rounding error of the first mean


def _squares_of_others(rewards: Any, centered: Any, groups: Groups, group: Any, counted: Any, growth: Any) -> Any:
    """Return for each reward the sum of the squared differences of the other rewards from their own mean."""
    squares = centered**2
    total = groups.times(*groups.means(squares, group, counted))
    own = groups.times(squares, growth)
    # Without an outlier little is left of the total, and its digits are lost, so it is computed anew without it.
    outlying = own > 0.75 * total
    others = counted & ~outlying
    differences = _centered(rewards, groups, group, others)[0]
    means, counts = groups.means(differences**2, group, others)
    return groups.xp.where(outlying, counts * means, total - own)
