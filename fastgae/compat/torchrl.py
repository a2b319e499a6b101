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
default dtype: in float64, results agree up to the rounding of gamma to float32. If one of gamma and lmbda
is a tensor and the other a number, torch rounds the number to the tensor's dtype before it multiplies the two: results
agree to 1e-6. They also agree to 1e-6 if gamma or lmbda is a float64 tensor and the rollout float32, because torchrl
then computes in float64. torchrl's ``GAE`` makes such a tensor of a NumPy number, so pass a Python number.
"""

import importlib
import inspect
from collections.abc import Callable
from threading import local
from typing import Any

import numpy as np

from fastgae._support.misnamed import refuses_misnamed
from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Clip, Coefficients, Flags, Like, Numbers, anywhere, last_of, moved, namespace_of
from fastgae.compat._hooks import Library, made_once, replace
from fastgae.estimators.discounted_returns import discounted_returns
from fastgae.estimators.gae import gae
from fastgae.estimators.reverse_scan import reverse_scan
from fastgae.estimators.vtrace import vtrace

LIBRARY = Library("torchrl", "0.14.1", "0.14.1")


@anywhere("reward: T ...", gamma="~ T ...", lmbda="~ T ...")
def generalized_advantage_estimate(
    gamma: Coefficients,
    lmbda: Coefficients,
    state_value: Numbers,
    next_state_value: Numbers,
    reward: Like[ArrayT],
    done: Flags,
    terminated: Flags | None = None,
    *,
    time_dim: int = -2,
) -> tuple[ArrayT, ArrayT]:
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
        Tensors like ``reward``.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.
    """
    ended = done if terminated is None else terminated
    how = {"gamma": _with_all_axes(gamma, reward), "gae_lambda": _with_all_axes(lmbda, reward)}
    how["time_axis"] = _in_range(time_dim, reward)
    advantages, targets = gae(reward, state_value, ended, done, next_values=next_state_value, **how)
    return advantages, targets


@refuses_misnamed
def vec_generalized_advantage_estimate(
    gamma: Any,
    lmbda: Any,
    state_value: Any,
    next_state_value: Any,
    reward: Like[ArrayT],
    done: Any,
    terminated: Any = None,
    *,
    time_dim: int = -2,
) -> tuple[ArrayT, ArrayT]:
    """Compute ``generalized_advantage_estimate``; torchrl's function agrees to 1e-5, because it is a convolution.

    The convolution adds the deltas in another order, and leaves out the deltas whose weight is below 1e-7.
    """
    return generalized_advantage_estimate(
        gamma, lmbda, state_value, next_state_value, reward, done, terminated, time_dim=time_dim
    )


@anywhere("next_state_value: T ...", gamma="~ T ...", lmbda="~ T ...")
def td_lambda_return_estimate(
    gamma: Coefficients,
    lmbda: Coefficients,
    next_state_value: Like[ArrayT],
    reward: Numbers,
    done: Flags,
    terminated: Flags | None = None,
    rolling_gamma: bool | None = None,
    *,
    time_dim: int = -2,
) -> ArrayT:
    r"""Compute TD(lambda) returns; to 1e-5, because torchrl rounds the mean of V' and G before it applies gamma.

    ::

        G_t = r_t + gamma ((1 - lmbda) V'_t + lmbda G_{t+1})     G_{t+1} is V'_t where done_t, and at the last step

    V' is 0 where terminated. The parameters are the same as in ``generalized_advantage_estimate``;
    ``rolling_gamma=False`` raises ValueError.
    """
    if rolling_gamma is False:
        raise ValueError(
            "rolling_gamma=False, by which each step discounts all later rewards by its own gamma, is not supported"
        )
    xp, ended = namespace_of(reward), done if terminated is None else terminated
    dtype = (reward[:0] + next_state_value[:0]).dtype  # torch's compiler does not trace result_type
    following = xp.asarray(xp.where(ended != 0, 0, next_state_value), dtype=dtype)
    discount, trace = (xp.asarray(number, dtype=dtype) for number in (gamma, lmbda))
    trace = trace * (done == 0)
    return reverse_scan(
        reward + discount * ((1 - trace) * following),
        discount * trace,
        initial=last_of(moved(following, _in_range(time_dim, reward), 0)),
        time_axis=time_dim,
    )


_td_lambda = inspect.unwrap(td_lambda_return_estimate)  # for arguments that have been read


@anywhere("reward: T ...", gamma="~ T ...", lmbda="~ T ...")
def td_lambda_advantage_estimate(
    gamma: Coefficients,
    lmbda: Coefficients,
    state_value: Numbers,
    next_state_value: Numbers,
    reward: Like[ArrayT],
    done: Flags,
    terminated: Flags | None = None,
    rolling_gamma: bool | None = None,
    time_dim: int = -2,
) -> ArrayT:
    """Return ``td_lambda_return_estimate(...) - state_value``."""
    targets = _td_lambda(gamma, lmbda, next_state_value, reward, done, terminated, rolling_gamma, time_dim=time_dim)
    return targets - state_value


@anywhere("reward: T ...", gamma="~ T ...")
def vtrace_advantage_estimate(
    gamma: Coefficients,
    log_pi: Numbers,
    log_mu: Numbers,
    state_value: Numbers,
    next_state_value: Numbers,
    reward: Like[ArrayT],
    done: Flags,
    terminated: Flags | None = None,
    rho_thresh: Clip = 1.0,
    c_thresh: Clip = 1.0,
    time_dim: int = -2,
) -> tuple[ArrayT, ArrayT]:
    r"""Compute V-trace's advantages and value targets; the same bits.

    ::

        delta_t = (r_t + gamma V'_t) - V_t                               the bootstrap only where not terminated_t
        vs_t    = V_t + rho_t delta_t + gamma c_t (vs_{t+1} - V_{t+1})   the last term only where not done_t
        A_t     = rho_t (r_t + gamma vs'_t - V_t)                        vs' is vs_{t+1}; V' if done or last
        rho_t   = min(exp(log_pi_t - log_mu_t), rho_thresh)              c_t uses c_thresh

    The parameters are the same as in ``generalized_advantage_estimate``, and

    log_pi, log_mu : tensor like ``reward``
    rho_thresh, c_thresh : number, or tensor of one
        A tensor on a GPU makes the CPU wait for its number.

    Returns
    -------
    (advantages, vs)
    """
    import torch  # a statement, because torch.compile follows it

    xp, cut = namespace_of(reward), done != 0
    ended = cut if terminated is None else terminated
    # torch computes the ratios, because its exponential has other bits than NumPy's.
    ratios = torch.from_numpy(log_pi - log_mu).exp().numpy() if xp is np else (log_pi - log_mu).exp()
    how: dict[str, Any] = {"gamma": _with_all_axes(gamma, reward), "time_axis": _in_range(time_dim, reward)}
    rho_clip, c_clip, following = float(rho_thresh), float(c_thresh), next_state_value
    targets = vtrace(
        reward, state_value, ended, cut, ratios=ratios, next_values=following, rho_clip=rho_clip, c_clip=c_clip, **how
    ).returns
    following = xp.where(cut, following, _one_later(targets, following, time_dim))
    one_step = gae(reward, state_value, ended, xp.ones_like(cut), next_values=following, **how).advantages
    return xp.minimum(ratios, xp.asarray(rho_clip, dtype=ratios.dtype)) * one_step, targets


@anywhere("reward: T ...", gamma="~ T ...")
def reward2go(reward: Like[ArrayT], done: Flags, gamma: Coefficients, *, time_dim: int = -2) -> ArrayT:
    r"""Sum discounted rewards to the end of each trajectory; to 1e-5, because torchrl's function is a convolution.

    ::

        G_t = r_t + gamma G_{t+1}     the second term only where not done_t; nothing after the last step

    ``reward``, ``done`` and the result have the same shape.
    """
    axis = _in_range(time_dim, reward)
    return discounted_returns(reward, done, last_values=0.0, gamma=_with_all_axes(gamma, reward), time_axis=axis)


def _in_range(time_dim: int, array: Any) -> int:
    """Return the axis of time, if the array has it; without features, it does not have the default."""
    if not -array.ndim <= time_dim < array.ndim:
        raise ValueError(f"time_dim={time_dim} is out of range for reward of shape {tuple(array.shape)}")
    return time_dim


def _with_all_axes(coefficient: Any, array: Any) -> Any:
    """Return a coefficient with the axes of an array. As in torch's broadcasting, missing axes come first."""
    missing = array.ndim - getattr(coefficient, "ndim", 0)
    if missing in (0, array.ndim):  # it has all, or is one number
        return coefficient
    return coefficient.reshape((1,) * missing + tuple(coefficient.shape))


def _one_later(array: Any, last: Any, axis: int) -> Any:
    """Return ``array`` moved one step earlier, followed by the last step of ``last``."""
    rows, ends = moved(array, axis, 0), moved(last, axis, 0)
    return moved(namespace_of(array).concatenate([rows[1:], ends[-1:]]), 0, axis)


def __getattr__(name: str) -> Any:
    return made_once(globals(), name, GAE=_estimator)


def _estimator() -> type:
    torch = importlib.import_module("torch")
    LIBRARY.release()
    advantages = importlib.import_module("torchrl.objectives.value.advantages")
    theirs: Any = advantages.GAE
    ours = (generalized_advantage_estimate, vec_generalized_advantage_estimate)
    names = [LIBRARY.fitting(f"{advantages.__name__}:{each.__name__}", each).__name__ for each in ours]
    here = local()  # because the functions are replaced in a module that all threads share
    functions = {name: _or_theirs(getattr(advantages, name), here) for name in names}

    class GAE(theirs):  # type: ignore[misc]
        """torchrl's GAE with advantages and value targets from fastgae: the same bits in float32 on a CPU.

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
            with replace(advantages, **functions):
                outer, here.computes = getattr(here, "computes", False), True
                try:
                    return method(*arguments, **named)
                finally:
                    here.computes = outer

    return GAE


def _or_theirs(theirs: Callable[..., Any], here: local) -> Callable[..., Any]:
    """Return a function that calls fastgae, or ``theirs`` if gradients are needed, which fastgae does not have.

    It calls ``theirs`` for an estimator of torchrl in another thread, too.
    """
    from fastgae._interop.torch import NARROW_DTYPES, transforms

    torch = importlib.import_module("torch")

    def estimate(*arguments: Any, **named: Any) -> Any:
        tensors = [each for each in (*arguments, *named.values()) if isinstance(each, torch.Tensor)]
        # Inside of torch.func, a tensor does not say whether a derivative is taken.
        wanted = torch.is_grad_enabled() and (transforms() or any(each.requires_grad for each in tensors))
        wanted = wanted or any(torch.autograd.forward_ad.unpack_dual(each).tangent is not None for each in tensors)
        if wanted or not getattr(here, "computes", False):
            return theirs(*arguments, **named)
        gamma, lmbda, *others = arguments
        return generalized_advantage_estimate(_wide(gamma), _wide(lmbda), *others, **named)

    def _wide(coefficient: Any) -> Any:
        """Return the coefficients of a module of 16 bits as float32: they are rounded already."""
        return coefficient.float() if getattr(coefficient, "dtype", None) in NARROW_DTYPES else coefficient

    return estimate
