"""Tensors on a GPU have the bits of the CPU: every size, and what random calls seldom meet."""

import numpy as np
import pytest
import torch

import fastgae
from fastgae._interop.libraries import FUNCTIONS
from support.backends import DTYPES
from support.cases import BOOTSTRAPS, FLAGS, assert_same_bits, env_major, make_case
from support.drawn import drawn

from .device import DEVICE, PLACES, as_c, assert_bits, called, check, dense, narrowed, tensor, tensors, transposed

# Around the edges of turns and of the lanes of a program, and small, because the interpreter takes its time. A GPU has
# some turns under way, and 129 steps are more turns than these.
SIZES = [(1, 1), (1, 17), (1, 65), (2, 7), (2, 33), (3, 1), (9, 1), (31, 1), (64, 1), (3, 3), (7, 2), (8, 8)]
SIZES += [(15, 9), (16, 16), (17, 31), (33, 7), (31, 33), (4, 97), (69, 7), (129, 8), (24, 40)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.usefixtures("usual_turns")
def test_every_size(dtype, size):
    for number, flags in enumerate(FLAGS):
        if number // 2 % 2 == (dtype == np.float64):  # each kind of flags in one of the dtypes
            case = make_case(size, dtype, flags, BOOTSTRAPS[(number + sum(size)) % len(BOOTSTRAPS)])
            arguments = case.arguments()
            place = PLACES[number % len(PLACES)]
            check(fastgae.gae, arguments if number % 2 else env_major(arguments), place)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument(name):
    """The dtypes by turns."""
    for number, both in enumerate(zip(*(drawn(name, dtype) for dtype in DTYPES), strict=True)):
        function, arguments = both[number % 2]
        check(function, dense(arguments), PLACES[number // 2 % len(PLACES)])


def test_denormal_and_huge_numbers(dtype):
    """Neither flushed to zero nor computed in a wider type."""
    tiny, largest = np.finfo(dtype).tiny, np.finfo(dtype).max
    for scale, major in ((tiny / 4, dict), (tiny / 4, env_major), (largest / 3, env_major)):
        case = make_case((21, 9), dtype, "random", "next_values")
        case = case.mapped(lambda name, a, scale=scale: a * dtype.type(scale) if a.dtype != bool else a)
        check(fastgae.gae, major(case.arguments()))
        expected = fastgae.gae(**case.arguments()).advantages
        assert np.isinf(expected).any() if scale > 1 else 0 < np.abs(expected[expected != 0]).min() < tiny


@pytest.mark.parametrize("major", [dict, env_major])
def test_16_bit_numbers_are_computed_in_float32(major):
    arguments = major(make_case((37, 9), np.dtype(np.float32)).arguments())
    for dtype in (torch.bfloat16, torch.float16):
        given = narrowed(tensors(arguments), dtype)
        wide = narrowed(given, torch.float32).items()
        wide = {name: t.cpu().numpy() if torch.is_tensor(t) else t for name, t in wide}
        assert_bits(called(fastgae.gae, given), fastgae.gae(**wide))


def test_wrong_boundaries_touch_nothing_else():
    """They are not checked on a GPU, but no step outside of the arrays is read or written."""
    guarded = torch.full((3, 12), 7.0, device=DEVICE)
    rewards = torch.ones(12, device=DEVICE)
    for boundaries in ([-5, 4, 99], [9, 3, 12], [2**40, -(2**40), 5]):
        cu_seqlens = torch.tensor(boundaries, device=DEVICE)
        fastgae.gae_packed(rewards, rewards, cu_seqlens, gamma=1.0, out=(guarded[1], None), backend="triton")
        assert (guarded[::2] == 7).all()


def test_results_lie_as_rewards_or_where_out_says(dtype):
    arguments = make_case((17, 6), dtype).arguments()
    expected, given = fastgae.gae(**arguments), tensors(arguments, transposed)
    got = called(fastgae.gae, given)
    assert got.advantages.stride() == got.returns.stride() == given["rewards"].stride()
    for place in PLACES:
        out = [place(torch.full((17, 6), torch.nan, dtype=given["rewards"].dtype, device=DEVICE)) for _ in "AR"]
        got = called(fastgae.gae, {**given, "out": tuple(out)})
        assert got.advantages is out[0]
        assert got.returns is out[1]
        assert_bits(got, expected)
        got = called(fastgae.gae, {**given, "out": (None, out[1].fill_(0))})
        assert got.advantages is None
        assert_same_bits(out[1].cpu().numpy(), expected.returns)


def test_out_may_overlap_inputs():
    """The results are those of memory that does not overlap."""
    arguments = make_case((37, 6), np.dtype(np.float32), bootstrap="longer_values").arguments()
    given, memory = tensors(arguments), torch.zeros(57, 6, device=DEVICE)
    given["rewards"] = memory[20:].copy_(given["rewards"])
    # A result lies where the reward of a much earlier step is, which a kernel reads later.
    got = called(fastgae.gae, {**given, "out": (memory[:37], given["values"][1:])})
    assert_bits(got, fastgae.gae(**arguments))
    advantages = tensor(arguments["rewards"])
    normalized = called(fastgae.normalize, {"advantages": advantages, "out": advantages})
    assert normalized is advantages
    assert_same_bits(normalized.cpu().numpy(), fastgae.normalize(arguments["rewards"]))


def test_upgo_stops_before_a_delta_that_is_no_number(dtype):
    arguments = make_case((9, 7), dtype, bootstrap="last_values").arguments()
    arguments["rewards"][::3] = np.nan
    arguments.pop("gae_lambda")
    check(fastgae.upgo, arguments)


def test_moments_of_many_blocks():
    """Sums of several blocks of steps, over more envs, of several axes, than one fold adds."""
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=(257, 3, 22))
    mask = rng.random(numbers.shape) < 0.8
    of_each = ("global", as_c, transposed, np.float32), ("per_env", transposed, as_c, np.float64)
    for by, place, other, dtype in of_each:  # every sum is one of float64
        advantages = numbers.astype(dtype)
        check(fastgae.normalize, {"advantages": advantages, "mask": mask, "by": by}, place)
        check(fastgae.normalize, {"advantages": advantages[:9], "by": by, "time_axis": 1, "eps": 0.5}, other)


def test_a_variance_that_overflows():
    huge = np.array([[1e200], [2e200], [-5e200]])
    expected = fastgae.normalize(huge)
    assert (expected == 0).all()
    for by, ddof in (("global", 0), ("per_env", 0), ("global", 2**33)):
        check(fastgae.normalize, {"advantages": huge, "by": by, "ddof": ddof})


def test_gradients_end():
    arguments = make_case((17, 6), np.dtype(np.float32)).arguments()
    given = tensors(arguments)
    given["values"].requires_grad_()
    given["gamma"] = torch.tensor(0.99, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert_bits(called(fastgae.gae, given), fastgae.gae(**arguments))


@pytest.mark.parametrize("time_axis", [0, 1])
def test_distances_that_32_bits_do_not_hold(time_axis):
    """The memory between the steps is never touched, so it takes no room."""
    far = 2**28 + 3
    rewards = torch.empty(8 * far + 2, dtype=torch.int8, device=DEVICE).as_strided((9, 2), (far, 1))
    rewards.copy_(torch.arange(18, dtype=torch.int8).reshape(9, 2))
    rewards = rewards if time_axis == 0 else rewards.T
    values = torch.ones((9, 2) if time_axis == 0 else (2, 9), device=DEVICE)
    got = called(fastgae.reverse_scan, {"x": rewards, "decay": values, "time_axis": time_axis})
    expected = fastgae.reverse_scan(rewards.cpu().numpy(), values.cpu().numpy(), time_axis=time_axis)
    assert_same_bits(got.cpu().numpy(), expected)
