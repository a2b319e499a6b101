"""Calls as JAX itself computes them, which it does on a GPU or a TPU. These tests make it do so on the CPU."""

import itertools

import numpy as np
import pytest

import fastgae
from fastgae._call import ROLES, Role
from support.cases import assert_same_bits, make_case
from support.drawn import drawn

jax = pytest.importorskip("jax")
jnp = jax.numpy
from fastgae._backends.xla.loops import UNROLLED  # noqa: E402
from fastgae._interop import jax_xla  # noqa: E402

from .test_jax import NAMES, assert_answers, split, stacked  # noqa: E402

ROLLOUT = make_case((17, 6), np.float32, bootstrap="final_dense").arguments()


@pytest.fixture
def no_module(monkeypatch):
    """XLA cannot call the compiled module, so the program must compute everything, also where JAX promotes nothing."""
    monkeypatch.setattr(jax_xla, "is_ready", lambda: False)
    monkeypatch.setattr(jax_xla, "call", None)
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_the_compiled_module(no_module, name):
    for function, arguments in drawn(name)[::2]:
        arrays, others = split(arguments)
        program = jax.jit(lambda arrays, function=function, others=others: function(**arrays, **others))
        compiled = program.lower(arrays).compile()
        assert "callback" not in compiled.as_text()
        assert_answers(compiled(arrays), function(**arguments))


def test_no_gate(no_module):
    """Where no select comes from the caller's flags."""
    arrays, _ = split({name: ROLLOUT[name] for name in ("rewards", "values", "last_values")})
    call = lambda arrays: fastgae.gae(**arrays, terminated=None)  # noqa: E731
    assert_answers(jax.jit(call)(arrays), call({name: np.asarray(array) for name, array in arrays.items()}))


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
        jax.jit(lambda r: fastgae.gae(r, r, None, last_values=0.0, backend="cpp"))(rewards)
    with pytest.raises(TypeError, match="gamma has dtype bfloat16, in which"):
        jax.jit(lambda r, gamma: fastgae.gae(r, r, None, last_values=0.0, gamma=gamma))(rewards, jnp.bfloat16(0.5))
    with pytest.raises(TypeError, match="rho_clip is an array, and in a program of JAX it must be a number"):
        jax.jit(lambda r, clip: fastgae.vtrace(r, r, r, ratios=r, last_values=r[0], rho_clip=clip))(rewards, 1.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_wrong_shapes_and_types_are_errors_while_jax_traces(monkeypatch, compiled):
    """With the messages that NumPy's arrays get, on every device."""
    if not compiled:
        monkeypatch.setattr(jax_xla, "is_ready", lambda: False)
    seen = set()
    for function, arguments in itertools.chain(*map(drawn, NAMES)):
        for wrong, array in arguments.items():
            if np.ndim(array) == 0 or ROLES[wrong] is Role.BOUNDARIES or (function, wrong) in seen:
                continue
            seen.add((function, wrong))
            first = wrong == next(iter(arguments))
            for bad in (array.astype(complex), *[np.ones((5, 3, 2, 1, 1), array.dtype)][first:]):
                given = {**arguments, wrong: bad}
                with pytest.raises((TypeError, ValueError)) as expected:
                    function(**given)
                arrays, others = split(given)
                with pytest.raises(type(expected.value)) as got:
                    jax.eval_shape(lambda arrays, f=function, o=others: f(**arrays, **o), arrays)
                of_jax = str(expected.value).replace("complex128", "complex64")
                assert wrong == "final_values" or str(got.value).startswith(of_jax), (wrong, str(got.value))
    assert len(seen) > 60


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


EXPLICIT = """
import os; os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import numpy as np, jax, jax.numpy as jnp, fastgae
from jax.sharding import NamedSharding, PartitionSpec as P
rng = np.random.default_rng(0)
rewards, values = rng.normal(size=(2, 40, 6)).astype(np.float32)
ends, last = rewards > 1, values[0]
calls = {
    "gae": lambda r, v: fastgae.gae(r, v, ends, last_values=last, mask=r > -1, normalize="global").advantages,
    "td_lambda": lambda r, v: fastgae.td_lambda(r, v, ends, last_values=last),
    "discounted_returns": lambda r, v: fastgae.discounted_returns(r, ends, last_values=last),
    "reverse_scan": lambda r, v: fastgae.reverse_scan(r, v, initial=last),
    "normalize": lambda r, v: fastgae.normalize(r, by="per_env"),
    "batch": lambda r, v: jax.vmap(lambda r, v: fastgae.gae(r, v, None, last_values=0.0).returns)(r, v),
}
right = {name: np.asarray(call(jnp.asarray(rewards), jnp.asarray(values))) for name, call in calls.items()}
kept = lambda r, v: fastgae.gae(r, v, ends, last_values=last, stop_gradients=False).advantages.sum()
gradient = jax.grad(kept)(jnp.asarray(rewards), values)
mesh = jax.make_mesh((2,), ("envs",), axis_types=(jax.sharding.AxisType.Explicit,))
with jax.set_mesh(mesh):
    for spec in (P(None, "envs"), P("envs", None), P(None, None)):
        given = [jax.device_put(each, NamedSharding(mesh, spec)) for each in (rewards, values)]
        for name, call in calls.items():
            for program in (jax.jit(call), call):
                result = program(*given)
                assert result.sharding.spec == spec, (name, result.sharding)
                np.testing.assert_array_equal(result, right[name], name)
        result = jax.jit(jax.grad(kept))(*given)
        assert result.sharding.spec == spec
        np.testing.assert_allclose(result, gradient, rtol=1e-6)
"""


def test_a_mesh_with_explicit_axes(python):
    """Results are sharded as the first argument is, also those of derivatives."""
    if not hasattr(jax, "set_mesh"):
        pytest.skip("this JAX has no explicit axes")
    python(EXPLICIT)


def test_the_platform_decides():
    """On the CPU, a program calls the compiled module; elsewhere, its loops make many steps in one iteration."""
    long = make_case((64, 3), np.float32, bootstrap="final_dense").arguments()
    arrays, others = split(long)
    program = jax.jit(lambda arrays: fastgae.gae(**arrays, **others))
    gradient = jax.jit(jax.grad(lambda r: fastgae.gae(r, r, r, last_values=0.0, stop_gradients=False)[0].sum()))
    call, calls_of_a_step = f"custom_call @{jax_xla.TARGET}", {}
    for platform in ("cpu", "cuda", "tpu"):
        text = program.trace(arrays).lower(lowering_platforms=(platform,)).as_text()
        assert (call in text) == (platform == "cpu")
        text = gradient.trace(arrays["rewards"]).lower(lowering_platforms=(platform,)).as_text()
        calls_of_a_step[platform] = text.count("call @closed_call(")
    assert calls_of_a_step == {"cpu": 1, "cuda": UNROLLED, "tpu": UNROLLED}
    exported = jax.export.export(program, platforms=("cuda", "tpu"))(arrays)
    assert call not in exported.mlir_module()


EXPORT = """
import jax, numpy as np, fastgae, sys
from jax import export
program = jax.jit(lambda r: fastgae.gae(r, r, None, last_values=0.0))
rewards = np.linspace(-1, 1, 40, dtype=np.float32).reshape(20, 2)
allowed = [export.DisabledSafetyCheck.custom_call("fastgae")]
stored = export.export(program, platforms=("cpu", "tpu"), disabled_checks=allowed)(rewards).serialize()
open(sys.argv[1], "wb").write(stored)
"""
RUN = """
import {first}; import {second}
import sys, numpy as np
from jax import export
rewards = np.linspace(-1, 1, 40, dtype=np.float32).reshape(20, 2)
got = export.deserialize(open(sys.argv[1], "rb").read()).call(rewards)
assert type(got) is fastgae.GAEResult
assert np.array_equal(got.advantages, fastgae.gae(rewards, rewards, None, last_values=0.0).advantages)
"""


def test_an_exported_program_runs_in_a_new_process(python, tmp_path):
    pytest.importorskip("flatbuffers")
    path = str(tmp_path / "program")
    python(EXPORT, path)
    for first, second in (("fastgae", "jax"), ("jax", "fastgae")):
        python(RUN.format(first=first, second=second), path)
