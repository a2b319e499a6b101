"""Every public function with every kind of argument, in NumPy's arrays: what tensors must give the bits of."""

import numpy as np

import fastgae

from .cases import BOOTSTRAPS, make_case
from .options import OPTIONS, pick

SIZE = (17, 6)


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
    yield (
        "discounted_returns",
        fastgae.discounted_returns,
        {**bootstrap, **{name: rollout[name] for name in ("rewards", "terminated", "truncated")}, "mask": mask},
    )
    yield "reverse_scan", fastgae.reverse_scan, {"x": case.rewards, "decay": 0.5, "initial": case.last_values}
    yield "reverse_scan-array", fastgae.reverse_scan, {"x": case.rewards.T, "decay": case.values.T, "time_axis": 1}
    yield "normalize", fastgae.normalize, {"advantages": case.rewards, "mask": mask, "by": "per_env"}
    yield "valid_steps", fastgae.valid_steps, {"terminated": case.terminated, "truncated": case.truncated}
    sequences = {**env, "cu_seqlens": np.array([0, 5, 5, 17]), "gae_lambda": np.array([0.9, 0.5, 0.7], dtype)}
    yield "gae_packed", fastgae.gae_packed, {**sequences, "last_values": case.last_values[:3]}
    yield "gae-number", fastgae.gae, {**env, "last_values": 0.25, "autoreset": "next_step", "prev_done": True}
    yield "gae-env_major", fastgae.gae, {**{name: given.T for name, given in three(case).items()}, "time_axis": -1}
    yield "gae-int", fastgae.gae, {**three(case), "rewards": case.rewards.astype(np.int64)}
    yield "gae-flags", fastgae.gae, {**three(case), "terminated": case.terminated.astype(dtype)}


def three(case):
    return {
        "rewards": case.rewards,
        "values": np.vstack([case.values, case.last_values]),
        "terminated": case.terminated,
    }


def calls(dtype=np.float32):
    """(name, function, arguments)"""
    yield from bootstraps(dtype)
    yield from options(dtype)
    yield from siblings(dtype)


CALLS = {name: (function, arguments) for name, function, arguments in calls()}
FEW = [
    "gae-longer_values",
    "gae-final_sparse",
    "gae-normalize_global",
    "gae-all",
    *[name for name, *_ in siblings(np.float32)],
]


def converted(arguments, convert):
    """With convert(array) in place of every array."""
    return {name: convert(given) if isinstance(given, np.ndarray) else given for name, given in arguments.items()}


def arrays_of(result):
    return tuple(result) if isinstance(result, tuple | list) else (result,)
