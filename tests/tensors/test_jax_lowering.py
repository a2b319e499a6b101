"""Calls as JAX itself computes them, which it does on a GPU or a TPU. These tests make it do so on the CPU."""

import collections
import contextlib
import functools
import itertools
import re

import numpy as np
import pytest

import fastgae
from fastgae._call import ROLES, Role
from support.cases import assert_same_bits, make_case
from support.drawn import drawn

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from fastgae._backends.xla.loops import UNROLLED  # noqa: E402
from fastgae._interop import jax_xla  # noqa: E402

from .test_gradients import QUICKLY  # noqa: E402
from .test_jax import NAMES, OF_ENVS, assert_answers, jitted, lowered, of_shards, sharded, split_call  # noqa: E402

ROLLOUT = make_case((17, 6), np.float32, bootstrap="final_dense").arguments()


@pytest.fixture
def no_module(monkeypatch):
    with alone(monkeypatch):
        yield


@contextlib.contextmanager
def alone(monkeypatch):
    """XLA cannot call the compiled module, so the program must compute everything, also where JAX promotes nothing."""
    monkeypatch.setattr(jax_xla, "is_ready", lambda: False)
    monkeypatch.setattr(jax_xla, "call", None)
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_the_compiled_module(no_module, name):
    """Of the functions that between them have every option, all calls."""
    for function, arguments in drawn(name)[: None if name in ("gae", "vtrace") else 3]:
        program, arrays = jitted(function, arguments)
        compiled = program.lower(arrays).compile()
        assert "callback" not in compiled.as_text()
        assert_answers(compiled(arrays), function(**arguments))


@pytest.mark.parametrize(
    "call",
    [
        fastgae.normalize,
        lambda rewards: fastgae.gae(rewards, rewards, None, last_values=0.0, tail_normalized=True).advantages,
    ],
)
def test_a_batch_is_divided_as_numpy_divides(no_module, call):
    """By numbers that all calls share, of which XLA makes constants, and not times their reciprocals."""
    batch = np.random.default_rng(0).normal(size=(20, 41))
    with jax.enable_x64(True):
        assert_same_bits(jax.jit(jax.vmap(call))(batch), np.stack([*map(call, batch)]))


@pytest.mark.parametrize("steps", [1, 17])
@pytest.mark.parametrize("traced", ["rewards", "gamma", "lambda_", "next_values", "ratios"])
def test_constants_are_not_joined(no_module, steps, traced):
    """XLA would compute (x + 1) - 2 as x - 1, and join a product with a sum where it sees that neither is NaN."""
    with jax.enable_x64(True):
        names = ("rewards", "values", "next_values", "ratios", "gamma", "lambda_")
        given = dict(zip(names, jnp.asarray(np.random.default_rng(0).uniform(0.5, 1, (6, steps, 41))), strict=True))
        ends = np.zeros((steps, 41), bool)
        last = {"last_values": 0.7, "last_advantages": 0.37, "gae_lambda": 0.93}

        def call(given):
            of_gae = fastgae.gae(given["rewards"], given["values"], ends, gamma=given["gamma"], **last)
            of_vtrace = [fastgae.vtrace(**given, terminated=ends, leaky=leaky) for leaky in (0.0, 0.3)]
            return *of_gae, *of_vtrace[0], *of_vtrace[1]

        got = jax.jit(lambda array: call({**given, traced: array}))(given[traced])
        assert_answers(got, call({name: np.asarray(array) for name, array in given.items()}))


def test_numbers_that_the_program_cannot_check(no_module):
    """A flag that is not 0 counts as 1, and missing final values are NaN. Outside of JAX, both are errors."""
    rewards = jnp.ones((3, 2))
    ended = jax.jit(lambda flags: fastgae.gae(rewards, rewards, flags, last_values=0.0))
    half, one = (ended(rewards.at[1].set(flag)) for flag in (0.5, 1.0))
    assert_same_bits(half.advantages, one.advantages)
    cut, none = np.ones((3, 2), bool), np.zeros((3, 2), bool)
    ends = {"terminated": none, "truncated": cut, "last_values": 0.0}
    got = jax.jit(lambda final: fastgae.gae(rewards, rewards, **ends, final_values=final).returns)(jnp.ones(5))
    assert np.isnan(got).tolist() == [[False, False], [False, False], [False, True]]
    for zero in (0.0, -0.0):  # which are equal, but not of one program
        got = jax.jit(lambda x, zero=zero: fastgae.reverse_scan(x, 1.0, initial=zero))(-jnp.zeros(1))
        assert np.signbit(got) == np.signbit(zero)
    minus, gap = -np.zeros(3, np.float32), np.array([True, False, True])
    masked = functools.partial(fastgae.discounted_returns, terminated=np.array([False, False, True]), mask=gap)
    for got in (jax.jit(masked)(minus), masked(minus)):
        assert np.signbit(got).tolist() == gap.tolist()
    for zeros in (minus, -minus):  # a constant that is added or subtracted decides on the sign
        call = functools.partial(fastgae.gae, values=zeros, terminated=~gap, last_values=0.0)
        assert_answers(jax.jit(call)(minus), call(minus))
    call = functools.partial(fastgae.normalize, mean=0.1, std=0.3)  # which are no float32
    assert_answers(jax.jit(call)(ROLLOUT["rewards"]), call(ROLLOUT["rewards"]))


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
                arrays, others = split_call(given)
                with pytest.raises(type(expected.value)) as got:
                    jax.eval_shape(lambda arrays, f=function, o=others: f(**arrays, **o), arrays)
                of_jax = str(expected.value).replace("complex128", "complex64")
                assert wrong == "final_values" or str(got.value).startswith(of_jax), (wrong, str(got.value))
    assert len(seen) > 60


def test_a_length_without_a_number_is_an_error():
    rewards = jax.ShapeDtypeStruct(jax.export.symbolic_shape("T, 3"), np.float32)
    with pytest.raises(TypeError, match=r"rewards has shape \(T, 3\); expected lengths that are numbers"):
        jax.eval_shape(lambda rewards: fastgae.gae(rewards, rewards, None, last_values=0.0), rewards)


def test_two_devices(no_module):
    """Results lie where the first argument does, and each device computes its own shard."""
    rewards = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)

    def call(r, **how):
        return fastgae.gae(r, r, r > 1, last_values=0.0, **how).advantages

    normalized = functools.partial(call, mask=rewards > -1, normalize="per_env")
    expected = normalized(rewards)
    there = jax.device_put(rewards, jax.devices()[1])
    assert_same_bits(jax.jit(normalized)(there), expected)
    for given in (there, sharded(rewards), jnp.asarray(rewards)):
        outside = normalized(given)
        assert_same_bits(outside, expected)
        assert (outside.sharding, outside.committed) == (given.sharding, given.committed)
    assert_same_bits(jax.jit(normalized)(sharded(rewards)), expected)
    each = of_shards(lambda r: call(r, mask=r > -1, normalize="per_env"))
    assert_same_bits(jax.jit(each)(sharded(rewards)), expected)
    kept = functools.partial(call, stop_gradients=False)
    gradient = lambda call: jax.jit(jax.grad(lambda r: call(r).sum()), compiler_options=QUICKLY)  # noqa: E731
    of_each, of_one = gradient(of_shards(kept))(sharded(rewards)), gradient(kept)(rewards)
    np.testing.assert_allclose(of_each, of_one, rtol=1e-6)


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="this JAX has no explicit axes")
def test_a_mesh_with_explicit_axes():
    """Results are sharded as the first argument is, also those of derivatives."""
    rewards, values = np.random.default_rng(0).normal(size=(2, 40, 6)).astype(np.float32)
    ends, last = rewards > 1, values[0]
    calls = {
        "gae": lambda r, v: fastgae.gae(r, v, ends, last_values=last, mask=r > -1, normalize="global").advantages,
        "td_lambda": lambda r, v: fastgae.td_lambda(r, v, ends, last_values=last),
        "discounted_returns": lambda r, v: fastgae.discounted_returns(r, ends, last_values=last),
        "reverse_scan": lambda r, v: fastgae.reverse_scan(r, v, initial=last),
        "normalize": lambda r, v: fastgae.normalize(r, by="per_env"),
        "batch": lambda r, v: jax.vmap(lambda r, v: fastgae.gae(r, v, None, last_values=0.0).returns)(r, v),
    }

    def kept(r, v):
        return fastgae.gae(r, v, ends, last_values=last, stop_gradients=False).advantages.sum()

    def of_all(*given):
        return {name: call(*given) for name, call in calls.items()}

    right = jax.tree.map(np.asarray, of_all(*jax.device_put((rewards, values))))
    gradient = jax.jit(jax.grad(kept), compiler_options=QUICKLY)(rewards, values)
    mesh = jax.make_mesh((2,), ("envs",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        for spec in (OF_ENVS, P("envs", None), P(None, None)):
            given = [jax.device_put(each, NamedSharding(mesh, spec)) for each in (rewards, values)]
            for program in (jax.jit(of_all), of_all):  # one program, because to compile each takes most of the time
                for name, result in program(*given).items():
                    assert result.sharding.spec == spec, (name, result.sharding)
                    assert_same_bits(result, right[name], name)
            result = jax.jit(jax.grad(kept), compiler_options=QUICKLY)(*given)
            assert result.sharding.spec == spec
            np.testing.assert_allclose(result, gradient, rtol=1e-6)


def test_the_platform_decides():
    """On the CPU, a program calls the compiled module; elsewhere, its loops make many steps in one iteration."""
    long = make_case((64, 3), np.float32, bootstrap="final_dense").arguments()
    program, arrays = jitted(fastgae.gae, long)
    gradient = jax.jit(jax.grad(lambda r: fastgae.gae(r, r, r, last_values=0.0, stop_gradients=False)[0].sum()))
    call, most_calls = f"custom_call @{jax_xla.TARGET}", {}
    for platform in ("cpu", "cuda", "tpu"):
        assert (call in lowered(program, arrays, platform=platform)) == (platform == "cpu")
        text = lowered(gradient, arrays["rewards"], platform=platform)
        most_calls[platform] = max(collections.Counter(re.findall(r"call @\w+", text)).values())
    assert most_calls == {"cpu": 3, "cuda": UNROLLED, "tpu": UNROLLED}  # a loop reads three arrays
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
import fastgae, sys, numpy as np
from jax import export
rewards = np.linspace(-1, 1, 40, dtype=np.float32).reshape(20, 2)
got = export.deserialize(open(sys.argv[1], "rb").read()).call(rewards)
assert type(got) is fastgae.GAEResult
assert np.array_equal(got.advantages, fastgae.gae(rewards, rewards, None, last_values=0.0).advantages)
"""


def test_an_exported_program_runs_in_a_new_process(python, tmp_path):
    pytest.importorskip("flatbuffers")
    for program in (EXPORT, RUN):
        python(program, str(tmp_path / "program"))


def test_trees_on_two_devices_and_without_nodes(monkeypatch):
    parents, rewards = np.array([-1, 0, 0, 1, 1, 2]), np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)

    def call(rewards):
        return fastgae.gae_tree(rewards[:, 0], rewards[:, 0], parents, None, gamma=0.9).advantages[:, np.newaxis]

    got = jax.jit(of_shards(call))(sharded(rewards))
    np.testing.assert_array_equal(got, np.concatenate([call(rewards[:, :1]), call(rewards[:, 1:])], 1))
    empty = jax.jit(lambda rewards: fastgae.gae_tree(rewards, rewards, jnp.zeros(0, int), None, gamma=0.9))
    assert empty(jnp.zeros(0)).returns.shape == (0,)
    nodes, exists = np.arange(7, dtype=np.float32), np.arange(7) != 1
    masked = functools.partial(
        fastgae.gae_tree, parents=np.append(parents, -1), terminated=None, mask=exists, gamma=0.9
    )
    with alone(monkeypatch):
        assert_answers(jax.jit(masked)(nodes, nodes), masked(nodes, nodes))
