"""Envs that are cut into pieces have the bits of one recursion, also where a piece began with the wrong numbers."""

import inspect
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
from support.cases import assert_same_bits, make_case

from .device import DEVICE, called, check, sliced, tensors
from .test_exact import arguments_of, env_major

SIZE = (75, 3)
MET, MISSED = 1.7, 1e-3  # the warm-up with which every piece begins with the right numbers, and hardly any piece


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch):
    monkeypatch.setattr(recursion, "SHORTEST_PIECE", 1)
    monkeypatch.setattr(recursion, "WORTHWHILE", 1.0)
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


def rollout(dtype, size=SIZE, **changed):
    case = make_case(size, dtype, "none", "last_values", **{"gamma": 0.6, "gae_lambda": 0.5, **changed})
    return arguments_of(case)


@pytest.mark.parametrize("major", [dict, env_major])
def test_after_the_warm_up_a_piece_begins_with_the_right_numbers(dtype, major, cuts, unmended):
    arguments = rollout(dtype, (150, 3))
    check(fastgae.gae, major(arguments))
    assert all(cut.pieces > 2 for cut in cuts)


def test_without_a_warm_up_it_does_not(monkeypatch, unmended):
    """Otherwise the tests below would prove nothing."""
    monkeypatch.setattr(recursion, "WARM_UP", MISSED)
    arguments = rollout(np.dtype(np.float32), gamma=0.999)
    with pytest.raises(AssertionError):
        check(fastgae.gae, arguments)


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


def arguments_of_kind(kind, case):
    """Return the function of a kind, and the arguments that it takes."""
    function, option = KINDS[kind]
    given = {**case.arguments(), "gamma": 0.99, "gae_lambda": 0.99, **(option(case) if callable(option) else option)}
    given = (
        {"lambda_" if name == "gae_lambda" else name: a for name, a in given.items()}
        if kind.endswith("trace")
        else given
    )
    return function, {name: a for name, a in given.items() if name in inspect.signature(function).parameters}


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_that_began_wrong_are_computed_again(dtype, kind, monkeypatch, cuts):
    monkeypatch.setattr(recursion, "WARM_UP", MISSED)
    steps = 35 if DEVICE == "cpu" else 150  # where turns are long, too, there are some pieces
    case = make_case((steps, 3), dtype, "random" if dtype == np.float64 else "none", "last_values")
    function, given = arguments_of_kind(kind, case)
    check(function, given, sliced)
    check(function, env_major(given))
    assert all(cut.pieces > 2 for cut in cuts)


@pytest.mark.parametrize("envs", [1, 33])
def test_of_some_envs_only(monkeypatch, envs):
    """Most pieces of the wide rollout are right, and the only env of the other one is a lane by itself."""
    monkeypatch.setattr(recursion, "WARM_UP", MISSED)
    case = make_case((27, envs), np.dtype(np.float32), "none", "last_values", gamma=0.999)
    case.rewards[:, 2:], case.values[:, 2:], case.last_values[2:] = 0, 0, 0
    check(fastgae.gae, arguments_of(case))
    check(fastgae.gae, env_major(arguments_of(case)))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38])
def test_numbers_that_no_warm_up_forgets(number, cuts):
    case = make_case((100, 3), np.dtype(np.float32), "none", "last_values", gamma=0.6, gae_lambda=0.5)
    case.rewards[93, 0] = case.values[50, 1] = number
    case.rewards[:, 2] = case.values[:, 2] = case.last_values[2] = number
    check(fastgae.gae, arguments_of(case))
    assert cuts[0].pieces > 2


@pytest.mark.parametrize("warm_up", [MET, MISSED])
@pytest.mark.parametrize("masked", [False, True])
def test_packed_sequences(dtype, warm_up, masked, monkeypatch, cuts):
    monkeypatch.setattr(recursion, "WARM_UP", warm_up)
    rng, lengths = np.random.default_rng(7), [3, 0, 17, 1, 30, 15, 4]
    total = sum(lengths)
    arguments = {
        "rewards": rng.normal(size=total).astype(dtype),
        "values": rng.normal(size=total).astype(dtype),
        "cu_seqlens": np.concatenate([[0], np.cumsum(lengths)]),
        "gamma": 0.1 if warm_up == MET else 0.999,
        "gae_lambda": 0.1 if warm_up == MET else 0.99,
    }
    check(fastgae.gae_packed, arguments)
    arguments["last_values"] = rng.normal(size=len(lengths)).astype(dtype)
    if masked:
        arguments["mask"] = rng.random(total) < 0.4
        arguments["mask"][20:46] = False  # more than a piece with its warm-up
    check(fastgae.gae_packed, arguments, sliced)
    assert all(cut.pieces > 2 for cut in cuts)


@pytest.fixture
def staged(monkeypatch):
    """Compute in stages, however short a rollout is. Return the kinds of the recursions that are launched."""
    monkeypatch.setattr(recursion, "STAGED_STEPS", 1)
    monkeypatch.setattr(recursion, "STAGED_PIECE", 8)
    kinds, launch = [], Plan.launch

    def noted(plan, kernel, programs, arguments, constants, **options):
        kinds.append(getattr(constants[0], "kind", None))
        launch(plan, kernel, programs, arguments, constants, **options)

    monkeypatch.setattr(Plan, "launch", noted)
    return kinds


SUM = {"gamma": 1.0, "gae_lambda": 1.0}


@pytest.mark.parametrize("bootstrap", ["last_values", "longer_values", "next_values", "final_dense"])
@pytest.mark.parametrize("size", [(27, 3), (16, 2), (1, 1), (41, 33)], ids=str)
def test_sums_in_stages(dtype, bootstrap, size, staged):
    case = make_case(size, dtype, bootstrap=bootstrap, **SUM)
    arguments = {**arguments_of(case), **(last_advantages(case) if dtype == np.float64 else {})}
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


@pytest.mark.parametrize("values", [np.float16, np.int32, np.float64])
def test_values_of_another_dtype_in_stages(values, staged):
    case = make_case((27, 3), np.dtype(np.float32), bootstrap="last_values", **SUM)
    check(fastgae.gae, {**arguments_of(case), "values": (case.values * 7).astype(values)})
    assert tl.constexpr("deltas") in staged


def test_packed_sequences_in_stages(dtype, staged):
    rng, lengths = np.random.default_rng(7), [3, 0, 17, 1, 30, 15, 4, 64]
    total = sum(lengths)
    arguments = {
        "rewards": rng.normal(size=total).astype(dtype),
        "values": rng.normal(size=total).astype(dtype),
        "cu_seqlens": np.concatenate([[0], np.cumsum(lengths)]),
        **SUM,
    }
    check(fastgae.gae_packed, arguments, sliced)
    arguments["last_values"] = rng.normal(size=len(lengths)).astype(dtype)
    arguments["terminated"] = rng.random(total) < 0.1
    check(fastgae.gae_packed, arguments)
    assert staged.count(tl.constexpr("deltas")) == 2


def test_few_and_long_sums_are_computed_in_stages(monkeypatch, staged):
    """Where a GPU would otherwise have little to do."""
    monkeypatch.undo()
    few = recursion.MOST_STAGED * recursion._multiprocessors(None)
    for steps, envs in ((recursion.STAGED_STEPS, few), (recursion.STAGED_STEPS - 1, few), (2048, few + 1)):
        rewards = torch.ones((1, 1), device=DEVICE).expand(steps, envs)
        planned = torch_devices._checked(
            fastgae.gae, {"rewards": rewards, "values": rewards, "terminated": rewards, "last_values": 0.0, **SUM}, None
        ).advantages.plan
        assert (len(planned.steps) > 1) == (steps >= recursion.STAGED_STEPS and envs <= few)


SHAPES = [
    (24, 4096),
    (128, 4096),
    (1024, 16384),
    (8192, 512),
    (32768, 64),
    (10**6, 1),
    (2048, 8),
    (1, 1),
    (4_000_001, 3),
]
CUT = {(8192, 512), (32768, 64), (10**6, 1), (2048, 8), (4_000_001, 3)}


def test_pieces_cover_every_step(monkeypatch):
    monkeypatch.undo()
    for steps, envs in SHAPES:
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
    case = make_case((600, 1), np.dtype(np.float32), "none", "last_values", gamma=0.6, gae_lambda=0.5)
    given = {**arguments_of(case), "terminated": np.zeros((600, 1), bool)}
    needed = []
    for changed, number in (("rewards", 0.0), ("rewards", np.nan), ("terminated", True)):
        given[changed][590 if changed == "rewards" else 560] = number
        del searches[:]
        check(fastgae.gae, given)
        needed.append(len(searches))
    assert cuts[0].pieces == 48
    assert needed == [1, 5, 2]
