"""Which rows of a rollout are real steps."""

from __future__ import annotations

from typing import Any, Unpack

from fastgae._canonical.frame import as_flags, frame_of
from fastgae._engine import dispatch
from fastgae._engine.declared import public
from fastgae._equation.arrays import Library, either, without_resets
from fastgae._interop.arrays import OnDevice
from fastgae._interop.libraries import takes_tensors
from fastgae._typing import ArrayLike, Flags, FlagsT, Misnamed


@takes_tensors()
@public
def valid_steps(
    terminated: FlagsT | Flags,
    truncated: ArrayLike | None = None,
    prev_done: ArrayLike | None = None,
    *,
    time_axis: int = 0,
    **misnamed: Unpack[Misnamed],
) -> FlagsT:
    r"""Return the mask that ``autoreset="next_step"`` implies: False at the row after a done, where the env was reset.

    ::

        valid_t = not (terminated_{t-1} or truncated_{t-1})     valid_0 = not prev_done

    In Gymnasium's NEXT_STEP mode, and in EnvPool, the env ignores the action in that row, and the reward is 0 unless a
    wrapper changes it: keep the row out of the loss, the normalisation and the targets. ``gae`` with a ``mask`` takes
    the next row that exists.

    Parameters
    ----------
    terminated, truncated : array of shape (T, N), (T,), or any rank with time along ``time_axis``
        Flags as ``env.step`` returned them; bool, or numbers that are 0 or 1. Arrays of the same libraries as in
        ``gae``.
    prev_done : array without time, optional
        The step before row 0 ended an episode. None: none did.
    time_axis : int
        The index of the time axis.

    Returns
    -------
    bool array like ``terminated``

    Raises
    ------
    ValueError, TypeError
        As ``gae``.

    Examples
    --------
    >>> import fastgae
    >>> fastgae.valid_steps([0, 1, 0, 0])
    array([ True,  True, False,  True])
    """
    ends = as_flags("terminated", terminated)
    frame = frame_of("terminated", ends, time_axis)
    cuts = frame.flags_or_none("truncated", truncated)
    started = None if prev_done is None else frame.env_flags("prev_done", prev_done)
    if isinstance(ends, OnDevice):
        return dispatch.on_devices("terminated", ends).steps_without_resets(ends, cuts, started, frame.axis)
    lib = Library(ends, frame.axis)
    steps: Any = lib.back(without_resets(lib, lib.steps(either(ends, cuts)), started, None))
    return steps
