"""On a GPU where one is, and otherwise under Triton's interpreter: ``TRITON_INTERPRET=1 pytest tests/gpu``."""

import numpy as np
import pytest

import fastgae

MISSING = next(info.why_missing for info in fastgae.backends() if info.name == "triton")
if MISSING:
    raise pytest.UsageError(f"the triton backend cannot run here: {MISSING}")


@pytest.fixture(autouse=True)
def _numbers_are_data():
    """NumPy, which interprets the kernels, warns of NaN and infinity."""
    with np.errstate(all="ignore"):
        yield
