"""The only place that looks at dtype, shape, strides and flags.

The caller's arguments, each read by itself (arguments), become Arguments, which say what is meant (meaning); matrices
of one layout, and one Rollout of them (memory). What these are is in contract.
"""

from fastgae._canonical.arguments import (
    as_array,
    as_clip,
    as_unit_interval,
    autoreset_mode,
    integer_of,
    shown,
    working_dtype,
)
from fastgae._canonical.contract import (
    MOMENT_STEPS,
    Arguments,
    Array,
    Clips,
    GAEResult,
    Options,
    Output,
    Rollout,
    Scalar,
)
from fastgae._canonical.meaning import (
    check_normalize,
    checked_advantages,
    checked_arguments,
    checked_returns,
    checked_scan,
    checked_sequences,
    checked_valid_steps,
)
from fastgae._canonical.memory import Layout, canonical_rollout, in_one_layout, in_place

__all__ = [
    "MOMENT_STEPS",
    "Arguments",
    "Array",
    "Clips",
    "GAEResult",
    "Layout",
    "Options",
    "Output",
    "Rollout",
    "Scalar",
    "as_array",
    "as_clip",
    "as_unit_interval",
    "autoreset_mode",
    "canonical_rollout",
    "check_normalize",
    "checked_advantages",
    "checked_arguments",
    "checked_returns",
    "checked_scan",
    "checked_sequences",
    "checked_valid_steps",
    "in_one_layout",
    "in_place",
    "integer_of",
    "shown",
    "working_dtype",
]
