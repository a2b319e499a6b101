"""What tests/peers does not ask of a library's own function: forms of arguments, edges, and what is refused."""

from itertools import product

import numpy as np
import pytest

from fastgae.compat import rlax, rsl_rl, tianshou, trl, verl
from support.cases import assert_same_bits, make_case
from support.compat_calls import CALLS, IN_NUMPY, STEPS, prepared
from support.functions import arrays_of

from .test_arguments import TABLE


def test_no_steps():
    names = ["brax", "cleanrl", "paper2code", "rl_games", "rl_games masks", "rllib", "rsl_rl", "skrl"]
    for name in (*names, *(name for name in CALLS if name.startswith("rlax"))):
        function, given = prepared(IN_NUMPY[name])
        none = {key: each[STEPS:] if len(np.atleast_1d(each)) >= STEPS - 1 else each for key, each in given.items()}
        assert {len(result) for result in arrays_of(function(**none))} == {0}, name
    for name in ("torchrl td_lambda", "torchrl td_lambda advantage"):
        function, given = prepared(CALLS[name])
        none = {key: each[:, :0] if np.ndim(each) else each for key, each in given.items()}
        assert not function(**none).size, name


def test_one_step_of_rsl_rl_has_no_std():
    one = np.ones((1, 1, 1), np.float32)
    assert np.isnan(rsl_rl.compute_returns(one, one, one.astype(np.uint8), one[0], 0.99, 0.95)[1]).all()


def test_tianshou_in_a_larger_buffer():
    """The batch lies backwards in it, and two episodes are unfinished."""
    s = make_case((40, 1), np.float32, bootstrap="next_values").mapped(lambda _, array: array[:, 0])
    assert s.terminated.any()
    indices, unfinished = np.arange(40)[::-1] + 2, [7, 39]
    terminated = np.zeros(42, bool)
    terminated[indices] = s.terminated
    batch = type("Batch", (), {"rew": s.rewards.astype(float), "terminated": s.terminated, "truncated": s.truncated})
    buffer = type("Buffer", (), {"terminated": terminated, "unfinished_index": lambda: indices[unfinished]})
    following, ends = s.next_values * ~s.terminated, s.terminated | s.truncated
    ends[unfinished] = True
    batch.terminated.flags.writeable = batch.truncated.flags.writeable = batch.rew.flags.writeable = False
    returns, advantages = tianshou.compute_episodic_return(batch, buffer, indices, s.next_values, s.values)
    assert_same_bits(advantages, tianshou._gae(s.values, following, batch.rew, ends, 0.99, 0.95))
    assert_same_bits(returns, advantages + s.values)
    buffer.terminated = terminated.astype(int)
    columns = (each[:, np.newaxis] for each in (s.next_values, s.values))
    assert_same_bits(tianshou.compute_episodic_return(batch, buffer, indices, *columns)[0], returns)
    # Values that are not given are those before the next ones; without any, advantages are returns.
    got = tianshou.compute_episodic_return(batch, buffer, indices, s.next_values)
    expected = tianshou.compute_episodic_return(batch, buffer, indices, s.next_values, np.roll(following, 1))
    assert_same_bits(got[1], expected[1])
    zeros = np.zeros(40)
    returns, advantages = tianshou.compute_episodic_return(batch, buffer, indices, gamma=0.9, gae_lambda=1 - 1e-9)
    assert_same_bits(returns, tianshou._gae(zeros, zeros, batch.rew, ends, 0.9, 1 - 1e-9))
    assert_same_bits(advantages, returns)


def test_more_steps_than_there_are():
    function, given = prepared(CALLS["rlax n_step_bootstrapped_returns"])
    assert_same_bits(function(**{**given, "n": 10**15}), function(**{**given, "n": STEPS}))


def test_grpo_of_trl(dtype):
    rewards = np.random.default_rng(0).normal(size=24).astype(dtype)
    rewards[[3, 8, 9, 10, 12, 13, 14, 15]] = np.nan  # one scored completion of the third group, and none of the fourth
    rows = np.ma.masked_invalid(rewards.reshape(-1, 4).astype(np.float64))
    centered = rows - rows.mean(axis=1, keepdims=True)
    stds = rows.std(axis=1, ddof=1, keepdims=True), rows.std(ddof=1)  # the first is masked where one was scored
    by_group, by_batch = (centered / (std + 1e-4) for std in stds)
    scales = {"group": by_group, True: by_group, "batch": by_batch, "none": centered, False: centered}
    for scale_rewards, expected in scales.items():
        got = trl.grpo_advantages(rewards, 4, scale_rewards)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected.filled(0).ravel(), rtol=8 * np.finfo(dtype).eps, atol=1e-7)


def test_rlax_clips_infinite_ratios():
    _, given = prepared(CALLS["rlax vtrace"])
    ratios = np.maximum(given["rho_tm1"], 1)
    infinite = np.where(np.arange(len(ratios)) % 2, ratios, np.inf).astype(np.float32)
    for function in (rlax.vtrace, rlax.vtrace_td_error_and_advantage):
        expected = arrays_of(function(**{**given, "rho_tm1": ratios}))
        assert_same_bits(arrays_of(function(**{**given, "rho_tm1": infinite})), expected)
    function, given = prepared(CALLS["rlax retrace_continuous"])
    none, infinite = (0 * given["log_rhos"] + each for each in (0, 1e3))
    assert_same_bits(function(**{**given, "log_rhos": infinite}), function(**{**given, "log_rhos": none}))


def test_the_epsilon_of_verl():
    scores, mask = np.ones((2, 3)), np.ones((2, 3), int)
    for epsilon in (-0.5, np.inf, np.nan):
        with pytest.raises(ValueError, match="epsilon must be a finite number >= 0, got"):
            verl.compute_grpo_outcome_advantage(scores, mask, ["a", "a"], epsilon)


def test_arrays_of_any_form():
    """Lists, and memory of any order, with flags that are numbers."""

    def changed(array, flags):
        if flags == "list":
            return array if array.dtype == np.float32 else array.tolist()  # discounts stay float32
        return array.astype(flags if array.dtype == bool else array.dtype.newbyteorder(), order="F")

    for name, flags in product(IN_NUMPY.keys() - {"labml", "pufferlib"}, ("list", ">i2", ">f8")):
        function, given = prepared(IN_NUMPY[name], ["float64"])
        got = function(**{key: changed(each, flags) if np.ndim(each) else each for key, each in given.items()})
        assert_same_bits(arrays_of(got), arrays_of(function(**given)), name)


def one_token(tokens):
    mask = np.zeros(CALLS["verl"][1]["response_mask"].shape, int)
    mask[0, :tokens] = 1
    return {"response_mask": mask}


@pytest.mark.parametrize(
    ("name", "changed", "error", "match"),
    [
        ("brax", {"values": None}, TypeError, r"values must have shape \(7, 4\), because rewards has .*; got None"),
        ("brax", {"values": np.ones((7, 4), complex)}, TypeError, "values has dtype complex128"),
        ("cleanrl", {"gamma": np.float16(0.99)}, TypeError, "gamma has dtype float16, in which 0.99 is another number"),
        ("envpool", {"env_id": np.full((7, 4), 4)}, ValueError, "env_id must be integers from 0 to numenv - 1 = 3"),
        ("envpool", {"env_id": np.full((7, 4), -1)}, ValueError, "env_id must be integers"),
        ("envpool", {"env_id": np.zeros((7, 4))}, TypeError, "env_id has dtype float64; expected integers"),
        ("envpool", {"env_id": np.zeros((7, 4), int)}, ValueError, "env_id has an env twice in one batch"),
        (
            "labml",
            {"rewards": np.ones((3, 2)), "done": np.ones((3, 2)), "values": np.ones((3, 3))},
            ValueError,
            r"rewards has shape \(3, 2\); expected \(4, 7\)",
        ),
        ("labml", {"values": np.ones((4, 8), complex)}, TypeError, "values has dtype complex128"),
        ("rlax n_step_bootstrapped_returns", {"n": 0}, ValueError, "n must be a positive integer, got 0"),
        ("rlax retrace", {"a_tm1": np.full(STEPS, 3)}, IndexError, "out of bounds"),
        ("torchrl gae", {"gamma": np.full((1, 1, 1, 1), 0.9)}, ValueError, r"gamma has .* broadcasts to \(4, 7, 1\)"),
        ("torchrl gae", {"time_dim": 3}, ValueError, r"time_dim=3 is out of range for reward of shape \(4, 7, 1\)"),
        ("torchrl td_lambda", {"time_dim": -4}, ValueError, "time_dim=-4 is out of range"),
        ("torchrl reward2go", {"time_dim": 3}, ValueError, "time_dim=3 is out of range"),
        ("torchrl td_lambda", {"rolling_gamma": False}, ValueError, "rolling_gamma"),
        ("verl", one_token(0), ValueError, "at least two steps in the mask, got 0"),
        ("verl", one_token(1), ValueError, "at least two steps in the mask, got 1"),
    ],
)
def test_refused(name, changed, error, match):
    function, given = prepared(IN_NUMPY[name])
    with pytest.raises(error, match=match):
        function(**{**given, **changed})


def test_refused_without_a_row_in_the_tables():
    given = TABLE[tianshou.compute_episodic_return]
    with pytest.raises(ValueError, match="gae_lambda must be 1 if v_s_ is not given"):
        tianshou.compute_episodic_return(**{**given, "v_s_": None})
    with pytest.raises(ValueError, match="num_generations must divide the number of rewards, 24, got 5"):
        trl.grpo_advantages(np.ones(24), 5)
    function, arguments, _ = CALLS["cleanrl"]
    positional = (*arguments.values(), 0.9, 0.8)
    with pytest.raises(TypeError, match="too many positional arguments"):
        function(*positional, 0.7)
    with pytest.raises(TypeError, match="multiple values for argument 'gamma'"):
        function(*positional, gamma=0.9)
    with pytest.raises(TypeError, match="is missing the argument 'next_done'"):
        function(*positional[:4])
