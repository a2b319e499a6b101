"""Find the columns that a computation needs, read them as arrays, and find episodes whose rows are not adjacent."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import Array
from fastgae._support.misnamed import COLUMN_ROLES, NAMES_ELSEWHERE, OTHER_FLAGS
from fastgae.data.errors import DataError, argument, column_argument
from fastgae.data.estimators import ESTIMATORS, How
from fastgae.data.formats import NAMING, Format
from fastgae.data.rows import arrays_of, cast, checked_text, is_list, whole
from fastgae.data.steps import Following, Name, RecordedSteps, RowError, Success, check_none, disorder

KEYS = (*NAMING, "step")
ENDS = ("terminated", "truncated", "done")
FINAL = "final_values"  # the array, and the role, of V' of truncated steps
# The words in names of columns that may name an episode, or an env among others.
ID = re.compile(
    r"(^|_)(id|uuid|env|environment|ep|eps|episode|traj|trajectory|run|rollout|demo|worker|actor|agent|game|session)s?"
    r"(_?(id|ids|idx|index|name|num|number|no|key))?$",
    re.I,
)
# What to do about an end without a flag, where rows that do not follow each other have no steps.
SCATTERED = "and its rows do not follow each other: name a column of step"
ODD = np.int64(-7046029254386353131)  # 2^64 / golden ratio: multiples of it differ in their high bits


class Columns(NamedTuple):
    """The column of each role that the data have."""

    of_role: Mapping[str, str]
    success: Success | None = None  # the rewards that follow from the column of rewards, where it says success

    @property
    def keys(self) -> list[str]:
        """Return the columns that the sidecar repeats."""
        return self.named(*KEYS)

    @property
    def read(self) -> list[str]:
        """Return all columns, each once, though one may have two roles."""
        return list(dict.fromkeys(self.of_role.values()))

    def named(self, *roles: str) -> list[str]:
        return [self.of_role[role] for role in roles if role in self.of_role]

    def place(self, table: pa.Table, at: int, row: int | None) -> str:
        """Name the episode and the step of a row of a table, for an error; ``row``: its index in the source."""
        named = [f"{role} {table[self.of_role[role]][at]}" for role in KEYS if role in self.of_role]
        return ", ".join([*named, *([] if row is None else [f"row {row}"])])

    def check_sortable(self, fault: str) -> None:
        """Raise if rows that are out of order cannot be sorted, because the episodes of one name may be several."""
        if not self.named("step", *ENDS):
            raise DataError(
                f"{fault}, and nothing says whether they are one episode, or several of the same name: name a column "
                "of step, or of flags"
            )


def chosen_columns(
    given: Mapping[str, str | None] | None,
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
    present, given, success = schema.names, dict(given or {}), None
    if how.ends not in (None, "terminated"):
        raise ValueError(f'ends must be "terminated" or None, got {how.ends!r}')
    for role, name in given.items():
        if role not in COLUMN_ROLES:
            swapped = f": do you mean {column_argument(str(name), role)}?" if name in COLUMN_ROLES else ""
            given_as = column_argument(role, name)
            raise ValueError(f"{given_as}: unknown role {role}; the roles are {', '.join(COLUMN_ROLES)}{swapped}")
    if rewards is not None:
        if "rewards" in given:
            raise ValueError(f"{argument('rewards')} makes rewards of success: leave the column of rewards out")
        given["rewards"], success = Success.named(rewards)
    if values != "values":  # so the caller has named a column, a file or a critic
        if given.get("values") not in (None, values):
            of_columns = column_argument("values", given["values"])
            raise ValueError(f"{argument('values')} and {of_columns} name different values: pass one of them")
        given["values"] = values
    for role, name in given.items():
        if name is not None and name not in present:
            raise DataError(f"there is no column {name!r} for {role}; there are {', '.join(present) or 'none'}")
    usual = {role: name for role, name in known.columns.items() if name in present}
    if "mask" in usual and not _may_be_flags(schema.types[present.index(usual["mask"])]):
        del usual["mask"]  # of the pixels of an image, for example
    chosen = usual | given
    found = {role: name for role, name in chosen.items() if name is not None}
    own = known.columns["values"]  # of which the column of next values holds the next ones
    if "next_values" not in given and (values is None or (own in present and found.get("values", own) != own)):
        found.pop("next_values", None)  # they are of another critic than the values
    needs_values = values is not None and ESTIMATORS[how.estimator].every_value
    for role in ("rewards", "values") if needs_values else ("rewards",):
        if role in given and given[role] is None:
            raise DataError(f"{column_argument(role, None)} leaves {role} out, which {how.estimator} needs")
        if role not in found:
            way = f"pass {column_argument(role, *_elsewhere(role, present))}{', or a critic' * (role == 'values')}"
            if role == "rewards" and (fields := [field.name for field in schema if _has_fields(field.type)]):
                way += f"; if they are a field of {' or '.join(fields)}, make a column of each of its fields"
            there = ", ".join(present) or "none"
            raise DataError(f"there is no column {known.columns[role]!r} for {role}; there are {there}: {way}")
    for role, name in found.items():
        if present.count(name) > 1:
            raise DataError(f"there are {present.count(name)} columns {name!r} for {role}; expected one")
    if in_envs(schema.field(found["rewards"]).type):
        # Flags and ends of files end episodes there.
        for role in ("env", "episode", *({"step"} & given.keys())):
            if role in found:
                raise DataError(
                    f"a row has a number for each of several envs, so no column can be {role}: end episodes by flags, "
                    f"and pass {column_argument(role, None)}"
                )
        found = {role: name for role, name in found.items() if role == "file" or role not in KEYS}
    elif not {"episode", "file"} & {*found, *given}:
        _check_unread_ids(schema, {*found, *given}, found.values())
    for role in NAMING:
        if role in found and not (_is_name(kind := schema.field(found[role]).type) or _may_be_integer(kind)):
            raise DataError(f"the column of {role} holds {kind}; expected integers or text")
    _check_ends(found, how.ends, present)
    free = [name for name in present if name not in found.values()]
    if not {"episode", "done", "truncated"} & {*found, *given} and (limits := _elsewhere("truncated", free)):
        raise DataError(
            f"no column says where a limit ended an episode, and {limits[0]!r} looks as if it did: pass "
            f"{column_argument('truncated', limits[0])}; or, if it does not, {column_argument('truncated', None)}"
        )
    return Columns({role: found[role] for role in COLUMN_ROLES if role in found}, success)


def check_new(results: Iterable[str], present: Collection[str]) -> None:
    """Check that the columns of the results have other names than those beside them."""
    for name in results:
        if name in present:
            raise DataError(f"the source has a column {name!r}, but a column of results has the same name: rename it")


def _elsewhere(role: str, names: Sequence[str]) -> list[str]:
    """Return the first column that has a name which other libraries use for a role."""
    return [name for name in names if name.lower() in NAMES_ELSEWHERE.get(role, "").split()][:1]


def _check_unread_ids(schema: pa.Schema, roles: Collection[str], read: Collection[str]) -> None:
    """Raise if no column names the episodes, but one that is not read looks as if it did; ``roles`` are known."""
    for field in schema:
        if field.name not in read and ID.search(field.name) and _is_name(field.type) and field.type != pa.bool_():
            role = "env" if "env" in field.name.lower() else "episode"
            if role in roles:
                continue
            raise DataError(
                f"no column names the episode of a row, and {field.name!r} looks as if it did: pass "
                f"{column_argument(role, field.name)}; or, if only flags end episodes, {column_argument(role, None)}"
            )


def _is_name(kind: pa.DataType) -> bool:
    """Return whether the items of a column can name episodes."""
    named = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    return any(is_kind(kind) for is_kind in named)


def _may_be_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _may_be_flags(kind: pa.DataType) -> bool:
    kind = kind.value_type if in_envs(kind) else kind
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or _may_be_integer(kind))


def _check_ends(found: Mapping[str, str], ends: str | None, present: Sequence[str]) -> None:
    free = [name for name in present if name not in found.values()]
    flags = [
        column_argument("done" if "done" in name.lower() else role, name)
        for role in ("terminated", "truncated")
        for name in _elsewhere(role, [name for name in free if name.lower() not in OTHER_FLAGS])
    ]
    advice = f", such as {' and '.join(flags)}" if flags else ""
    if ends == "terminated":
        if not found.keys() & {*NAMING, *ENDS}:
            columns = 'name a column of "episode", "terminated" or "done"'
            raise DataError(f"nothing says where an episode ends: {columns}{advice}")
    elif "terminated" not in found and not {"done", "truncated"} <= found.keys():
        raise DataError(
            f"nothing says which episodes ended for good{' (done may be a time limit)' if 'done' in found else ''}: "
            f'name a column of "terminated", False if none did, or of "done" and "truncated"{advice}, or pass '
            f"{argument('ends', 'terminated')} if all did"
        )


def steps_of(table: pa.Table, columns: Columns, values: Array | None = None) -> RecordedSteps:
    """Return the rows of a table as arrays; ``values`` where the table has none."""
    found = {role: table[name] for role, name in columns.of_role.items()}

    def checked(role: str, array: Array) -> Array:
        if array.shape[1:] != rewards.shape[1:]:
            own, other = array.shape[1:], rewards.shape[1:]
            raise DataError(f"a row of {role} has the shape {own}, but a row of rewards has {other}")
        return array

    def flags(role: str) -> Array:
        return checked(role, _flags(role, found[role])) if role in found else np.zeros(rewards.shape, bool)

    def numbers(role: str) -> Array | None:
        return checked(role, numbers_in(role, found[role])) if role in found else None

    names = [_integral(role, _whole(role, found[role])) for role in NAMING if role in found]
    rewards = numbers_in("rewards", found["rewards"]) if columns.success is None else _successes(found["rewards"])
    if "mask" in found:
        check_none(
            ~flags("mask"),
            "mask is 0",
            "and recorded data have a row for each step and no others: leave this row out, or call fastgae.gae, which "
            f"takes a mask; or, if every row is a step, pass {column_argument('mask', None)}",
        )
    done = flags("done")  # terminated or truncated
    terminated = flags("terminated") if "terminated" in found else done & ~flags("truncated")
    truncated = flags("truncated") | (done & ~terminated)
    final = numbers(FINAL)
    differ = changes(names, len(table))
    return RecordedSteps(
        lambda row: tuple(column[row].as_py() for column in names),
        differ.reshape(len(differ), *[1] * (rewards.ndim - 1)),
        _steps(found["step"]) if "step" in found else None,
        rewards,
        numbers("values") if values is None else checked("values", values),
        terminated,
        truncated,
        numbers("next_values"),
        None if final is None else np.where(truncated, final, np.nan),
        restarts="episode" not in found,
        success=columns.success,
    )


def _whole(role: str, column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece of memory, and check that no row, and no number of an env, is missing."""
    found = whole(column)
    items = found.storage.flatten() if in_envs(found.type) and not found.null_count else found
    if items.null_count:
        row, *env = divmod(pc.index(items.is_null(), True).as_py(), len(items) // len(found))
        raise RowError(row, f"{role} is missing{f' in env {env[0]}' * (items is not found)}")
    return checked_text(role, found)


def numbers_in(role: str, column: pa.ChunkedArray) -> Array:
    """Return the numbers of a column; those of 16 bits as float32, and decimals as float64."""
    kind = column.type.value_type if in_envs(column.type) else column.type
    if pa.types.is_decimal(kind):
        column = cast(column, pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        fault = f"the column of {role} holds {kind}; expected float32, float64 or integers"
        for row, item in enumerate(column.to_pylist() if pa.types.is_string(kind) else []):
            try:
                float(item or 0)
            except ValueError:
                raise RowError(row, f"{fault}, and this row holds {item!r:.50}") from None
        raise DataError(fault)
    array: Array = arrays_of(_whole(role, column))
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _has_fields(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or (is_list(kind) and pa.types.is_struct(kind.value_type)))


def in_envs(kind: pa.DataType) -> bool:
    """Return whether a row of a column has a number for each of several envs."""
    return isinstance(kind, pa.FixedShapeTensorType) and len(kind.shape) == 1


def _steps(column: pa.ChunkedArray) -> Array:
    integers = _integral("step", _whole("step", column))
    if not pa.types.is_integer(integers.type):
        raise DataError(f"the column of step holds {column.type}; expected integers")
    array: Array = arrays_of(integers)
    return array


def _integral(role: str, column: pa.Array) -> pa.Array:
    """Return numbers that are all integers in a type of integers, and all else as it is."""
    if not _may_be_integer(column.type):
        return column
    if pa.types.is_floating(column.type):
        numbers = column.to_numpy(zero_copy_only=False)
        exact = 2.0 ** (np.finfo(numbers.dtype).nmant + 1)  # above it, two integers may be the same float
        check_none(np.abs(numbers) >= exact, f"{role} is not exact in {column.type}: write it as integers or text")
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        wrong = (row for row, item in enumerate(column.to_pylist()) if not float(item).is_integer())
        raise RowError(next(wrong, 0), f"{role} holds {column.type}; expected integers: {error}") from error


def _flags(role: str, column: pa.ChunkedArray) -> Array:
    if pa.types.is_boolean(column.type):
        flags: Array = arrays_of(_whole(role, column))
        return flags
    if not _may_be_flags(column.type):
        shown = f", such as {column[0].as_py()!r:.50}" * bool(len(column))
        raise DataError(f"the column of {role} holds {column.type}{shown}; expected bool, or numbers that are 0 or 1")
    numbers = numbers_in(role, column)
    wrong = (numbers != 0) & (numbers != 1)
    if wrong.any():
        check_none(wrong, f"{role} is {numbers[wrong][0]}; expected 0 or 1")
    ones: Array = numbers == 1
    return ones


def _successes(column: pa.ChunkedArray) -> Array:
    """Return a column of success as numbers, which are read only in the last row of an episode; NaN is missing."""
    if in_envs(column.type):
        array: Array = arrays_of(_whole("success", column)).astype(np.float64)
        return array
    if not _may_be_flags(column.type):
        raise DataError(f"the column of success holds {column.type}; expected bool, or numbers that are 0 or 1")
    return np.asarray(whole(cast(column, pa.float64())).fill_null(np.nan))


def changes(names: Sequence[pa.Array], rows: int) -> Array:
    """Return True where a row and the next differ in one of the columns."""
    differ = np.zeros(max(rows - 1, 0), bool)
    for column in names:
        if pa.types.is_integer(column.type):
            items = column.to_numpy()  # NumPy is several times as fast, but compares no texts
            differ |= items[1:] != items[:-1]
        else:
            differ |= arrays_of(pc.not_equal(column[1:], column[:-1]))
    return differ


class Episodes:
    """The episodes found so far, as hashes of their names: eight bytes for each.

    Two names may have the same hash. Then rows are sorted although they need not be, which gives the same results.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._following: Name | None = None  # of the episode of the row after the next ones
        self._met: Array = np.empty(0, np.int64)

    def again(self, table: pa.Table, differ: Array | None = None) -> RowError | None:
        """Add the episodes of the rows before those of the last call; return a fault if one of them has ended before.

        ``differ``: True where a row and the next differ in a name, if that is known.
        """
        if not self._names:
            return None
        columns = [_integral(name, _whole(name, table[name])) for name in self._names]
        last = np.flatnonzero(changes(columns, len(table)) if differ is None else differ)
        first, end = (tuple(column[row].as_py() for column in columns) for row in (0, -1))
        if end != self._following:
            last = np.append(last, len(table) - 1)
        self._following, rows = first, pa.array(last)
        every = np.concatenate([self._met, _hashes([column.take(rows) for column in columns])])
        every.sort(kind="stable")  # a merge, because the first part is sorted
        self._met = every
        scattered = (every[1:] == every[:-1]).any()
        return RowError(0, "the rows of an episode do not follow each other") if scattered else None

    def fault(self, table: pa.Table, steps: RecordedSteps, last: Array, following: Following | None) -> RowError | None:
        """Return the first fault in the order of rows before those of the last call."""
        return self.again(table, steps.changes) or disorder(steps, last, following)


def _hashes(names: Sequence[pa.Array]) -> Array:
    hashes = np.zeros(len(names[0]), np.int64)
    for column in names:
        if pa.types.is_integer(column.type):
            items = column.to_numpy().astype(np.int64)
        else:
            items = np.fromiter(map(hash, column.to_pylist()), np.int64)
        hashes = hashes * ODD ^ items
    return hashes
