"""Find the columns that a computation needs, and read them as arrays."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import Array
from fastgae.data.arrays import arrays_of, whole
from fastgae.data.errors import DataError, argument, column_argument
from fastgae.data.estimators import ESTIMATORS, How
from fastgae.data.formats import NAMING, ROLES, Format
from fastgae.data.steps import RecordedSteps, RowError, check_none
from fastgae.data.success import Success

ENDS = (None, "terminated")
KEYS = (*NAMING, "step")


class Columns(NamedTuple):
    """The column of each role that the data have."""

    of_role: Mapping[str, str]
    success: Success | None = None  # the rewards that follow from the column of rewards, where it says success

    @property
    def keys(self) -> list[str]:
        """Return the columns that the sidecar repeats."""
        return self.named(*KEYS)

    def named(self, *roles: str) -> list[str]:
        return [self.of_role[role] for role in roles if role in self.of_role]

    def place(self, table: pa.Table, at: int, row: int) -> str:
        """Name the episode and the step of a row of a table, for an error; ``row``: its index in the source."""
        named = [f"{role} {table[self.of_role[role]][at]}" for role in KEYS if role in self.of_role]
        return ", ".join([*named, f"row {row}"])


def chosen_columns(
    given: Mapping[str, str] | None,
    known: Format,
    schema: pa.Schema,
    values: str | None,
    how: How,
    rewards: str | None = None,
) -> Columns:
    """Return the columns to read: the columns that the caller names, and otherwise the format's columns, if present.

    ``values``: the name of the column of values; None: they come from elsewhere. ``rewards``: how rewards follow from a
    column of success; None: there are rewards.
    """
    ends = how.ends
    present = schema.names
    if ends not in ENDS:
        raise ValueError(f'ends must be "terminated" or None, got {ends!r}')
    given = dict(given or {})
    if unknown := set(given) - set(ROLES):
        raise ValueError(f"columns: unknown role {', '.join(sorted(unknown))}; the roles are {', '.join(ROLES)}")
    success = None
    if rewards is not None:
        if "rewards" in given:
            raise ValueError(f"{argument('rewards')} makes rewards of success: leave the column of rewards out")
        given["rewards"], success = Success.named(rewards)
    if values is not None and values != "values":
        given.setdefault("values", values)
    for role, name in given.items():
        if name not in present:
            raise DataError(f"there is no column {name!r} for {role}; there are {', '.join(present)}")
    found = {role: name for role, name in known.columns.items() if name in present} | given
    if values is None:
        found.pop("values", None)
    needs_values = values is not None and ESTIMATORS[how.estimator].every_value
    for role in ("rewards", "values") if needs_values else ("rewards",):
        if role not in found:
            raise DataError(
                f"there is no column {known.columns[role]!r} for {role}; there are {', '.join(present)}: pass "
                f"{column_argument(role)}{', or a critic' if role == 'values' else ''}"
            )
    for role, name in found.items():
        if present.count(name) > 1:
            raise DataError(f"there are {present.count(name)} columns {name!r} for {role}; expected one")
    if in_envs(schema.field(found["rewards"]).type):
        # Flags and ends of files end episodes there.
        found = {role: name for role, name in found.items() if role == "file" or role not in KEYS}
    for role in NAMING:
        if role in found and not _names(kind := schema.field(found[role]).type):
            raise DataError(f"the column of {role} holds {kind}; expected integers or text")
    _check_ends(found, ends)
    return Columns({role: found[role] for role in ROLES if role in found}, success)


def _names(kind: pa.DataType) -> bool:
    """Return whether the items of a column can name episodes: a float may be NaN, which differs from itself."""
    if pa.types.is_dictionary(kind):
        return _names(kind.value_type)
    named = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    return any(is_kind(kind) for is_kind in named)


def _check_ends(found: Mapping[str, str], ends: str | None) -> None:
    if ends == "terminated":
        if not found.keys() & {*NAMING, "terminated", "truncated", "done"}:
            raise DataError('nothing says where an episode ends: name a column of "episode", "terminated" or "done"')
    elif "terminated" not in found and not {"done", "truncated"} <= found.keys():
        raise DataError(
            f"nothing says which episodes ended for good{' (done may be a time limit)' if 'done' in found else ''}: "
            'name a column of "terminated", or of "done" and "truncated", or pass '
            f"{argument('ends', 'terminated')} if all did"
        )


def steps_of(table: pa.Table, columns: Columns, values: Array | None = None) -> RecordedSteps:
    """Return the rows of a table as arrays; ``values`` where the table has none."""
    of_role = columns.of_role

    def numbers(role: str) -> Any:
        return None if role not in of_role else _numbers(role, table[of_role[role]])

    def flags(role: str) -> Array:
        return np.broadcast_to(False, rewards.shape) if role not in of_role else _flags(role, table[of_role[role]])

    names = [_whole(role, table[of_role[role]]) for role in NAMING if role in of_role]
    column = table[of_role["rewards"]]
    rewards = _numbers("rewards", column) if columns.success is None else _flags("rewards", column).astype(np.float32)
    truncated = flags("truncated")
    terminated = flags("terminated") if "terminated" in of_role else flags("done") & ~truncated
    differ = changes(names, len(table))
    steps = RecordedSteps(
        lambda row: tuple(column[row].as_py() for column in names),
        differ.reshape(len(differ), *[1] * (rewards.ndim - 1)),
        None if "step" not in of_role else _integers("step", table[of_role["step"]]),
        rewards,
        numbers("values") if values is None else values,
        terminated,
        truncated,
        numbers("next_values"),
        restarts="episode" not in of_role,
        success=columns.success,
    )
    for role in ("values", "terminated", "truncated", "next_values"):
        array = getattr(steps, role)
        if array is not None and array.shape[1:] != rewards.shape[1:]:
            raise DataError(
                f"a row of {role} has the shape {array.shape[1:]}, but a row of rewards has {rewards.shape[1:]}"
            )
    return steps


def values_in(table: pa.Table, columns: Columns) -> Array:
    """Return the values of a table of states."""
    values: Array = _numbers("values", table[columns.of_role["values"]])
    return values


def _whole(role: str, column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece of memory, and check that no row is missing."""
    if column.null_count:
        raise RowError(pc.index(pc.is_null(column), True).as_py(), f"{role} is missing")
    return whole(column)


def _numbers(role: str, column: pa.ChunkedArray) -> Array:
    kind = column.type.value_type if in_envs(column.type) else column.type
    if not (pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64())):
        raise DataError(f"the column of {role} holds {kind}; expected float32, float64 or integers")
    array: Array = arrays_of(_whole(role, column))
    return array


def in_envs(kind: pa.DataType) -> bool:
    """Return whether a row of a column has a number for each of several envs."""
    return isinstance(kind, pa.FixedShapeTensorType) and len(kind.shape) == 1


def _integers(role: str, column: pa.ChunkedArray) -> Array:
    if not pa.types.is_integer(column.type):
        raise DataError(f"the column of {role} holds {column.type}; expected integers")
    return _numbers(role, column)


def _flags(role: str, column: pa.ChunkedArray) -> Array:
    if pa.types.is_boolean(column.type):
        flags: Array = arrays_of(_whole(role, column))
        return flags
    numbers = _numbers(role, column)
    wrong = (numbers != 0) & (numbers != 1)
    if wrong.any():
        check_none(wrong, f"{role} is {numbers[wrong][0]}; expected 0 or 1")
    ones: Array = numbers == 1
    return ones


def changes(names: Sequence[pa.Array], rows: int) -> Array:
    """Return True where a row and the next differ in one of the columns."""
    differ = np.zeros(max(rows - 1, 0), bool)
    for column in names:
        if pa.types.is_integer(column.type):  # NumPy is several times as fast, but does not compare texts
            items = column.to_numpy()
            differ |= items[1:] != items[:-1]
        else:
            differ |= arrays_of(pc.not_equal(column[1:], column[:-1]))
    return differ
