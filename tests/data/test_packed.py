"""Keys as runs: the same table comes back, and runs are used where they are few."""

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data.packed import packed, unpacked

ROWS = 1000
EPISODE = np.arange(ROWS) // 50
LAST = np.arange(ROWS) % 50 == 49
NAMES = {
    "int64": EPISODE,
    "uint8": EPISODE.astype(np.uint8),
    "strings": [f"episode {number}" for number in EPISODE],
    "dictionary": pa.array([f"episode {number}" for number in EPISODE]).dictionary_encode(),
}
STEPS = {
    "int64": 7 + np.arange(ROWS) % 50,
    "int8": (np.arange(ROWS) % 50).astype(np.int8),
    "uint64 from beyond int64": (np.arange(ROWS) % 50).astype(np.uint64) + np.uint64(2**64 - 50),
    "none": None,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("begin", [0, 30])  # the first row, and one in the middle of an episode
@pytest.mark.parametrize("end", [ROWS, ROWS - 20])
def test_the_same_table_comes_back(name, step, begin, end):
    columns = {"name": NAMES[name], "number": np.arange(ROWS)} | ({} if STEPS[step] is None else {"step": STEPS[step]})
    table = pa.table(columns).slice(begin, end - begin)
    small = packed(table, LAST[begin:end], ["name"], "step" if "step" in columns else None)
    assert unpacked(small).equals(table, check_metadata=True)
    runs = {each for each in columns if isinstance(small.schema.field(each).type, pa.RunEndEncodedType)}
    assert runs == columns.keys() - ({"name", "number"} if name == "dictionary" else {"number"})


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_short_episodes_stay_as_they_are(rows):
    last = np.arange(12) % rows == rows - 1
    table = pa.table({"name": np.arange(12) // rows, "step": np.arange(12) % rows})
    assert packed(table, last, ["name"], "step").equals(table) == (rows < 4)
