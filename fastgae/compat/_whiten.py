"""Whiten as libraries for language models do: eps below the root, and every step by the moments of the mask."""

import numpy as np

from fastgae._call import Array


def whitened(values: Array, mask: Array, shift_mean: bool = True) -> Array:
    """Return (x - mean) / sqrt(variance + 1e-8) of every step, with the moments of the steps in the mask.

    The moments are computed in float64, the variance with Bessel's correction. ``shift_mean=False`` adds the mean back.
    """
    kept = values[mask].astype(np.float64)
    if kept.size < 2:
        raise ValueError(f"whitening needs at least two steps in the mask, got {kept.size}")
    mean = kept.mean()
    result: Array = (values.astype(np.float64) - mean) / np.sqrt(kept.var(ddof=1) + 1e-8)
    if not shift_mean:
        result += mean
    return result.astype(values.dtype)
