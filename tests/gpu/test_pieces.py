"""Envs that are cut into pieces have the bits of one recursion, also where a piece began with the wrong numbers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton.language as tl

import fastgae
from fastgae._backends.triton import recursion
from fastgae._backends.triton.kernels import recursion as kernels
from fastgae._backends.triton.plan import Plan
from fastgae._interop import torch_devices
from support.cases import assert_same_bits, env_major, make_case
from support.functions import parameters

from .device import DEVICE, called, check, sliced, tensors

MET, MISSED = 1.7, 1e-3  # the warm-up with which every piece begins with the right numbers, and hardly any piece


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch):
    monkeypatch.setattr(recursion, "SHORTEST_PIECE", 1)
    monkeypatch.setattr(recursion, "WORTHWHILE", 1.0)
    monkeypatch.setattr(recursion, "FEW_PIECES", (1, 2))  # so that the beginnings are compared in several rounds
    monkeypatch.setattr(recursion, "MANY_PIECES", (8, 4))
    monkeypatch.setattr(torch_devices, "_plans", {})


@pytest.fixture
def cuts(monkeypatch):
    """Return the pieces of every recursion that is planned."""
    found, cut = [], recursion.cut

    def noted(*given):
        found.append(cut(*given))
        return found[-1]

    monkeypatch.setattr(recursion, "cut", noted)
    return found


@pytest.fixture
def unmended(monkeypatch):
    """Leave out the launch that computes pieces again."""
    launch = Plan.launch

    def without(plan, kernel, programs, arguments, constants, **options):
        if not getattr(constants[0], "mend", False):
            launch(plan, kernel, programs, arguments, constants, **options)

    monkeypatch.setattr(Plan, "launch", without)


def forgetful(size, dtype=np.float32, **changed):
    """Return a rollout in which a recursion soon forgets where it began."""
    return make_case(size, np.dtype(dtype), "none", "last_values", **{"gamma": 0.6, "gae_lambda": 0.5, **changed})


def test_after_the_warm_up_a_piece_begins_with_the_right_numbers(dtype, cuts, unmended):
    for major in (dict, env_major):
        check(fastgae.gae, major(forgetful((150, 3), dtype).arguments()))
    assert all(cut.pieces > 2 for cut in cuts)


def test_without_a_warm_up_it_does_not(monkeypatch, unmended):
    """Otherwise the tests below would prove nothing."""
    monkeypatch.setattr(recursion, "WARM_UP", MISSED)
    with pytest.raises(AssertionError):
        check(fastgae.gae, forgetful((75, 3), gamma=0.999).arguments())


def masked(case):
    mask = np.random.default_rng(1).random(case.rewards.shape) < 0.7
    return {"mask": mask, "carry_over": case.rewards.dtype == np.float32}


def last_advantages(case):
    return {"last_advantages": (case.values[0] + 1).astype(case.rewards.dtype)}


# What a step gets from the next one: each has a number of its own that a piece begins with.
KINDS = {
    "plain": (fastgae.gae, {}),
    "mask": (fastgae.gae, masked),
    "reset rows": (fastgae.gae, {"autoreset": "next_step"}),
    "returns_lambda": (fastgae.gae, {"returns_lambda": 0.3}),
    "tail_normalized": (fastgae.gae, {"tail_normalized": True, "gae_lambda": 0.99}),
    "last_advantages": (fastgae.gae, last_advantages),
    "vtrace": (fastgae.vtrace, lambda case: {"ratios": np.exp(case.values), "c_clip": 1.1}),
    "retrace": (fastgae.retrace, lambda case: {"ratios": np.exp(case.values), "next_values": case.values}),
    "upgo": (fastgae.upgo, {}),
    "rewards alone": (fastgae.discounted_returns, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_that_began_wrong_are_computed_again(dtype, kind, monkeypatch, cuts):
    monkeypatch.setattr(recursion, "WARM_UP", MISSED)
    steps = 35 if DEVICE == "cpu" else 150  # where turns are long, too, there are some pieces
    gated = dtype == np.float64
    case = make_case((steps, 3), dtype, "random" if gated else "none", "last_values")
    function, option = KINDS[kind]
    given = {**case.arguments(), **dict.fromkeys(("gamma", "gae_lambda", "lambda_"), 0.99)}
    given |= option(case) if callable(option) else option
    given = {name: each for name, each in given.items() if name in parameters(function.__name__)}
    check(function, env_major(given) if gated else given, sliced)
    assert all(cut.pieces > 2 for cut in cuts)


@pytest.mark.parametrize("envs", [1, 33])
def test_of_some_envs_only(monkeypatch, envs):
    """Most pieces of the wide rollout are right, and the only env of the other one is a lane by itself."""
    monkeypatch.setattr(recursion, "WARM_UP", MISSED)
    case = forgetful((27, envs), gamma=0.999, gae_lambda=0.95)
    case.rewards[:, 2:] = case.values[:, 2:] = case.last_values[2:] = 0
    for major in (dict, env_major):
        check(fastgae.gae, major(case.arguments()))


def test_numbers_that_no_warm_up_forgets(cuts):
    """As one reward, as one value, and at every step of an env."""
    numbers = np.float32([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38])
    case = forgetful((100, 18))
    case.rewards[93, :6] = case.values[50, 6:12] = numbers
    case.rewards[:, 12:] = case.values[:, 12:] = case.last_values[12:] = numbers
    check(fastgae.gae, case.arguments())
    assert cuts[0].pieces > 2


def packed(dtype, *lengths, **coefficients):
    """Return packed sequences, and the arguments that they may have, too."""
    rng, total = np.random.default_rng(7), sum(lengths)
    rewards, values = rng.normal(size=(2, total)).astype(dtype)
    boundaries = np.concatenate([[0], np.cumsum(lengths)])
    also = {"last_values": rng.normal(size=len(lengths)).astype(dtype), "terminated": rng.random(total) < 0.1}
    mask = rng.random(total) < 0.4
    mask[20:46] = False  # more than a piece with its warm-up
    return {"rewards": rewards, "values": values, "cu_seqlens": boundaries, **coefficients}, also, mask


@pytest.mark.parametrize(("warm_up", "coefficients"), [(MET, (0.1, 0.1)), (MISSED, (0.999, 0.99))])
def test_packed_sequences(dtype, warm_up, coefficients, monkeypatch, cuts):
    monkeypatch.setattr(recursion, "WARM_UP", warm_up)
    gamma, gae_lambda = coefficients
    arguments, also, mask = packed(dtype, 3, 0, 17, 1, 30, 15, 4, gamma=gamma, gae_lambda=gae_lambda)
    check(fastgae.gae_packed, arguments)
    arguments["last_values"] = also["last_values"]
    check(fastgae.gae_packed, arguments, sliced)
    check(fastgae.gae_packed, {**arguments, "mask": mask}, sliced)
    assert all(cut.pieces > 2 for cut in cuts)


@pytest.fixture
def staged(monkeypatch):
    """Compute in stages, however short a rollout is. Return the kinds of the recursions that are launched."""
    monkeypatch.setattr(recursion, "STAGED_STEPS", 1)
    monkeypatch.setattr(recursion, "STAGED_PIECE", 2 * recursion.HEAD)
    kinds, launch = [], Plan.launch

    def noted(plan, kernel, programs, arguments, constants, **options):
        kinds.append(getattr(constants[0], "kind", None))
        launch(plan, kernel, programs, arguments, constants, **options)

    monkeypatch.setattr(Plan, "launch", noted)
    return kinds


SUM = {"gamma": 1.0, "gae_lambda": 1.0}


@pytest.mark.parametrize("size", [(27, 3), (16, 2), (1, 1), (41, 33)], ids=str)
def test_sums_in_stages(dtype, size, staged):
    """The bootstraps by turns."""
    bootstraps = "last_values", "next_values", "longer_values", "final_dense"
    for bootstrap in bootstraps[(sum(size) + dtype.itemsize // 4) % 2 :: 2]:
        case = make_case(size, dtype, bootstrap=bootstrap, **SUM)
        arguments = {**case.arguments(), **(last_advantages(case) if dtype == np.float64 else {})}
        check(fastgae.gae, arguments, sliced)
        check(fastgae.gae, env_major(arguments))
        if bootstrap == "last_values":
            check(fastgae.gae, {**env_major(arguments), "terminated": None})
    assert staged.count(tl.constexpr("deltas")) * 2 == len(staged)


def test_one_result_in_stages(staged):
    given = make_case((27, 3), np.dtype(np.float32), bootstrap="last_values").arguments() | SUM
    expected = fastgae.gae(**given)
    for chosen in (0, 1):
        out = [None, None]
        out[chosen] = torch.empty(27, 3, device=DEVICE)
        called(fastgae.gae, {**tensors(given), "out": tuple(out)})
        assert_same_bits(out[chosen].cpu().numpy(), expected[chosen])
    assert tl.constexpr("deltas") in staged


def test_values_of_another_dtype_in_stages(staged):
    case = make_case((27, 3), np.dtype(np.float32), bootstrap="last_values", **SUM)
    for dtype in (np.float16, np.int32, np.float64):
        check(fastgae.gae, {**case.arguments(), "values": (case.values * 7).astype(dtype)})
    check(fastgae.gae, {**case.arguments(), "autoreset": "next_step"})  # whose rows are no steps: not in stages
    assert staged.count(tl.constexpr("deltas")) == 3


def test_packed_sequences_in_stages(dtype, staged):
    arguments, also, _ = packed(dtype, 3, 0, 17, 1, 30, 15, 4, 64, **SUM)
    check(fastgae.gae_packed, arguments, sliced)
    check(fastgae.gae_packed, {**arguments, **also})
    assert staged.count(tl.constexpr("deltas")) == 2


def test_few_and_long_sums_are_computed_in_stages(monkeypatch, staged):
    """Where a GPU would otherwise have little to do."""
    monkeypatch.undo()
    few = recursion.MOST_STAGED * recursion._multiprocessors(None)
    for steps, envs in ((recursion.STAGED_STEPS, few), (recursion.STAGED_STEPS - 1, few), (2048, few + 1)):
        rewards = torch.ones((1, 1), device=DEVICE).expand(steps, envs)
        given = {**dict.fromkeys(("rewards", "values", "terminated"), rewards), "last_values": 0.0, **SUM}
        planned = torch_devices._checked(fastgae.gae, given, None).advantages.plan
        assert (len(planned.steps) > 1) == (steps >= recursion.STAGED_STEPS and envs <= few)


UNCUT = [(24, 4096), (128, 4096), (1024, 16384), (1, 1)]
CUT = [(8192, 512), (32768, 64), (10**6, 1), (2048, 8), (4_000_001, 3)]


def test_pieces_cover_every_step(monkeypatch):
    monkeypatch.undo()
    for steps, envs in UNCUT + CUT:
        for decay in (0.0, 0.9405, 0.98, 0.9999, 1.0, 1.5, np.nan):
            matrices = SimpleNamespace(steps=steps, envs=envs, dtype=torch.float32, plan=SimpleNamespace(device=None))
            pieces, piece, warm = recursion.cut(matrices, decay, 16)
            if decay == 0.9405:
                assert (pieces > 1) == ((steps, envs) in CUT), (steps, envs)
            if pieces == 1:
                assert (piece, warm) == (steps, 0)
                continue
            assert 0.0 <= decay < 1.0
            assert (pieces - 1) * piece + warm < steps <= pieces * piece + warm
            assert piece % 16 == warm % 16 == 0
            assert piece + warm < 0.7 * steps


@pytest.mark.skipif(DEVICE == "cuda", reason="nobody counts on a GPU")
def test_a_nan_is_followed_as_far_as_it_passes(monkeypatch, cuts):
    """Where no episode ends, 32 pieces at once are computed again; where one ends, the pieces before it are not."""
    searches, first_wrong = [], kernels.first_wrong
    monkeypatch.setattr(kernels, "first_wrong", lambda *given: (searches.append(0), first_wrong(*given))[1])
    given = {**forgetful((600, 1)).arguments(), "terminated": np.zeros((600, 1), bool)}
    needed = []
    for changed, number in (("rewards", 0.0), ("rewards", np.nan), ("terminated", True)):
        given[changed][590 if changed == "rewards" else 560] = number
        del searches[:]
        check(fastgae.gae, given)
        needed.append(len(searches))
    assert cuts[0].pieces == 48
    assert needed == [1, 5, 2]
