"""The compiled module by itself: nothing makes it crash, and no code of the caller's runs while it holds pointers."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae._backends import CPU_TARGETS
from fastgae._call import CONSTANTS, MOMENT_STEPS, NEW, NUMBERS, Call, GAEResult
from fastgae._equation.arrays import RECURSIONS

_core = pytest.importorskip("fastgae._core", exc_type=ImportError)

STEPS, ENVS = 6, 5
TARGET = "baseline"
RNG = np.random.default_rng(3)


def call(**given):
    """A plain call of random numbers, with all arguments."""
    rewards, terminated = RNG.normal(size=(STEPS, ENVS)), RNG.random((STEPS, ENVS)) < 0.2
    return Call(rewards, RNG.normal(size=(STEPS + 1, ENVS)), terminated)._replace(**given)


def vtrace_call(**given):
    constants = dict.fromkeys(CONSTANTS, 0.5) | {"rho_clip": 1.0, "advantage_clip": float("inf")}
    return call(ratios=RNG.random((STEPS, ENVS)) * 2)._replace(**constants | given)


def short_cut(given, num_threads=1, target=TARGET):
    return _core.short_cut(given, num_threads, target)


def poisoned():
    return np.full((STEPS, ENVS), 7.0)


def test_a_module_of_other_sources_is_refused(monkeypatch):
    from fastgae._backends import cpp

    monkeypatch.setattr(_core, "arguments", Call._fields[:-1])
    with pytest.raises(ImportError, match="built from other sources than the rest of fastgae; to build it, run"):
        importlib.reload(cpp)


def test_the_records_are_the_same_on_both_sides():
    assert {*_core.recursions} <= {*RECURSIONS, "none"}
    assert {Call._fields[place] for place in _core.numbers} == {*NUMBERS} & {*Call._fields}
    assert _core.moment_steps == MOMENT_STEPS


def test_every_compiled_target_has_a_place_in_the_order_of_preference():
    assert set(_core.compiled_targets) <= set(CPU_TARGETS)
    assert len(set(_core.compiled_targets)) == len(_core.compiled_targets)
    assert _core.supports(TARGET)
    for name in (*CPU_TARGETS, "avx", "", "Baseline", "n\N{LATIN SMALL LETTER E WITH ACUTE}on", "a\0b"):
        if _core.supports(name):
            assert name in _core.compiled_targets


def test_the_sizes_of_the_caches_are_those_that_linux_sees():
    sizes = dict(zip(("1 Data", "2 Unified", "3 Unified"), _core.cache_sizes(), strict=True))
    assert all(size >= 0 for size in sizes.values())
    folders = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    seen = {f"{(at / 'level').read_text().strip()} {(at / 'type').read_text().strip()}": at / "size" for at in folders}
    for name, size in sizes.items():
        if size and name in seen:
            assert seen[name].read_text().strip() == f"{size // 1024}K"


def test_an_unknown_target_is_refused():
    for function in (
        lambda target: short_cut(call(), target=target),
        lambda target: _core.gae(call(), 1, target),
        lambda target: _core.block_sums(np.ones((3, 2)), None, None, 1, target),
        lambda target: _core.rescale(np.ones((3, 2)), None, np.ones(2), np.ones(2), 1, target),
    ):
        with pytest.raises(ValueError, match="no CPU target avx9 here"):
            function("avx9")
        with pytest.raises((TypeError, ValueError)):
            function(None)
        function(TARGET.encode().decode())  # another object than the interned name


ROW = np.ones(ENVS)
# What in_one_layout never makes. Where it did, the module would read or write memory that is not the array's.
BROKEN = {
    "rewards": (None, np.ones(STEPS), np.ones((0, ENVS)), np.ones((STEPS, ENVS), "O")),
    "values": (None, np.ones((STEPS + 2, ENVS)), np.ones((STEPS + 1, ENVS + 1)), np.ones((STEPS + 1, ENVS), "U1")),
    "next_values": (np.ones((STEPS, ENVS)),),  # together with longer values
    "last_values": (ROW,),
    "terminated": (None, np.zeros((STEPS - 1, ENVS), bool), np.full((STEPS, ENVS), 2)),
    "truncated": (np.zeros((STEPS, ENVS), bool), np.zeros((STEPS, ENVS - 1), bool)),
    "mask": (1, np.ones((STEPS, ENVS - 1), bool)),
    "gamma": (np.ones(ENVS), np.ones((STEPS, 2)), None, "0.9"),
    "gae_lambda": (np.ones((2, ENVS)), None),
    "last_advantages": (np.ones(ENVS - 1),),
    "ratios": (np.ones((STEPS, ENVS)),),  # without constants
    "rho_clip": (1.0,),  # without ratios
    "recursion": ("another", 3),
    "out": (
        (None, None),
        (np.broadcast_to(1.0, (STEPS, ENVS)), None),
        (np.ones((STEPS, ENVS - 1)), None),
        (np.ones((STEPS, ENVS), np.float32), None),
    ),
}


def test_broken_promises_are_refused():
    for name, broken in ((name, each) for name, every in BROKEN.items() for each in every):
        outputs = poisoned(), poisoned()
        with pytest.raises(ValueError, match="does not come from in_one_layout"):
            _core.gae(call(out=outputs)._replace(**{name: broken}), 1, TARGET)
        assert all((output == 7).all() for output in outputs), name


def test_coefficients_of_a_checked_call_may_be_any_numbers():
    """An estimator's recursion may give gae decays that are negative or NaN."""
    given = call()
    for decay in (-1.0, 2.0, np.nan):
        expected = _core.gae(given._replace(gae_lambda=np.full((1, 1), decay)), 1, TARGET)
        for shape in ((1, ENVS), (STEPS, 1), (STEPS, ENVS)):
            got = _core.gae(given._replace(gae_lambda=np.full(shape, decay)), 1, TARGET)
            np.testing.assert_array_equal(got, expected)


def test_a_result_has_the_hash_of_its_arrays():
    """Python 3.14 keeps a tuple's hash in the tuple."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(short_cut(call()))


def test_equivalent_dtypes_and_subclasses_are_arrays():
    class Subclass(np.ndarray):
        pass

    given = call()
    values = given.values.astype(np.dtype(float, metadata={"unit": "m"}))
    other = given._replace(rewards=given.rewards.view(Subclass), values=values, out=(poisoned().view(Subclass), None))
    np.testing.assert_array_equal(_core.gae(other, 1, TARGET).advantages, _core.gae(given, 1, TARGET).advantages)


def test_a_call_may_be_shorter():
    """The rest is None, so a plain call ends with the axis of time, or with what it has after that."""
    whole = (*call(), None, None)
    expected = fastgae.gae(*whole[:3], backend="numpy")
    for length in range(len(whole) + 1):
        result = short_cut(whole[:length])
        if Call._fields.index("time_axis") < length <= len(Call._fields):
            assert type(result) is GAEResult
            np.testing.assert_array_equal(result, expected)
        else:
            assert result is None


def test_constants_and_ratios_come_together():
    assert short_cut(vtrace_call()) is not None
    for name in ("ratios", *CONSTANTS):
        for odd in ("1", object(), float("nan"), np.ones(3), -1.0, *[None] * (name in ("ratios", "leaky"))):
            assert short_cut(vtrace_call(**{name: odd})) is None, (name, odd)
        if name not in ("ratios", "leaky"):
            assert short_cut(vtrace_call(**{name: None})) is not None, name
    assert short_cut(vtrace_call(leaky=1.5)) is None


def test_a_number_of_steps_is_a_positive_integer():
    given = call(recursion="n_step_returns", gae_lambda=0.0, out=(None, NEW))
    for right in (2, np.int64(2), np.uint8(2)):
        assert short_cut(given._replace(n=right)) is not None
    for n in (0, -1, 1.5, None, True, np.True_, np.int64(0), np.float32(2), 2**80):
        assert short_cut(given._replace(n=n)) is None, n


@pytest.mark.parametrize("order", ["C", "F"])
def test_new_outputs(order):
    given = Call(*(np.asarray(each, order=order) for each in call()[:3]))
    whole, filled = short_cut(given), np.empty((STEPS, ENVS), order=order)
    for out in ((NEW, None), (None, NEW), (NEW, NEW), (filled, NEW), (NEW, filled)):
        result = short_cut(given._replace(out=out))
        for array, asked, right in zip(result, out, whole, strict=True):
            if asked is None:
                assert array is None
                continue
            assert asked is NEW or array is asked
            assert array.strides == given.rewards.strides
            np.testing.assert_array_equal(array, right)
    windows = np.lib.stride_tricks.sliding_window_view(RNG.normal(size=STEPS + ENVS - 1), ENVS)[:, ::-1]
    result = fastgae.gae(windows, *given[1:3], backend="cpp")  # whose steps and envs lie equally far apart
    assert result.advantages.strides == np.empty_like(windows).strides


def test_it_is_called_with_a_tuple_a_number_and_a_name():
    good = call()
    for wrong in ((), (good,), (good, 1, TARGET, 1), ([*good], 1, TARGET), (good, "1", TARGET), (good, 1.0, TARGET)):
        with pytest.raises(TypeError):
            _core.short_cut(*wrong)
    with pytest.raises(OverflowError):
        short_cut(call(), num_threads=10**30)


def test_nothing_is_left_behind():
    given = vtrace_call(out=(NEW, poisoned()))
    objects = [*given, GAEResult, NEW, None, TARGET]
    short_cut(given)
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(1000):
        short_cut(given)
        short_cut(given._replace(mask=1))
    after = [sys.getrefcount(each) for each in objects]
    assert all(abs(now - then) < 100 for then, now in zip(before, after, strict=True))


def test_it_needs_to_be_connected(python):
    code = """
import sys
import types

package = types.ModuleType("fastgae")  # without the package itself, which connects
package.__path__ = [sys.argv[1]]
sys.modules["fastgae"] = package
from fastgae import _core
try:
    _core.short_cut((None,), 1, "baseline")
except ValueError as error:
    print(error)
try:
    _core.connect(list, None, None, print, 0.0)
except TypeError as error:
    print(error)
"""
    expected = "connect was not called\nresult_type must be a subclass of tuple"
    assert python(code, str(fastgae.__path__[0])) == expected


def test_cpus_are_counted_before_arrays_are_looked_at(python):
    """What counts them is Python code, and may let others run: here it resizes the rewards and empties ``out``."""
    code = """
import numpy as np, fastgae
from fastgae import _core
from fastgae._backends import cpp
from fastgae._call import ABSENT, EPS, NEW, GAEResult

rewards, values, terminated = np.ones((2000, 2000)), np.ones((2001, 2000)), np.zeros((2000, 2000), bool)
out = [np.ones((2000, 2000)), np.ones((2000, 2000))]

def usable_cpus():
    if rewards.size > 1:
        rewards.resize((1, 1), refcheck=False)
    out.clear()
    return 2

connect = lambda: _core.connect(GAEResult, NEW, ABSENT, usable_cpus, EPS)
connect()
for options in ({}, {"returns_lambda": 0.5}):
    rewards.resize((2000, 2000), refcheck=False)
    try:
        fastgae.gae(rewards, values, terminated, backend="cpp", **options)
    except ValueError as error:
        print(rewards.shape, "values has shape" in str(error))

call = (*(None,) * 8, 0.9, 0.9, None, None, False, 0)
rewards.resize((2000, 2000), refcheck=False)
out += [np.ones((2000, 2000))] * 2
print(_core.short_cut((rewards, values, terminated, *call, out), 0, "baseline"))

def usable_cpus():
    rewards.flags.aligned = False  # so the short cut must decline the array
    return 2

connect()
rewards.resize((2000, 2000), refcheck=False)
print(_core.short_cut((rewards, values, terminated, *call), 0, "baseline"))
rewards = np.ones((2000, 2000))

def usable_cpus():
    raise KeyError("no CPUs")

connect()
try:
    _core.short_cut((rewards, values, terminated, *call), 0, "baseline")
except KeyError as error:
    print(error)
"""
    assert python(code) == "(1, 1) True\n(1, 1) True\nNone\nNone\n'no CPUs'"


MATRIX = np.ones((8, ENVS))
READ_ONLY = np.ones((8, ENVS))
READ_ONLY.flags.writeable = False
# What moments never pass on: the name in the error, then matrix, mask, center and scale.
BROKEN_MOMENTS = (
    ("matrix", ROW, None, ROW, ROW),
    ("matrix", MATRIX.astype(np.float16), None, ROW, ROW),
    ("matrix", np.ones((8, 2 * ENVS))[:, ::2], None, ROW, ROW),
    ("matrix", READ_ONLY, None, ROW, ROW),
    ("mask", MATRIX, MATRIX, ROW, ROW),
    ("mask", MATRIX, MATRIX[1:] > 0, ROW, ROW),
    ("mask", MATRIX, np.ones((ENVS, 8), bool).T, ROW, ROW),
    ("center", MATRIX, None, ROW[1:], ROW),
    ("center", MATRIX, None, ROW.astype(np.float32), ROW),
    ("scale", MATRIX, None, ROW, np.ones(2 * ENVS)[::2]),
    ("scale", MATRIX, None, ROW, MATRIX),
)


@pytest.mark.parametrize(("name", "matrix", "mask", "center", "scale"), BROKEN_MOMENTS)
def test_moments_refuse_what_breaks_a_promise(name, matrix, mask, center, scale):
    with pytest.raises(ValueError, match=f"{name} is read-only, or has another dtype, shape or layout"):
        _core.rescale(matrix, mask, center, scale, 1, TARGET)
