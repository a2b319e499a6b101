"""Calls of the functions of fastgae.compat that take arrays, made from what these functions declare of their arguments.

Each is (function, arguments, the names of its numbers, which may be integers).
"""

import inspect
from typing import get_args

import numpy as np

from fastgae import compat
from fastgae.compat._anywhere import Body, Coefficient, Coefficients, Discounts, Integers, Like, Numbers

from .cases import assert_same_bits
from .functions import arrays_of

SIZE = STEPS, ENVS = 7, 4
ACTIONS = 3
BATCH = ENVS, STEPS  # time along the last axis
AXES = dict.fromkeys("TLH", STEPS) | dict.fromkeys("NBES", ENVS) | {"V": 2, "A": ACTIONS, "...": ENVS}
ONE_ENV = {"...": ()}
LAST_BUT_ONE = {"T": ENVS, "...": (STEPS, 1)}  # time is the last axis but one
RNG = np.random.default_rng(0)
FRACTIONS = ("pi_t", "mu_t", "c_t", "log_pi", "log_mu")  # numbers that are no integers


def whole(*shape):
    return RNG.integers(-3, 4, shape)


def flags(*shape):
    return RNG.random(shape) < 0.2


def positive(*shape):
    return RNG.integers(1, 3, shape)


def kind_of(parameter):
    """Return what a parameter takes, without the None that it may also take."""
    kinds = get_args(parameter.annotation)
    return kinds[0] if type(None) in kinds else parameter.annotation


def made(parameter, shape):
    """Return an argument for a parameter."""
    name, kind = parameter.name, kind_of(parameter)
    if name in FRACTIONS:
        ends = (0.6, 0.1) if name == "log_mu" else (0.1, 0.6)  # of ratios above and below 1
        return np.linspace(*ends, int(np.prod(shape))).reshape(shape)
    if kind in (Like, Numbers):
        return positive(*shape) if name in ("ratio", "rho_tm1") else whole(*shape)
    if kind is Discounts:
        return np.linspace(0.9, 0.5, *shape)
    if kind in (Coefficient, Coefficients):
        return 0.98 if name in ("gamma", "γ") else 0.6  # in float32, it matters which of them is rounded, and when
    if kind is Integers:
        return RNG.integers(0, ACTIONS, shape)
    if shape:
        return ~flags(*shape) if "mask" in name or name == "valids" else flags(*shape)
    return 3


def call(function, also="", declared=None, axes=(), **settings):
    """Return a call with the required arguments, those named in ``also``, and settings.

    ``declared`` is the function that declares the arguments, if it is another one.
    """
    body: Body = inspect.getclosurevars(declared or function).nonlocals["body"]
    sizes, parameters = {**AXES, **dict(axes)}, inspect.signature(function).parameters

    def size(axis):
        found = sizes[axis] if axis in sizes else sizes[axis[0]] + int(axis[1:]) if axis != "1" else 1
        return found if isinstance(found, tuple) else (found,)

    def shape(name):
        axes = body.shapes.get(name, "").split("|")[-1].replace("~", "").split()
        return sum(map(size, axes), ())

    required = [name for name, each in parameters.items() if each.default is each.empty]
    names = [name for name in parameters if name in (*required, *also.split()) and name not in settings]
    given = {name: made(body.signature.parameters[name], shape(name)) for name in names}
    numbers = [name for name in names if kind_of(body.signature.parameters[name]) in (Like, Numbers)]
    return function, given | settings, [name for name in numbers if name not in FRACTIONS]


OFF_POLICY, LEAKY = compat.rlax.general_off_policy_returns_from_q_and_v, compat.rlax.leaky_vtrace
LEAKY_ADVANTAGE = compat.rlax.leaky_vtrace_td_error_and_advantage
ONES = np.ones(BATCH, int)
MASK = (RNG.random(BATCH) < 0.8).astype(int)
CALLS = {
    "brax": call(compat.brax.compute_gae, "lambda_"),
    "cleanrl": call(compat.cleanrl.compute_gae),
    "paper2code": call(compat.paper2code.compute_gae),
    "paper2code per env": call(compat.paper2code.compute_gae, "truncateds", advantage_norm="per_env"),
    "paper2code one env": call(compat.paper2code.compute_gae, axes=ONE_ENV),
    "rl_games": call(compat.rl_games.discount_values),
    "rl_games masks": call(compat.rl_games.discount_values_masks),
    "rlax gae": call(compat.rlax.truncated_generalized_advantage_estimation),
    "rlax lambda_returns": call(compat.rlax.lambda_returns, "lambda_"),
    "rlax discounted_returns to a number": call(compat.rlax.discounted_returns, v_t=2.0),
    "rlax discounted_returns": call(compat.rlax.discounted_returns),
    "rlax n_step_bootstrapped_returns": call(compat.rlax.n_step_bootstrapped_returns, "lambda_t"),
    "rlax vtrace": call(compat.rlax.vtrace, "lambda_", LEAKY),
    "rlax vtrace advantage": call(
        compat.rlax.vtrace_td_error_and_advantage, "lambda_", LEAKY_ADVANTAGE, clip_pg_rho_threshold=1.5
    ),
    "rlax vtrace masked": call(compat.rlax.vtrace, "lambda_ sample_mask", LEAKY),
    "rlax leaky_vtrace": call(LEAKY, "lambda_", alpha_=0.6),
    "rlax leaky_vtrace advantage": call(LEAKY_ADVANTAGE, "lambda_", alpha=0.6, clip_pg_rho_threshold=1.5),
    "rlax off-policy returns": call(OFF_POLICY),
    "rlax off-policy returns of action values": call(compat.rlax.general_off_policy_returns_from_action_values),
    "rlax retrace": call(compat.rlax.retrace),
    "rlax retrace_continuous": call(compat.rlax.retrace_continuous),
    "rsl_rl": call(compat.rsl_rl.compute_returns),
    "sample_factory": call(compat.sample_factory.gae_advantages),
    "skrl": call(compat.skrl.compute_gae),
    "torchrl gae": call(compat.torchrl.generalized_advantage_estimate, axes=LAST_BUT_ONE),
    "torchrl td_lambda": call(compat.torchrl.td_lambda_return_estimate, axes=LAST_BUT_ONE),
    "torchrl td_lambda advantage": call(compat.torchrl.td_lambda_advantage_estimate, axes=LAST_BUT_ONE),
    "torchrl reward2go": call(compat.torchrl.reward2go, axes=LAST_BUT_ONE),
    "trl": call(compat.trl.compute_advantages, mask=ONES, gamma=0.9),
    "trl whitened": call(compat.trl.compute_advantages, mask=MASK, whiten_rewards=True),
    "openrlhf": call(compat.openrlhf.get_advantages_and_returns, action_mask=MASK),
    "verl": call(compat.verl.compute_gae_advantage_return, response_mask=MASK),
}
TORCHRL = CALLS["torchrl gae"][1]
FILLED = np.zeros(BATCH, np.float32)
_, PUFFERLIB, RATIOS = call(
    compat.pufferlib.compute_puff_advantage, "", compat.pufferlib._advantages, advantages=FILLED, vtrace_rho_clip=1.5,
    vtrace_c_clip=1.0,
)  # fmt: skip


def puff_elsewhere(advantages, **given):
    return compat.pufferlib.compute_puff_advantage(advantages=advantages.clone(), **given)


ONE_OF_CLEANRL = call(compat.cleanrl.compute_gae, axes=ONE_ENV, next_value=0.1, next_done=True)
# These take tensors alone, or fill one, or have numbers beside them.
VTRACE = {"torchrl vtrace": call(compat.torchrl.vtrace_advantage_estimate, axes=LAST_BUT_ONE, rho_thresh=0.7)}
TORCH_CALLS = {**VTRACE, "pufferlib": (puff_elsewhere, PUFFERLIB, RATIOS), "cleanrl one env": ONE_OF_CLEANRL}
# These take NumPy's arrays alone, or fill one.
OF_ENVPOOL = {"env_id": np.tile(np.arange(ENVS), (STEPS, 1)), "numenv": ENVS}
OF_LABML = {"done": flags(*BATCH), "rewards": whole(*BATCH), "values": whole(ENVS, STEPS + 1)}
NUMPY_CALLS = {
    "envpool": call(compat.envpool.compute_gae, **OF_ENVPOOL),
    "labml": (compat.labml.GAE(ENVS, STEPS, 0.9, 0.8), OF_LABML, ["rewards", "values"]),
    "pufferlib": (compat.pufferlib.compute_puff_advantage, PUFFERLIB, RATIOS),
    "rllib": call(compat.rllib.compute_value_targets),
    "tianshou": call(compat.tianshou._gae, axes=ONE_ENV),
}
IN_TORCH, IN_NUMPY = {**CALLS, **TORCH_CALLS}, {**CALLS, **NUMPY_CALLS}


def of_numpy(given, dtype):
    return given.astype(dtype)


def prepared(called, dtypes=("float32",), convert=of_numpy):
    """Return the function of a call and its arguments: numbers in these dtypes by turns, and discounts in float32."""
    function, arguments, numbers = called
    place = {name: number for number, name in enumerate(numbers)}

    def array(name, given):
        if name in place:
            return convert(given, dtypes[place[name] % len(dtypes)])
        return convert(given, "bool" if given.dtype == bool else "float32" if given.dtype.kind == "f" else "int64")

    arrays = {name: array(name, given) for name, given in arguments.items() if isinstance(given, np.ndarray)}
    return function, arguments | arrays


def tensor_of(given, dtype):
    import torch  # here, because it is not installed everywhere

    return torch.from_numpy(np.array(given)).to(getattr(torch, dtype))


def assert_same_tensors(name, results, expected, close=("rlax retrace_continuous",)):
    """Assert the dtype and the bits of the results of a call. Close ones have an exponential, torch's own."""
    import torch

    for got, right in zip(arrays_of(results), arrays_of(expected), strict=True):
        assert got.dtype == right.dtype, name
        if name in close:
            torch.testing.assert_close(got.cpu(), right)
        else:
            assert_same_bits(got.cpu().double().numpy(), right.double().numpy(), name)
