"""fastgae.compat with arrays of JAX: results are floats, of the dtype to which JAX promotes the numbers given."""

import numpy as np
import pytest

from support.compat_calls import CALLS, given_as

jax = pytest.importorskip("jax")
# By turns, and the dtype of the results; float64 is off.
MIXES = {
    "integers": (["int32"], "float32"),
    "integers first": (["int32", "float32"], "float32"),
    "bfloat16": (["bfloat16"], "bfloat16"),
    "bfloat16 first": (["bfloat16", "float32"], "float32"),
    "bfloat16 last": (["float32", "bfloat16"], "float32"),
}


def of_jax(given, dtype):
    return jax.numpy.asarray(np.asarray(given)).astype({"int64": "int32"}.get(dtype, dtype))


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("name", ["brax", *(name for name in CALLS if name.startswith("rlax"))])
def test_results_are_floats(name, mix):
    function, arguments, numbers = CALLS[name]
    dtypes, expected = MIXES[mix]
    results = function(**given_as(of_jax, arguments, numbers, dtypes))
    results = results if isinstance(results, tuple) else (results,)
    right = function(**given_as(lambda given, dtype: given.astype(dtype), arguments, numbers, ["float64"]))
    right = right if isinstance(right, tuple) else (right,)
    close = 0.2 if expected == "bfloat16" else 1e-4
    for result, array in zip(results, right, strict=True):
        assert isinstance(result, jax.Array)
        assert result.dtype == ("float32" if name != "brax" and expected == "bfloat16" else expected)  # discounts
        np.testing.assert_allclose(result.astype("float32"), array, rtol=close, atol=close)
