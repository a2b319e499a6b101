"""Every backend × CPU target × dtype × layout gives the bits of the reference, which is what the definition says."""

import numpy as np
import pytest

import fastgae
from support.backends import WITH_KERNELS
from support.cases import FEW_SIZES, LARGE_SIZES, assert_same_bits, cases_of
from support.exactness import Variant, unwritten
from support.layouts import named


@pytest.mark.parametrize("size", LARGE_SIZES, ids=str)
def test_large(size, large):
    dtype = np.dtype(np.float32)
    case, expected = large(size, dtype)
    for layout in named("c", "env_major", "env_major_padded"):
        arguments, _ = layout.arguments(case)
        with unwritten(arguments):
            for backend in WITH_KERNELS:
                got = Variant(backend, dtype, layout).results(arguments)
                for array, right in zip(got, expected, strict=True):
                    assert_same_bits(array, right, f"{backend} {layout.name}")


def test_backends_are_given_what_a_rollout_promises(dtype, layout, monkeypatch):
    """Views of one dtype, aligned, native, and with a unit stride along the same axis; also where no CPU would mind."""
    rollouts = []
    made = fastgae._backends.numpy.canonical_rollout
    monkeypatch.setattr(
        fastgae._backends.numpy, "canonical_rollout", lambda call: rollouts.append(made(call)) or rollouts[-1]
    )
    for size in FEW_SIZES:
        for case in cases_of(layout.size(size), dtype):
            arguments, _ = layout.arguments(case)
            fastgae.gae(**arguments, backend="numpy")
    for rollout in rollouts:
        arrays = {name: a for name, a in rollout._asdict().items() if isinstance(a, np.ndarray)}
        assert {"rewards", "values", "next_values", "last_values", "terminated", "advantages", "returns"} <= set(arrays)
        unit_axes = {0, 1}
        for name, array in arrays.items():
            assert array.flags.aligned, name
            assert array.dtype == (bool if name in ("terminated", "truncated") else dtype), name
            if array.ndim == 2:
                unit_axes &= {i for i in (0, 1) if array.shape[i] <= 1 or array.strides[i] == array.itemsize}
        assert unit_axes
        assert unit_axes == {0} or rollout.last_values.flags.c_contiguous


def test_a_python_number_promotes_nothing(backend):
    got = fastgae.gae(np.ones(2, np.float32), np.ones(2, np.float32), [0, 0], last_values=0.1, backend=backend)
    assert got.advantages.dtype == np.float32
