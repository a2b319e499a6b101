"""Good calls of every public function, made from its signature and the roles in fastgae/_call.py."""

import numpy as np

from fastgae._call import ROLES, Role

from .cases import make_case
from .functions import FUNCTIONS, allows_none, gives_two, parameters, required

# The arguments that each kind of call leaves out; a function may have fewer kinds than there are.
LEFT_OUT = {
    "final values": "next_values autoreset prev_done last_advantages",
    "next values": "last_values final_values autoreset prev_done",
    "reset rows": "final_values next_values last_advantages",
    "one sequence": "terminated truncated final_values next_values autoreset prev_done",
    "plain": "truncated final_values next_values autoreset prev_done last_advantages mask mean std",
}
# A call with truncated steps says by one of these where their next values are.
AFTER_TRUNCATED = ("final_values", "next_values", "autoreset")
SETTINGS = {"autoreset": "next_step", "n": 2}  # of the other settings, a good call has the defaults


def good_calls(size=(4, 3), dtype=np.float64):
    """Yield (function, kind of call, arguments). Each array that a function takes is in one of its calls."""
    for function in FUNCTIONS:
        seen = []
        takes = parameters(function)
        for kind, names in LEFT_OUT.items():
            left_out = names.split()
            must = {name for name in left_out if name in takes and required(takes[name])}
            if not all(allows_none(takes[name]) for name in must):
                continue
            arguments = {
                name: None if name in must else given
                for name, given in everything(function, size, dtype).items()
                if name in must or name not in left_out
            }
            unknown = "truncated" in arguments and "final_values" in takes
            if arguments.keys() in seen or (unknown and not arguments.keys() & {*AFTER_TRUNCATED}):
                continue
            seen.append(arguments.keys())
            yield function, kind, arguments


def everything(function, size, dtype):
    """Return every argument of a function, but no coefficients, constants and settings that have a default."""
    takes = parameters(function)
    is_flat = any(ROLES[name] in (Role.BOUNDARIES, Role.PARENTS) for name in takes)
    (steps, envs), case = size, make_case(size, dtype, bootstrap="final_dense")
    per_step = {
        Role.STEPS: case.rewards,
        Role.STEP_FLAGS: np.arange(steps * envs).reshape(size) % 4 != 1,
        Role.FACTORS: np.full(size, 0.5, dtype),
        Role.LABELS: np.arange(steps * envs).reshape(size),
    }
    by_name = {"values": case.values, "terminated": case.terminated, "truncated": case.truncated}
    by_name["groups"] = per_step[Role.LABELS] % 3
    per_env = {
        Role.ENVS: case.last_values,
        Role.ENV_FLAGS: np.arange(envs) % 2 == 1,
        Role.MOMENTS: np.abs(case.last_values),
    }
    parents = np.array([-1, 0, 0, *range(1, steps - 2)])  # two branches: as many leaves as there are sequences
    if "parents" in takes:
        by_name["terminated"] = np.zeros(size, bool)
    others = {
        Role.BOUNDARIES: np.array([0, steps // 2, steps]),
        Role.PARENTS: parents[:steps],
        Role.WEIGHTS: np.arange(1.0, steps + 1) if is_flat else case.values,
        Role.COEFFICIENT: 0.5,
        Role.CONSTANT: 1.0,
    }

    def good(name):
        role = ROLES[name]
        if role in per_env:
            return per_env[role][:2] if is_flat else per_env[role]
        if role in per_step:
            matrix = by_name.get(name, per_step[role])
            return (matrix[:, 0] if is_flat else matrix).copy()
        return SETTINGS[name] if role is Role.SETTING else others[role]

    may_be_left_out = (Role.COEFFICIENT, Role.CONSTANT, Role.SETTING)
    given = {
        name: good(name)
        for name, parameter in takes.items()
        if required(parameter) or name in SETTINGS or ROLES[name] not in may_be_left_out
    }
    if "out" in takes:
        out = np.full(next(iter(given.values())).shape, 7, dtype)
        given["out"] = (out, out.copy()) if gives_two(function) else out
    return given
