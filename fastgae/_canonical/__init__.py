"""The only place that looks at shape, strides and flags, and with ``_interop``, which reads arrays, at dtypes.

A call as the caller made it is checked argument by argument (arguments), against the shape of the first one (frame) and
as a whole (checks). Then its arrays become matrices of one layout (memory).
"""

from fastgae._call import NEXT_STEP
from fastgae._canonical.arguments import (
    as_labels,
    as_number,
    as_switch,
    as_word,
    integer_of,
    numbered,
    of_one_dtype,
    one_for_each,
    shown,
)
from fastgae._canonical.checks import NORMALIZE, checked, warn_of_reset_rows
from fastgae._canonical.frame import Frame, as_flags, as_unit_interval, frame_of
from fastgae._canonical.memory import Layout, in_one_layout, in_place
from fastgae._canonical.packed import as_one_env

__all__ = [
    "NEXT_STEP",
    "NORMALIZE",
    "Frame",
    "Layout",
    "as_flags",
    "as_labels",
    "as_number",
    "as_one_env",
    "as_switch",
    "as_unit_interval",
    "as_word",
    "checked",
    "frame_of",
    "in_one_layout",
    "in_place",
    "integer_of",
    "numbered",
    "of_one_dtype",
    "one_for_each",
    "shown",
    "warn_of_reset_rows",
]
