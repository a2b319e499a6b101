"""Keys as runs: the same table comes back, and runs are used where they are few."""

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data.packed import packed, unpacked

ROWS = 1000
EPISODE = np.arange(ROWS) // 50
STEP = 7 + np.arange(ROWS) % 50
REPEATED = {
    "int64": EPISODE,
    "uint8": EPISODE.astype(np.uint8),
    "strings": [f"episode {number}" for number in EPISODE],
    "steps": STEP,
    "steps of int8": STEP.astype(np.int8),
    "steps across int16": (np.arange(ROWS) - 500).astype(np.int16),
}
OTHERS = {
    "random": np.random.default_rng(0).integers(0, 9, ROWS),
    "floats": np.zeros(ROWS, np.float32),
    "flags": np.zeros(ROWS, bool),
    "no strings": [str(number) for number in range(ROWS)],
}


@pytest.mark.parametrize("name", [*REPEATED, *OTHERS])
@pytest.mark.parametrize("chunks", [1, 3])
def test_the_same_table_comes_back(name, chunks):
    column = pa.array((REPEATED | OTHERS)[name])
    parts = [
        pa.table({"key": part, "number": range(len(part))}) for part in (column[:10], column[10:500], column[500:])
    ]
    table = pa.concat_tables(parts) if chunks > 1 else pa.concat_tables(parts).combine_chunks()
    small = packed(table)
    assert unpacked(small).equals(table, check_metadata=True)
    runs = isinstance(small.schema.field("key").type, pa.RunEndEncodedType)
    assert runs == (name in REPEATED)
    assert not runs or small.nbytes < table.nbytes / 2


def test_no_rows():
    table = pa.table({"key": pa.array([], pa.int64()), "name": pa.array([], pa.string())})
    assert unpacked(packed(table)).equals(table, check_metadata=True)
