"""GAE-Paper2Code: ``compute_gae`` of its notes."""

from typing import Any, Literal

from fastgae._canonical.arguments import shown
from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Like, Numbers, anywhere
from fastgae.estimators.gae import gae
from fastgae.estimators.normalize import normalize


@anywhere("rewards: T ...", values="T+1 ...", terminateds="T ...", truncateds="T ...")
def compute_gae(
    rewards: Like[ArrayT],
    values: Numbers,
    terminateds: Any,
    truncateds: Any | None = None,
    gamma: Coefficient = 0.99,
    lam: Coefficient = 0.95,
    advantage_norm: Literal["none", "global", "per_env"] = "global",
    eps: float = 1e-8,
) -> tuple[ArrayT, ArrayT]:
    r"""Compute advantages, normalised unless ``advantage_norm`` is "none", and the returns before normalisation.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t      the bootstrap only where truncateds_t or not terminateds_t
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where truncateds_t or not terminateds_t
        R_t     = A_t + V_t
        x_t     = (A_t - mean) / (std + eps)       the population's std, over all steps or over each env

    Row t of the flags belongs to step t. A truncated step is not a boundary, even if it is terminated too: it uses V
    and A of the next row, which belong to the next episode. ``fastgae.gae(..., truncated=, final_values=)`` does not do
    that.

    Parameters
    ----------
    rewards : tensor of shape (T, B) or (T,)
    values : tensor of shape (T + 1, B) or (T + 1,)
    terminateds, truncateds : tensor like ``rewards``; every number but 0 is True
    advantage_norm : one of "none", "global", "per_env"

    Returns
    -------
    (advantages, returns)
        Tensors without gradients, of shape (T, B), or (T, 1) if ``rewards`` has shape (T,), as in the original. In
        float32, returns and advantages without normalisation are the same bits. Normalised advantages agree up to the
        rounding of mean and std, which the original adds up in float32 and fastgae in float64. float64 stays float64,
        while the original rounds advantages to float32.

    Raises
    ------
    ValueError
        ``advantage_norm`` has another value.
    ValueError, TypeError
        As in ``fastgae.gae``.
    """
    if not isinstance(advantage_norm, str) or advantage_norm not in ("none", "global", "per_env"):
        raise ValueError(f'advantage_norm must be "none", "global" or "per_env", got {shown(advantage_norm)}')
    ended = terminateds != 0
    if truncateds is not None:
        ended = ended & (truncateds == 0)
    advantages, returns = gae(rewards, values, ended, gamma=gamma, gae_lambda=lam)
    if advantage_norm != "none":
        advantages = normalize(advantages, by=advantage_norm, eps=eps)
    return (advantages[:, None], returns[:, None]) if rewards.ndim == 1 else (advantages, returns)
