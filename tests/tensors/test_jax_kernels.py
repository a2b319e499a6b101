"""The kernel of Pallas that computes loops over time on a GPU or a TPU; here, Pallas interprets it on the CPU."""

import contextlib
import functools
import sys

import numpy as np
import pytest

import fastgae
from support.drawn import drawn

jax = pytest.importorskip("jax")
jnp = jax.numpy
from fastgae._backends import xla  # noqa: E402
from fastgae._backends.xla import loops  # noqa: E402
from fastgae._interop import jax_xla  # noqa: E402

from .test_jax import assert_answers, jitted, lowered, of_shards, sharded  # noqa: E402

if jax.__version_info__ < (0, 8):
    pytest.skip("this JAX has another Pallas", allow_module_level=True)

NAMES = ("gae", "gae_packed", "vtrace", "retrace", "upgo", "reverse_scan")
CALL = {"cuda": "__gpu$xla.gpu.triton", "tpu": "tpu_custom_call"}


@pytest.fixture(params=loops.SIZES)
def platform(request):
    return request.param


@pytest.fixture
def kernels(platform, monkeypatch):
    with interpreted(platform, monkeypatch) as seen:
        yield seen


@contextlib.contextmanager
def interpreted(platform, monkeypatch):
    """Compute every loop as on a platform, in small blocks. Return the shapes of what a kernel computed."""
    seen, kernel = [], loops._kernel

    def noted(step, platform, *given):
        seen.append([each.shape for each in given])
        return kernel(step, platform, *given, interpret=True)

    def of_platform(step, *given):
        ways = loops._loops(step, *given)
        return ways.get(platform, ways["default"])(*given)

    monkeypatch.setattr(jax_xla, "is_ready", lambda: False)
    monkeypatch.setattr(loops, "_kernel", noted)
    monkeypatch.setattr(loops, "UNROLLED", 2)
    monkeypatch.setattr(loops, "SIZES", {"cuda": (4, loops.MOST, 8), "tpu": (4, 7, 4)})
    monkeypatch.setattr(xla, "loop", of_platform)
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", True)  # of what interprets, which then compiles faster
    try:
        yield seen
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
        jax.clear_caches()
    assert seen


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_the_compiled_module(name, kernels, platform):
    """One half of the calls as on each platform."""
    for function, arguments in drawn(name)[list(CALL).index(platform) : 4 : 2]:
        program, arrays = jitted(function, arguments)
        assert_answers(program(arrays), function(**arguments))


def test_derivatives_come_from_the_scan(kernels):
    rewards, values = np.random.default_rng(0).normal(size=(2, 9, 3)).astype(np.float32)

    def total(rewards, values, stop_gradients=False):
        return fastgae.gae(rewards, values, None, last_values=0.0, stop_gradients=stop_gradients).advantages.sum()

    weights = (0.99 * 0.95) ** np.arange(9)
    moved = jax.jit(jax.grad(total))(rewards, values)
    np.testing.assert_allclose(moved, np.broadcast_to(np.cumsum(weights)[:, None], (9, 3)), rtol=1e-5)
    assert not jax.jit(jax.grad(functools.partial(total, stop_gradients=True)))(rewards, values).any()
    assert not kernels
    jax.jit(total)(rewards, values)
    assert kernels


def calls_in(function, *arrays, platform):
    return lowered(jax.jit(function), *arrays, platform=platform).count(f"@{CALL[platform]}(")


@pytest.mark.parametrize("platform", CALL)
def test_one_kernel(platform):
    """Lowering needs no device: a plain call is one kernel, as is V-trace. With a mask, V' passes in another one."""
    rewards, flags = jnp.ones((40, 3)), jnp.zeros((40, 3), bool)
    count = functools.partial(calls_in, platform=platform)
    given = {"last_values": 0.0}
    assert count(lambda r, e: fastgae.gae(r, r, e, **given), rewards, flags) == 1
    assert count(lambda r, e: fastgae.gae(r, r, e, time_axis=1, **given), rewards.T, flags.T) == 1
    assert count(lambda r, e: fastgae.vtrace(r, r, e, ratios=r, **given), rewards, flags) == 1
    assert count(lambda r, e: fastgae.gae(r, r, e, mask=e, **given), rewards, flags) == 2
    assert count(lambda r, e: fastgae.gae(r, r, e, mask=e, next_values=r), rewards, flags) == 1
    assert count(jax.vmap(lambda r, e: fastgae.gae(r, r, e, **given)), rewards.T, flags.T) == 1


def test_a_program_for_a_cpu_traces_no_kernel(monkeypatch):
    """It would take most of the time of the trace."""
    monkeypatch.setattr(loops, "_kernel", lambda *given: pytest.fail("this traces a kernel"))
    monkeypatch.setattr(jax_xla, "is_ready", lambda: False)
    rewards = jnp.ones((40, 3))
    jax.jit(jax.vmap(lambda r: fastgae.gae(r, r, None, last_values=0.0), 1)).lower(rewards)


@pytest.mark.parametrize("platform", CALL)
def test_where_the_scan_computes(platform, monkeypatch):
    """In short loops, gradients and stored programs; a TPU has no float64, and a later JAX no Pallas of Triton."""
    rewards, count = jnp.ones((40, 3)), functools.partial(calls_in, platform=platform)

    def call(r, **how):
        return fastgae.gae(r, r, r, last_values=0.0, **how).advantages

    assert count(call, rewards) == 1
    assert count(call, rewards[: loops.UNROLLED]) == 0
    assert count(jax.grad(lambda r: call(r, stop_gradients=False).sum()), rewards) == 0
    stored = jax.export.export(jax.jit(call), platforms=(platform,))(rewards).mlir_module()
    assert CALL[platform] not in stored
    with jax.enable_x64(True):
        assert count(call, np.ones((40, 3))) == (platform == "cuda")
    monkeypatch.delattr("jax.experimental.pallas.triton")
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)
    jax.clear_caches()
    assert count(call, rewards) == (platform == "tpu")
    jax.clear_caches()


@pytest.mark.parametrize("platform", CALL)
def test_two_devices(platform):
    """Nobody could spread a kernel over devices; each computes its own shard by one."""
    rewards = sharded(np.ones((40, 6), np.float32))

    def call(rewards):
        return fastgae.gae(rewards, rewards, rewards > 1, last_values=0.0).advantages

    assert calls_in(call, rewards, platform=platform) == 0
    if platform == "tpu" or jax.__version_info__ < (0, 12):  # which looks for a GPU among the devices of the mesh
        assert calls_in(of_shards(call), rewards, platform=platform) == 1
