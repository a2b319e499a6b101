"""fastgae.compat with arrays of JAX, eager and traced: floats of the dtype to which JAX promotes the numbers given."""

import numpy as np
import pytest

import fastgae
from fastgae.compat import rlax
from support.cases import assert_same_bits
from support.compat_calls import CALLS, prepared
from support.functions import arrays_of, split

from .test_gradients import QUICKLY

jax = pytest.importorskip("jax")

# By turns, and the dtype of the results; float64 is off.
MIXES = {
    "integers": (["int32"], "float32"),
    "integers first": (["int32", "float32"], "float32"),
    "bfloat16": (["bfloat16"], "bfloat16"),
    "bfloat16 first": (["bfloat16", "float32"], "float32"),
    "bfloat16 last": (["float32", "bfloat16"], "float32"),
}
NAMES = ["brax", "cleanrl", *(name for name in CALLS if name.startswith("rlax"))]


def of_jax(given, dtype):
    return jax.device_put(np.asarray(given).astype({"int64": "int32"}.get(dtype, dtype)))  # jnp compiles the conversion


def call_of(name, dtypes=("float32",)):
    """The function, its arrays in these dtypes, and its other arguments."""
    function, given = prepared(CALLS[name], dtypes, of_jax)
    return function, *split(given, jax.Array)


def assert_answers(got, expected):
    assert type(got) is type(expected) or isinstance(got, jax.Array)
    for result, right in zip(arrays_of(got), arrays_of(expected), strict=True):
        assert isinstance(result, jax.Array)
        assert result.dtype == right.dtype
        # XLA may compute a product and a sum with one rounding, but not those of the recursion.
        np.testing.assert_allclose(np.asarray(result, np.float32), np.asarray(right, np.float32), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("name", NAMES)
def test_results_are_floats(name, mix):
    dtypes, expected = MIXES[mix]
    function, arrays, others = call_of(name, dtypes)
    results = function(**arrays, **others)
    right = arrays_of(function(**prepared(CALLS[name], ["float64"])[1]))
    close = 0.2 if expected == "bfloat16" else 1e-4
    for result, array in zip(arrays_of(results), right, strict=True):
        assert isinstance(result, jax.Array)
        discounts = name.startswith("rlax") and expected == "bfloat16"  # which are float32
        assert result.dtype == ("float32" if discounts else expected)
        np.testing.assert_allclose(result.astype("float32"), array, rtol=close, atol=close)
    traced = lambda arrays: function(**arrays, **others)  # noqa: E731
    if (NAMES.index(name) - [*MIXES].index(mix)) % len(MIXES):  # to compile each would take most of the time
        assert jax.eval_shape(traced, arrays) == jax.eval_shape(lambda: results)
        return
    for result, array in zip(arrays_of(jax.jit(traced)(arrays)), arrays_of(results), strict=True):
        assert result.dtype == array.dtype
        last_digit = 1e-2 if expected == "bfloat16" else 1e-5
        np.testing.assert_allclose(result.astype("float32"), array.astype("float32"), rtol=last_digit, atol=last_digit)


@pytest.mark.parametrize("name", NAMES)
def test_jit_of_everything(name):
    """Coefficients are traced, too. JAX rounds them to float32, so the eager call gets them rounded."""
    function, arrays, others = call_of(name)
    rounded = {key: type(each)(np.float32(each)) for key, each in others.items()}
    static = [key for key, each in others.items() if isinstance(each, int)]
    assert_answers(jax.jit(function, static_argnames=static)(**arrays, **others), function(**arrays, **rounded))


@pytest.mark.parametrize("name", NAMES)
def test_vmap_and_scan(name):
    """Three calls with other numbers in the first argument, the others the same in all calls."""
    function, arrays, others = call_of(name)
    first = CALLS[name][2][0]
    batch = jax.numpy.stack([arrays[first], -arrays[first], 2 * arrays[first]])

    def call(given):
        return function(**{**arrays, first: given}, **others)

    expected = jax.tree.map(lambda *each: jax.numpy.stack(each), *map(call, batch))

    def ways(batch):
        scanned = jax.lax.scan(lambda carry, given: (carry, call(given)), 0, batch)[1]
        return jax.vmap(call)(batch), jax.vmap(jax.vmap(call))(batch[None]), scanned

    mapped, twice, scanned = jax.jit(ways, compiler_options=QUICKLY)(batch)
    assert_answers(mapped, expected)
    assert_answers(twice, jax.tree.map(lambda each: each[None], expected))
    assert_answers(scanned, expected)


@pytest.mark.parametrize("name", ["brax", "cleanrl"])
def test_gradients_end(name):
    function, arrays, others = call_of(name)
    first = CALLS[name][2][0]

    def loss(given):
        results = arrays_of(function(**{**arrays, first: given}, **others))
        return sum((result**2).sum() for result in results) + given.sum()

    for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_array_equal(gradient(arrays[first]), np.ones(arrays[first].shape))


def test_vmap_over_float64_of_numpy():
    """vmap keeps the float64 of NumPy behind an array that it shows as float32."""
    rewards, discounts = np.linspace(-1, 1, 10).reshape(2, 5), np.full((2, 5), 0.5)
    got = jax.vmap(lambda r, d: rlax.lambda_returns(r, d, r, 0.9))(rewards, discounts)
    expected = [rlax.lambda_returns(r, d, r, 0.9) for r, d in zip(rewards, discounts, strict=True)]
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    sums = jax.vmap(lambda r: fastgae.discounted_returns(r, None, last_values=0.0, stop_gradients=False))(rewards)
    expected = [fastgae.discounted_returns(r, None, last_values=0.0) for r in np.float32(rewards)]
    assert_same_bits(sums, np.float32(expected))


def test_traced_values_beside_rewards_of_numpy():
    rewards, discounts, values = np.float32([[1, 2, 3], [0.5, 0.9, 0], [4, 5, 6]])
    expected = rlax.lambda_returns(rewards, discounts, values, 0.9)
    got = jax.jit(lambda values: rlax.lambda_returns(rewards, discounts, values, 0.9))(values)
    assert_same_bits(got, expected)


def test_a_guard_of_transfers():
    function, arrays, others = call_of("cleanrl", ["bfloat16"])  # computed in float32
    expected = function(**arrays, **others)
    with jax.transfer_guard("disallow"):
        results = function(**arrays, **others)
    assert_answers(results, expected)


def test_integers_where_float64_is_on():
    with jax.enable_x64(True):
        function, arrays, others = call_of("cleanrl", ["int32"])
        assert {each.dtype.name for each in arrays_of(function(**arrays, **others))} == {"float64"}


def test_functions_of_torch_libraries():
    function, given = prepared(CALLS["paper2code one env"], convert=of_jax)
    assert_answers(jax.jit(function)(**given), function(**given))
    function, arrays, others = call_of("verl")
    assert_answers(jax.jit(lambda arrays: function(**arrays, **others))(arrays), function(**arrays, **others))


def test_another_device(monkeypatch):
    function, arrays, others = call_of("cleanrl")
    expected = function(**arrays, **others)
    monkeypatch.setattr("fastgae._interop.jax.beyond_the_cpu", lambda sharding: ["CudaDevice(id=0)"])
    assert_answers(function(**arrays, **others), expected)  # computed where the arrays are


def test_actions_of_8_bits():
    """They cannot count the steps of a long trajectory."""
    q, actions, ones = np.full((300, 3), 0.5, np.float32), np.zeros(300, np.int8), np.ones(300, np.float32)
    given = q, actions, ones, ones / 2, ones, q
    function = rlax.general_off_policy_returns_from_action_values
    assert_same_bits(jax.jit(function)(*given), function(*given))
