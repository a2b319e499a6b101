"""Discounted returns."""

from __future__ import annotations

from typing import Never

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike

from fastgae._call import ABSENT, NEW, Array, Call
from fastgae._canonical import check_final_values, check_one_sequence, frame_of, of_one_dtype
from fastgae._interop import OnDevice, is_tensor, takes_tensors, with_tensors
from fastgae._misnamed import no_argument
from fastgae._run import run
from fastgae._typing import ArrayT, BackendName, Numbers


@takes_tensors
def discounted_returns(
    rewards: ArrayT | Numbers,
    terminated: ArrayLike | None = None,
    truncated: ArrayLike | None = None,
    *,
    last_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    time_axis: int = 0,
    out: ArrayT | None = None,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Never,
) -> ArrayT:
    r"""Compute the discounted sum of the rewards to the end of each episode (rewards to go).

    ::

        G_t = r_t + gamma G_{t+1}     the second term only where not (terminated_t or truncated_t)
        G_t = r_t + gamma V'_t        where truncated_t and not terminated_t: V' is the final value
        G_T = last_values

    Parameters
    ----------
    rewards, terminated, truncated, mask, gamma, time_axis, num_threads, backend
        As in ``gae``. At masked steps G = 0.
    last_values : array of ``rewards``' shape without time, or one number for all envs
        V of the state after the last step; with ``mask``, after the last step that exists. You may leave it out if the
        last step ends every episode.
    final_values : array
        V of the final observations of the truncated steps, as in ``gae``; needed if ``truncated`` is given.
    out : array, optional
        An array of ``rewards``' shape and the working dtype, which is filled and returned.

    Returns
    -------
    array of ``rewards``' shape in the working dtype, in the units of the rewards.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Notes
    -----
    Sutton and Barto, "Reinforcement Learning: An Introduction", 2nd edition, 2018 (equation 3.9). If no episode ends,
    the result has the same bits as ``reverse_scan(rewards, gamma)``.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> fastgae.discounted_returns(np.ones(3, np.float32), np.array([0, 0, 1]), gamma=0.5)
    array([1.75, 1.5 , 1.  ], dtype=float32)
    """
    if misnamed:
        raise no_argument(discounted_returns, misnamed)
    if type(rewards) is not ndarray and is_tensor(rewards):
        return with_tensors(discounted_returns, locals())
    call = Call(
        rewards,
        ABSENT,
        terminated,
        truncated,
        final_values=final_values,
        last_advantages=last_values,
        mask=mask,
        gamma=gamma,
        gae_lambda=1.0,
        time_axis=time_axis,
        out=(NEW if out is None else out, None),
    )
    return run(call, backend, num_threads, _checked).advantages


def _checked(given: Call) -> Call:
    """Check a recursion of rewards alone; ``last_advantages`` of the call holds ``last_values``, its start."""
    reward, last, final = of_one_dtype(
        ("rewards",), rewards=given.rewards, last_values=given.last_advantages, final_values=given.final_values
    )
    frame = frame_of("rewards", reward, given.time_axis)
    ends = frame.step_flags("terminated", given.terminated)
    cuts = frame.step_flags("truncated", given.truncated)
    exists = frame.step_flags("mask", given.mask)
    check_final_values(final, cuts, False, None)
    if ends is None:
        check_one_sequence(last is not None, False, cuts is not None, None)
    # On a GPU the flags are not read: after an episode that the rollout does not end, the value is 0.
    elif (
        last is None
        and not isinstance(reward, OnDevice)
        and not _end_with(ends if cuts is None else ends | cuts, exists, frame.axis)
    ):
        raise ValueError("the last step does not end every episode: pass last_values, V of the state after it")
    return Call(
        reward,
        None,
        ends,
        cuts,
        final_values=final,
        last_advantages=frame.envs("last_values", last),
        mask=exists,
        gamma=frame.coefficient("gamma", given.gamma),
        gae_lambda=1.0,
        time_axis=frame.axis,
        out=(frame.output(given.out[0], reward), None),
    )


def _end_with(done: Array, exists: Array | None, axis: int) -> bool:
    """Return whether the last existing step of every env, if it has any, ends an episode."""
    if not done.size:
        return True
    if exists is None:
        return bool(done.take(-1, axis).all())
    last = done.shape[axis] - 1 - np.flip(exists, axis).argmax(axis, keepdims=True)
    return bool((np.take_along_axis(done, last, axis) | ~exists.any(axis, keepdims=True)).all())
