"""torchrl: the functions of ``torchrl.objectives.value.functional``, and a value estimator GAE that uses them.

Change one import, and a seeded run gives the same weights::

    from torchrl.objectives.value import GAE    # before
    from fastgae.compat.torchrl import GAE      # after

    estimator = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    loss.make_value_estimator(estimator)        # if a loss needs it

``GAE`` is a subclass of torchrl's class. torchrl is imported at its first use.

Shapes are ``[*batch, time, features]``, with time at ``time_dim``. Row t of the flags belongs to step t: ``done`` cuts
the trace, and ``terminated``, by default ``done``, cuts the bootstrap. A truncated step is done but not terminated, and
bootstraps from its own ``next_state_value``. A terminated step must be done as well, as in torchrl's environments.
Tensors come back without gradients.

"The same bits" holds in float32 on a CPU. torchrl multiplies gamma with integer flags, and so rounds it to torch's
default dtype: in float64, results agree up to the rounding of gamma to float32.
"""

import importlib
from collections.abc import Callable
from threading import RLock
from typing import Any

import numpy as np

from fastgae._call import Array
from fastgae._interop import library_of, like, numbers_of, numpy_of
from fastgae.compat._hooks import Library, made_once, replace
from fastgae.estimators.discounted_returns import discounted_returns
from fastgae.estimators.gae import gae
from fastgae.estimators.reverse_scan import reverse_scan
from fastgae.estimators.vtrace import vtrace

LIBRARY = Library("torchrl", "0.14.1", "0.14.1")


def generalized_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    *,
    time_dim: int = -2,
) -> tuple[Any, Any]:
    r"""Compute advantages and value targets; the same bits.

    ::

        delta_t  = (r_t + gamma V'_t) - V_t         the bootstrap only where not terminated_t
        A_t      = delta_t + gamma lmbda A_{t+1}    the second term only where not done_t
        target_t = A_t + V_t

    Parameters
    ----------
    gamma, lmbda : number, or tensor that broadcasts to ``reward``
    state_value, next_state_value, reward : tensor
        V_t, V'_t and r_t.
    done, terminated : bool tensor like ``reward``
    time_dim : int

    Returns
    -------
    (advantage, value_target)
        Tensors like ``state_value``.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.
    """
    result = gae(
        numbers_of(reward),
        numbers_of(state_value),
        numpy_of(done if terminated is None else terminated),
        numpy_of(done),
        next_values=numbers_of(next_state_value),
        gamma=_coefficient(gamma),
        gae_lambda=_coefficient(lmbda),
        time_axis=time_dim,
    )
    given = state_value, next_state_value, reward
    return like(result.advantages, *given), like(result.returns, *given)


def vec_generalized_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    *,
    time_dim: int = -2,
) -> tuple[Any, Any]:
    """Compute ``generalized_advantage_estimate``; torchrl's function agrees to 1e-5, because it is a convolution.

    The convolution adds the deltas in another order, and leaves out those whose weight is below 1e-7.
    """
    return generalized_advantage_estimate(
        gamma, lmbda, state_value, next_state_value, reward, done, terminated, time_dim=time_dim
    )


def td_lambda_return_estimate(
    gamma: Any,
    lmbda: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    rolling_gamma: bool | None = None,
    *,
    time_dim: int = -2,
) -> Any:
    r"""Compute TD(lambda) returns; to 1e-5, because torchrl rounds the mean of V' and G before it applies gamma.

    ::

        G_t = r_t + gamma ((1 - lmbda) V'_t + lmbda G_{t+1})     G_{t+1} is V'_t where done_t, and at the last step

    V' is 0 where terminated. Parameters are those of ``generalized_advantage_estimate``; ``rolling_gamma=False`` raises
    ValueError.
    """
    if rolling_gamma is False:
        raise ValueError("rolling_gamma=False is not this recursion: each step would discount all later ones its way")
    rewards, values = numbers_of(reward), numbers_of(next_state_value)
    ended, dtype = numpy_of(done if terminated is None else terminated), np.result_type(rewards, values)
    following = np.where(ended, 0, values).astype(dtype, copy=False)
    discount = np.asarray(_coefficient(gamma), dtype)
    trace = np.where(numpy_of(done), 0, _coefficient(lmbda)).astype(dtype, copy=False)
    returns = reverse_scan(
        rewards + discount * ((1 - trace) * following),
        discount * trace,
        initial=following.take(-1, time_dim),
        time_axis=time_dim,
    )
    return like(returns, next_state_value, reward)


def td_lambda_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> Any:
    """Return ``td_lambda_return_estimate(...) - state_value``."""
    returns = td_lambda_return_estimate(
        gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim
    )
    return like(numpy_of(returns) - numpy_of(state_value), state_value, next_state_value, reward)


def vtrace_advantage_estimate(
    gamma: Any,
    log_pi: Any,
    log_mu: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Any,
    done: Any,
    terminated: Any = None,
    rho_thresh: Any = 1.0,
    c_thresh: Any = 1.0,
    time_dim: int = -2,
) -> tuple[Any, Any]:
    r"""Compute V-trace's advantages and value targets; the same bits.

    ::

        delta_t = (r_t + gamma V'_t) - V_t                               the bootstrap only where not terminated_t
        vs_t    = V_t + rho_t delta_t + gamma c_t (vs_{t+1} - V_{t+1})   the last term only where not done_t
        A_t     = rho_t (r_t + gamma vs'_t - V_t)                        vs' is vs_{t+1}; V' if done or last
        rho_t   = min(exp(log_pi_t - log_mu_t), rho_thresh)              c_t uses c_thresh

    Parameters are those of ``generalized_advantage_estimate``, and

    log_pi, log_mu : tensor like ``reward``
    rho_thresh, c_thresh : number, or tensor of one

    Returns
    -------
    (advantages, vs)
    """
    rewards, values, following = numbers_of(reward), numbers_of(state_value), numbers_of(next_state_value)
    ended, cut = numpy_of(done if terminated is None else terminated), numpy_of(done)
    ratios, discount = numpy_of((log_pi - log_mu).exp()), _coefficient(gamma)
    targets = vtrace(
        rewards,
        values,
        ended,
        cut,
        ratios=ratios,
        next_values=following,
        gamma=discount,
        rho_clip=float(rho_thresh),
        c_clip=float(c_thresh),
        time_axis=time_dim,
    ).returns
    upcoming = np.where(cut, following, _one_later(targets, following, time_dim))
    one_step = gae(
        rewards,
        values,
        ended,
        np.ones_like(cut),
        next_values=upcoming,
        gamma=discount,
        time_axis=time_dim,
    ).advantages
    advantages = np.minimum(ratios, np.asarray(float(rho_thresh), ratios.dtype)) * one_step
    given = state_value, next_state_value, reward, log_pi, log_mu
    return like(advantages, *given), like(targets, *given)


def reward2go(reward: Any, done: Any, gamma: Any, *, time_dim: int = -2) -> Any:
    r"""Sum discounted rewards to the end of each trajectory; to 1e-5, because torchrl's function is a convolution.

    ::

        G_t = r_t + gamma G_{t+1}     the second term only where not done_t; nothing after the last step

    ``reward``, ``done`` and the result have the same shape.
    """
    rewards = numbers_of(reward)
    returns = discounted_returns(
        rewards,
        numpy_of(done),
        last_values=np.zeros_like(rewards.take(0, time_dim)),
        gamma=_coefficient(gamma),
        time_axis=time_dim,
    )
    return like(returns, reward)


def _coefficient(given: Any) -> Any:
    return given if library_of(given) == "numpy" else numpy_of(given)


def _one_later(array: Array, last: Array, axis: int) -> Array:
    """Return ``array`` moved one step earlier, with the last step of ``last`` behind it."""
    rows, ends = np.moveaxis(array, axis, 0), np.moveaxis(last, axis, 0)
    return np.moveaxis(np.concatenate([rows[1:], ends[-1:]]), 0, axis)


def __getattr__(name: str) -> Any:
    return made_once(globals(), name, GAE=_estimator)


def _estimator() -> type:
    torch = importlib.import_module("torch")
    LIBRARY.release()
    advantages = importlib.import_module("torchrl.objectives.value.advantages")
    theirs: Any = advantages.GAE
    ours = (generalized_advantage_estimate, vec_generalized_advantage_estimate)
    names = [LIBRARY.fitting(f"{advantages.__name__}:{each.__name__}", each).__name__ for each in ours]
    functions = {name: _or_with_gradients(getattr(advantages, name)) for name in names}
    lock = RLock()  # the replaced functions belong to a module that all threads share

    class GAE(theirs):  # type: ignore[misc]
        """torchrl's GAE with advantages and value targets by fastgae: the same bits in float32 on a CPU.

        With ``vectorized=True``, and in ``value_estimate``, torchrl's own computation is a convolution, and agrees to
        1e-5. If gradients must flow through the advantages, and under ``torch.compile``, torchrl's own functions run.
        """

        def forward(self, *arguments: Any, **named: Any) -> Any:
            return self._computed(super().forward, *arguments, **named)

        def value_estimate(self, *arguments: Any, **named: Any) -> Any:
            return self._computed(super().value_estimate, *arguments, **named)

        def _computed(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling():
                return method(*arguments, **named)
            with lock, replace(advantages, **functions):
                return method(*arguments, **named)

    return GAE


def _or_with_gradients(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls fastgae, or ``theirs`` if gradients are needed, which fastgae does not have."""
    torch = importlib.import_module("torch")

    def estimate(*arguments: Any, **named: Any) -> Any:
        given = (*arguments, *named.values())
        wanted = torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in given)
        return (theirs if wanted else generalized_advantage_estimate)(*arguments, **named)

    return estimate
