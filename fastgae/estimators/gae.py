"""Generalized Advantage Estimation."""

from __future__ import annotations

from enum import Enum
from typing import Never, Unpack

from fastgae._call import GAEResult
from fastgae._declared import estimator
from fastgae._run import run
from fastgae._typing import ArrayLike, ArrayT, Autoreset, BackendName, Misnamed, Normalize, Numbers, Output


@estimator()
def gae(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    terminated: ArrayLike | None,
    truncated: ArrayLike | None = None,
    *unnamed: Never,
    last_values: ArrayLike | None = None,
    next_values: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    autoreset: Autoreset | Enum | None = None,
    last_advantages: ArrayLike | None = None,
    prev_done: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 0.99,
    gae_lambda: float | ArrayLike = 0.95,
    returns_lambda: float | ArrayLike | None = None,
    normalize: Normalize | None = None,
    tail_normalized: bool = False,
    carry_over: bool = False,
    time_axis: int = 0,
    out: Output[ArrayT] | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> GAEResult[ArrayT]:
    r"""Compute advantages and value targets of a rollout by Generalized Advantage Estimation.

    ::

        delta_t = (r_t + gamma V'_t) - V_t       the bootstrap gamma V'_t only where not terminated_t
        A_t     = delta_t + gamma lambda A_{t+1} the second term only where not (terminated_t or truncated_t)
        R_t     = A_t + V_t                      A_T = 0

    Every operation is rounded on its own, in this order, in the working dtype. The product gamma lambda is computed in
    float64 and rounded once. Terms that a flag leaves out are never read, so a NaN there is harmless. The result has
    the same bits on every backend, CPU target, thread count and memory layout.

    Pass NumPy arrays, torch tensors on the CPU or a GPU, or JAX arrays on the CPU, also inside torch.compile, jax.jit
    and jax.vmap. Results come back as arrays of the library of ``rewards``; ``stop_gradients`` says whether they have
    gradients (docs/tensors.md).

    Parameters
    ----------
    rewards : array of shape (T, N), (T,), or any rank with time along ``time_axis``
        Reward of each step. float32 stays float32 and float64 stays float64; a mix with the other arrays promotes as
        NumPy does; integers become float64. float16 and bfloat16 count as float32.
    values : array like ``rewards``, or one longer along time
        V(s_t). The extra row is V of the state after the last step.
    terminated : array like ``rewards``, or None; bool, or numbers that are 0 or 1
        The step ended the episode for good: the flag of step t as ``env.step`` returns it with the reward of step t.
        None: no step ends an episode, so each env is one sequence, such as the tokens of an answer. Then pass
        ``last_values``, the values after the sequences: 0 where a sequence ended for good.
        If agents or value heads share flags, axes after time and envs may be missing, and axes other than time may have
        length 1: with rewards of shape (T, N, A), flags may have the shape (T, N) or (T, N, 1). The same holds for
        ``truncated`` and ``mask``.
    truncated : array like ``rewards``, optional; bool, or numbers that are 0 or 1
        The step ended the episode by a limit: its next state still has a value. Needs ``final_values``,
        ``next_values`` or ``autoreset="next_step"``. ``terminated`` wins where both are set.
    last_values : array of ``rewards``' shape without time or with one step, (N,) or (1, N); or one number for all envs
        V of the state after the last step; with ``mask``, after the last step that exists. Pass exactly one of
        ``last_values``, ``next_values`` and a longer ``values``.
    next_values : array like ``rewards``
        V(s_{t+1}) of every step, from the observation before any reset.
    final_values : array, optional
        V(final observation) of the truncated steps: 1-D with one entry per True of ``truncated``, in C order of the
        array as given, and one for each agent or head if they share a flag; or like ``rewards``, read only where
        ``truncated``.
    autoreset : "next_step", "same_step", "disabled", or a member of Gymnasium's AutoresetMode, optional
        How the environments start a new episode. With "next_step" the row after a done is a reset row and not a real
        step: A = 0 and R = V there, and at a truncated step ``values[t + 1]`` is V of the final observation. The other
        modes change nothing: with them, ``truncated`` needs ``final_values`` or ``next_values``.
    last_advantages : array like ``last_values``, or one number for all envs, optional
        A of the step after the last one, for a rollout computed in pieces from its end. It has an effect only where the
        last step does not end an episode. None: 0.
    prev_done : array like ``last_values``, optional; bool, or numbers that are 0 or 1
        With ``autoreset="next_step"``: the step before row 0 ended an episode, so row 0 is a reset row.
    mask : array like ``rewards``, optional; bool, or numbers that are 0 or 1
        False: the step does not exist. The recursion skips it, as if it had been cut out of all arrays: the step before
        it takes V' and A from the next step that exists. A = 0 and R = V there.
    gamma, gae_lambda : float in [0, 1], or arrays of them
        Discount per step, and the decay of the trace. An array has all axes of ``rewards``, each of full length or of
        length 1: (1, N) is one number per env, (T, 1) one per step, (1, 1, A) one per agent or head, and with
        ``time_axis=1``, (B, 1) is one per sequence of a batch.
    returns_lambda : like ``gae_lambda``, optional
        Another lambda for ``returns``, computed in the same pass. None: the same as ``gae_lambda``.
    normalize : either "global" or "per_env", optional
        Shift and scale the advantages to mean 0 and standard deviation 1, over all steps that exist, or over the steps
        of each env: ``(A - mean) / (std + 1e-8)`` with the population's std, in float64. Returns come from the
        advantages before the normalisation.
    tail_normalized : bool
        The finite-horizon form: ``A_t`` is the average of the k-step advantages that the rollout has, with weights
        that add up to 1 also near its end: ``A = G / D`` with ``D_t = 1 + lambda D_{t+1}`` and
        ``G_t = D_t delta_t + gamma lambda G_{t+1}``, the second terms only where the episode goes on.
    carry_over : bool
        The results of steps outside of ``mask``. False: A = 0 and R = V. True: A of the next step that exists, or
        ``last_advantages`` after the last one, and R = A + V, as in verl (docs/tokens.md).
    time_axis : int
        The index of the time axis of ``rewards``.
    out : (advantages, returns), optional
        Arrays of ``rewards``' shape and the working dtype to fill. Either may be None, and is then not computed. They
        may overlap an input but not each other, and no two elements of one array may share memory.
    stop_gradients : bool
        True: results have no gradients, so a loss treats them as constants. False, for torch tensors and JAX arrays:
        gradients flow to all arguments that hold numbers, ``gamma`` and ``gae_lambda`` among them, and not through
        terms that a flag leaves out. NumPy arrays have no gradients, so there it changes nothing.
    num_threads : int, optional
        At most this many threads; None: ``FASTGAE_NUM_THREADS``, ``OMP_NUM_THREADS``, or the CPUs this process may use.
    backend : str, optional
        "cpp", "numba", "numpy", or a CPU target such as "cpp:avx2"; None: ``FASTGAE_BACKEND``, ``FASTGAE_CPU``, or
        the best available. Tensors on a GPU go to "triton" (docs/gpu.md).

    Returns
    -------
    GAEResult
        ``(advantages, returns)``, arrays of ``rewards``' shape and memory order in the working dtype, in the units of
        the rewards.

    Raises
    ------
    ValueError
        An argument has a wrong shape or value, or the bootstrap is missing, doubled or undefined.
    TypeError
        An argument has a type that cannot be used: a masked array, tensors on two devices, complex numbers, a 16-bit
        ``gamma``, or an ``out`` of another dtype.
    BackendUnavailableError
        The chosen backend cannot run here.

    Notes
    -----
    Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation", 2016 (equation 16),
    with the termination and truncation of Pardo et al., "Time Limits in Reinforcement Learning", 2018.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards = np.ones((3, 2), np.float32)
    >>> values = np.zeros((4, 2), np.float32)
    >>> terminated = np.array([[0, 0], [0, 1], [0, 0]], bool)
    >>> fastgae.gae(rewards, values, terminated, gamma=0.5, gae_lambda=1.0).returns
    array([[1.75, 1.5 ],
           [1.5 , 1.  ],
           [1.  , 1.  ]], dtype=float32)
    """
    call = (
        rewards, values, terminated, truncated, last_values, next_values, final_values, autoreset, prev_done, mask,
        gamma, gae_lambda, time_axis, out, normalize, last_advantages, returns_lambda, tail_normalized, carry_over,
    )  # fmt: skip
    return run(gae, call, backend, num_threads, stop_gradients, unnamed, misnamed)
