"""``fastgae.data.compute`` on broken files of every format: an error that names the file, or results."""

import random
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("pyarrow")
from data.test_random_sources import FORMATS, Drawn
from fastgae.data import DataError, compute

from .mutants import cut, flipped, inserted, overwritten, removed

CASES = 20


@pytest.mark.parametrize("form", FORMATS)
def test_broken_files(tmp_path, form):
    said = Counter()
    for case in range(CASES):
        drawn, rng = Drawn(np.random.default_rng(case), form), random.Random(case)
        source = tmp_path / f"{case}"
        more, _ = FORMATS[form](drawn, source)
        file = rng.choice(sorted(path for path in source.rglob("*") if path.is_file()))
        content = bytearray(file.read_bytes())
        for _ in range(rng.choice((1, 1, 2, 8))):
            content = bytearray(rng.choice((cut, flipped, inserted, overwritten, removed))(rng, content))
        file.write_bytes(content)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        try:
            compute(source, tmp_path / "out.parquet", ends=drawn.ends, progress=False, **more)
        except DataError as error:
            said["error" if str(source) in str(error) else str(error)] += 1
        else:
            (tmp_path / "out.parquet").unlink()
            said["results"] += 1
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before, case
    assert said["error"], said
    assert {*said} <= {"error", "results"}
