"""A bool array may hold any byte, as a view of uint8 does: every byte but 0 is True, as in NumPy."""

import numpy as np
import pytest

import fastgae
from support.cases import assert_same_bits, make_case
from support.options import NEXT_STEP, OPTIONS, mask, pick, together

SIZE = (33, 17)
FLAGS = ("terminated", "truncated", "mask", "prev_done")


def bytes_of(name, flags):
    """The same flags, in which True is any byte from 1 to 255."""
    rng = np.random.default_rng([len(name), *flags.shape])
    return (flags * rng.integers(1, 256, flags.shape)).astype(np.uint8).view(bool)


def rollouts():
    """(function, arguments) with every flag that a function takes, and with every option of gae beside them."""
    dense, sparse = (make_case(SIZE, np.float32, bootstrap=kind) for kind in ("final_dense", "final_sparse"))
    reset = make_case(SIZE, np.float32, bootstrap="last_values")
    options = {**OPTIONS, "next_step": NEXT_STEP, "next_step_mask": together(NEXT_STEP, mask)}
    for name, option in options.items():
        case = reset if name.startswith("next_step") else dense
        truncated = {"truncated": dense.truncated} if case is reset else {}
        yield f"gae-{name}", fastgae.gae, {**case.arguments(), **truncated, **option(case)}
    finals = {**sparse.arguments(), "final_values": sparse.final_values[sparse.truncated]}
    yield "gae-sparse", fastgae.gae, finals
    yield "gae-sparse_mask", fastgae.gae, {**finals, **mask(sparse)}
    one_lambda = {name: given for name, given in dense.arguments().items() if name != "gae_lambda"} | mask(dense)
    ratios = pick(dense, "ratios").lognormal(size=SIZE).astype(np.float32)
    yield "vtrace", fastgae.vtrace, {**one_lambda, "ratios": ratios}
    yield "td_lambda", fastgae.td_lambda, one_lambda
    unmasked = {name: given for name, given in one_lambda.items() if name != "mask"}
    yield "n_step_returns", fastgae.n_step_returns, {**unmasked, "n": 3}
    rewards_alone = {name: given for name, given in one_lambda.items() if name != "values"}
    yield "discounted_returns", fastgae.discounted_returns, rewards_alone
    ended = {"rewards": dense.rewards, "terminated": np.ones(SIZE, bool), **mask(dense)}
    yield "discounted_returns-ended", fastgae.discounted_returns, ended
    for by in ("global", "per_env"):
        yield f"normalize-{by}", fastgae.normalize, {"advantages": dense.rewards, "by": by, **mask(dense)}
    flags = {name: dense.arguments()[name] for name in ("terminated", "truncated")}
    yield "valid_steps", fastgae.valid_steps, {**flags, "prev_done": dense.truncated[0]}


def packed():
    case = make_case((97, 1), np.float32)
    steps = {name: given.ravel() for name, given in {**case.arguments(), **mask(case)}.items() if np.ndim(given) == 2}
    steps = {name: steps[name] for name in ("rewards", "values", "terminated", "mask")}
    ends = np.array([0, 5, 5, 60, 97])
    yield "gae_packed", fastgae.gae_packed, {**steps, "cu_seqlens": ends}
    yield "gae_packed-last_values", fastgae.gae_packed, {**steps, "cu_seqlens": ends, "last_values": case.values[:4, 0]}


CALLS = {name: call for name, *call in (*rollouts(), *packed())}


@pytest.mark.parametrize("name", CALLS)
def test_every_byte_but_0_is_true(backend, name):
    function, arguments = CALLS[name]
    given = [flag for flag in FLAGS if flag in arguments]
    how = {"backend": backend} if name != "valid_steps" and name != "n_step_returns" else {}
    for time_axis in (0, 1) if arguments[given[0]].ndim == 2 else (0,):
        turned = arguments if time_axis == 0 else {key: swapped(value) for key, value in arguments.items()}
        if time_axis:
            how["time_axis"] = 1
        for flags in (*([flag] for flag in given), given):
            raw = {flag: bytes_of(flag, turned[flag]) for flag in flags}
            expected, got = function(**turned, **how), function(**{**turned, **raw}, **how)
            for array, right in zip(arrays_of(got), arrays_of(expected), strict=True):
                if right.dtype == bool:
                    np.testing.assert_array_equal(array.view(np.uint8), right.view(np.uint8), f"{flags}")
                else:
                    assert_same_bits(array, right, f"time_axis={time_axis}, {flags}:")


def swapped(given):
    return np.ascontiguousarray(given.T) if isinstance(given, np.ndarray) else given


def arrays_of(result):
    return result if isinstance(result, tuple) else (result,)
