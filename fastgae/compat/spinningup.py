"""Spinning Up: ``PPOBuffer.finish_path``, and ``core.discount_cumsum``, which it calls."""

from typing import Annotated, Any

import numpy as np

from fastgae._call import Array
from fastgae.compat._anywhere import Having, Number, Numbers, in_numpy
from fastgae.estimators.reverse_scan import reverse_scan


@in_numpy("x: T ...")
def discount_cumsum(x: Numbers, discount: float) -> Array:
    r"""Compute discounted sums like ``core.discount_cumsum``, in float64; the same bits as SciPy's filter there.

    ::

        y_t = x_t + discount y_{t+1}     y_T = 0
    """
    return reverse_scan(np.asarray(x, np.float64), discount)


@in_numpy(last_val="| 1 | 1 1")
def finish_path(
    ppo_buffer: Annotated[Any, Having("rew_buf val_buf adv_buf ret_buf path_start_idx ptr gamma lam")],
    last_val: Number = 0,
) -> None:
    r"""Fill the buffer like ``PPOBuffer.finish_path``, with its ``self`` as the first argument.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t
        A_t     = delta_t + gamma lam A_{t+1}      A_T = 0
        G_t     = r_t + gamma G_{t+1}              V_T = G_T = last_val

    The steps since the last call are one trajectory, and the returns are its rewards to go. There are no flags: pass
    ``last_val=0`` if the trajectory terminated, and V of the state after it if it was truncated or cut off.

    Parameters
    ----------
    ppo_buffer : PPOBuffer, or an object with its attributes
        ``rew_buf``, ``val_buf`` (float32, of shape (size,)), ``path_start_idx``, ``ptr``, ``gamma``, ``lam``.
        ``adv_buf`` and ``ret_buf`` are filled: the same bits, added up in float64 and rounded to float32 once.
    last_val : number, or array of one number
    """
    path = slice(ppo_buffer.path_start_idx, ppo_buffer.ptr)
    rewards = np.append(ppo_buffer.rew_buf[path], last_val)
    values = np.append(ppo_buffer.val_buf[path], last_val)
    deltas = rewards[:-1] + ppo_buffer.gamma * values[1:] - values[:-1]
    ppo_buffer.adv_buf[path] = discount_cumsum(deltas, ppo_buffer.gamma * ppo_buffer.lam)
    ppo_buffer.ret_buf[path] = discount_cumsum(rewards, ppo_buffer.gamma)[:-1]
    ppo_buffer.path_start_idx = ppo_buffer.ptr
