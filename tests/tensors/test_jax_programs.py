"""Shapes, dtypes and batches in programs of JAX, in each of the ways in which these compute a call."""

import enum

import numpy as np
import pytest

import fastgae
from support.cases import env_major, make_case

jax = pytest.importorskip("jax")
jnp = jax.numpy
from fastgae._backends.xla import loops  # noqa: E402
from fastgae._interop import jax_xla  # noqa: E402

from .test_jax import assert_answers, jitted, split_call, stacked  # noqa: E402
from .test_jax_kernels import interpreted  # noqa: E402
from .test_jax_lowering import alone  # noqa: E402

MODE = enum.Enum("AutoresetMode", "NEXT_STEP")  # as Gymnasium has one
NUMBER, WORD = enum.IntEnum("Number", {"THREE": 3}).THREE, enum.StrEnum("Word", {"ENV": "per_env"}).ENV


@pytest.fixture(params=["module", "scan", *loops.SIZES])
def only(request, monkeypatch):
    """Let programs compute in one way. Return a function after which the compiled module needs no Python.

    That is so after the first execution of a call. The other ways are JAX itself, and the kernel of each platform.
    """
    if request.param == "module":
        pytest.importorskip("fastgae._core")
        yield lambda: monkeypatch.setattr(jax_xla, "Batch", None)
        return
    with alone(monkeypatch) if request.param == "scan" else interpreted(request.param, monkeypatch):
        yield lambda: None


def test_shapes(only):
    """Around the ends of blocks and of turns. In env-major order, time is the second axis."""
    for number, shape in enumerate([(0, 3), (3, 0), (3, 1), (7, 5), (8, 3), (14, 4), (15, 9), (1, 1), (64, 3)]):
        case = make_case(shape, np.float32, "random", "final_dense").arguments()
        if number % 2:
            case = env_major(case)
        program, arrays = jitted(fastgae.gae, case)
        assert_answers(program(arrays), fastgae.gae(**case))
        if number == 3:
            only()


def test_dtypes(only):
    arguments = make_case((9, 4), np.float32, bootstrap="last_values").arguments()
    program, arrays = jitted(fastgae.gae, arguments)
    assert_answers(program(arrays), fastgae.gae(**arguments))
    only()
    narrow = {name: a.astype(jnp.bfloat16) if a.dtype == jnp.float32 else a for name, a in arrays.items()}
    expected = fastgae.gae(**arguments | {name: np.asarray(array) for name, array in narrow.items()})
    assert_answers(program(narrow), expected)
    with jax.enable_x64(True):
        arguments = make_case((9, 4), np.float64, bootstrap="last_values").arguments()
        assert_answers(program(split_call(arguments)[0]), fastgae.gae(**arguments))


def test_batches(only):
    """A batch in a batch, with arrays that all calls share, and coefficients of each call."""
    cases = [make_case((7, 3), np.float32, bootstrap="final_dense", seed=seed).arguments() for seed in range(6)]
    gammas = np.linspace(0.5, 1.0, 6, dtype=np.float32)
    for given, gamma in zip(cases, gammas, strict=True):
        given.update(terminated=cases[0]["terminated"], gamma=gamma)
    expected = stacked([fastgae.gae(**given) for given in cases])
    shared = {name: cases[0][name] for name in ("terminated", "gae_lambda")}
    names = cases[0].keys() - shared
    batch = {
        name: jnp.stack([given[name] for given in cases]).reshape(2, 3, *np.shape(cases[0][name])) for name in names
    }
    program = jax.jit(jax.vmap(jax.vmap(lambda arrays: fastgae.gae(**arrays, **shared))))
    for _ in range(2):
        assert_answers(program(batch), fastgae.GAEResult(*(array.reshape(2, 3, 7, 3) for array in expected)))
        only()


def test_no_gate(only):
    """Where no select comes from the caller's flags."""
    rewards = make_case((9, 4), np.float32).rewards

    def call(rewards):
        return fastgae.gae(rewards, rewards, None, last_values=0.0)

    assert_answers(jax.jit(call)(rewards), call(rewards))


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (fastgae.gae, {"carry_over": np.bool_(False), "num_threads": np.int32(2), "gamma": np.float32(0.9)}),
        (fastgae.gae, {"gamma": np.float64(0.9), "gae_lambda": [[0.3]], "autoreset": "NEXT_STEP"}),
        (fastgae.gae, {"autoreset": MODE.NEXT_STEP, "normalize": WORD}),
        (fastgae.n_step_returns, {"n": NUMBER}),
        (fastgae.n_step_returns, {"n": np.array(3)}),
        (fastgae.vtrace, {"ratios": np.ones((4, 9), np.float32), "rho_clip": np.float32(0.5), "leaky": np.array(0.25)}),
    ],
)
def test_settings_may_be_numbers_of_numpy(function, numbers, monkeypatch):
    rewards, values = np.random.default_rng(0).normal(size=(2, 4, 9)).astype(np.float32)
    values = values.astype(values.dtype.newbyteorder("S"))  # which JAX does not know
    settings = {"terminated": np.zeros((4, 9), bool), "time_axis": np.int64(1), "last_values": np.float64(0.5)}

    def call(rewards):
        return function(rewards, values, **settings, **numbers)

    assert_answers(jax.jit(call)(rewards), call(rewards))
    with alone(monkeypatch):
        assert_answers(jax.jit(call)(rewards), call(rewards))
