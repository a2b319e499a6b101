"""Numba's kernels for CPUs with narrower vectors than this one give the same bits."""

import platform

import pytest

from support.backends import BACKENDS

if "numba" not in BACKENDS:
    pytest.skip("numba is not installed", allow_module_level=True)


def host_features():
    from llvmlite.binding import get_host_cpu_features

    return {name for name, has in get_host_cpu_features().items() if has}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the features are those of x86")
@pytest.mark.parametrize("features", ["+sse2", "+avx,+avx2"])
def test_narrower_vectors_give_the_same_bits(python, features):
    code = """
import numpy as np, fastgae
rng = np.random.default_rng(0)
for envs, steps in [(16, 33), (37, 530)]:
    rewards, values = rng.normal(size=(2, envs, steps)).astype(np.float32)
    ends, exists = rng.random((2, envs, steps)) < [[[0.1]], [[0.8]]]
    for options in ({}, {"mask": exists}):
        call = {"last_values": values[:, 0].copy(), "time_axis": 1, **options}
        got, right = (fastgae.gae(rewards, values, ends, backend=name, **call) for name in ("numba", "numpy"))
        assert got[0].tobytes() == right[0].tobytes() and got[1].tobytes() == right[1].tobytes()
print("done")
"""
    if not set(features.replace("+", "").split(",")) <= host_features():
        pytest.skip("this CPU cannot run it")
    assert python(code, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES=features) == "done"
