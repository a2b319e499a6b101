"""On a GPU where one is, and otherwise under Triton's interpreter: ``TRITON_INTERPRET=1 pytest tests/gpu``."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from triton.runtime import interpreter

import fastgae

MISSING = next(info.why_missing for info in fastgae.backends() if info.name == "triton")
if MISSING:
    raise pytest.UsageError(f"the triton backend cannot run here: {MISSING}")


@pytest.fixture(autouse=True)
def _numbers_are_data():
    """NumPy, which interprets the kernels, warns of NaN and infinity."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture(autouse=True)
def _quick_interpreter(monkeypatch):
    """Leave out what Triton's interpreter does again and again: two thirds of the time, and no number depends on it.

    Whenever a kernel calls a function, the interpreter replaces Triton's words once more, and with every sum of
    integers it computes another one to find out whether the first fits.
    """
    prepared = interpreter.InterpretedFunction.__call__

    def call(self, *given, **named):
        ours = self.fn.__module__.startswith("fastgae.")
        return self.rewrite()(*given, **named) if ours else prepared(self, *given, **named)

    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", call)
    options = dataclasses.replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", options)


@pytest.fixture(autouse=True)
def _short_turns(request, monkeypatch):
    """Let a turn have few steps, so that a short rollout has whole turns and masked ones: the interpreter is slow."""
    if torch.cuda.is_available() or "usual_turns" in request.fixturenames:
        return
    for name, steps in {"STEPS": 4, "FEWER_STEPS": 2, "FEWEST_STEPS": 2, "HEAD": 4}.items():
        monkeypatch.setattr(f"fastgae._backends.triton.recursion.{name}", steps)
    monkeypatch.setattr("fastgae._interop.torch_devices._plans", {})


@pytest.fixture
def report(python, tmp_path):
    """Return what a module here reports in a process of its own, because in this one Triton interprets."""
    tests = Path(__file__).parents[1]
    paths = [str(tests), str(tests.with_name("benchmarks"))]

    def run(module, *arguments, **environment):
        code = f"import sys; sys.path[:0] = {paths}; from gpu.{module} import report; report{arguments}"
        return json.loads(python(code, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path), **environment))

    return run


@pytest.fixture
def usual_turns():
    """Leave turns as long as they are on a GPU."""
