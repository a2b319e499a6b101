"""The record of a call: the name, place, default and role of every argument, and the result.

All code that needs the arguments reads them from here: the estimators, tensors, batches, torch's operations, the
compiled module (by an enum in the order of ``Call``), and the tests. A test compares every public function with this
record.
"""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Generic, NamedTuple, get_type_hints

import numpy as np

from fastgae._typing import ArrayT, NDArray

Array = NDArray[Any]

EPS = 1e-8  # normalisation adds this to a standard deviation
WORKING_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


class Role(Enum):
    """The role of an argument: its shape, and whether it is a number, a flag or a setting."""

    STEPS = "one number per step, in the shape of the first argument"
    STEP_FLAGS = "one flag per step; axes after time and envs may be missing, and all but time may have length 1"
    ENVS = "one number per env, in the shape of the first argument without time or of one step; or one for all envs"
    ENV_FLAGS = "one flag per env"
    MOMENTS = "one number per env in float64, or one for all envs, without effect on the dtype of the results"
    FACTORS = "numbers of any size, in the shapes of COEFFICIENT"
    COEFFICIENT = "a number in [0, 1], or an array of them; its axes are the first argument's, or of length 1"
    CONSTANT = "one number that the step of every backend reads"
    LABELS = "one label per step: an integer, a string, or anything that can be hashed"
    BOUNDARIES = "integers: where each sequence begins and the last one ends"
    PARENTS = "integers: the parent of each node, -1 at a root"
    WEIGHTS = "a word, or one number per node or answer, without effect on the dtype of the results"
    SETTING = "how to compute the result; never an array of numbers"


PerStep = Annotated[Any, Role.STEPS]
StepFlags = Annotated[Any, Role.STEP_FLAGS]
Envs = Annotated[Any, Role.ENVS]
Coefficient = Annotated[Any, Role.COEFFICIENT]
Constant = Annotated[Any, Role.CONSTANT]
Setting = Annotated[Any, Role.SETTING]


class Call(NamedTuple):
    """The arguments of ``gae`` in their order, and then the arguments that only other estimators take.

    The same record holds a call as the caller made it, then after the checks, and then as matrices of one layout.
    """

    rewards: PerStep
    values: PerStep  # or one longer along time; ABSENT for a recursion of rewards alone
    terminated: StepFlags = None  # None: no step ends an episode; ABSENT for a recursion without gates
    truncated: StepFlags = None
    last_values: Envs = None
    next_values: PerStep = None
    final_values: PerStep = None  # or one per True of truncated
    autoreset: Setting = None
    prev_done: Annotated[Any, Role.ENV_FLAGS] = None
    mask: StepFlags = None
    gamma: Coefficient = 0.99
    gae_lambda: Coefficient = 0.95
    time_axis: Setting = 0
    out: Setting = None  # (advantages, returns), of which each is an array, None, or NEW
    normalize: Setting = None
    last_advantages: Envs = None
    returns_lambda: Coefficient = None
    tail_normalized: Setting = False
    carry_over: Setting = False
    cu_seqlens: Annotated[Any, Role.BOUNDARIES] = None
    n: Setting = None
    recursion: Setting = "gae"  # one of ``RECURSIONS`` in _equation/arrays.py; "none": A = r, in a short cut
    ratios: PerStep = None
    parents: Annotated[Any, Role.PARENTS] = None
    weights: Annotated[Any, Role.WEIGHTS] = None  # once checked, the share that each node has among its siblings
    rho_clip: Constant = None
    c_clip: Constant = None
    advantage_clip: Constant = None
    leaky: Constant = None
    deviation: Setting = (0, EPS)  # ddof and eps of the standard deviation for ``normalize``


# In ``Call.out``, this stands for an array to allocate.
NEW = object()

# This stands for an argument that must be given, and is not.
MISSING = object()

# This stands for ``values`` or ``terminated`` if an estimator does not have them. None comes from the caller: for
# ``values`` it is a mistake, and for ``terminated`` it is right only together with ``last_values``.
ABSENT = object()

NEXT_STEP = "next_step"  # the mode of ``autoreset`` in which some rows are no steps
MOST_STEPS = 2**62  # more than an array can have; a larger n or ddof is as good as this one
# normalize adds up this many steps one after the other. Do not tune it, because the bits of a sum depend on it.
MOMENT_STEPS = 128

ROLES: dict[str, Role] = {
    **{name: hint.__metadata__[0] for name, hint in get_type_hints(Call, include_extras=True).items()},
    "lambda_": Role.COEFFICIENT,
    **dict.fromkeys(("x", "advantages"), Role.STEPS),
    "decay": Role.FACTORS,
    "initial": Role.ENVS,
    **dict.fromkeys(("mean", "std"), Role.MOMENTS),
    **dict.fromkeys(("groups", "trajectories"), Role.LABELS),
    "baseline": Role.WEIGHTS,
    **dict.fromkeys(("scale", "by", "ddof", "eps", "stop_gradients", "num_threads", "backend"), Role.SETTING),
}


def names_of(*roles: Role) -> tuple[str, ...]:
    """Return the names of the arguments that have one of these roles."""
    return tuple(name for name, role in ROLES.items() if role in roles)


@dataclass(frozen=True, eq=False)
class Declaration:
    """What the checks must know of a public function, which has some fields of ``Call`` as arguments."""

    fields: dict[str, int]  # the function's name of an argument -> its place in ``Call``
    needed: dict[str, int]  # those without a default
    numbers: tuple[str, ...]  # the fields whose dtypes decide on the dtype of the results
    required: tuple[str, ...]  # the fields that must be given, and not as None
    words: dict[str, str]  # field -> what the function calls it, where the names differ
    result: str | None  # the field of GAEResult that it returns; None: both

    def word(self, field: str) -> str:
        """Return what the function calls a field, for messages."""
        return self.words.get(field, field)


CONSTANTS = tuple(name for name in Call._fields if ROLES[name] is Role.CONSTANT)
# The dtypes of these arguments decide on the dtype of the results.
NUMBERS = names_of(Role.STEPS, Role.ENVS, Role.FACTORS)


class GAEResult(NamedTuple, Generic[ArrayT]):
    """Advantages and returns (value targets) of a rollout, as a named tuple.

    In annotations, ``GAEResult[T]`` holds two arrays of type T.

    Attributes
    ----------
    advantages, returns : array of the shape of the first argument, in the working dtype
        None if ``out`` has None for it.
    """

    advantages: ArrayT
    returns: ArrayT

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows: all numbers would fill the page."""
        rows = "".join(f"<tr><th>{name}</th>{_cells(array)}</tr>" for name, array in self._asdict().items())
        heads = "".join(f"<th>{head}</th>" for head in ("GAEResult", "shape", "dtype", "mean", "smallest", "largest"))
        return f"<table><tr>{heads}</tr>{rows}</table>"


def _cells(array: Any) -> str:
    if array is None:
        return "<td>None</td>"
    some = 0 not in array.shape
    numbers = [f"{float(number()):.4g}" for number in (array.mean, array.min, array.max)] if some else []
    return "".join(f"<td>{each}</td>" for each in (tuple(array.shape), array.dtype, *numbers))


@lru_cache  # NumPy takes a microsecond to promote
def working_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Return float32 if NumPy promotes these dtypes to it, and float64 otherwise."""
    single, double = WORKING_DTYPES
    return single if dtypes and np.result_type(*dtypes) == single else double
