"""The standard deviations that peers divide by and fastgae.normalize does not."""

import math

import numpy as np

from fastgae._call import Array
from fastgae.estimators.normalize import normalize


def standardized(advantages: Array, eps: float) -> Array:
    """(A - mean) / (std + eps), the std of a sample (Bessel's), where normalize has that of the population."""
    count = advantages.size
    shrinks = math.sqrt(max(count - 1, 0) / max(count, 1))  # the population's std over the sample's
    result: Array = normalize(advantages, eps=eps * shrinks) * advantages.dtype.type(shrinks)
    return result


def whitened(values: Array, mask: Array, shift_mean: bool = True) -> Array:
    """(x - mean) / sqrt(variance + 1e-8) of every step; mean and variance (Bessel's) are of the mask, in float64."""
    kept = values[mask].astype(np.float64)
    if kept.size < 2:
        raise ValueError(f"whitening needs at least two steps in the mask, got {kept.size}")
    mean = kept.mean()
    result: Array = (values.astype(np.float64) - mean) / np.sqrt(kept.var(ddof=1) + 1e-8)
    if not shift_mean:
        result += mean
    return result.astype(values.dtype)
