"""The machine code of every variant rounds each operation on its own and keeps denormals; it needs no GPU."""

import json
from pathlib import Path

import pytest

ARCHITECTURES = (80, 90, 100)
PATHS = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]
PROGRAM = f"import sys; sys.path[:0] = {PATHS!r}; from gpu import compiled; compiled."


@pytest.fixture
def compiling(python, tmp_path):
    """Run a function of ``compiled`` in a process in which Triton compiles."""
    return lambda call: json.loads(python(PROGRAM + call, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nothing_is_fused_or_flushed(compiling, dtype, architecture):
    every = architecture == 90  # what an architecture changes is the same in every variant
    findings = compiling(f"report({architecture}, {dtype.name!r}, {every})")
    assert len(findings) >= (40 if every else 4)
    assert not {name: found for name, found in findings.items() if found}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_mistake_would_be_found(compiling, architecture):
    found = compiling(f"report_planted({architecture})")
    assert any("fma" in each.lower() for each in found["fused"])
    assert found["not fused"] == []
    assert any("ftz" in each.lower() for each in found["flushed"])
