"""The machine code of the kernels rounds each operation on its own and keeps denormals; it needs no GPU."""

import json
from pathlib import Path

import pytest

PATHS = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]
PROGRAM = f"import sys; sys.path[:0] = {PATHS!r}; from gpu import compiled; compiled."


@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_nothing_is_fused_or_flushed(python, tmp_path, architecture):
    """Triton compiles in a process of its own."""
    every = architecture == 90  # what an architecture changes is the same in every variant
    call = f"report({architecture}, {every})"
    mistakes, findings = json.loads(python(PROGRAM + call, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path)))
    assert len(findings) >= (40 if every else 8)
    assert not {name: found for name, found in findings.items() if found}
    for number in range(2):  # in PTX, and in machine code: a mistake would be found
        assert any("fma" in each.lower() for each in mistakes["fused"][number])
        assert mistakes["not fused"][number] == []
        assert any("ftz" in each.lower() for each in mistakes["flushed"][number])
