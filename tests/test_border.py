"""The compiled module by itself: nothing makes it crash, and no code of the caller's runs while it holds pointers."""

import sys
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae._backends import CPU_TARGETS
from fastgae._call import CONSTANTS, NEW, Call, GAEResult
from fastgae._canonical import MOMENT_STEPS, Rollout

_core = pytest.importorskip("fastgae._core", exc_type=ImportError)

STEPS, ENVS = 6, 5
TARGET = "baseline"
RNG = np.random.default_rng(3)


def rollout(**given):
    """A rollout as _canonical makes it, of random numbers; the outputs start as NaN."""
    rewards, values = RNG.normal(size=(2, STEPS, ENVS))
    outputs = np.full((2, STEPS, ENVS), np.nan)
    terminated = RNG.random((STEPS, ENVS)) < 0.2
    fields = (rewards, values, values[1:], values[0], None, terminated, None, 0.9, 0.8, *outputs)
    return Rollout(*fields)._replace(**given)


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


def test_the_records_are_the_same_on_both_sides():
    assert _core.arguments == Call._fields
    assert _core.rollout_fields == Rollout._fields
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


@pytest.mark.parametrize(
    "function",
    [
        lambda target: short_cut(call(), target=target),
        lambda target: _core.gae(rollout(), 1, target),
        lambda target: _core.block_sums(np.ones((3, 2)), None, None, 1, target),
        lambda target: _core.rescale(np.ones((3, 2)), None, np.ones(2), np.ones(2), 1, target),
    ],
    ids=["short_cut", "gae", "block_sums", "rescale"],
)
def test_an_unknown_target_is_refused(function):
    with pytest.raises(ValueError, match="no CPU target avx9 here"):
        function("avx9")
    with pytest.raises((TypeError, ValueError)):
        function(None)
    function("".join(TARGET))  # another object than the interned name
    function(TARGET.encode().decode())


REQUIRED = ("rewards", "values", "next_values", "last_values", "terminated", "gamma", "gamma_lambda")
OPTIONS = {
    "plain": {},
    "options": {"mask": np.ones((STEPS, ENVS), bool), "tail_lambda": 0.5},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", REQUIRED)
def test_required_fields_are_not_none(name, options):
    with pytest.raises((TypeError, ValueError)):
        _core.gae(rollout(**options | {name: None}), 1, TARGET)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"advantages": None, "returns": None}, "advantages and returns are both None"),
        ({"terminated": np.zeros((2 * STEPS, 2 * ENVS), bool)[::2, ::2]}, "terminated has another layout"),
        ({"rewards": np.ones((2 * STEPS, 2 * ENVS))[::2, ::2]}, "layout"),
        ({"rewards": np.ones((STEPS, ENVS), np.float32)}, "dtype"),
        ({"rewards": np.ones(STEPS)}, "rewards must be an array of steps and envs"),
        ({"rewards": np.ones((0, ENVS))}, "shape"),
        ({"values": np.ones((STEPS + 1, ENVS))}, "values is read-only, or has another dtype or shape"),
        ({"next_values": np.ones((STEPS, ENVS))}, "next_values is read-only, or has another dtype or shape"),
        ({"last_values": np.ones(ENVS - 1)}, "last_values is read-only, or has another dtype or shape"),
        ({"last_values": np.ones(2 * ENVS)[::2]}, "last_values has another layout"),
        ({"truncated": np.ones((STEPS, ENVS), np.int8)}, "truncated is read-only, or has another dtype or shape"),
        ({"mask": 1}, "mask is read-only, or has another dtype or shape"),
        ({"ratios": np.ones((STEPS, ENVS))}, "constants must be a tuple"),
        ({"constants": (1.0, 1.0)}, "constants must be a tuple"),
        ({"constants": [1.0, 1.0, 1.0]}, "constants must be a tuple"),
        ({"gamma": np.ones((STEPS, 2 * ENVS))[:, ::2]}, "gamma has another layout"),
        ({"gamma": np.ones(ENVS)}, "gamma is read-only, or has another dtype or shape"),
        ({"last_advantages": np.ones(ENVS, np.float32)}, "last_advantages is read-only"),
        ({"advantages": np.broadcast_to(1.0, (STEPS, ENVS))}, "advantages is read-only"),
        ({"values": np.ones((STEPS, ENVS), ">f8")}, "values is read-only, or has another dtype"),
        ({"values": np.ones(8 * STEPS * ENVS + 1, np.int8)[1:].view(float).reshape(STEPS, ENVS)}, "values"),
    ],
    ids=str,
)
def test_broken_promises_are_refused(options, wrong, message):
    given = rollout(**options | wrong)
    with pytest.raises(ValueError, match=message):
        _core.gae(given, 1, TARGET)
    for output in (given.advantages, given.returns):
        assert output is None or not np.isfinite(output).any() or not output.flags.writeable


def test_a_rollout_has_all_fields():
    with pytest.raises(ValueError, match="number of fields"):
        _core.gae(tuple(rollout())[:-1], 1, TARGET)
    with pytest.raises(TypeError):
        _core.gae(list(rollout()), 1, TARGET)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_coefficient_is_a_number_of_any_kind_or_an_array(options):
    given = rollout(**options)
    _core.gae(given, 1, TARGET)
    whole = np.full((STEPS, ENVS), 0.9)
    for gamma in (np.float64(0.9), np.array(0.9)[()], whole, np.broadcast_to(0.9, whole.shape)):
        outputs = np.full((2, STEPS, ENVS), np.nan)
        _core.gae(given._replace(gamma=gamma, advantages=outputs[0], returns=outputs[1]), 1, TARGET)
        np.testing.assert_array_equal(outputs, [given.advantages, given.returns])


def test_decays_of_any_number_are_options():
    """Those of reverse_scan may be one number in an array, which is not in [0, 1]."""
    for decay in (-1.0, 2.0, np.nan):
        given = rollout(gamma_lambda=np.broadcast_to(decay, (STEPS, ENVS)), returns=None)
        _core.gae(given, 1, TARGET)
        expected = given.advantages.copy()
        full = np.full((STEPS, ENVS), decay)
        _core.gae(given._replace(gamma_lambda=full), 1, TARGET)
        np.testing.assert_array_equal(given.advantages, expected)


def test_a_rollout_without_envs():
    empty = np.ones((STEPS, ENVS))[:, :0]
    given = rollout(rewards=empty, values=empty, next_values=empty[1:], last_values=empty[0], gamma=empty)
    assert _core.gae(given._replace(terminated=empty.astype(bool), advantages=empty, returns=None), 1, TARGET) == 0


def test_equivalent_dtypes_and_subclasses_are_arrays():
    class Subclass(np.ndarray):
        pass

    dtype = np.dtype(float, metadata={"unit": "m"})
    given = rollout()
    _core.gae(given, 1, TARGET)
    other = given._replace(rewards=given.rewards.view(Subclass), values=given.values.astype(dtype), returns=None)
    other = other._replace(advantages=np.full((STEPS, ENVS), np.nan).view(Subclass))
    _core.gae(other, 1, TARGET)
    np.testing.assert_array_equal(other.advantages, given.advantages)


class Number:
    """A number whose conversion runs code, which may do anything."""

    def __init__(self, code):
        self.code = code

    def __float__(self):
        self.code()
        return 0.5


@pytest.mark.parametrize("name", ["gamma", "tail_lambda", "constants"])
def test_numbers_are_read_before_arrays(name):
    """Here the conversion of a number makes the output read-only, and the border must see that."""
    given = rollout(ratios=np.ones((STEPS, ENVS)), constants=(1.0,) * len(CONSTANTS))
    number = Number(lambda: given.advantages.setflags(write=False))
    numbers = (number, *given.constants[1:]) if name == "constants" else number
    with pytest.raises(ValueError, match="advantages is read-only"):
        _core.gae(given._replace(**{name: numbers}), 1, TARGET)
    assert np.isnan(given.advantages).all()


def test_the_short_cut_returns_a_result():
    given = call()
    result = short_cut(given)
    assert type(result) is GAEResult
    expected = fastgae.gae(*given[:3], last_values=None, backend="numpy")
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("length", range(len(Call._fields) + 3))
def test_a_call_may_be_shorter(length):
    """The rest is None, so a plain call ends with the axis of time, or with what it has after that."""
    whole = (*call(), None, None)
    result = short_cut(whole[:length])
    if Call._fields.index("time_axis") < length <= len(Call._fields):
        np.testing.assert_array_equal(result, short_cut(whole[:-2]))
    else:
        assert result is None


ODD = (None, object(), "text", 10**400, True, float("nan"), [1.0], {}, np.ones(()), np.ones(2, "O"), 1j)
GIVEN = ODD[1:]  # None leaves out what is optional
DECLINED = {
    **dict.fromkeys(("rewards", "values", "terminated", "gamma", "gae_lambda"), ODD),
    "time_axis": (*ODD, 1.0, 2, -3, 10**30),
    **dict.fromkeys(("tail_normalized", "carry_over"), (*ODD[:4], *ODD[5:], np.True_, 0)),
    **dict.fromkeys(("truncated", "last_values", "next_values", "final_values", "prev_done", "mask"), GIVEN),
    **dict.fromkeys(("last_advantages", "returns_lambda"), GIVEN),
    **dict.fromkeys(("ratios", "rho_clip", "c_clip"), (*GIVEN, 0.5)),
    **dict.fromkeys(("autoreset", "normalize"), (*GIVEN, b"global")),
    "out": (
        *(*GIVEN, (), (None,), (None, None), (None, None, None), (poisoned(), "text"), (poisoned(), poisoned)),
        *((poisoned()[:-1], None), (np.ones((STEPS, ENVS), np.float32), None), {poisoned: None}),
    ),
}


@pytest.mark.parametrize("name", DECLINED)
def test_odd_arguments_are_declined(name):
    for odd in DECLINED[name]:
        outputs = poisoned(), poisoned()
        assert short_cut(call(out=outputs)._replace(**{name: odd})) is None, repr(odd)
        assert all((output == 7).all() for output in outputs), repr(odd)


def test_outputs_that_overlap_are_declined():
    given = vtrace_call(gamma=np.full((STEPS, ENVS), 0.5))
    memory = np.full((STEPS + 1, ENVS), 7.0)
    inputs = [array for array in given if isinstance(array, np.ndarray) and array.dtype == float]
    assert len(inputs) == 4
    overlapping = [(array[:STEPS], memory[1:]) for array in inputs]
    for out in (
        (memory[1:], memory[1:]),
        (memory[1:], memory[:-1]),
        *overlapping,
        *(pair[::-1] for pair in overlapping),
    ):
        before = np.array(out)
        assert short_cut(given._replace(out=out)) is None
        np.testing.assert_array_equal(out, before)


def test_constants_and_ratios_come_together():
    assert short_cut(vtrace_call()) is not None
    for name in ("ratios", *CONSTANTS):
        for odd in (None, "1", object(), float("nan"), np.ones(3)):
            assert short_cut(vtrace_call(**{name: odd})) is None, (name, odd)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [tuple, list])
def test_new_outputs(kind, order):
    given = call(rewards=np.asarray(RNG.normal(size=(STEPS, ENVS)), order=order))
    given = given._replace(
        values=np.asarray(given.values, order=order), terminated=np.asarray(given.terminated, order=order)
    )
    whole, filled = short_cut(given), np.empty((STEPS, ENVS), order=order)
    for out in ((NEW, None), (None, NEW), (NEW, NEW), (filled, NEW), (NEW, filled)):
        result = short_cut(given._replace(out=kind(out)))
        for array, asked, right in zip(result, out, whole, strict=True):
            if asked is None:
                assert array is None
                continue
            assert asked is NEW or array is asked
            assert array.strides == given.rewards.strides
            np.testing.assert_array_equal(array, right)


def test_it_is_called_with_a_tuple_a_number_and_a_name():
    for wrong in (
        (),
        (call(),),
        (call(), 1, TARGET, 1),
        (list(call()), 1, TARGET),
        (call(), "1", TARGET),
        (call(), 1.0, TARGET),
    ):
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
