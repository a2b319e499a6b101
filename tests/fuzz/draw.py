"""Random calls: every parameter in the signature of a public function, drawn by its role in fastgae/_call.py."""

from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter
from typing import Any

import numpy as np

from fastgae._call import ROLES, Role
from support.functions import FUNCTIONS, required

from . import contents
from .calls import Call, Given, everywhere
from .choices import Choices
from .finish import finish
from .roles import (
    Frame,
    boundaries,
    coefficient,
    constant,
    factors,
    flag_array,
    frame_of,
    handed_over,
    number_array,
    perhaps_bfloat16,
)

# How often a function comes, where that is not 8.
WEIGHTS = {"gae": 50, "gae_packed": 12, "vtrace": 10, "n_step_returns": 4, "valid_steps": 3, "diagnose": 2}

# Optional arguments that are given in 20 percent of the calls. Any other one is given in 70 percent.
RARE = (
    *("autoreset", "mask", "last_advantages", "returns_lambda", "tail_normalized", "carry_over"),
    *("normalize", "time_axis", "std"),
)

# A call may have only one of each of these.
EXCLUSIVE = (
    ("returns_lambda", "tail_normalized", "last_advantages"),
    ("carry_over", "tail_normalized", "normalize"),
)

# A setting is text or a number of its own kind. finish.py adds ``out`` and ``num_threads``, and check.py ``backend``.
SETTINGS: dict[str, Callable[[Choices, Frame], Any]] = {
    "autoreset": lambda choose, frame: choose.pick(("next_step", "NEXT_STEP", "next_step", "same_step", "disabled")),
    "normalize": lambda choose, frame: choose.pick(("global", "per_env") if frame.lengths is None else ("global",)),
    "tail_normalized": lambda choose, frame: True,
    "carry_over": lambda choose, frame: True,
    "time_axis": lambda choose, frame: frame.axis - len(frame.shape) if choose.chance(30) else frame.axis,
    "n": lambda choose, frame: 1 + choose.below(9),
    "ddof": lambda choose, frame: choose.below(3),
    "by": lambda choose, frame: choose.pick(("global", "per_env")),
    "eps": lambda choose, frame: choose.pick((1e-8, 0.0, 1, 1e-3)),
}

NUMBERS = (Role.STEPS, Role.ENVS, Role.MOMENTS)
FLAGS = (Role.STEP_FLAGS, Role.ENV_FLAGS)
# How to draw an argument that depends on no other argument.
ALONE = {
    Role.COEFFICIENT: coefficient,
    Role.FACTORS: factors,
    Role.CONSTANT: constant,
    Role.BOUNDARIES: boundaries,
}


def random_call(choose: Choices, functions: Sequence[str] = FUNCTIONS) -> Call:
    """Return a call of one of these functions."""
    choose.order = choose.pick(("C", None, None, None, "C", "F"))
    call = Call(choose.pick([name for name in functions for _ in range(WEIGHTS.get(name, 8))]), {})
    takes = call.parameters()
    frame = frame_of(choose, takes)
    call.time_axis = frame.axis
    wanted = [
        name
        for name, parameter in takes.items()
        if required(parameter) or (name == "time_axis" and frame.axis) or choose.chance(20 if name in RARE else 70)
    ]
    settings = {name: SETTINGS[name](choose, frame) for name in wanted if name in SETTINGS}
    next_step = str(settings.get("autoreset")).lower() == "next_step"
    names = consistent(choose, takes, wanted, next_step)
    alone = {name: ALONE[ROLES[name]](choose, frame, takes[name]) for name in names if ROLES[name] in ALONE}
    given = {**settings, **alone, **arrays(choose, takes, names, frame)}
    call.arguments = {name: given[name] for name in names if name in given}
    if frame.lengths is None and "next_values" not in takes and "last_values" in {*takes} - {*names}:
        call.broken = "last_values may be missing"
    finish(choose, call)
    return call


def consistent(choose: Choices, takes: Mapping[str, Parameter], names: Collection[str], next_step: bool) -> list[str]:
    """Return the names without those that exclude each other, and with those that others need."""
    kept = {*names}
    for group in EXCLUSIVE:
        kept -= {*[name for name in group if name in kept][1:]}
    if "std" in takes:  # in place of those that by and ddof say how to compute
        kept = kept - {"by", "ddof"} | {"mean", "std"} if "std" in kept else kept - {"mean"}
    if "truncated" in takes and "last_values" in takes and "terminated" not in kept and choose.chance(50):
        kept = {*kept, "last_values"} - {"truncated", "final_values", "next_values", "autoreset", "prev_done"}
        return [name for name in takes if name in kept]  # each env is one sequence
    if "truncated" in takes:
        kept.add("terminated")
    if "next_values" in takes:  # V after the last step comes from exactly one place
        sources = [name for name in ("last_values", "next_values") if name in takes]
        kept -= {*sources}
        kept |= {choose.pick([name for name in sources if required(takes[name])] or ["longer values", *sources])}
    if "autoreset" in takes and not next_step:
        kept.discard("prev_done")
    if "final_values" in takes:
        kept.discard("final_values")
        if "truncated" in kept and "next_values" not in kept and not next_step:
            kept.add("final_values")
    return [name for name in takes if name in kept]


def arrays(choose: Choices, takes: Collection[str], names: Collection[str], frame: Frame) -> dict[str, Any]:
    """Return the arguments per step and per env."""
    first = next(iter(names))
    shapes = {
        name: frame.shape_of(name) if name == first else frame.shorter(choose, name)
        for name in names
        if ROLES[name] in (*NUMBERS, *FLAGS)
    }
    flags = {name: flag_array(choose, shapes.pop(name)) for name in names if ROLES[name] in FLAGS}
    truth = {
        name: everywhere(array, frame.shape) if ROLES[name] is Role.STEP_FLAGS else array
        for name, array in flags.items()
    }
    alone = (Role.ENVS, Role.MOMENTS)  # one number may stand for all envs
    shapes |= {name: () for name in shapes if ROLES[name] in alone and choose.chance(20)}
    if "next_values" in takes and "next_values" not in names and "last_values" not in names:
        shapes["values"] = frame.one_longer
    if "final_values" in names and choose.chance(50):
        shapes["final_values"] = (np.count_nonzero(truth["truncated"]),)
    plain = {name: number_array(choose, shape, frame.dtype) for name, shape in shapes.items()}
    poison_unread(choose, plain, truth)
    if "std" in plain:
        plain["std"] = np.abs(plain["std"])
    made = plain | {name: contents.flags(choose, array) for name, array in flags.items()}
    given = {
        name: array.item() if array.ndim == 0 and choose.chance(30) else handed_over(choose, array)
        for name, array in made.items()
    }
    return {
        name: perhaps_bfloat16(choose, array) if name in plain and isinstance(array, Given) else array
        for name, array in given.items()
    }


def poison_unread(choose: Choices, plain: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> None:
    """Poison numbers behind closed gates, at skipped steps, and at steps without a final value."""
    skipped = ~truth["mask"] if "mask" in truth else np.False_
    unread = {name: skipped for name in plain if ROLES[name] is Role.STEPS and name != "values"}
    if "next_values" in plain:
        unread["next_values"] = truth["terminated"] | skipped
    if "final_values" in plain:
        behind, cut = truth["terminated"] | skipped, truth["truncated"]
        unread["final_values"] = behind | ~cut if plain["final_values"].shape == cut.shape else behind[cut]
    for name, where in unread.items():
        if plain[name].shape == where.shape and 0 not in plain[name].strides:
            contents.poison(choose, plain[name], where)
