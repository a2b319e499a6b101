"""Numbers of any dtype: results are never rounded to integers, nor to fewer bits than the library itself would keep."""

from itertools import product

import numpy as np
import pytest

from support.compat_calls import CALLS, IN_NUMPY, of_numpy, prepared, tensor_of
from support.functions import arrays_of

# Which dtypes the numbers have, by turns, the dtype of the results in NumPy, and in torch.
MIXES = {
    "integers": (["int64"], "float64", "float32"),
    "integers first": (["int64", "float32"], "float64", "float32"),
    "integers last": (["float32", "int32"], "float64", "float32"),
    "narrow integers": (["int8"], "float64", "float32"),
    "single": (["float32"], "float32", "float32"),
    "double": (["float64"], "float64", "float64"),
    "double last": (["float32", "float64"], "float64", "float64"),
}
NARROW = {
    "bfloat16": (["bfloat16"], "bfloat16"),
    "bfloat16 first": (["bfloat16", "float32"], "float32"),
    "bfloat16 last": (["float32", "bfloat16"], "float32"),
    "both of 16 bits": (["float16", "bfloat16"], "float32"),
    "integers beside bfloat16": (["int64", "bfloat16"], "bfloat16"),
}


def called(call, dtypes, convert=of_numpy):
    function, given = prepared(call, dtypes, convert)
    return arrays_of(function(**given))


@pytest.mark.parametrize("name", IN_NUMPY)
def test_numpy(name):
    call = _, _, numbers = IN_NUMPY[name]
    exact = called(call, ["float64"])
    for mix, (dtypes, expected, _) in MIXES.items():
        got = called(call, dtypes)
        if name in CALLS and len(numbers) > 1 and "rlax" not in name:  # its discounts are float32
            assert {each.dtype.name for each in got} == {expected}, mix
        for array, right in zip(got, exact, strict=True):
            assert array.dtype.kind == "f", mix
            np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-5, err_msg=mix)


def test_torch():
    pytest.importorskip("torch")
    mixes = {**{key: (mixed, dtype) for key, (mixed, _, dtype) in MIXES.items()}, **NARROW}
    for (name, call), (mix, (dtypes, dtype)) in product(CALLS.items(), mixes.items()):
        exact = called(call, ["float64"])
        expected = dtype if len(call[2]) >= len(dtypes) else {"int64": "float32"}.get(dtypes[0], dtypes[0])
        got = called(call, dtypes, tensor_of)
        if "rlax" not in name:  # its discounts are float32
            assert str(got[-1].dtype) == f"torch.{expected}", (name, mix)
        close = 0.2 if "bfloat16" in expected else 1e-2 if mix in NARROW else 1e-5
        for result, right in zip(got, exact, strict=True):
            assert result.dtype.is_floating_point, (name, mix)
            np.testing.assert_allclose(result.double().numpy(), right, close, close, err_msg=f"{name} {mix}")


def test_pufferlib_does_not_fill_integers():
    function, arguments, _ = IN_NUMPY["pufferlib"]
    advantages = arguments["advantages"].astype(int)
    with pytest.raises(TypeError, match="advantages has dtype int64"):
        function(**{**arguments, "advantages": advantages})
    assert not advantages.any()
    with pytest.raises(TypeError, match="advantages has dtype None; expected an array of float32"):
        function(**{**arguments, "advantages": advantages.tolist()})
