"""Options of fastgae.gae for random rollouts, and calls with them in any layout."""

import numpy as np

from .cases import assert_same_bits


def pick(case, name, seed=0):
    """Return a generator of random numbers that depends only on the case's size, the name and the seed."""
    return np.random.default_rng([seed, sum(map(ord, name)), *case.rewards.shape])


def some_mask(case):
    return pick(case, "mask").random(case.rewards.shape) < 0.7


def coefficients(case, name, shape):
    rng = pick(case, name)
    return np.where(rng.random(shape) < 0.2, rng.integers(2, size=shape), rng.random(shape)).astype(case.rewards.dtype)


def full(name):
    return lambda case: {name: coefficients(case, name, case.rewards.shape)}


def row(name):
    return lambda case: {name: coefficients(case, name, (1, case.rewards.shape[1]))}


def column(name):
    return lambda case: {name: coefficients(case, name, (len(case.rewards), 1))}


def last_advantages(case):
    return {"last_advantages": pick(case, "last").normal(size=case.rewards.shape[1]).astype(case.rewards.dtype)}


def prev_done(case):
    return {"prev_done": pick(case, "prev").random(case.rewards.shape[1]) < 0.5}


def together(*options):
    return lambda case: {name: given for option in options for name, given in option(case).items()}


def always(**given):
    return lambda case: given


def mask(case):
    return {"mask": some_mask(case)}


NEXT_STEP = together(always(autoreset="next_step"), prev_done)
OPTIONS = {
    "mask": mask,
    "mask_all": lambda case: {"mask": np.ones(case.rewards.shape, bool)},
    "mask_none": lambda case: {"mask": np.zeros(case.rewards.shape, bool)},
    "last_advantages": last_advantages,
    "gamma_full": full("gamma"),
    "gamma_row": row("gamma"),
    "gamma_column": column("gamma"),
    "gae_lambda_full": full("gae_lambda"),
    "both_mixed": together(column("gamma"), row("gae_lambda")),
    "returns_lambda": always(returns_lambda=0.5),
    "returns_lambda_full": full("returns_lambda"),
    "normalize_global": always(normalize="global"),
    "normalize_per_env": always(normalize="per_env"),
    "normalize_masked": together(always(normalize="global"), mask),
    "carry_over": together(mask, always(carry_over=True)),
    "carry_over_all": together(mask, always(carry_over=True), full("gamma"), full("returns_lambda")),
    "carry_over_last": together(mask, always(carry_over=True), last_advantages),
    "tail_normalized": always(tail_normalized=True),
    "tail_normalized_row": together(always(tail_normalized=True), row("gae_lambda"), mask),
    "all": together(mask, full("gamma"), row("gae_lambda"), column("returns_lambda"), always(normalize="per_env")),
}


def arranged(case, layout, given):
    """Return the arguments of the call in a layout, and of the plain (T, N) call with the same numbers."""
    arguments, plain = layout.arguments(case)
    here, there = {}, {}
    for name, array in given.items():
        if not isinstance(array, np.ndarray):
            here[name] = there[name] = array
        elif array.ndim == 1:
            here[name] = layout.arranged(name, array)
            there[name] = np.array(here[name].reshape(-1), array.dtype)
        elif 1 in array.shape and array.shape != case.rewards.shape:  # broadcast along time, or along the envs
            there[name] = array
            along_time = array.shape[1] == 1
            column = array.reshape(len(array), *([1] * (arguments["rewards"].ndim - 1))) if along_time else None
            here[name] = (np.moveaxis(column, 0, layout.time_axis) if along_time else layout.shape(array)).copy()
        else:
            here[name] = layout.arranged(name, array)
            back = np.moveaxis(here[name], layout.time_axis, 0)
            there[name] = np.array(back.reshape(len(back), -1), array.dtype)
    return {**arguments, **here}, {**plain.arguments(), **there}


def assert_results(layout, got, expected, what=""):
    """Assert the bits of advantages and returns in a layout, given those in (T, N)."""
    for array, right, name in zip(got, expected, ("advantages", "returns"), strict=True):
        assert_same_bits(layout.plain("advantages", array), right, f"{name}, {what}")
