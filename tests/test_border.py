"""The compiled module by itself: nothing makes it crash, and no code of the caller's runs while it holds pointers."""

import inspect

import numpy as np
import pytest

import fastgae
from support.backends import BACKENDS

_core = pytest.importorskip("fastgae._core", exc_type=ImportError)

STEPS, ENVS = 6, 5


def canonical(general=False):
    """The arguments of _core.gae, by name; of gae_general, with every option left out."""
    numbers = {name: np.ones((STEPS, ENVS)) for name in ("rewards", "values", "advantages", "returns")}
    given = {
        **numbers,
        "next_values": np.ones((STEPS - 1, ENVS)),
        "last_values": np.ones(ENVS),
        "final_values": None,
        "terminated": np.zeros((STEPS, ENVS), bool),
        "truncated": None,
        "gamma": 0.9,
        "gamma_lambda": 0.8,
        "num_threads": 1,
        "target": None,
    }
    if general:
        missing = ("returns_gamma_lambda", "tail_lambda", "mask", "last_advantages", "ratios", "clips")
        given |= dict.fromkeys(missing) | {"mask_passes_values": False}
    return given


REQUIRED = ("rewards", "values", "next_values", "last_values", "terminated", "gamma", "gamma_lambda")


@pytest.mark.parametrize("general", [False, True], ids=["gae", "gae_general"])
@pytest.mark.parametrize("name", REQUIRED)
def test_required_arguments_are_not_none(python, name, general):
    function = "gae_general" if general else "gae"
    code = f"""
import numpy as np
from fastgae import _core
{inspect.getsource(canonical)}
STEPS, ENVS = {STEPS}, {ENVS}
try:
    _core.{function}(**canonical({general}) | {{{name!r}: None}})
except (TypeError, ValueError):
    print("refused")
"""
    assert python(code) == "refused"


@pytest.mark.parametrize("general", [False, True], ids=["gae", "gae_general"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"advantages": None, "returns": None},
        {"terminated": np.zeros((2 * STEPS, 2 * ENVS), bool)[::2, ::2]},
        {"rewards": np.ones((2 * STEPS, 2 * ENVS))[::2, ::2].T[:ENVS, :STEPS].T},
        {"advantages": np.broadcast_to(1.0, (STEPS, ENVS))},
    ],
    ids=["no outputs", "strided flags", "strided rewards", "read-only output"],
)
def test_broken_promises_are_refused(wrong, general):
    function = _core.gae_general if general else _core.gae
    with pytest.raises(ValueError, match=next(iter(wrong)) if "rewards" not in wrong else "layout"):
        function(**canonical(general) | wrong)


class Switch:
    """The truth of it takes code, which may do anything."""

    def __init__(self, code):
        self.code = code

    def __bool__(self):
        return self.code()


def raising():
    raise KeyError("the truth of it")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("given", [Switch(raising), Switch(lambda: True), None, 1, "no"], ids=repr)
def test_tail_normalized_is_true_or_false(backend, given):
    out = np.full((4, 3), 7.0), np.full((4, 3), 7.0)
    with pytest.raises(TypeError, match="tail_normalized must be True or False"):
        fastgae.gae(
            np.ones((4, 3)), np.ones((5, 3)), np.zeros((4, 3), bool), tail_normalized=given, out=out, backend=backend
        )
    assert all((array == 7).all() for array in out)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tail_normalized_of_numpy(backend):
    given = np.ones((4, 3)), np.ones((5, 3)), np.zeros((4, 3), bool)
    for switch in (False, True):
        got = fastgae.gae(*given, tail_normalized=np.bool_(switch), backend=backend)
        expected = fastgae.gae(*given, tail_normalized=switch, backend=backend)
        np.testing.assert_array_equal(got, expected)


def test_code_of_a_switch_does_not_run(python):
    """It resized the rewards while the kernel read them."""
    code = """
import numpy as np, fastgae

rewards, values, terminated = np.ones((2000, 2000)), np.ones((2001, 2000)), np.zeros((2000, 2000), bool)

class Switch:
    def __bool__(self):
        rewards.resize((1, 1), refcheck=False)
        return False

try:
    fastgae.gae(rewards, values, terminated, tail_normalized=Switch(), backend="cpp", num_threads=1)
except TypeError as error:
    print(rewards.shape, error)
"""
    assert python(code).startswith("(2000, 2000) tail_normalized must be True or False")


def test_cpus_are_counted_before_arrays_are_looked_at(python):
    """What counts them is Python code, and may let others run: here it resizes the rewards."""
    code = """
import numpy as np, fastgae
from fastgae import _dispatch

rewards, values, terminated = np.ones((2000, 2000)), np.ones((2001, 2000)), np.zeros((2000, 2000), bool)
count = _threads.usable_cpus

def usable_cpus():
    if rewards.size > 1:
        rewards.resize((1, 1), refcheck=False)
    return 2

_threads.usable_cpus = usable_cpus
for options in ({}, {"returns_lambda": 0.5}):
    rewards.resize((2000, 2000), refcheck=False)
    try:
        fastgae.gae(rewards, values, terminated, backend="cpp", **options)
    except ValueError as error:
        print(rewards.shape, "values has shape" in str(error))
"""
    assert python(code) == "(1, 1) True\n(1, 1) True"


def test_huge_integers_leave_no_error_behind():
    given = np.ones((4, 3)), np.ones((5, 3)), np.zeros((4, 3), bool)
    with pytest.raises(ValueError, match="gamma must be a number"):
        fastgae.gae(*given, gamma=10**400, backend="cpp")
