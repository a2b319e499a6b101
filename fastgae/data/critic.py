"""Values from a critic: a function that is called on batches of rows."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fastgae._call import WORKING_DTYPES, Array
from fastgae._canonical.arguments import integer_of, shown
from fastgae._interop.libraries import as_array, is_tensor, on_the_cpu
from fastgae.data.errors import DataError
from fastgae.data.formats import Format
from fastgae.data.rows import arrays_of, axes_of, each_array
from fastgae.data.steps import RowError

ROWS = 8192


@dataclass(frozen=True)
class Critic:
    """V(s) of recorded states: ``values`` of ``fastgae.data.compute``.

    Attributes
    ----------
    function : callable
        ``function(batch) -> V``. ``batch`` is a dict from the name of a column to its array of shape (rows, ...), or to
        a dict of such arrays if the column has fields. V has the shape (rows,) and is float32 or float64; it may be a
        torch tensor or a JAX array. The results have the same bits for every ``memory`` only if V of a row does not
        depend on the other rows of its batch. The matrix products of most libraries do not promise that to the last
        bit.
    columns : sequence of str, optional
        The columns that the batch holds. Default: the observations of a Minari dataset; elsewhere every column of
        numbers or vectors that has no role. Images, and other arrays of two axes or more, are read only if named here.
    rows : int
        The largest number of rows in a batch.
    device : str or torch.device, optional
        "cuda" or another device of torch: the batch holds tensors on it, and the function is called without gradients.
        Default: NumPy arrays.
    """

    function: Callable[[dict[str, Any]], Any]
    columns: Sequence[str] | None = None
    rows: int = ROWS
    device: Any = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                "values must be a column, a file such as values.npy, or a function of a batch of rows, got "
                f"{shown(self.function)}"
            )
        names = () if self.columns is None else self.columns
        several = isinstance(names, Iterable) and not isinstance(names, str)
        if not (several and all(isinstance(name, str) for name in names)):
            raise TypeError(f"columns of a critic must be a list of names, got {self.columns!r}")
        if (integer_of(self.rows) or 0) < 1:
            raise ValueError(f"rows of a critic must be an integer of at least 1, got {self.rows!r}")


class Batch(dict[str, Any]):
    """The columns of a batch of rows, as the critic gets them."""

    def __missing__(self, name: str) -> Any:
        raise DataError(f"the critic reads the column {name!r}; it gets {', '.join(self)}")


@dataclass(frozen=True)
class Valuation:
    """A critic, and the columns of one source that it is called on."""

    critic: Critic
    columns: tuple[str, ...]
    next_columns: Mapping[str, str]  # the columns in which a row holds the state after it

    @property
    def read(self) -> list[str]:
        return [*self.columns, *self.next_columns.values()]

    @property
    def asked(self) -> list[Any]:
        """Return the visible properties of the critic, which a resumed run must share with the unfinished one."""
        function = self.critic.function
        return [getattr(function, "__qualname__", type(function).__qualname__), self.critic.rows, *self.columns]

    def of(self, table: pa.Table) -> Array:
        """Return V of every row of a table."""
        size = self.critic.rows
        return np.concatenate([self._of_batch(table.slice(row, size), row) for row in range(0, len(table), size)])

    def _of_batch(self, table: pa.Table, first: int) -> Array:
        batch = Batch()
        for name in (name for name in table.column_names if name in self.columns):
            try:
                # The critic may write to its arrays, but those of a mapped file are read-only.
                batch[name] = each_array(partial(np.require, requirements="W"), arrays_of(table[name]))
            except ValueError as error:
                fault = f"the critic cannot read {name} of the {len(table):,} rows from this one on: {error}"
                raise RowError(first, fault) from error
        result = _called(self.critic, batch)
        values = on_the_cpu(result) if is_tensor(result) else as_array("values from the critic", result)
        if values.shape != (rows := (len(table),)):
            squeeze = "; squeeze its last axis" if values.shape == (*rows, 1) else ""
            raise DataError(f"the critic returned shape {values.shape} for {len(table)} rows; expected {rows}{squeeze}")
        if values.dtype not in WORKING_DTYPES:
            raise DataError(f"the critic returned dtype {values.dtype}; expected float32 or float64")
        if len(wrong := np.flatnonzero(np.isnan(values))):
            raise RowError(first + int(wrong[0]), "the value from the critic is NaN")
        return values.copy()  # the critic may return the same array for each batch


def _called(critic: Critic, batch: Batch) -> Any:
    try:
        if critic.device is None:
            return critic.function(batch)
        import torch

        with torch.inference_mode():
            return critic.function(Batch(each_array(lambda array: torch.from_numpy(array).to(critic.device), batch)))
    except DataError:
        raise
    except (ValueError, OSError) as error:  # which would look like faults of the data, or of the place of the results
        raise RuntimeError(f"the critic raised {error!r}") from error


def valuation(critic: Critic, schema: pa.Schema, known: Format, taken: Collection[str]) -> Valuation:
    """Return the critic with the columns that it reads of a source; ``taken``: the columns that have a role."""
    present = {field.name: axes for field in schema if (axes := axes_of(field.type)) is not None}
    columns = critic.columns
    if columns is None:
        roles = {*taken, *known.columns.values(), *known.next_state.values()}
        free = [name for name, axes in present.items() if name not in roles and axes < 2]
        columns = [name for name in known.state or free if name in present]
    if missing := [name for name in columns if name not in present]:
        raise DataError(f"there are no numbers {' and '.join(missing)} for the critic; there are {', '.join(present)}")
    if not columns:
        raise DataError(
            f"there is no column for the critic; there are {', '.join(schema.names)}: name them with "
            "Critic(columns=...)"
        )
    next_columns = {name: known.next_state[name] for name in columns if known.next_state.get(name) in present}
    return Valuation(critic, tuple(columns), next_columns)
