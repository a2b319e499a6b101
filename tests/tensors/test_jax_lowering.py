"""Calls as JAX itself computes them, which it does on a GPU or a TPU. These tests make it do so on the CPU."""

import numpy as np
import pytest

import fastgae
from fastgae._call import ROLES, Role
from support.cases import assert_same_bits, make_case
from support.tensor_calls import CALLS, FEW

jax = pytest.importorskip("jax")
jnp = jax.numpy
from fastgae._interop import jax_xla  # noqa: E402

from .test_jax import assert_answers, split, stacked  # noqa: E402

ROLLOUT = make_case((17, 6), np.float32, bootstrap="final_dense").arguments()
OPTIONS = ["gae-carry_over_all", "gae-tail_normalized_row", "gae-last_advantages", "gae-normalize_masked"]


@pytest.fixture
def no_module(monkeypatch):
    """XLA cannot call the compiled module, so the program must compute everything, also where JAX promotes nothing."""
    monkeypatch.setattr(jax_xla, "is_ready", lambda: False)
    monkeypatch.setattr(jax_xla, "call", None)
    with jax.numpy_dtype_promotion("strict"):
        yield


def test_the_bits_of_the_compiled_module(no_module):
    """For every function and option, also without any gate, where no select comes from the caller's flags."""
    for name in (*FEW, *OPTIONS):
        function, arguments = CALLS[name]
        arrays, others = split(arguments)
        program = jax.jit(lambda arrays, function=function, others=others: function(**arrays, **others))
        compiled = program.lower(arrays).compile()
        assert "callback" not in compiled.as_text()
        try:
            assert_answers(compiled(arrays), function(**arguments))
        except AssertionError as error:
            raise AssertionError(name) from error


def test_batches_shapes_and_dtypes(no_module):
    arrays, others = split(ROLLOUT)
    program = jax.jit(lambda arrays: fastgae.gae(**arrays, **others))
    for shape in ((1, 1), (0, 3), (3, 0), (64, 3)):
        case = make_case(shape, np.float32, bootstrap="final_dense").arguments()
        assert_answers(program(split(case)[0]), fastgae.gae(**case))
    with jax.enable_x64(True):
        case = make_case((9, 4), np.float64, bootstrap="final_dense").arguments()
        for result, expected in zip(program(split(case)[0]), fastgae.gae(**case), strict=True):
            assert_same_bits(result, expected)
    narrow = {name: a.astype(jnp.bfloat16) if a.dtype == jnp.float32 else a for name, a in arrays.items()}
    assert_answers(
        program(narrow), fastgae.gae(**{name: np.asarray(array) for name, array in narrow.items()}, **others)
    )
    batch = [make_case((7, 3), np.float32, bootstrap="final_dense", seed=seed).arguments() for seed in range(4)]
    two = {
        name: jnp.stack([given[name] for given in batch]).reshape(2, 2, *array.shape[1:])
        for name, array in ((name, np.stack([batch[0][name]])) for name in arrays)
    }
    got = jax.jit(jax.vmap(jax.vmap(lambda arrays: fastgae.gae(**arrays, **others))))(two)
    expected = stacked([fastgae.gae(**given) for given in batch])
    assert_answers(got, fastgae.GAEResult(*(array.reshape(2, 2, 7, 3) for array in expected)))
    numbers = {"gamma": np.float64(0.9), "gae_lambda": [[0.3]], "last_values": 0}
    settings = {**numbers, "truncated": ROLLOUT["truncated"], "autoreset": "NEXT_STEP"}
    got = jax.jit(lambda r: fastgae.gae(r, r, ROLLOUT["terminated"], **settings))(arrays["rewards"])
    assert_answers(got, fastgae.gae(ROLLOUT["rewards"], ROLLOUT["rewards"], ROLLOUT["terminated"], **settings))


def test_numbers_that_the_program_cannot_check(no_module):
    """A flag that is not 0 counts as 1, and missing final values are NaN. Outside of JAX, both are errors."""
    rewards = jnp.ones((3, 2))
    half, one = (
        jax.jit(lambda flags: fastgae.gae(rewards, rewards, flags, last_values=0.0))(rewards.at[1].set(flag))
        for flag in (0.5, 1.0)
    )
    assert_same_bits(half.advantages, one.advantages)
    cut, none = np.ones((3, 2), bool), np.zeros((3, 2), bool)
    ends = {"terminated": none, "truncated": cut, "last_values": 0.0}
    got = jax.jit(lambda final: fastgae.gae(rewards, rewards, **ends, final_values=final).returns)(jnp.ones(5))
    assert np.isnan(got).tolist() == [[False, False], [False, False], [False, True]]


def test_what_a_program_does_not_have(no_module):
    rewards = jnp.ones((3, 2))
    with pytest.raises(TypeError, match="backend='cpp' does not: leave backend out"):
        jax.jit(lambda r: fastgae.gae(r, r, last_values=0.0, backend="cpp"))(rewards)
    with pytest.raises(TypeError, match="gamma has dtype bfloat16, in which"):
        jax.jit(lambda r, gamma: fastgae.gae(r, r, last_values=0.0, gamma=gamma))(rewards, jnp.bfloat16(0.5))
    with pytest.raises(TypeError, match="rho_clip is an array, and in a program of JAX it must be a number"):
        jax.jit(lambda r, clip: fastgae.vtrace(r, r, r, ratios=r, last_values=r[0], rho_clip=clip))(rewards, 1.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_wrong_shapes_and_types_are_errors_while_jax_traces(monkeypatch, compiled):
    """With the messages that NumPy's arrays get, on every device."""
    if not compiled:
        monkeypatch.setattr(jax_xla, "is_ready", lambda: False)
    seen = 0
    for name in [name for name in FEW if "-every-" in name]:
        function, arguments = CALLS[name]
        for wrong, array in arguments.items():
            if not isinstance(array, np.ndarray) or ROLES[wrong] is Role.BOUNDARIES:
                continue
            for bad in (np.ones((5, 3, 2), array.dtype), array.astype(complex)):
                given = {**arguments, wrong: bad}
                with pytest.raises((TypeError, ValueError)) as expected:
                    function(**given)
                arrays, others = split(given)
                with pytest.raises(type(expected.value)) as got:
                    jax.eval_shape(lambda arrays, f=function, o=others: f(**arrays, **o), arrays)
                of_jax = str(expected.value).replace("complex128", "complex64")
                assert wrong == "final_values" or str(got.value).startswith(of_jax), (name, wrong, str(got.value))
                seen += 1
    assert seen > 100


ON_DEVICES = """
import os; os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import numpy as np, jax, jax.numpy as jnp, fastgae
from fastgae._interop import jax_xla
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax_xla.is_ready = lambda: False
rewards = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
call = lambda r: fastgae.gae(r, r, r > 1, last_values=0.0, mask=r > -1, normalize="per_env").advantages
expected = call(rewards)
there = jax.device_put(rewards, jax.devices()[1])
np.testing.assert_array_equal(jax.jit(call)(there), expected)
mesh = Mesh(np.array(jax.devices()), ("envs",))
sharded = jax.device_put(rewards, NamedSharding(mesh, P(None, "envs")))
for given in (there, sharded, jnp.asarray(rewards)):
    outside = call(given)
    np.testing.assert_array_equal(outside, expected)
    assert (outside.sharding, outside.committed) == (given.sharding, given.committed)
spec = {"mesh": mesh, "in_specs": P(None, "envs"), "out_specs": P(None, "envs")}
for program in (call, jax.shard_map(call, **spec)):
    result = jax.jit(program)(sharded)
    np.testing.assert_array_equal(result, expected)
kept = lambda r: fastgae.gae(r, r, r > 1, last_values=0.0, stop_gradients=False).advantages
gradient = jax.grad(lambda r: jax.shard_map(kept, **spec)(r).sum())(sharded)
np.testing.assert_allclose(gradient, jax.grad(lambda r: kept(r).sum())(jnp.asarray(rewards)), rtol=1e-6)
"""


def test_two_devices(python):
    python(ON_DEVICES)


def test_a_program_for_several_platforms(monkeypatch):
    """If JAX has a GPU, a program chooses where it is lowered: on the CPU, the compiled module."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    arrays, others = split(ROLLOUT)
    program = jax.jit(lambda arrays: fastgae.gae(**arrays, **others))
    exported = jax.export.export(program, platforms=("cuda", "tpu"))(arrays)
    call = f"custom_call @{jax_xla.TARGET}"
    assert call not in exported.mlir_module()
    assert call in program.lower(arrays).as_text()
    assert_answers(program(arrays), fastgae.gae(**ROLLOUT))
