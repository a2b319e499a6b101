"""Calls of every public function with every array argument, in NumPy's arrays: tensors must give the same bits."""

import inspect

import numpy as np

import fastgae
from fastgae._call import ROLES, Role
from fastgae._interop import FUNCTIONS

from .cases import BOOTSTRAPS, make_case
from .functions import parameters as parameters_of
from .options import OPTIONS, pick

SIZE = (17, 6)
BOUNDARIES = np.array([0, 5, 5, 17])
# Some arguments exclude others. A call that passes one of these leaves others out, and needs a setting.
WAYS = {
    "last_values": ({"next_values", "prev_done", "last_advantages"}, {}),
    "next_values": ({"last_values", "final_values", "prev_done", "returns_lambda"}, {}),
    "prev_done": ({"next_values", "final_values", "returns_lambda"}, {"autoreset": "next_step"}),
}


def bootstraps(dtype):
    for bootstrap in BOOTSTRAPS:
        case = make_case(SIZE, dtype, bootstrap=bootstrap)
        arguments = case.arguments()
        if case.sparse:
            arguments["final_values"] = arguments["final_values"][arguments["truncated"]]
        yield f"gae-{bootstrap}", fastgae.gae, arguments


def options(dtype):
    case = make_case(SIZE, dtype)
    for name, option in OPTIONS.items():
        yield f"gae-{name}", fastgae.gae, {**case.arguments(), **option(case)}


def siblings(dtype):
    case = make_case(SIZE, dtype)
    rollout, mask = case.arguments(), pick(case, "mask").random(SIZE) < 0.7
    one_lambda = {name: given for name, given in rollout.items() if name != "gae_lambda"}
    bootstrap = {name: rollout[name] for name in ("last_values", "final_values", "gamma")}
    env = {name: rollout[name][:, 0] for name in ("rewards", "values", "terminated")}
    yield "vtrace", fastgae.vtrace, {**one_lambda, "ratios": np.exp(case.values), "rho_clip": 2.0, "c_clip": None}
    yield "td_lambda", fastgae.td_lambda, {**one_lambda, "lambda_": 0.9, "mask": mask}
    yield "n_step_returns", fastgae.n_step_returns, {**one_lambda, "n": 3}
    yield "n_step_returns-mask", fastgae.n_step_returns, {**one_lambda, "n": 3, "mask": mask}
    yield (
        "discounted_returns",
        fastgae.discounted_returns,
        {**bootstrap, **{name: rollout[name] for name in ("rewards", "terminated", "truncated")}, "mask": mask},
    )
    yield "reverse_scan", fastgae.reverse_scan, {"x": case.rewards, "decay": 0.5, "initial": case.last_values}
    yield "reverse_scan-array", fastgae.reverse_scan, {"x": case.rewards.T, "decay": case.values.T, "time_axis": 1}
    yield "normalize", fastgae.normalize, {"advantages": case.rewards, "mask": mask, "by": "per_env"}
    by_env = {"mean": case.last_values, "std": np.abs(case.last_values[np.newaxis])}
    yield "normalize-given", fastgae.normalize, {"advantages": case.rewards, "mask": mask, **by_env}
    yield "normalize-sample", fastgae.normalize, {"advantages": case.rewards, "by": "per_env", "ddof": 1}
    yield "valid_steps", fastgae.valid_steps, {"terminated": case.terminated, "truncated": case.truncated}
    sequences = {**env, "cu_seqlens": BOUNDARIES, "gamma": 1.0, "gae_lambda": np.array([[0.9], [0.5], [0.7]], dtype)}
    yield "gae_packed", fastgae.gae_packed, {**sequences, "last_values": case.last_values[:3]}
    tokens = {name: rollout[name].T for name in ("rewards", "values")}
    no_ends = {"terminated": None, "last_values": 0.25}
    yield "gae-tokens", fastgae.gae, {**tokens, **no_ends, "mask": mask.T, "time_axis": 1}
    yield "discounted_returns-tokens", fastgae.discounted_returns, {"rewards": case.rewards, **no_ends}
    following = {name: rollout[name] for name in ("rewards", "terminated", "truncated")} | {"next_values": case.values}
    yield "discounted_returns-next_values", fastgae.discounted_returns, {**following, "mask": mask}
    yield "gae_packed-number", fastgae.gae_packed, {**sequences, "last_values": 0.25}
    yield "gae-number", fastgae.gae, {**env, "last_values": 0.25, "autoreset": "next_step", "prev_done": True}
    yield "gae-env_major", fastgae.gae, {**{name: given.T for name, given in three(case).items()}, "time_axis": -1}
    yield "gae-agents", fastgae.gae, agents(case)
    yield "gae-int", fastgae.gae, {**three(case), "rewards": case.rewards.astype(np.int64)}
    yield "gae-flags", fastgae.gae, {**three(case), "terminated": case.terminated.astype(dtype)}


def agents(case):
    """Return a call of two agents that share flags, and whose last values have one step."""
    both = {name: np.stack([a, -a], -1) for name, a in (("rewards", case.rewards), ("values", case.values))}
    flags = {"terminated": case.terminated, "mask": ~case.truncated[:, :, np.newaxis]}
    per_agent = {"gamma": np.array([[[0.9, 0.5]]], case.rewards.dtype)}
    return {**both, **flags, **per_agent, "last_values": both["values"][:1]}


def three(case):
    return {
        "rewards": case.rewards,
        "values": np.vstack([case.values, case.last_values]),
        "terminated": case.terminated,
    }


def derived(dtype):
    """Call each registered function with arrays that are made from the roles of its arguments."""
    for function in FUNCTIONS.values():
        parameters = parameters_of(function.__name__)
        required = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
        ways = {way: WAYS[way] for way in WAYS if way in parameters} or {"everything": (set(), {})}
        for way, (left_out, settings) in ways.items():
            given = {
                name: settings[name] if name in settings else made(parameter, "cu_seqlens" in parameters, dtype)
                for name, parameter in parameters.items()
                if name in (array_arguments(function) | required) - left_out or name in settings
            }
            yield f"{function.__name__}-every-{way}", function, given


def array_arguments(function):
    """Return the names of a function's arguments that may be arrays."""
    return {name for name in inspect.signature(function).parameters if ROLES[name] not in (Role.SETTING, Role.CONSTANT)}


def made(parameter, packed, dtype):
    """Return an argument made from its role. A packed call has sequences in place of envs."""
    steps, envs = (SIZE[:1], len(BOUNDARIES) - 1) if packed else (SIZE, SIZE[1])
    rng = np.random.default_rng(list(parameter.name.encode()))
    match ROLES[parameter.name]:
        case Role.STEPS:
            return rng.normal(size=steps).astype(dtype)
        case Role.STEP_FLAGS:
            return rng.random(steps) < 0.3
        case Role.ENVS:
            return rng.normal(size=envs).astype(dtype)
        case Role.MOMENTS:
            return rng.random(envs).astype(dtype)
        case Role.ENV_FLAGS:
            return rng.random(envs) < 0.3
        case Role.COEFFICIENT | Role.FACTORS:
            return rng.random((envs, 1) if packed else (1, envs)).astype(dtype)
        case Role.BOUNDARIES:
            return BOUNDARIES
        case Role.SETTING | Role.CONSTANT:
            return parameter.annotation(3)


def calls(dtype=np.float32):
    """(name, function, arguments)"""
    yield from derived(dtype)
    yield from bootstraps(dtype)
    yield from options(dtype)
    yield from siblings(dtype)


CALLS = {name: (function, arguments) for name, function, arguments in calls()}
FEW = [
    "gae-longer_values",
    "gae-final_sparse",
    "gae-normalize_global",
    "gae-all",
    *[name for name, *_ in (*siblings(np.float32), *derived(np.float32))],
]


def converted(arguments, convert):
    """With convert(array) in place of every array."""
    return {name: convert(given) if isinstance(given, np.ndarray) else given for name, given in arguments.items()}


def arrays_of(result):
    return tuple(result) if isinstance(result, tuple | list) else (result,)
