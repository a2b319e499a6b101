"""Whiten as libraries for language models do: eps under the root, and the moments of the mask for every step."""

from typing import Any

import numpy as np

from fastgae.compat._anywhere import namespace_of
from fastgae.estimators.reverse_scan import reverse_scan


def whitened(values: Any, mask: Any, shift_mean: bool = True) -> Any:
    """Return (x - mean) / sqrt(variance + 1e-8) of every step, with the moments of the steps in the mask.

    The moments are computed in float64, the variance with Bessel's correction. ``shift_mean=False`` adds the mean back.
    With less than two steps in the mask, the result is NaN in torch, because a check would have to wait for the GPU.
    """
    xp = namespace_of(values)
    count = mask.sum()
    if xp is np and count < 2:
        raise ValueError(f"whitening needs at least two steps in the mask, got {count}")
    wide = xp.asarray(values, dtype=xp.float64)
    mean = _sum(xp.where(mask, wide, 0)) / count
    centered = wide - mean
    variance = _sum(xp.where(mask, centered, 0) ** 2) / (count - 1)
    result = centered / xp.sqrt(variance + 1e-8)
    return xp.asarray(result if shift_mean else result + mean, dtype=values.dtype)


def _sum(matrix: Any) -> Any:
    """Add up in the same order on every device: each row from its end, and then the rows."""
    return reverse_scan(reverse_scan(matrix, 1.0, time_axis=1)[:, 0], 1.0)[0]
