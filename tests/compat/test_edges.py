"""What tests/peers does not ask of a library's own function: forms of arguments, edges, and agreement with fastgae."""

import numpy as np
import pytest

from fastgae.compat import labml, rlax, rllib, rsl_rl, tianshou, torchrl, trl, verl
from support.cases import assert_same_bits
from support.compat_calls import CALLS, NUMPY_CALLS, arrays_of, given_as, of_numpy
from support.trajectories import steps


def floats(name):
    """Return the function of a call in the tables, and its arguments in float32."""
    function, arguments, numbers = {**CALLS, **NUMPY_CALLS}[name]
    return function, given_as(of_numpy, arguments, numbers, ["float32"])


def test_labml_by_name_and_with_another_shape():
    gae = labml.GAE(n_workers=1, worker_steps=2, gamma=0.5, lambda_=1.0)
    got = gae(done=np.zeros((1, 2)), rewards=np.ones((1, 2)), values=np.array([[0.0, 0.0, 4.0]]))
    assert_same_bits(got, np.array([[2.5, 3.0]], np.float32))
    with pytest.raises(ValueError, match="rewards"):
        gae(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 3)))


def test_rllib_takes_flags_that_are_numbers_and_no_steps():
    function, given = floats("rllib")
    expected = function(**given)
    for dtype in (np.int8, np.float64):
        flags = {name: given[name].astype(dtype) for name in ("terminateds", "truncateds")}
        assert_same_bits(function(**{**given, **flags}), expected)
    nothing = np.zeros(0, np.float32)
    assert rllib.compute_value_targets(nothing, nothing, nothing, nothing, 0.9, 0.8).shape == (0,)


def test_one_step_of_rsl_rl_has_no_std():
    one = np.ones((1, 1, 1), np.float32)
    assert np.isnan(rsl_rl.compute_returns(one, one, one.astype(np.uint8), one[0], 0.99, 0.95)[1]).all()


def test_tianshou_in_a_larger_buffer():
    """The batch lies backwards in it, and two episodes are unfinished."""
    s = steps((40, 1))
    s = s._make(array[:, 0] for array in s)
    assert s.terminated.any()
    indices, unfinished = np.arange(40)[::-1] + 2, [7, 39]
    terminated = np.zeros(42, bool)
    terminated[indices] = s.terminated
    batch = type("Batch", (), {"rew": s.rewards.astype(float), "terminated": s.terminated, "truncated": s.truncated})
    buffer = type("Buffer", (), {"terminated": terminated, "unfinished_index": lambda: indices[unfinished]})
    following, ends = s.next_values * ~s.terminated, s.done.copy()
    ends[unfinished] = True
    returns, advantages = tianshou.compute_episodic_return(batch, buffer, indices, s.next_values, s.values)
    assert_same_bits(advantages, tianshou._gae(s.values, following, batch.rew, ends, 0.99, 0.95))
    assert_same_bits(returns, advantages + s.values)
    # Values that are not given are those before the next ones; without any, advantages are returns.
    got = tianshou.compute_episodic_return(batch, buffer, indices, s.next_values)
    expected = tianshou.compute_episodic_return(batch, buffer, indices, s.next_values, np.roll(following, 1))
    assert_same_bits(got[1], expected[1])
    zeros = np.zeros(40)
    returns, advantages = tianshou.compute_episodic_return(batch, buffer, indices, gamma=0.9, gae_lambda=1.0)
    assert_same_bits(returns, tianshou._gae(zeros, zeros, batch.rew, ends, 0.9, 1.0))
    assert_same_bits(advantages, returns)
    with pytest.raises(ValueError, match="gae_lambda"):
        tianshou.compute_episodic_return(batch, buffer, indices)


def test_torchrl_without_rolling_gamma():
    _, given = floats("torchrl gae")
    with pytest.raises(ValueError, match="rolling_gamma"):
        torchrl.td_lambda_return_estimate(
            *(given[name] for name in ("gamma", "lmbda", "next_state_value", "reward", "done")), rolling_gamma=False
        )


def test_grpo_of_trl(dtype):
    rewards = np.random.default_rng(0).normal(size=24).astype(dtype)
    rewards[[3, 8, 9, 10, 12, 13, 14, 15]] = np.nan  # one scored completion of the third group, and none of the fourth
    rows = rewards.reshape(-1, 4).astype(np.float64)
    mean = np.array([row[~np.isnan(row)].mean() if (~np.isnan(row)).any() else np.nan for row in rows])
    std = np.array([row[~np.isnan(row)].std(ddof=1) if (~np.isnan(row)).sum() > 1 else np.nan for row in rows])
    centered = rows - mean[:, np.newaxis]
    by_group, by_batch = (centered / (each + 1e-4) for each in (std[:, np.newaxis], np.nanstd(rows, ddof=1)))
    scales = {"group": by_group, True: by_group, "batch": by_batch, "none": centered, False: centered}
    for scale_rewards, expected in scales.items():
        got = trl.grpo_advantages(rewards, 4, scale_rewards)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, np.nan_to_num(expected).ravel(), rtol=8 * np.finfo(dtype).eps, atol=1e-7)
    with pytest.raises(ValueError, match="num_generations must divide the number of rewards, 24, got 5"):
        trl.grpo_advantages(rewards, 5)


@pytest.mark.parametrize("tokens", [0, 1])
def test_too_few_tokens_to_whiten(tokens):
    function, given = floats("verl")
    mask = np.zeros_like(given["response_mask"])
    mask[0, :tokens] = 1
    with pytest.raises(ValueError, match=f"at least two steps in the mask, got {tokens}"):
        function(**{**given, "response_mask": mask})
    assert function is verl.compute_gae_advantage_return


def test_rlax_clips_infinite_ratios():
    function, given = floats("rlax vtrace")
    ratios = np.maximum(given["rho_tm1"], 1)
    infinite = np.where(np.arange(len(ratios)) % 2, ratios, np.inf).astype(np.float32)
    for function in (rlax.vtrace, rlax.vtrace_td_error_and_advantage):
        expected = arrays_of(function(**{**given, "rho_tm1": ratios}))
        for got, right in zip(arrays_of(function(**{**given, "rho_tm1": infinite})), expected, strict=True):
            assert_same_bits(got, right)
    _, given = floats("rlax retrace_continuous")
    logarithms = given["log_rhos"]
    expected = rlax.retrace_continuous(**{**given, "log_rhos": 0 * logarithms})
    assert_same_bits(rlax.retrace_continuous(**{**given, "log_rhos": 0 * logarithms + 1e3}), expected)


def test_rlax_refuses_actions_that_there_are_not():
    function, given = floats("rlax retrace")
    with pytest.raises(IndexError):
        function(**{**given, "a_tm1": given["a_tm1"] + 3})


def test_arguments_that_do_not_fit_the_signature():
    function, arguments, _ = CALLS["cleanrl"]
    given = tuple(arguments.values())
    with pytest.raises(TypeError, match="too many positional arguments"):
        function(*given, 0.9, 0.8, 0.7)
    with pytest.raises(TypeError, match="multiple values for argument 'rewards'"):
        function(*given, rewards=given[0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'lam'"):
        function(*given, lam=0.8)
    with pytest.raises(TypeError, match="is missing the argument 'next_done'"):
        function(*given[:-1])


def test_what_is_no_array():
    function, arguments, _ = CALLS["brax"]
    with pytest.raises(
        TypeError, match=r"values must have shape \(7, 4\), because rewards has shape \(7, 4\); got None"
    ):
        function(**{**arguments, "values": None})
    with pytest.raises(TypeError, match="values has dtype complex128"):
        function(**{**arguments, "values": arguments["values"] * 1j})
    as_lists = {name: given.tolist() if isinstance(given, np.ndarray) else given for name, given in arguments.items()}
    for got, expected in zip(function(**as_lists), function(**arguments), strict=True):
        assert_same_bits(got, expected)
