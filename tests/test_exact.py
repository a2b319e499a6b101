"""Every backend × CPU target × dtype × layout gives the bits of the reference, which is what the definition says."""

import os
import platform
from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import BACKENDS, WITH_KERNELS, no_short_cut
from support.cases import FEW_SIZES, LARGE_SIZES, assert_same_bits, cases_of, make_case, numbers
from support.exactness import Variant, unwritten, variants
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


def test_numba_is_given_flat_arrays_of_one_dtype(dtype, layout, monkeypatch):
    """Aligned, native, and without gaps; also where no CPU would mind."""
    given = []
    numba = pytest.importorskip("fastgae._backends.numba")
    made = numba.arguments_of
    monkeypatch.setattr(numba, "arguments_of", lambda *call: given.append(made(*call)) or given[-1])
    for size in FEW_SIZES:
        for case in cases_of(layout.size(size), dtype):
            arguments, _ = layout.arguments(case)
            with no_short_cut("numba"):
                fastgae.gae(**arguments, backend="numba")
    assert given
    for arguments in given:
        arrays = {name: a for name, a in arguments._asdict().items() if isinstance(a, np.ndarray)}
        assert {"rewards", "values", "following", "terminated", "advantages", "returns"} <= set(arrays)
        for name, array in arrays.items():
            assert array.ndim == 1, name
            assert array.flags.aligned, name
            assert array.flags.c_contiguous, name
            assert array.dtype == (np.uint8 if name in ("terminated", "truncated") else dtype), name


def test_a_python_number_promotes_nothing(backend):
    got = fastgae.gae(np.ones(2, np.float32), np.ones(2, np.float32), [0, 0], last_values=0.1, backend=backend)
    assert got.advantages.dtype == np.float32


def test_denormal_and_huge_numbers(backend, dtype):
    """Neither flushed to zero nor computed in a wider type."""
    tiny, largest = np.finfo(dtype).tiny, np.finfo(dtype).max
    for variant, scale in product(variants(backend, dtype), (tiny / 4, largest / 3)):
        case = make_case(variant.layout.size((31, 17)), dtype, "random", "next_values")
        with np.errstate(all="ignore"):
            case = case.mapped(lambda name, a, scale=scale: a * dtype.type(scale) if a.dtype != bool else a)
            advantages, _ = variant.check(case)
        assert np.isinf(advantages).any() if scale > 1 else 0 < np.abs(advantages[advantages != 0]).min() < tiny


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64") or os.name != "posix", reason="another fesetround")
def test_every_backend_computes_in_the_modes_of_its_thread(python):
    """docs/exactness.md promises it. Here the thread rounds upwards."""
    python(
        "import ctypes, sys, numpy as np, fastgae\n"
        "rng = np.random.default_rng(0)\n"
        "ctypes.CDLL(None).fesetround(0x800)\n"
        "for shape in ((300, 3), (40, 200), (20000, 1)):\n"
        "    rewards, values = rng.normal(size=(2, *shape)).astype(np.float32)\n"
        "    call = {'terminated': rewards > 2, 'last_values': values[0], 'normalize': 'global'}\n"
        "    results = [fastgae.gae(rewards, values, **call, backend=name) for name in sys.argv[1:]]\n"
        "    for result in results:\n"
        "        assert [a.tobytes() for a in result] == [a.tobytes() for a in results[0]]\n"
        "assert np.float32(1) + np.float32(1e-30) > 1\n",
        *BACKENDS,
    )


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (0.997, 0.93), (0.98, 0.97), (0.1, 0.3)])
def test_gamma_lambda_is_one_float64_product_rounded_once(backend, dtype, gamma, gae_lambda):
    """With V = 0 and rewards (0, 1), A_0 is gamma lambda itself."""
    advantages, _ = fastgae.gae(
        np.array([[0], [1]], dtype),
        np.zeros((3, 1), dtype),
        np.zeros((2, 1), bool),
        gamma=gamma,
        gae_lambda=gae_lambda,
        backend=backend,
    )
    assert_same_bits(advantages, np.array([[gamma * gae_lambda], [1]], dtype))


def test_every_operation_is_rounded_on_its_own(backend, dtype):
    """Written out with Python numbers rounded one by one: no fused multiply-add, no wider type, no other bracketing."""

    def rounded(number):
        return float(dtype.type(number))

    rng = np.random.default_rng(3)
    rewards, values = numbers(rng, (9, 33), dtype), numbers(rng, (10, 33), dtype)
    advantages, returns = fastgae.gae(rewards, values, np.zeros((9, 33), bool), backend=backend)
    gamma, gamma_lambda = rounded(0.99), rounded(0.99 * 0.95)
    for env in range(33):
        following = 0.0
        for t in reversed(range(9)):
            reward, value, next_value = float(rewards[t, env]), float(values[t, env]), float(values[t + 1, env])
            delta = rounded(rounded(reward + rounded(gamma * next_value)) - value)
            following = rounded(delta + rounded(gamma_lambda * following))
            assert advantages[t, env] == following
            assert returns[t, env] == rounded(following + value)
