r"""RLax: estimators of one trajectory, on arrays of shape (T,).

Arguments have RLax's names: ``r_t`` and ``discount_t`` belong to step t, ``v_tm1`` is V of the state before it, and
``v_t`` is V' after it. An episode ends where ``discount_t`` is 0; there is no other flag, so the caller decides what
truncation does. JAX arrays come back as JAX arrays without gradients: ``stop_target_gradients`` is accepted and changes
nothing.

All results agree with RLax's to 1e-5, because XLA may compute a product and a sum with one rounding, and
multiplies gamma and lambda in float32.
"""

from typing import Any, NamedTuple

import numpy as np

from fastgae._call import Array
from fastgae._interop import like, numbers_of, numpy_of
from fastgae.estimators.gae import gae
from fastgae.estimators.reverse_scan import reverse_scan


class VTraceOutput(NamedTuple):
    """The results of ``vtrace_td_error_and_advantage``."""

    errors: Any
    pg_advantage: Any
    q_estimate: Any


def truncated_generalized_advantage_estimation(
    r_t: Any, discount_t: Any, lambda_: Any, values: Any, stop_target_gradients: bool = False
) -> Any:
    r"""Compute advantages; ``values`` has T + 1 numbers, ``lambda_`` one or T.

    ::

        delta_t = (r_t + discount_t V_{t+1}) - V_t
        A_t     = delta_t + discount_t lambda_t A_{t+1}
    """
    rewards = numbers_of(r_t)
    result = gae(
        rewards,
        numbers_of(values),
        np.zeros(rewards.shape, bool),
        gamma=numbers_of(discount_t),
        gae_lambda=numbers_of(lambda_),
    )
    return like(result.advantages, r_t, discount_t, values)


def lambda_returns(r_t: Any, discount_t: Any, v_t: Any, lambda_: Any = 1.0, stop_target_gradients: bool = False) -> Any:
    r"""Compute TD(lambda) returns; ``lambda_`` is one number or T numbers.

    ::

        G_t = r_t + discount_t ((1 - lambda_t) V'_t + lambda_t G_{t+1})     G_T = V'_{T-1}
    """
    rewards, discounts, following = numbers_of(r_t), numbers_of(discount_t), numbers_of(v_t)
    mix = np.asarray(numbers_of(lambda_), rewards.dtype)
    bootstrapped = rewards + discounts * ((1 - mix) * following)
    return like(reverse_scan(bootstrapped, discounts * mix, initial=following[-1]), r_t, discount_t, v_t)


def discounted_returns(r_t: Any, discount_t: Any, v_t: Any, stop_target_gradients: bool = False) -> Any:
    r"""Sum the discounted rewards, and bootstrap from the last of ``v_t``, which may also be one number.

    ::

        G_t = r_t + discount_t G_{t+1}     G_T = v_T
    """
    rewards = numbers_of(r_t)
    last = np.broadcast_to(np.asarray(numbers_of(v_t), rewards.dtype), rewards.shape)[-1]
    return like(reverse_scan(rewards, numbers_of(discount_t), initial=last), r_t, discount_t, v_t)


def vtrace(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> Any:
    r"""Compute V-trace's errors: the value targets minus V.

    ::

        delta_t = (r_t + discount_t V'_t) - V_t
        E_t     = min(rho_t, clip) delta_t + discount_t lambda_t min(rho_t, 1) E_{t+1}     E_T = 0
        E_t     = E_{t+1}                                                   where not sample_mask_t (carried over)
    """
    errors = _errors(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, clip_rho_threshold, sample_mask)
    return like(errors, r_t, v_tm1, v_t, discount_t, rho_tm1)


def vtrace_td_error_and_advantage(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    clip_pg_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> VTraceOutput:
    r"""Compute V-trace's errors E, the policy's advantages P, and the action values Q from which P follows.

    ::

        Q_t = r_t + discount_t (lambda_t (E_{t+1} + V_{t+1}) + (1 - lambda_t) V_{t+1})     last step: r + discount V'
        P_t = min(rho_t, clip_pg) (Q_t - V_t)
    """
    errors = _errors(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_, clip_rho_threshold, sample_mask)
    values, ratios = numbers_of(v_tm1), numbers_of(rho_tm1)
    mix = np.broadcast_to(np.asarray(numbers_of(lambda_), values.dtype), values.shape)[:-1]
    targets = mix * (errors + values)[1:] + (1 - mix) * values[1:]
    estimates = numbers_of(r_t) + numbers_of(discount_t) * np.concatenate([targets, numbers_of(v_t)[-1:]])
    advantages = np.minimum(ratios, ratios.dtype.type(clip_pg_rho_threshold)) * (estimates - values)
    given = r_t, v_tm1, v_t, discount_t, rho_tm1
    return VTraceOutput(like(errors, *given), like(advantages, *given), like(estimates, *given))


def _errors(
    v_tm1: Any, v_t: Any, r_t: Any, discount_t: Any, rho_tm1: Any, lambda_: Any, clip: float, sample_mask: Any
) -> Array:
    # Not by fastgae.vtrace, because it writes 0 at a masked step, and RLax carries the next step's error over.
    values, discounts, ratios = numbers_of(v_tm1), numbers_of(discount_t), numbers_of(rho_tm1)
    learnable = True if sample_mask is None else numpy_of(sample_mask)
    deltas = np.minimum(ratios, ratios.dtype.type(clip)) * (numbers_of(r_t) + discounts * numbers_of(v_t) - values)
    traces = np.minimum(ratios, ratios.dtype.type(1)) * np.asarray(numbers_of(lambda_), ratios.dtype)
    return reverse_scan(np.where(learnable, deltas, 0 * deltas), np.where(learnable, discounts * traces, 1))
