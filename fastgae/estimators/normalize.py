"""Mean 0, standard deviation 1."""

import numpy as np
from numpy.typing import ArrayLike

from fastgae import _dispatch
from fastgae._canonical import Array, checked_advantages, in_place
from fastgae._interop import is_tensor, takes_tensors, with_tensors
from fastgae._moments import EPS, center_and_scale


@takes_tensors
def normalize(
    advantages: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    by: str = "global",
    eps: float = EPS,
    time_axis: int = 0,
    out: Array | None = None,
    num_threads: int | None = None,
    backend: str | None = None,
) -> Array:
    r"""Advantages to mean 0 and standard deviation 1.

    ::

        x_t = (A_t - mean) / (std + eps)     over all steps that exist, or those of each env

    The population's standard deviation, from sums in float64 that are added up in a fixed order: the same bits on every
    backend, CPU target, number of threads and memory layout.

    Parameters
    ----------
    advantages : array of shape (T, N), (T,), or any rank with time along ``time_axis``
        Kinds and dtypes as in ``gae``.
    mask : array like ``advantages``, optional; bool, or numbers that are 0 or 1
        False: the step does not exist. It counts for nothing and becomes 0.
    by : "global" or "per_env"
        What the mean and the standard deviation are of.
    eps : finite float >= 0
        Added to the standard deviation.
    out : array, optional
        To fill, of the shape of ``advantages`` and the working dtype; it may be ``advantages`` itself.
    time_axis, num_threads, backend
        As in ``gae``.

    Returns
    -------
    array like ``advantages`` in the working dtype, without units.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> fastgae.normalize(np.array([1.0, 2.0, 3.0, 4.0]), eps=0.0)
    array([-1.34164079, -0.4472136 ,  0.4472136 ,  1.34164079])
    """
    if type(advantages) is not np.ndarray and is_tensor(advantages):
        return with_tensors(normalize, locals())
    module, target, threads = _dispatch.choose(backend, num_threads)
    numbers, result, exists, added, axis = checked_advantages(advantages, mask, by, eps, time_axis, out)
    if not numbers.size:
        return result
    on = (threads or _dispatch.usable_cpus(), target)
    matrix, existing, layout = in_place(numbers, exists, axis)
    moments = center_and_scale(matrix, existing, by, layout, module, *on, added)
    skipped = None if existing is None else ~existing
    filled = layout.matrix(result)
    # The result is written only from here on, where no memory is needed any more.
    np.copyto(filled, matrix)
    if skipped is not None:
        np.copyto(filled, 0, where=skipped)
    module.rescale(filled, existing, *moments, *on)
    if not np.may_share_memory(filled, result):
        result[...] = layout.split(filled)
    return result
