"""Flags that agents share, numbers of one step, and coefficients: shapes that say what they are of."""

import numpy as np
import pytest

import fastgae
from support.backends import no_short_cut
from support.cases import assert_same_bits, make_case

T, N, A = 17, 6, 3
# From the flags of every step, env and agent, of which all agents or envs have the same, to what the caller passes.
FORMS = {
    "agents are missing": lambda flags, time_axis: flags.take(0, axis=2),
    "agents of length 1": lambda flags, time_axis: flags[:, :, :1],
    "envs of length 1": lambda flags, time_axis: flags.take([0], axis=1 - time_axis),
    "both": lambda flags, time_axis: flags.take([0], axis=1 - time_axis).take(0, axis=2),
}


def of_agents(dtype, form, time_axis):
    """Return a call with whole flags and one with flags in a form, (T, N, A) or (N, T, A)."""
    cases = [make_case((T, N), dtype, seed=agent) for agent in range(A)]
    turned = [case.mapped(lambda name, a: a.T if a.ndim == 2 and time_axis else a) for case in cases]
    names = ("rewards", "values", "final_values", "last_values")
    whole = {name: np.stack([getattr(case, name) for case in turned], -1) for name in names}
    flags = {"terminated": turned[0].terminated, "truncated": turned[0].truncated, "mask": turned[1].rewards < 1}
    for name, array in flags.items():
        one_env = array.take([0], axis=1 - time_axis) if form in ("envs of length 1", "both") else array
        whole[name] = np.broadcast_to(one_env[:, :, np.newaxis], whole["rewards"].shape).copy()
    short = {name: FORMS[form](whole[name], time_axis) for name in flags}
    return {**whole, "time_axis": time_axis}, {**whole, **short, "time_axis": time_axis}


def assert_equal(got, expected):
    for array, right in zip(got, expected, strict=True):
        assert_same_bits(array, right)


@pytest.mark.parametrize("time_axis", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_flags_are_the_same_for_all_agents(backend, dtype, form, time_axis):
    whole, short = of_agents(dtype, form, time_axis)
    assert short["terminated"].shape != whole["terminated"].shape
    expected = fastgae.gae(**whole, backend="numpy")
    assert_equal(fastgae.gae(**short, backend=backend), expected)
    with no_short_cut(backend):
        assert_equal(fastgae.gae(**short, backend=backend), expected)
    one_by_one = short["final_values"][whole["truncated"]]  # one for each agent where the shared flag is set
    assert_equal(fastgae.gae(**{**short, "final_values": one_by_one}, backend=backend), expected)


def test_every_function_takes_them(backend):
    whole, short = of_agents(np.dtype(np.float32), "agents are missing", 0)

    def results(given, how):
        rollout = {name: given[name] for name in ("rewards", "values", "terminated", "truncated", "final_values")}
        flags = {name: given[name] for name in ("terminated", "truncated")}
        last = {"last_values": given["last_values"]}
        yield fastgae.td_lambda(**rollout, **last, mask=given["mask"], **how)
        yield from fastgae.vtrace(**rollout, **last, ratios=np.exp(given["values"]), **how)
        yield from fastgae.upgo(**rollout, **last, mask=given["mask"], **how)
        yield fastgae.n_step_returns(**rollout, **last, n=3)
        yield fastgae.retrace(
            given["rewards"], given["values"], **flags, next_values=given["values"], ratios=given["rewards"] ** 2, **how
        )
        yield fastgae.discounted_returns(
            given["rewards"], **flags, **last, final_values=given["final_values"], mask=given["mask"], **how
        )
        yield fastgae.normalize(given["rewards"], given["mask"], **how)

    assert_equal(results(short, {"backend": backend}), results(whole, {"backend": "numpy"}))
    assert fastgae.moments(short["rewards"], short["mask"]) == fastgae.moments(whole["rewards"], whole["mask"])
    names = ("rewards", "values", "terminated", "last_values")
    reports = [fastgae.diagnose(**{name: call[name] for name in names}).as_dict() for call in (short, whole)]
    assert reports[0] == reports[1]


@pytest.mark.parametrize("shape", [(T,), (T, N), (N, T), (T, N, A), (N, T, A), (N, A, T)], ids=str)
def test_numbers_of_one_step(backend, dtype, shape):
    """An array of one step says the same as one without time, wherever an argument has one number for each env."""
    axis, rng = shape.index(T), np.random.default_rng(shape)
    rewards, values = rng.normal(size=(2, *shape)).astype(dtype)
    terminated = rng.random(shape) < 0.1
    last, advantages = rng.normal(size=(2, *np.delete(shape, axis))).astype(dtype)
    before = rng.random(last.shape) < 0.5
    given = {"time_axis": axis, "backend": backend}

    def results(form):
        flags = {"autoreset": "next_step", "prev_done": form(before)}
        rollout = {"rewards": rewards, "values": values, "terminated": terminated, "last_values": form(last), **given}
        yield from fastgae.gae(**rollout, last_advantages=form(advantages))
        yield from fastgae.gae(**rollout, **flags)
        yield fastgae.discounted_returns(rewards, terminated, last_values=form(last), **given)
        yield fastgae.reverse_scan(rewards, 0.5, initial=form(last), **given)
        yield fastgae.valid_steps(terminated, prev_done=form(before), time_axis=axis)

    assert_equal(results(lambda numbers: np.expand_dims(numbers, axis)), results(lambda numbers: numbers))


SQUARE = np.ones((4, 4))
CUBE = np.ones((4, 4, 4))


@pytest.mark.parametrize(
    ("rewards", "changes", "words"),
    [
        # A vector could be of the steps or of the envs, and here it has as many numbers as there are of both.
        (SQUARE, {"terminated": np.zeros(4)}, ["terminated", "(4,)", "(4, 4)"]),
        (SQUARE, {"mask": np.ones(4)}, ["mask", "(4,)", "(4, 4)"]),
        (SQUARE, {"gamma": np.ones(4)}, ["gamma", "(4,)", "(1, 4) is one per env", "(4, 1) one per step"]),
        (SQUARE, {"gae_lambda": [0.5] * 4}, ["gae_lambda", "(4,)"]),
        (SQUARE, {"gamma": np.ones(4), "time_axis": 1}, ["gamma", "(4, 1) is one per env", "(1, 4) one per step"]),
        # Flags are of every step.
        (SQUARE, {"terminated": np.zeros((1, 4))}, ["terminated", "(1, 4)"]),
        (SQUARE, {"mask": np.ones((4, 1)), "time_axis": 1}, ["mask", "(4, 1)"]),
        (SQUARE, {"mask": np.ones((1, 1))}, ["mask", "(1, 1)"]),
        # What is missing are the last axes, and never time.
        (np.ones((2, 4, 3)), {"terminated": np.zeros((4, 3))}, ["terminated", "(4, 3)", "(2, 4, 3)"]),
        (np.ones((2, 3, 4)), {"terminated": np.zeros((2, 3)), "time_axis": 2}, ["terminated", "(2, 3)", "first 3"]),
        (CUBE, {"gamma": np.ones((4, 4))}, ["gamma", "(4, 4)", "(1, 4, 4) is one per env", "(4, 1, 1) one per step"]),
        (CUBE, {"mask": np.ones((4, 4, 4, 1))}, ["mask", "(4, 4, 4, 1)"]),
        # What is per env has one step or none.
        (SQUARE, {"last_values": np.ones((4, 1))}, ["last_values", "(4, 1)", "(1, 4)", "(4,)"]),
        (SQUARE, {"last_values": SQUARE}, ["last_values", "(4, 4)", "(1, 4)", "(4,)"]),
        (SQUARE, {"prev_done": np.ones((4, 1)), "autoreset": "next_step"}, ["prev_done", "(4, 1)", "(1, 4)"]),
    ],
)
def test_what_could_be_something_else_is_refused(backend, rewards, changes, words):
    good = {"rewards": rewards, "values": rewards, "terminated": np.zeros(rewards.shape, bool), "last_values": 0.0}
    fastgae.gae(**good, backend=backend)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        fastgae.gae(**{**good, **changes}, backend=backend)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


def test_a_decay_has_every_axis_too(backend):
    with pytest.raises(ValueError, match=r"decay has shape \(4,\)"):
        fastgae.reverse_scan(SQUARE, np.full(4, 2.0), backend=backend)
    per_env = fastgae.reverse_scan(SQUARE, np.full((1, 4), 2.0), backend=backend)
    assert_same_bits(per_env, fastgae.reverse_scan(SQUARE, np.full((4, 4), 2.0), backend="numpy"))
    assert_same_bits(per_env, fastgae.reverse_scan(SQUARE, np.array(2.0), backend=backend))
