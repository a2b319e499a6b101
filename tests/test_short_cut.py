"""The short cut of the compiled backend takes every kind of small call, and that of Numba common ones.

``fuzz`` compares their bits with those of the long way.
"""

import enum
from functools import partial
from itertools import product

import numpy as np
import pytest

import fastgae
from fastgae._call import NEW, Call, Role, names_of
from fuzz.layouts import laid
from support.backends import BACKENDS, needs_cpp, no_short_cut
from support.cases import assert_same_bits, make_case
from support.good_calls import good_calls

SIZE = (17, 3)  # few enough steps for the smallest thresholds, too
MEMORY = {
    **{name: partial(laid, layout=name) for name in ("sliced", "unaligned", "time backwards", "fortran")},
    "swapped": lambda array: array.astype(array.dtype.newbyteorder("S")),
}
# What the dtypes of flags and numbers become.
DTYPES = {
    "int64 flags": lambda array: array.astype(np.int64) if array.dtype == bool else array,
    "float32 flags": lambda array: array.astype(np.float32) if array.dtype == bool else array,
    "swapped int16 flags": lambda array: array.astype(">i2") if array.dtype == bool else array,
    "float64 numbers": lambda array: array if array.dtype == bool else array.astype(np.float64),
    "int8 numbers": lambda array: array if array.dtype == bool else array.astype(np.int8),
    "uint64 numbers": lambda array: array if array.dtype == bool else np.abs(array).astype(np.uint64),
}


def calls(dtype):
    case = make_case(SIZE, dtype, bootstrap="final_dense")
    rollout = {"rewards": case.rewards, "values": case.values, "terminated": case.terminated}
    following = {"truncated": case.truncated, "next_values": case.values[::-1]}
    finals = {"truncated": case.truncated, "final_values": case.rewards[case.truncated]}
    last, mask = {"last_values": case.last_values}, {"mask": case.rewards > -1}
    own = {name: rollout[name] for name in ("rewards", "terminated")}
    flat = {name: array[:, 0] for name, array in rollout.items()}
    yield fastgae.gae, {**rollout, **last, **mask}
    yield fastgae.gae, {**rollout, **following}
    yield fastgae.gae, {**rollout, **last, **finals, **mask}
    env_major = {**{name: array.T for name, array in rollout.items()}, "time_axis": 1}
    yield fastgae.gae, {**env_major, **last}
    yield fastgae.gae, {**env_major, "last_values": case.last_values[:, np.newaxis]}
    yield fastgae.gae, {**rollout, "last_values": case.last_values[np.newaxis], "last_advantages": np.ones((1, 3))}
    for shape, axis in (((3, 17, 1), 1), ((3, 1, 17), -1), ((1, 3, 17), 2)):
        turned = {name: array.T.reshape(shape) for name, array in {**rollout, "truncated": case.truncated}.items()}
        finals_of = {"final_values": turned["rewards"][turned["truncated"]], "mask": turned["rewards"] > -1}
        row = {"last_values": case.last_values.reshape(shape[:axis] + shape[axis:][1:])}
        yield fastgae.gae, {**turned, **finals_of, **row, "time_axis": axis}
    resets = {"truncated": case.truncated, "autoreset": "next_step", "prev_done": case.terminated[5]}
    own_next = {**mask, "next_values": case.values[::-1], "last_values": None}
    for in_mask in ({}, mask, {"mask": case.rewards > 0}, own_next):
        yield fastgae.gae, {**rollout, **last, **resets, **in_mask}
    turned = {name: array.T for name, array in {**rollout, **mask, "truncated": case.truncated}.items()}
    yield fastgae.gae, {**last, **resets, **turned, "time_axis": 1}
    yield fastgae.td_lambda, {**rollout, **last}
    sequences = {"rewards": case.rewards, "values": case.values, "terminated": None}
    env_major = {"rewards": case.rewards.T, "values": case.values.T, "terminated": None, "time_axis": 1}
    yield fastgae.gae, {**sequences, **last}
    yield fastgae.gae, {**sequences, "last_values": 0.25, "last_advantages": -1}
    yield fastgae.gae, {**env_major, "last_values": 0.0, "mask": mask["mask"].T}
    yield fastgae.gae, {**env_major, "last_values": 0.25, "last_advantages": 0.5}
    yield fastgae.n_step_returns, {**sequences, "last_values": 0.25, "n": 3}
    yield fastgae.discounted_returns, {"rewards": case.rewards, "terminated": None, "last_values": 0.25, **mask}
    yield fastgae.vtrace, {**rollout, **last, "ratios": np.abs(case.values)}
    yield fastgae.upgo, {**rollout, **last}
    yield fastgae.upgo, {**rollout, **following, **mask}
    yield fastgae.upgo, {**rollout, **last, **finals}
    yield fastgae.retrace, {**rollout, **following, "ratios": np.abs(case.values)}
    yield fastgae.retrace, {**rollout, **following, **mask, "ratios": np.abs(case.values), "lambda_": 0.25}
    yield fastgae.n_step_returns, {**rollout, **following, "n": 3}
    yield fastgae.n_step_returns, {**rollout, **last, **finals, "n": 40}
    yield fastgae.discounted_returns, {**own, **last, **mask}
    yield fastgae.discounted_returns, {**own, **last, **finals}
    yield fastgae.discounted_returns, {"rewards": flat["rewards"], "terminated": np.ones(SIZE[0], bool)}
    yield fastgae.reverse_scan, {"x": case.rewards, "decay": 0.5}
    yield fastgae.reverse_scan, {"x": flat["rewards"], "decay": 1, "initial": -2.5}
    masked = {**mask, "time_axis": -1, "ddof": np.int64(2)}
    for settings in ({}, {**mask, "ddof": 1}, {"by": "per_env", "eps": 0.5}, masked):
        yield fastgae.normalize, {"advantages": case.rewards, **settings}
    yield fastgae.normalize, {"advantages": flat["values"], "ddof": 17}
    for boundaries in ([0, 5, 5, 17], [0, 17, 17, 17], [0, 1, 2, 17]):
        packed = {**flat, "cu_seqlens": np.array(boundaries), "gamma": 0.9, "gae_lambda": np.array([[0.5], [1], [0]])}
        yield fastgae.gae_packed, packed
        yield fastgae.gae_packed, {**packed, "last_values": case.last_values[:3], "mask": mask["mask"][:, 1]}
        yield fastgae.gae_packed, {**packed, "last_values": 0.25}


def long_way(function, arguments):
    with no_short_cut("cpp"):
        return function(**arguments)


def assert_equal(function, arguments, monkeypatch):
    expected = long_way(function, arguments)
    for what_declines_would_call in ("_engine.run.without_short_cut", "estimators.normalize.in_place"):
        monkeypatch.setattr(f"fastgae.{what_declines_would_call}", None)
    assert_same_bits(function(**arguments), expected)


@needs_cpp
@pytest.mark.parametrize("kind", ["plain", *MEMORY, *DTYPES])
def test_small_calls_take_the_short_cut(kind, dtype, monkeypatch):
    change = {**MEMORY, **DTYPES}.get(kind, np.asarray)
    for function, arguments in calls(dtype):
        changed = {
            name: change(given) if isinstance(given, np.ndarray) and name not in ("cu_seqlens", "gae_lambda") else given
            for name, given in arguments.items()
        }
        with monkeypatch.context() as patch:
            assert_equal(function, changed, patch)


@needs_cpp
def test_normalize_in_place_takes_the_short_cut(dtype, monkeypatch):
    numbers = np.random.default_rng(2).normal(size=(300, 200)).astype(dtype)
    expected = long_way(fastgae.normalize, {"advantages": numbers})
    monkeypatch.setattr("fastgae.estimators.normalize.in_place", None)
    assert fastgae.normalize(numbers, out=numbers) is numbers
    assert_same_bits(numbers, expected)


@needs_cpp
def test_time_between_two_axes(dtype):
    """The axes of envs merge in this memory, but final values come neither step by step nor env by env."""
    case = make_case((17, 6), dtype, bootstrap="final_dense")
    case = case.mapped(lambda _, array: array.reshape(*array.shape[:-1], 2, 3))
    case = case.mapped(lambda _, array: np.moveaxis(array, 0, 1) if array.ndim == 3 else array)
    arguments = case.arguments() | {"time_axis": 1}
    arguments["final_values"] = case.final_values[case.truncated]
    outs = [tuple(np.moveaxis(np.empty((2, 17, 2, 3), dtype), 1, 2)) for _ in range(2)]
    assert_same_bits(fastgae.gae(**arguments, out=outs[0]), long_way(fastgae.gae, arguments | {"out": outs[1]}))


@needs_cpp
@pytest.mark.parametrize("kind", ["plain", *MEMORY, *DTYPES])
def test_large_calls_take_the_short_cut(kind, monkeypatch):
    """More steps than are computed with the GIL, and work for two threads."""
    change, case = {**MEMORY, **DTYPES}.get(kind, np.asarray), make_case((150, 2001), np.float32)
    rollout = {"rewards": change(case.rewards), "values": case.values, "terminated": change(case.terminated)}
    arguments = {**rollout, "last_values": change(case.last_values), "num_threads": 2}
    with monkeypatch.context() as patch:
        assert_equal(fastgae.gae, arguments, patch)
    wrong_flags = [np.uint8(2), np.int64(-1), np.float32(0.5), np.float64(np.nan)]
    for number in wrong_flags if kind == "plain" or kind in MEMORY else ():
        wrong = case.terminated.astype(number.dtype)
        wrong[149, 2000] = number
        with pytest.raises(ValueError, match=r"terminated must hold 0 or 1, got .* at index \(149, 2000\)"):
            fastgae.gae(**{**arguments, "terminated": change(wrong)})


class AutoresetMode(enum.Enum):
    """As Gymnasium has it."""

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"


# Arguments in other words than those of the plain call: the same numbers from elsewhere, and members of enumerations.
WORDS = {
    "last_values": (*(kind(2) for kind in (np.float32, np.float64, np.int64, np.uint8)), [0.5, 1, -2.0], [True] * 3),
    "last_advantages": (np.float32(0.25), [0.5, 0.25, np.pi], (0.5, 1.0, 2.0), [np.nan, np.inf, -0.0]),
    "gamma": (np.float32(0.9), np.float64(0.9), np.int64(1)),
    "gae_lambda": (np.float32(0.9),),
    "time_axis": (np.int64(0), np.uint8(0), np.int32(-2)),
    "autoreset": (*AutoresetMode, "NEXT_STEP", "Disabled"),
    "prev_done": ([False, True, True], (0, 1, 0), [0.0, 1.0, 1.0]),
}
UNUSUAL = {
    "last_values": (
        *([], [[0.5, 1, 2]], [0.5, True, 1.0], [0.5, None, 1.0], [0.5, 10**30, 1.0], [np.float32(1)] * 3),
        *(np.bool_(True), np.float16(0.5), np.longdouble(1)),
    ),
    "gamma": (np.float16(0.5), np.bool_(True)),
    "time_axis": (True, np.bool_(False), np.float32(0), [0]),
    "autoreset": ("next-step", "", "next_step\0", enum.Enum("Other", ["next"]).next, np.str_("next_step")),
}


@needs_cpp
def test_other_words_take_the_short_cut_and_unusual_ones_do_not(monkeypatch):
    from fastgae._backends import cpp

    case = make_case(SIZE, np.dtype(np.float32), bootstrap="last_values")
    rollout = {name: getattr(case, name) for name in ("rewards", "values", "terminated", "last_values")}
    for name, words in WORDS.items():
        for word in words:
            more = {"autoreset": "next_step"} if name == "prev_done" else {}
            more |= {"prev_done": np.zeros(3, bool)} if getattr(word, "name", word) == "NEXT_STEP" else {}
            with monkeypatch.context() as patch:
                assert_equal(fastgae.gae, {**rollout, **more, name: word}, patch)
    for name, words in UNUSUAL.items():
        for word in words:
            assert cpp.short_cut(tuple(Call(**{**rollout, name: word})), 1, "baseline") is None, (name, word)
    assert_equal(fastgae.n_step_returns, {**rollout, "n": np.int16(3)}, monkeypatch)


@pytest.mark.parametrize("place", ["last_values", "last_advantages"])
def test_a_number_of_numpy_promotes_the_results_and_pythons_does_not(backend, place):
    zeros = np.zeros(3, np.float32)
    for number, expected in ((0.25, np.float32), (np.float64(0.25), np.float64)):
        given = {"last_values": 0.0, place: number}
        for like in (zeros, np.zeros((3, 2), np.float32)):
            assert fastgae.gae(like, like, None, **given, backend=backend).returns.dtype == expected
        if place == "last_values":
            for like in (zeros, zeros.astype(np.float16)):
                packed = fastgae.gae_packed(like, like, [0, 1, 3], last_values=number, gamma=0.9, backend=backend)
                assert packed.returns.dtype == expected


def test_an_integer_of_python_is_rounded_as_numpy_does(backend):
    """To float64 first: the nearest float32 is another number."""
    zeros, number = np.zeros((1, 2), np.float32), 2**60 + 2**36 + 1
    result = fastgae.gae(zeros, zeros, None, last_values=number, gamma=1.0, backend=backend)
    assert_same_bits(result.advantages, zeros + number)


def test_numpys_way_to_treat_errors_has_no_effect(backend):
    zeros, tiny = np.zeros((3, 2), np.float32), 1e-300  # 0 in float32
    node = zeros[:, 0]
    for call in (
        partial(fastgae.gae, zeros, zeros, None, last_values=tiny, gamma=tiny),
        partial(fastgae.td_lambda, zeros[:, ::-1], zeros, None, last_values=tiny, gamma=tiny),  # takes no short cut
        partial(fastgae.gae_tree, node, node, [-1, 0, 0], None, weights=[1.0, 1.0, tiny], gamma=1.0),
    ):
        with np.errstate(all="raise"):
            got = call(backend=backend)
        assert_same_bits(got, call(backend="numpy"))


@needs_cpp
def test_every_number_decides_on_the_dtype():
    """``working_type`` in csrc/arguments.hpp lists them; where it lacks one, its float64 would become float32."""
    for name, kind, arguments in good_calls(dtype=np.float32):
        function = getattr(fastgae, name)
        for number in arguments.keys() & {*names_of(Role.STEPS, Role.ENVS)} if "out" in arguments else ():
            given = {**arguments, number: arguments[number].astype(np.float64), "out": None}
            assert_same_bits(function(**given), long_way(function, given), f"{number} of {name}, {kind}")


def test_numba_takes_common_calls():
    """With any outputs and read-only inputs, also of one step, one env, or whole sequences."""
    short_cut = pytest.importorskip("fastgae._backends.numba").short_cut
    bootstraps = ("last_values", "longer_values", "next_values", "sequences")
    for size, axis, bootstrap in product([(9, 7), (1, 7), (9, 1)], (0, 1), bootstraps):
        case = make_case(size, np.float32, bootstrap="last_values" if bootstrap == "sequences" else bootstrap)
        if axis:
            case = case.mapped(lambda _, array: array.T.copy() if array.ndim == 2 else array)
        changed = {"terminated": None, "last_values": 0.37} if bootstrap == "sequences" else {}
        call = Call(**case.arguments() | changed, time_axis=axis)
        if axis and size[0] == 1:  # one step and one value more have gaps
            assert short_cut(call, 1, None) is None
            continue
        given = {name: each for name, each in call._asdict().items() if name in PLAIN}
        right = fastgae.gae(**given, backend="numpy")
        assert 1 in size or not any(short_cut(call._replace(values=to(call.values)), 1, None) for to in MEMORY.values())
        if bootstrap != "next_values":  # V' given twice, or none of truncated steps, is an error of the checks
            refused = [("next_values", call.rewards), ("truncated", call.rewards > 0), ("last_values", 2**64)]
            refused += product(("gamma", "gae_lambda"), (-0.25, 1.25, np.nan))
            assert not any(short_cut(call._replace(**{name: wrong}), 1, None) for name, wrong in refused)
        results, read_only = np.empty((3, *call.rewards.shape), np.float32), np.empty_like(call.rewards)
        read_only.flags.writeable = False
        beside = np.ndarray(call.rewards.shape, np.float32, results, offset=results.strides[0] // 2 & -4)
        outs = (None, read_only), (results[0], results[0]), (results[0], beside), (results[0], call.rewards)
        assert not any(short_cut(call._replace(out=out), 1, None) for out in outs)
        call.rewards.flags.writeable = False
        for out in (None, (NEW, None), (None, NEW), (np.empty_like(call.rewards), NEW)):
            result = short_cut(call._replace(out=out), 1, None)
            for array, asked, expected in zip(result, out or (NEW, NEW), right, strict=True):
                assert array is asked or asked is NEW
                if array is not None:
                    assert_same_bits(array, expected)
        assert short_cut(tuple(call[: Call._fields.index("out")]), 1, None) is not None


PLAIN = ("rewards", "values", "terminated", "truncated", "last_values", "next_values", "time_axis")


class Number(float):
    """It takes part in promotion, as a number of NumPy does."""


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_random_calls_seldom_meet(backend):
    memory, flags = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), np.zeros((8, 3), bool)
    rewards, out, call = memory[:3:-1], memory[:8], partial(fastgae.gae, terminated=flags, backend=backend)
    expected = call(rewards.copy(), rewards.copy(), last_values=0.5).advantages
    assert call(rewards, rewards.copy(), last_values=0.5, out=(out, None)).advantages is out  # in memory of the rewards
    assert_same_bits(out, expected)
    assert call(rewards, rewards, last_values=Number(0.5)).advantages.dtype == np.float64
    with pytest.raises(ValueError, match="cu_seqlens must rise from 0"):
        fastgae.gae_packed(np.ones(5), np.zeros(5), np.array([0, 4, 2, 5]), gamma=1.0, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_memory_is_taken_for_results_of_a_wrong_shape(backend):
    rewards, flags = (np.broadcast_to(np.ones(8, dtype), (2**40, 8)) for dtype in (np.float32, bool))
    given = {"last_values": np.float32(0.5), "autoreset": "next_step", "prev_done": np.zeros(8, bool)}
    out = (np.empty((4, 8), np.float32), None)
    with pytest.raises(ValueError, match=r"out\[0\] has shape"):
        fastgae.gae(rewards, rewards, flags, out=out, backend=backend, **given)
