r"""RLax: estimators of one trajectory, on arrays of shape (T,).

Arguments have RLax's names: ``r_t`` and ``discount_t`` belong to step t, ``v_tm1`` is V of the state before it, and
``v_t`` is V' after it. Likewise ``q_tm1`` and ``a_tm1`` are Q and the action a at step t, and ``q_t`` and ``a_t`` are
Q' and a' at the step after it. An episode ends where ``discount_t`` is 0; there is no other flag, so the caller decides
what truncation does. JAX arrays come back as JAX arrays, also in ``jax.jit``, ``jax.vmap`` and ``jax.lax.scan``.

In JAX, gradients flow as in RLax: into ``v_tm1`` or ``q_tm1`` of an error, and into everything if
``stop_target_gradients`` is False. Tensors get no gradients.

All results agree with RLax's to 1e-5, because XLA may compute a product and a sum with one rounding, and
multiplies gamma and lambda in float32.
"""

import inspect
import math
from typing import Any, Generic, NamedTuple

from fastgae._interop.libraries import kind_of
from fastgae._support.misnamed import refuses_misnamed
from fastgae._typing import ArrayT
from fastgae.compat._anywhere import (
    Coefficient,
    Coefficients,
    Discounts,
    Flags,
    Integers,
    Like,
    Numbers,
    anywhere,
    constant,
    last_of,
    namespace_of,
)
from fastgae.estimators.gae import gae
from fastgae.estimators.reverse_scan import reverse_scan


class VTraceOutput(NamedTuple, Generic[ArrayT]):
    """The results of ``vtrace_td_error_and_advantage`` and ``leaky_vtrace_td_error_and_advantage``."""

    errors: ArrayT
    pg_advantage: ArrayT
    q_estimate: ArrayT


@anywhere("r_t: T", lambda_="| T", values="T+1")
def truncated_generalized_advantage_estimation(
    r_t: Like[ArrayT],
    discount_t: Discounts,
    lambda_: Coefficients,
    values: Numbers,
    stop_target_gradients: bool = False,
) -> ArrayT:
    r"""Compute advantages; ``values`` has T + 1 numbers, ``lambda_`` one or T.

    ::

        delta_t = (r_t + discount_t V_{t+1}) - V_t
        A_t     = delta_t + discount_t lambda_t A_{t+1}
    """
    how = {"gamma": discount_t, "gae_lambda": lambda_, "stop_gradients": stop_target_gradients}
    return gae(r_t, values[:-1], terminated=None, last_values=values[-1], **how).advantages


@anywhere("r_t: T", lambda_="| T")
def lambda_returns(
    r_t: Like[ArrayT],
    discount_t: Discounts,
    v_t: Numbers,
    lambda_: Coefficients = 1.0,
    stop_target_gradients: bool = False,
) -> ArrayT:
    r"""Compute TD(lambda) returns; ``lambda_`` is one number or T numbers.

    ::

        G_t = r_t + discount_t ((1 - lambda_t) V'_t + lambda_t G_{t+1})     G_T = V'_{T-1}
    """
    mix = _at_every_step(lambda_, r_t)
    terms, decay = r_t + discount_t * ((1 - mix) * v_t), discount_t * mix
    return reverse_scan(terms, decay, initial=last_of(v_t), stop_gradients=stop_target_gradients)


@anywhere("r_t: T", lambda_t="| T")
def n_step_bootstrapped_returns(
    r_t: Like[ArrayT],
    discount_t: Discounts,
    v_t: Numbers,
    n: int,
    lambda_t: Coefficients = 1.0,
    stop_target_gradients: bool = False,
) -> ArrayT:
    r"""Compute n-step returns, which may be mixed by lambda; fewer steps at the end of the trajectory.

    ::

        G_t^(0) = V'_{t-1}
        G_t^(k) = r_t + discount_t ((1 - lambda_t) V'_t + lambda_t G_{t+1}^(k-1))     V' of the last step after the end

    The result is G^(n).
    """
    if n < 1:
        raise ValueError(f"n must be a positive integer, got {n}")
    xp, steps, mix = namespace_of(r_t), r_t.shape[0], _at_every_step(lambda_t, r_t)
    n = min(n, steps + 1)  # more steps change nothing, and would take memory
    after = xp.ones_like(r_t[:1])

    def windows(numbers: Any, beyond: Any) -> Any:
        """Return n rows: the numbers, and the numbers of the next step, and so on."""
        padded = xp.concatenate([numbers, *[beyond] * (n - 1)])
        return xp.stack([padded[i : i + steps] for i in range(n)])

    terms = windows(r_t + discount_t * ((1 - mix) * v_t), 0 * after)
    targets = xp.concatenate([v_t[n - 1 :], *[v_t[-1:]] * min(n - 1, steps)])
    decay = windows(discount_t * mix, after)
    return reverse_scan(terms, decay, initial=targets, stop_gradients=stop_target_gradients)[0]


@anywhere("r_t: T", v_t="| T")
def discounted_returns(
    r_t: Like[ArrayT], discount_t: Discounts, v_t: Numbers, stop_target_gradients: bool = False
) -> ArrayT:
    r"""Sum the discounted rewards, and bootstrap from the last of ``v_t``, which may also be one number.

    ::

        G_t = r_t + discount_t G_{t+1}     G_T = v_T
    """
    xp = namespace_of(r_t)
    last = last_of(xp.broadcast_to(xp.asarray(v_t, dtype=r_t.dtype), r_t.shape))
    return reverse_scan(r_t, discount_t, initial=last, stop_gradients=stop_target_gradients)


@refuses_misnamed
def vtrace(
    v_tm1: Any,
    v_t: Any,
    r_t: Like[ArrayT],
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> ArrayT:
    r"""Compute V-trace's errors: the value targets minus V.

    ::

        delta_t = (r_t + discount_t V'_t) - V_t
        E_t     = min(rho_t, clip) delta_t + discount_t lambda_t min(rho_t, 1) E_{t+1}     E_T = 0
        E_t     = E_{t+1}                                                   where not sample_mask_t (carried over)
    """
    return leaky_vtrace(
        v_tm1, v_t, r_t, discount_t, rho_tm1, 1.0, lambda_, clip_rho_threshold, stop_target_gradients, sample_mask
    )


@anywhere("r_t: T", lambda_="| T")
def leaky_vtrace(
    v_tm1: Numbers,
    v_t: Numbers,
    r_t: Like[ArrayT],
    discount_t: Discounts,
    rho_tm1: Numbers,
    alpha_: Coefficient = 1.0,
    lambda_: Coefficients = 1.0,
    clip_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Flags | None = None,
) -> ArrayT:
    r"""Compute leaky V-trace's errors, which mix clipped and unclipped ratios.

    ::

        w_t(clip) = (1 - alpha) rho_t + alpha min(rho_t, clip)
        delta_t   = (r_t + discount_t V'_t) - V_t
        E_t       = w_t(clip) delta_t + discount_t lambda_t w_t(1) E_{t+1}     E_T = 0
        E_t       = E_{t+1}                                                   where not sample_mask_t (carried over)

    With ``alpha_=1`` the errors equal the errors of ``vtrace``, also where a ratio is infinite; RLax gives NaN there.
    ``alpha_`` is ``1 - leaky`` of ``fastgae.vtrace``.
    """
    # fastgae.vtrace cannot do this, because it writes 0 at a masked step where RLax carries the next step's error over.
    xp = namespace_of(r_t)
    deltas = _weights(rho_tm1, clip_rho_threshold, alpha_) * (r_t + discount_t * v_t - v_tm1)
    decay = discount_t * (_weights(rho_tm1, 1.0, alpha_) * xp.asarray(lambda_, dtype=rho_tm1.dtype))
    if sample_mask is not None:
        learnable = sample_mask != 0
        # RLax multiplies the delta of a masked step by 0, so NaN there stays NaN.
        deltas, decay = deltas * learnable, xp.where(learnable, decay, 1)
    errors = reverse_scan(deltas, decay, stop_gradients=stop_target_gradients)
    if stop_target_gradients and kind_of(v_tm1) == "jax":
        return errors - (v_tm1 - constant(v_tm1))  # of the gradients, only that of V is left
    return errors


_errors = inspect.unwrap(leaky_vtrace)  # for arguments that have been read


@refuses_misnamed
def vtrace_td_error_and_advantage(
    v_tm1: Any,
    v_t: Any,
    r_t: Like[ArrayT],
    discount_t: Any,
    rho_tm1: Any,
    lambda_: Any = 1.0,
    clip_rho_threshold: float = 1.0,
    clip_pg_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Any = None,
) -> VTraceOutput[ArrayT]:
    r"""Compute V-trace's errors E, the policy's advantages P, and the action values Q from which P follows.

    ::

        Q_t = r_t + discount_t (lambda_t (E_{t+1} + V_{t+1}) + (1 - lambda_t) V_{t+1})     last step: r + discount V'
        P_t = min(rho_t, clip_pg) (Q_t - V_t)
    """
    how = clip_rho_threshold, clip_pg_rho_threshold, stop_target_gradients, sample_mask
    return leaky_vtrace_td_error_and_advantage(v_tm1, v_t, r_t, discount_t, rho_tm1, 1.0, lambda_, *how)


@anywhere("r_t: T", lambda_="| T")
def leaky_vtrace_td_error_and_advantage(
    v_tm1: Numbers,
    v_t: Numbers,
    r_t: Like[ArrayT],
    discount_t: Discounts,
    rho_tm1: Numbers,
    alpha: Coefficient = 1.0,
    lambda_: Coefficients = 1.0,
    clip_rho_threshold: float = 1.0,
    clip_pg_rho_threshold: float = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: Flags | None = None,
) -> VTraceOutput[ArrayT]:
    r"""Compute leaky V-trace's errors E, the policy's advantages P, and the action values Q from which P follows.

    ::

        w_t(clip) = (1 - alpha) rho_t + alpha min(rho_t, clip)
        Q_t       = r_t + discount_t (lambda_t (E_{t+1} + V_{t+1}) + (1 - lambda_t) V_{t+1})
        P_t       = w_t(clip_pg) (Q_t - V_t)

    E is the result of ``leaky_vtrace``, and the last Q is ``r + discount V'``. With ``alpha=1`` the results equal those
    of ``vtrace_td_error_and_advantage``, also where a ratio is infinite; RLax gives NaN there.
    """
    xp = namespace_of(r_t)
    errors = _errors(
        v_tm1, v_t, r_t, discount_t, rho_tm1, alpha, lambda_, clip_rho_threshold, stop_target_gradients, sample_mask
    )
    mix = _at_every_step(lambda_, v_tm1)[:-1]
    targets = mix * (errors + v_tm1)[1:] + (1 - mix) * v_tm1[1:]
    estimates = r_t + discount_t * xp.concatenate([targets, v_t[-1:]])
    return VTraceOutput(errors, _weights(rho_tm1, clip_pg_rho_threshold, alpha) * (estimates - v_tm1), estimates)


@anywhere("r_t: T", q_t="T-1", c_t="T-1")
def general_off_policy_returns_from_q_and_v(
    q_t: Numbers,
    v_t: Numbers,
    r_t: Like[ArrayT],
    discount_t: Discounts,
    c_t: Numbers,
    stop_target_gradients: bool = False,
) -> ArrayT:
    r"""Compute off-policy returns from the values of actions and states; ``q_t`` and ``c_t`` have T - 1 numbers.

    ::

        G_t = r_t + discount_t (V'_t - c_t Q'_t + c_t G_{t+1})     last step: G = r + discount V'

    ``q_t`` is the value of the action that was taken after step t, and ``c_t`` is the decay of the trace there. Retrace
    has ``c_t = lambda min(ratio, 1)`` with the ratio of that action; ``fastgae.retrace`` calls it ``c_{t+1}``.
    """
    bootstrapped = r_t[:-1] + discount_t[:-1] * (v_t[:-1] - c_t * q_t)
    last = r_t[-1:] + discount_t[-1:] * v_t[-1:]
    returns = reverse_scan(
        bootstrapped, discount_t[:-1] * c_t, initial=last_of(last), stop_gradients=stop_target_gradients
    )
    return namespace_of(r_t).concatenate([returns, constant(last) if stop_target_gradients else last])


_off_policy = inspect.unwrap(general_off_policy_returns_from_q_and_v)  # for arguments that have been read


@anywhere("r_t: T", q_t="T A", pi_t="T A")
def general_off_policy_returns_from_action_values(
    q_t: Numbers,
    a_t: Integers,
    r_t: Like[ArrayT],
    discount_t: Discounts,
    c_t: Numbers,
    pi_t: Numbers,
    stop_target_gradients: bool = False,
) -> ArrayT:
    r"""Compute off-policy returns from the values of all actions; ``q_t`` and ``pi_t`` have shape (T, actions).

    ::

        V'_t = sum over a of pi_t(a) Q'_t(a)
        G_t  = r_t + discount_t (V'_t - c_t Q'_t(a'_t) + c_t G_{t+1})     last step: G = r + discount V'

    The last number of ``a_t`` and the last of ``c_t`` are not read. An action that is too large raises IndexError; in
    code that JAX traces it gives NaN, as in RLax.
    """
    values = (pi_t * q_t).sum(axis=-1)
    return _off_policy(_at(q_t[:-1], a_t[:-1]), values, r_t, discount_t, c_t[:-1], stop_target_gradients)


@anywhere("r_t: T", q_tm1="T A", q_t="T A", pi_t="T A", lambda_="| T")
def retrace(
    q_tm1: Numbers,
    q_t: Numbers,
    a_tm1: Integers,
    a_t: Integers,
    r_t: Like[ArrayT],
    discount_t: Discounts,
    pi_t: Numbers,
    mu_t: Numbers,
    lambda_: Coefficients,
    eps: float = 1e-8,
    stop_target_gradients: bool = True,
) -> ArrayT:
    r"""Compute Retrace's errors: the targets of the actions taken minus their values.

    ::

        c_t = lambda min(pi_t(a'_t) / (mu_t + eps), 1)
        E_t = G_t - Q_t(a_t)     G by general_off_policy_returns_from_action_values

    ``q_tm1``, ``q_t`` and ``pi_t`` have shape (T, actions). ``mu_t`` has shape (T,): the probability of ``a_t`` under
    the policy that acted. An action that is too large raises IndexError; in code that JAX traces it
    gives NaN, as in RLax.
    """
    xp = namespace_of(r_t)
    ratios = _at(pi_t, a_t) / (mu_t + xp.asarray(eps, dtype=mu_t.dtype))
    traces = _weights(ratios, 1.0) * xp.asarray(lambda_, dtype=ratios.dtype)
    values = (pi_t * q_t).sum(axis=-1)
    returns = _off_policy(_at(q_t, a_t)[:-1], values, r_t, discount_t, traces[:-1], stop_target_gradients)
    return returns - _at(q_tm1, a_tm1)


@anywhere("r_t: T", q_t="T-1", log_rhos="T-1", lambda_="| T-1")
def retrace_continuous(
    q_tm1: Numbers,
    q_t: Numbers,
    v_t: Numbers,
    r_t: Like[ArrayT],
    discount_t: Discounts,
    log_rhos: Numbers,
    lambda_: Coefficients,
    stop_target_gradients: bool = True,
) -> ArrayT:
    r"""Compute Retrace's errors from the values of the taken actions, which may be continuous.

    ::

        c_t = lambda_t min(exp(log_rho_t), 1)
        E_t = G_t - Q_t     G by general_off_policy_returns_from_q_and_v

    ``q_t`` and ``log_rhos`` have T - 1 numbers, and ``lambda_`` one or T - 1. Without truncation, ``E + q_tm1``
    is the result of ``fastgae.retrace``.
    """
    xp = namespace_of(r_t)
    # exp(min(x, 0)) equals min(exp(x), 1), and it never overflows.
    ratios = xp.exp(_weights(log_rhos, 0.0))
    traces = ratios * xp.asarray(lambda_, dtype=ratios.dtype)
    return _off_policy(q_t, v_t, r_t, discount_t, traces, stop_target_gradients) - q_tm1


def _weights(ratios: Any, clip: float, alpha: float = 1.0) -> Any:
    """Mix clipped ratios, which have the weight ``alpha``, and unclipped ratios."""
    xp = namespace_of(ratios)
    clipped = xp.minimum(ratios, xp.asarray(clip, dtype=ratios.dtype))
    if isinstance(alpha, float) and alpha == 1:
        return clipped  # the sum would be NaN where a ratio is infinite, because 0 times infinity is NaN
    return (1 - alpha) * ratios + alpha * clipped


def _at_every_step(lambda_: Any, steps: Any) -> Any:
    """Return lambda, one number or one for each step, in the shape and dtype of the steps, and on their device."""
    xp = namespace_of(steps)
    return xp.ones_like(steps) * xp.asarray(lambda_, dtype=steps.dtype)


def _at(table: Any, actions: Any) -> Any:
    """Pick the number of each step's action from an array of shape (T, actions)."""
    xp = namespace_of(actions)
    rows = xp.cumsum(xp.ones_like(actions, dtype=int), 0) - 1  # 0, 1, 2 …, on the device of the actions
    if kind_of(table) == "jax":
        return table.at[rows, actions].get(mode="fill", fill_value=math.nan)
    return table[rows, actions.long() if kind_of(table) == "torch" else actions]  # torch takes uint8 for a mask
