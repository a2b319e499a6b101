r"""RLax: estimators of one trajectory, on arrays of shape (T,).

Arguments have RLax's names: ``r_t`` and ``discount_t`` belong to step t, ``v_tm1`` is V of the state before it, and
``v_t`` is V' after it. Likewise ``q_tm1`` and ``a_tm1`` are Q and the action a at step t, and ``q_t`` and ``a_t`` are
Q' and a' at the step after it. An episode ends where ``discount_t`` is 0; there is no other flag, so the caller decides
what truncation does. JAX arrays come back as JAX arrays without gradients: ``stop_target_gradients`` is accepted and
changes nothing. RLax lets the gradient of an error flow into ``v_tm1`` or ``q_tm1``; these functions do not.

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
    """The results of ``vtrace_td_error_and_advantage`` and ``leaky_vtrace_td_error_and_advantage``."""

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
    return leaky_vtrace(
        v_tm1, v_t, r_t, discount_t, rho_tm1, 1.0, lambda_, clip_rho_threshold, stop_target_gradients, sample_mask
    )


def leaky_vtrace(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    alpha_: float = 1.0,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> Any:
    r"""Compute leaky V-trace's errors, which mix clipped and unclipped ratios.

    ::

        w_t(clip) = (1 - alpha) rho_t + alpha min(rho_t, clip)
        delta_t   = (r_t + discount_t V'_t) - V_t
        E_t       = w_t(clip) delta_t + discount_t lambda_t w_t(1) E_{t+1}     E_T = 0
        E_t       = E_{t+1}                                                   where not sample_mask_t (carried over)

    With ``alpha_=1`` the errors equal those of ``vtrace``, also where a ratio is infinite; RLax gives NaN there.
    ``alpha_`` is ``1 - leaky`` of ``fastgae.vtrace``.
    """
    numbers = [numbers_of(given) for given in (v_tm1, v_t, r_t, discount_t, rho_tm1)]
    errors = _errors(numbers, alpha_, lambda_, clip_rho_threshold, sample_mask)
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
    return leaky_vtrace_td_error_and_advantage(
        v_tm1,
        v_t,
        r_t,
        discount_t,
        rho_tm1,
        1.0,
        lambda_,
        clip_rho_threshold,
        clip_pg_rho_threshold,
        stop_target_gradients,
        sample_mask,
    )


def leaky_vtrace_td_error_and_advantage(
    v_tm1: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    rho_tm1: Any,
    alpha: float = 1.0,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    clip_pg_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> VTraceOutput:
    r"""Compute leaky V-trace's errors E, the policy's advantages P, and the action values Q from which P follows.

    ::

        w_t(clip) = (1 - alpha) rho_t + alpha min(rho_t, clip)
        Q_t       = r_t + discount_t (lambda_t (E_{t+1} + V_{t+1}) + (1 - lambda_t) V_{t+1})
        P_t       = w_t(clip_pg) (Q_t - V_t)

    E is the result of ``leaky_vtrace``, and the last Q is ``r + discount V'``. With ``alpha=1`` the results equal those
    of ``vtrace_td_error_and_advantage``, also where a ratio is infinite; RLax gives NaN there.
    """
    numbers = [numbers_of(given) for given in (v_tm1, v_t, r_t, discount_t, rho_tm1)]
    values, following, rewards, discounts, ratios = numbers
    errors = _errors(numbers, alpha, lambda_, clip_rho_threshold, sample_mask)
    mix = np.broadcast_to(np.asarray(numbers_of(lambda_), values.dtype), values.shape)[:-1]
    targets = mix * (errors + values)[1:] + (1 - mix) * values[1:]
    estimates = rewards + discounts * np.concatenate([targets, following[-1:]])
    advantages = _weights(ratios, clip_pg_rho_threshold, alpha) * (estimates - values)
    given = r_t, v_tm1, v_t, discount_t, rho_tm1
    return VTraceOutput(like(errors, *given), like(advantages, *given), like(estimates, *given))


def general_off_policy_returns_from_q_and_v(
    q_t: Any, v_t: Any, r_t: Any, discount_t: Any, c_t: Any, stop_target_gradients: bool = False
) -> Any:
    r"""Compute off-policy returns from the values of actions and states; ``q_t`` and ``c_t`` have T - 1 numbers.

    ::

        G_t = r_t + discount_t (V'_t - c_t Q'_t + c_t G_{t+1})     last step: G = r + discount V'

    ``q_t`` is the value of the action that was taken after step t, and ``c_t`` is the decay of the trace there. Retrace
    has ``c_t = lambda min(ratio, 1)`` with the ratio of that action; ``fastgae.retrace`` calls it ``c_{t+1}``.
    """
    with np.errstate(all="ignore"):
        rewards, discounts, following = numbers_of(r_t), numbers_of(discount_t), numbers_of(v_t)
        traces = numbers_of(c_t)
        bootstrapped = rewards[:-1] + discounts[:-1] * (following[:-1] - traces * numbers_of(q_t))
        last = rewards[-1:] + discounts[-1:] * following[-1:]
        returns = reverse_scan(bootstrapped, discounts[:-1] * traces, initial=last[0])
        return like(np.concatenate([returns, last]), r_t, q_t, v_t, discount_t, c_t)


def general_off_policy_returns_from_action_values(
    q_t: Any, a_t: Any, r_t: Any, discount_t: Any, c_t: Any, pi_t: Any, stop_target_gradients: bool = False
) -> Any:
    r"""Compute off-policy returns from the values of all actions; ``q_t`` and ``pi_t`` have shape (T, actions).

    ::

        V'_t = sum over a of pi_t(a) Q'_t(a)
        G_t  = r_t + discount_t (V'_t - c_t Q'_t(a'_t) + c_t G_{t+1})     last step: G = r + discount V'

    The last number of ``a_t`` and the last of ``c_t`` are not read. An action that is too large raises IndexError; RLax
    gives NaN.
    """
    with np.errstate(all="ignore"):
        q_values, policy = numbers_of(q_t), numbers_of(pi_t)
        returns = general_off_policy_returns_from_q_and_v(
            _at(q_values[:-1], numpy_of(a_t)[:-1]),
            (policy * q_values).sum(axis=-1),
            numbers_of(r_t),
            numbers_of(discount_t),
            numbers_of(c_t)[:-1],
        )
        return like(returns, r_t, q_t, discount_t, c_t, pi_t)


def retrace(
    q_tm1: Any,
    q_t: Any,
    a_tm1: Any,
    a_t: Any,
    r_t: Any,
    discount_t: Any,
    pi_t: Any,
    mu_t: Any,
    lambda_: Any,
    eps: float = 1e-8,
    stop_target_gradients: bool = True,
) -> Any:
    r"""Compute Retrace's errors: the targets of the actions taken minus their values.

    ::

        c_t = lambda min(pi_t(a'_t) / (mu_t + eps), 1)
        E_t = G_t - Q_t(a_t)     G by general_off_policy_returns_from_action_values

    ``q_tm1``, ``q_t`` and ``pi_t`` have shape (T, actions). ``mu_t`` has shape (T,): the probability of ``a_t`` under
    the policy that acted. An action that is too large raises IndexError; RLax gives NaN.
    """
    with np.errstate(all="ignore"):
        policy, behaviour = numbers_of(pi_t), numbers_of(mu_t)
        ratios = _at(policy, numpy_of(a_t)) / (behaviour + behaviour.dtype.type(eps))
        returns = general_off_policy_returns_from_action_values(
            numbers_of(q_t),
            numpy_of(a_t),
            numbers_of(r_t),
            numbers_of(discount_t),
            np.minimum(ratios, ratios.dtype.type(1)) * np.asarray(numbers_of(lambda_), ratios.dtype),
            policy,
        )
        errors = returns - _at(numbers_of(q_tm1), numpy_of(a_tm1))
        return like(errors, r_t, q_tm1, q_t, discount_t, pi_t, mu_t)


def retrace_continuous(
    q_tm1: Any,
    q_t: Any,
    v_t: Any,
    r_t: Any,
    discount_t: Any,
    log_rhos: Any,
    lambda_: Any,
    stop_target_gradients: bool = True,
) -> Any:
    r"""Compute Retrace's errors from the values of the taken actions, which may be continuous.

    ::

        c_t = lambda_t min(exp(log_rho_t), 1)
        E_t = G_t - Q_t     G by general_off_policy_returns_from_q_and_v

    ``q_t`` and ``log_rhos`` have T - 1 numbers, and ``lambda_`` one or T - 1. Without truncation, ``E + q_tm1``
    is the result of ``fastgae.retrace``.
    """
    with np.errstate(all="ignore"):
        # exp(min(x, 0)) equals min(exp(x), 1), and it never overflows.
        ratios = np.exp(np.minimum(numbers_of(log_rhos), 0))
        returns = general_off_policy_returns_from_q_and_v(
            numbers_of(q_t),
            numbers_of(v_t),
            numbers_of(r_t),
            numbers_of(discount_t),
            ratios * np.asarray(numbers_of(lambda_), ratios.dtype),
        )
        return like(returns - numbers_of(q_tm1), r_t, q_tm1, q_t, v_t, discount_t, log_rhos)


def _errors(numbers: list[Array], alpha: float, lambda_: Any, clip: float, sample_mask: Any) -> Array:
    """Compute leaky V-trace's errors from V, V', rewards, discounts and ratios."""
    # fastgae.vtrace cannot do this, because it writes 0 at a masked step where RLax carries the next step's error over.
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        values, following, rewards, discounts, ratios = numbers
        deltas = _weights(ratios, clip, alpha) * (rewards + discounts * following - values)
        decay = discounts * (_weights(ratios, 1.0, alpha) * np.asarray(numbers_of(lambda_), ratios.dtype))
        if sample_mask is None:
            return reverse_scan(deltas, decay)
        learnable = np.asarray(numpy_of(sample_mask), bool)
        # RLax multiplies the delta of a masked step by 0, so NaN there stays NaN.
        return reverse_scan(deltas * learnable, np.where(learnable, decay, 1))


def _weights(ratios: Array, clip: float, alpha: float) -> Array:
    """Mix clipped ratios, which have the weight ``alpha``, and unclipped ratios."""
    with np.errstate(all="ignore"):
        clipped: Array = np.minimum(ratios, ratios.dtype.type(clip))
        if alpha == 1:  # The sum below would be NaN where a ratio is infinite, because 0 times infinity is NaN.
            return clipped
        share = float(numbers_of(alpha))
        return (1 - share) * ratios + share * clipped


def _at(table: Array, actions: Array) -> Array:
    """Pick the number of each step's action from an array of shape (T, actions)."""
    return table[np.arange(len(actions)), actions]
