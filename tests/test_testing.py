"""fastgae.testing names the convention of a function, and the mistakes planted in it."""

import itertools
import re
import sys
from functools import partial, wraps
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae.testing import assert_gae, identify
from fastgae.testing.conventions import MISTAKES
from loops import environments
from support.identified import PEERS

PAGE = Path(__file__).parents[1] / "docs" / "your-own-loop.md"
LOOP = """
def loop(rewards, values, terminated, truncated, last_values, final_values, gamma, gae_lambda):
    advantages = np.zeros_like(rewards)
    advantage = np.zeros_like(last_values)
    decay = np.float32(gamma * gae_lambda)
    for t in reversed(range(len(rewards))):
        reward, done = rewards[t], terminated[t] | truncated[t]
        following = values[t + 1] if t + 1 < len(rewards) else last_values
        following = np.where(truncated[t], final_values[t], following)
        delta = (reward + gamma * np.where(terminated[t], 0, following)) - values[t]
        advantage = delta + decay * np.where(done, 0, advantage)
        advantages[t] = advantage
    return advantages, advantages + values
"""
STEPS = "    for t in reversed"
FINAL = "np.where(truncated[t], final_values[t], following)"
BOOTSTRAP, TRACE = "np.where(terminated[t], 0, following)", "np.where(done, 0, advantage)"
LATE = "np.concatenate([{0}[:1] & False, {0}[:-1]])"
EARLY = "np.concatenate([{0}[1:], {0}[:1] & False])"
TWICE = "np.concatenate([values[:-1], np.where(terminated[-1:], 0, last_values)])"
BOTH = "    terminated, truncated = ({} for each in (terminated, truncated))\n"
# Each mistake, by its name in the report, and what it writes in place of what.
PLANTED = [
    ("flags_late", {STEPS: BOTH.format(LATE.format("each")) + STEPS}),
    ("flags_early", {STEPS: BOTH.format(EARLY.format("each")) + STEPS}),
    ("flags_apart", {STEPS: f"    terminated = {EARLY.format('terminated')}\n{STEPS}"}),
    ("flags_inverted", {STEPS: f"    terminated = ~terminated\n{STEPS}"}),
    ("rewards_late", {"rewards[t],": "(rewards[t - 1] if t else 0),"}),
    ("rewards_early", {"rewards[t],": "(rewards[t + 1] if t + 1 < len(rewards) else 0),"}),
    ("rewards_whitened", {STEPS: f"    rewards = normalised(rewards)\n{STEPS}"}),
    ("rewards_whitened", {STEPS: f"    rewards = (rewards - rewards.mean(0)) / rewards.std(0, ddof=1)\n{STEPS}"}),
    ("last_values_ignored", {"else last_values": "else 0 * last_values"}),
    ("last_values_of_the_last_step", {"else last_values": "else values[t]"}),
    ("last_values_twice", {STEPS: f"    values = {TWICE}\n{STEPS}"}),  # PureJaxQL
    ("numbers_clipped", {"rewards[t],": "np.clip(rewards[t], -1, 1),"}),
    ("numbers_clipped", {"= advantage\n": "= np.clip(advantage, -10, 10)\n"}),
    ("truncation_as_termination", {BOOTSTRAP: "np.where(done, 0, following)"}),
    ("value_of_the_same_state", {FINAL: "np.where(truncated[t], values[t], following)"}),  # EmbodiChain, #610
    ("value_of_the_reset_observation", {FINAL: "following"}),
    ("truncation_dropped", {"delta + decay": "np.where(truncated[t], 0, delta) + decay"}),  # Stoix, #142
    ("ends_dropped", {"delta + decay": "np.where(done, 0, delta) + decay"}),
    ("bootstrap_at_termination", {BOOTSTRAP: "following"}),
    ("bootstrap_cut_early", {BOOTSTRAP: f"np.where({EARLY.format('(terminated | truncated)')}[t], 0, following)"}),
    ("trace_cut_early", {TRACE: f"np.where({EARLY.format('(terminated | truncated)')}[t], 0, advantage)"}),
    ("truncation_ignored", {FINAL: "following", TRACE: "np.where(terminated[t], 0, advantage)"}),
    ("flags_ignored", {FINAL: "following", BOOTSTRAP: "following", TRACE: "advantage"}),
    ("trace_not_cut", {TRACE: "advantage"}),
    ("trace_not_cut", {TRACE: "np.where(terminated[t], 0, advantage)"}),
    ("trace_not_cut", {TRACE: "advantage", BOOTSTRAP: "np.where(done, 0, following)"}),
    ("flags_mixed_up", {BOOTSTRAP: "np.where(truncated[t], 0, following)"}),  # Mava, #951
    ("flags_mixed_up", {TRACE: "np.where(truncated[t], 0, advantage)"}),  # rlevo, #344
    ("values_not_subtracted", {" - values[t]": ""}),
    ("values_exchanged", {"following)) - values[t]": "values[t])) - following"}),
    ("no_bootstrap", {f" + gamma * {BOOTSTRAP}": ""}),
    ("discount_missing", {"gamma * np.where": "np.where"}),
    ("lambda_missing", {"gamma * gae_lambda)": "gamma)"}),
    ("gamma_missing", {"gamma * gae_lambda)": "gae_lambda)"}),
    ("coefficients_exchanged", {"gamma * np.where": "gae_lambda * np.where"}),
    ("gamma_twice", {"gamma * gae_lambda)": "gamma * gae_lambda * gamma)"}),
    ("no_trace", {f" + decay * {TRACE}": ""}),
    ("coefficient_ignored", {STEPS: f"    gamma = 0.9\n{STEPS}", "gamma * gae_lambda)": "0.9 * gae_lambda)"}),
    ("coefficient_ignored", {"gamma * gae_lambda)": "gamma * 0.5)"}),
    ("outputs_equal", {"advantages + values": "advantages"}),
    ("outputs_equal", {"advantages, advantages": "advantages + values, advantages"}),
    (
        "outputs_exchanged",
        {"advantages, advantages + values": "{'advantages': advantages + values, 'rets': advantages}"},
    ),
    ("outputs_exchanged", {"advantages, advantages + values": "{'advantages': advantages, 'returns': values}"}),
    ("returns_of_normalised_advantages", {"s, advantages": "s, (advantages - advantages.mean()) / advantages.std()"}),
    ("returns_normalised", {"advantages + values": "normalised(advantages + values)"}),
    ("output_unknown", {"advantages + values": "advantages * values"}),
    ("one_env", {"return advantages,": "advantages = advantages[:, ::-1]\n    return advantages,"}),
    ("inputs_written", {"np.zeros_like(rewards)": "rewards"}),
    ("not_deterministic", {"advantages[t] =": "advantages[t] = np.random.default_rng().normal(0, 1e-6) +"}),
    ("not_finite", {"return": "advantages[0] /= 0 * values[0]\n    return"}),
    ("both_flags", {BOOTSTRAP: "np.where(terminated[t] & ~truncated[t], 0, following)"}),
]


def written(changes):
    source = LOOP
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    names = {"np": np, "normalised": lambda array: (array - array.mean()) / (array.std() + 1e-8)}
    exec(source, names)
    return names["loop"]


def detectors(found):
    return [finding.detector for finding in found.findings]


def test_the_right_loop():
    found = identify(written({}))
    assert not found.findings
    assert found.call == (
        "fastgae.gae(rewards, values, terminated, truncated, last_values=last_values, final_values=final_values, "
        "gamma=gamma, gae_lambda=gae_lambda)"
    )
    assert found.error == 0.0
    assert "the same bits" in str(found)
    assert_gae(written({}), tolerance=0.0)


def test_what_is_no_gae_is_refused_and_settings_are_checked():
    """Identify knows these estimators, and they have no mistakes."""
    for other in (fastgae.upgo, partial(fastgae.n_step_returns, n=3), partial(fastgae.gae, tail_normalized=True)):

        def loop(rewards, values, dones, last_values, gamma, other=other):
            return other(rewards, values, dones, last_values=last_values, gamma=gamma)

        with pytest.raises(AssertionError):
            assert_gae(loop)
    mistake, changes = PLANTED[0]
    for wrong, message in (
        ({"tolerance": 1e-2}, r"tolerance must be in \[0, 0.0001\]"),
        ({"allow": mistake}, "allow must be a tuple of names of findings, got"),
        ({"allow": ("no_mistake",)}, "allow must be a tuple of names of findings, got"),
        ({"gamma": 2.0}, r"gamma must be a number in \[0, 1\], got 2.0"),
        ({"gamma": 0.0}, "gamma must not be 0"),
    ):
        with pytest.raises(ValueError, match=message):
            assert_gae(written(changes), **wrong)


def test_the_numbers_of_one_env_are_scalars():
    """Numba has another type for arrays without axes, and cannot take them in place of a value."""
    numba = pytest.importorskip("numba")

    @numba.njit
    def loop(rewards, values, dones, next_value, gamma, lam):
        advantages, advantage = np.zeros_like(rewards), 0.0
        for t in range(len(rewards) - 1, -1, -1):
            delta = rewards[t] + gamma * next_value * (1 - dones[t]) - values[t]
            advantages[t] = advantage = delta + gamma * lam * (1 - dones[t]) * advantage
            next_value = values[t]
        return advantages

    assert not identify(loop).findings


def test_inputs_without_names_are_seen_when_they_are_written():
    def loop(rewards, values, dones, last_values, /):
        rewards *= 0
        return fastgae.gae(rewards, values, dones, last_values=last_values, gamma=0.99, gae_lambda=0.95)

    assert "inputs_written" in detectors(identify(loop))


def test_planted_mistakes_are_named_and_can_be_allowed():
    mistake, changes = PLANTED[0]
    with pytest.raises(AssertionError, match=mistake):
        assert_gae(written(changes))
    assert_gae(written(changes), allow=(mistake,))
    for mistake, changes in PLANTED:
        found = identify(written(changes))
        assert detectors(found) == [mistake], f"{changes}: {found}"
        assert found.error < 1e-5 or mistake == "not_finite", f"{changes}: {found}"


def test_every_known_mistake_is_planted():
    in_corpus = {name for loop in environments.corpus.values() for name in loop.findings}
    assert {*MISTAKES} - {"raises", "first_flag"} <= {name for name, _ in PLANTED} | in_corpus


def test_two_mistakes_are_both_named():
    found = identify(written({"else last_values": "else 0 * last_values", "gamma * gae_lambda)": "gamma)"}))
    assert {*detectors(found)} == {"last_values_ignored", "lambda_missing"}
    found = identify(lambda rewards, values, dones, last_values: rewards - values)
    assert {*detectors(found)} == {"no_bootstrap", "no_trace"}
    for outputs in ("advantages, advantages * values", "advantages * values, advantages"):
        found = identify(written({"gamma * gae_lambda)": "gamma * 0.5)", "advantages, advantages + values": outputs}))
        assert {*detectors(found)} == {"output_unknown", "coefficient_ignored"}


@pytest.mark.parametrize(
    "changes",
    [
        {"    decay =": "    gae_lambda *= len(rewards) < 100\n    decay ="},
        {TRACE: "np.where(done | (t % 64 == 63), 0, advantage)"},
    ],
)
def test_a_loop_that_is_right_for_few_steps_alone(changes):
    assert not identify(written(changes)).known


def test_the_tolerance():
    loop = written({"reward +": "reward * np.float32(1 + 1e-6) +"})
    assert_gae(loop)
    with pytest.raises(AssertionError, match="within 1e-06 of this call"):
        assert_gae(loop, tolerance=0.0)


def test_the_smallest_rollout():
    """It has one number that is not 0, so the results are the weights of this number."""
    loop = written({TRACE: "advantage"})
    found = identify(loop)
    shown = found.smallest["rollout"].partition(": ")[2]
    assert "terminated = [[1], [0]], truncated = [[0], [0]], last_values = [1], " in shown
    given = {name: np.float32(number) for name, number in eval(f"dict({shown})").items()}
    flags = {name: given[name] > 0 for name in ("terminated", "truncated")}
    np.testing.assert_allclose(loop(**{**given, **flags})[0], [[0.931095], [0.99]], rtol=1e-6)
    assert found.smallest["it gives"] == "advantages [0.931095, 0.99]"
    assert found.smallest["fastgae"].startswith("advantages [0, 0.99], by fastgae.gae(rewards, values, ")


def test_a_mistake_is_shown_beside_the_same_estimator_without_it():
    def loop(rewards, values, dones, last_values, gamma):
        return fastgae.upgo(rewards, values, dones, last_values=0 * last_values, gamma=gamma).advantages

    right = "fastgae.upgo(rewards, values, terminated, last_values=last_values, gamma=gamma)"
    assert identify(loop).smallest["fastgae"] == f"advantages [0.99], by {right}"


def test_a_function_that_gets_less_than_it_needs():
    """rsl_rl and rl_games do the same before they compute advantages: they add gamma V(s_t) to the reward."""

    def loop(rewards, values, dones, time_outs, last_values, gamma, gae_lambda):
        rewards = rewards + np.float32(gamma) * values * time_outs
        return fastgae.gae(rewards, values, dones, last_values=last_values, gamma=gamma, gae_lambda=gae_lambda)

    found = identify(loop)
    assert detectors(found) == ["value_of_the_same_state"]
    assert found.outputs == {"advantages": "advantages", "returns": "returns"}
    assert found.call.endswith("final_values=values, gamma=gamma, gae_lambda=gae_lambda)")
    assert "final_values = [[1]], for which loop has no argument" in found.smallest["rollout"]

    def of_one_flag(rewards, values, truncated, last_values):
        return fastgae.gae(rewards, values, truncated, last_values=last_values)

    assert "terminated = [[1]], for which of_one_flag has no argument" in identify(of_one_flag).smallest["rollout"]


def test_the_page_shows_the_reports(capsys):
    names, printed, reports = {}, "", 0
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        if kind == "text":
            assert printed == block
            reports += 1
        elif "stable_baselines3" not in block:
            exec(block, names)
            printed = capsys.readouterr().out
    assert reports == 3


def test_an_unknown_convention_is_said_to_be_unknown():
    def squashed(rewards, values, masks, last_values, gamma):
        return np.tanh(fastgae.gae(rewards, values, 1 - masks, last_values=last_values, gamma=gamma).advantages)

    found = identify(squashed)
    assert not found.known
    assert not found.findings
    text = " ".join(str(found).split())
    assert text.startswith("squashed: its convention is unknown, and no findings unknown I do not know. ")
    assert "with up to two mistakes" in text
    assert "What would help: say what masks is, with names={'masks': ...}; pass the gamma and gae_lambda that" in text
    assert "the smallest in which squashed and fastgae differ: rewards = [[0]], values = [[0]], masks = [[1]], " in text
    assert found.smallest["it gives"].startswith("result [")
    with pytest.raises(AssertionError, match="unknown") as error:
        assert_gae(squashed, names={"masks": "going_on"})
    assert "say what masks is" not in " ".join(str(error.value).split())

    def beside(rewards, values, dones, last_values, gamma, gae_lambda):  # gae_lambda has an effect on the advantages
        given = {"last_values": last_values, "gamma": gamma}
        advantages = fastgae.gae(rewards, values, dones, **given, gae_lambda=gae_lambda).advantages
        return np.tanh(advantages), fastgae.discounted_returns(rewards, dones, **given)

    assert not identify(beside).known

    def without_final_values(rewards, values, terminated, truncated, last_values):
        flags = terminated, truncated
        return np.tanh(fastgae.gae(rewards, values, *flags, last_values=last_values, final_values=values).advantages)

    right = identify(without_final_values).smallest["fastgae"]
    assert "final_values=values" in right  # the best that it can do


def test_peers():
    """The functions of fastgae.compat compute what the libraries compute; tests/peers tests the libraries' own."""
    for name, peer in PEERS.items():
        found = identify(peer.adapted(peer.function), names=peer.names)
        assert detectors(found) == peer.findings.split(), f"{name}: {found}"
        assert found.call == peer.call or not peer.call, name
        assert [*found.outputs.values()] == peer.outputs, name
        assert found.error < 1e-6, name


def test_coefficients_that_are_built_in_are_measured_and_those_that_are_taken_must_be_used():
    built_in = written({", gamma, gae_lambda)": ", gamma=0.9, gae_lambda=0.5)"})
    for names in ({"gamma": None, "gae_lambda": None}, {"gamma": None}, {"gae_lambda": None}):
        found = identify(built_in, names=names)
        ends = {name: "gamma=0.9" if name == "gamma" else "gae_lambda=0.5" for name in names}
        assert all(end in found.call for end in ends.values())
        assert found.error == 0.0
    assert not identify(written({STEPS: f"    gamma = 0.99\n{STEPS}"})).known
    found = identify(written({"gamma * gae_lambda)": "gamma * 0.95)"}))
    assert found.call.endswith("gamma=gamma, gae_lambda=0.95)")


def test_the_flag_of_the_first_observation():
    """It may be True, and is about a step before the rollout."""

    def loop(rewards, values, episode_starts, last_values):
        done = moved(episode_starts)
        return fastgae.gae(rewards, values, done, last_values=last_values).advantages

    moved = lambda starts: np.concatenate([starts[1:], 0 * starts[:1]])  # noqa: E731
    assert not identify(loop).findings
    moved = lambda starts: np.roll(starts, -1, 0)  # noqa: E731
    assert detectors(identify(loop)) == ["first_flag"]


def test_outputs_that_are_arguments():
    """They are no reason to read a right loop as a wrong one."""

    def loop(rewards, values, dones, last_values):
        return *fastgae.gae(rewards, values, dones, last_values=last_values), dones

    assert detectors(identify(loop)) == ["output_unknown"]

    def of_tokens(rewards, values):
        advantages = fastgae.gae(rewards, values, None, last_values=0.0).advantages
        return advantages, advantages * values

    assert detectors(identify(of_tokens)) == ["output_unknown"]


def test_padded_answers():
    """A loop that is right only where padding comes last is not taken for one that is wrong there, too.

    Nor is its mask taken for flags of observations: the first one begins an episode.
    """

    def loop(rewards, values, mask, gamma, gae_lambda):
        advantages = np.zeros_like(rewards)
        for n, rows in enumerate(map(np.flatnonzero, mask.T)):
            advantage = 0.0
            for t in reversed(rows):
                following = values[t + 1, n] if goes_on(t, rows, len(rewards)) else 0.0
                advantage = rewards[t, n] + gamma * following - values[t, n] + gamma * gae_lambda * advantage
                advantages[t, n] = advantage
        return advantages

    goes_on = lambda t, rows, steps: t < rows[-1]  # noqa: E731
    (finding,) = identify(loop).findings
    assert finding.detector == "one_episode"
    assert "right only if the mask is one span in each row" in finding.what
    goes_on = lambda t, rows, steps: t + 1 < len(rows)  # noqa: E731
    (finding,) = identify(loop).findings
    assert "right only if padding comes last in each row" in finding.what
    goes_on = lambda t, rows, steps: t + 1 < steps  # noqa: E731
    assert not identify(loop).known


def test_a_mask_is_no_flag():
    """It says which steps exist, and is no other flag. Nor is it one of an answer where the loop has a mistake."""

    def of_answers(rewards, values, mask, gamma, gae_lambda):
        delta = rewards + gamma * np.concatenate([values[1:], 0 * values[:1]]) - values
        return fastgae.reverse_scan(delta * mask, gamma * gae_lambda * mask)

    found = identify(of_answers)
    assert detectors(found) == ["value_of_padding"]
    assert "its advantage is 0" in found.convention[0]

    def loop(rewards, values, terminated, truncated, next_values, mask, gamma, gae_lambda):
        going_on = (1 - terminated) * (1 - truncated) * mask
        delta = rewards + gamma * next_values * (1 - terminated) - values
        return fastgae.reverse_scan(delta * mask, gamma * gae_lambda * going_on)

    assert detectors(identify(loop)) == ["one_episode"]


def test_values_of_one_row_more_or_less():
    """A loop that begins with the last row of values is right if that is V after the last step, and if it may be."""

    def loop(rewards, values, dones):
        assert len(values) in lengths[len(rewards)]
        given = rewards, values[: len(rewards)], dones
        return fastgae.gae(*given, last_values=values[-1]).advantages

    lengths = {steps: (steps, steps + 1) for steps in range(1, 151)}
    found = identify(loop)
    assert not found.findings
    assert "values with T + 1 rows" in found.arguments
    assert found.convention[1] == "with values of T rows, the last step bootstraps from V of its own state"
    lengths = {steps: (steps,) for steps in range(1, 151)}
    assert detectors(identify(loop)) == ["last_values_of_the_last_step"]


def test_functions_without_flags_that_drop_the_last_row():
    """Normalised advantages have their mean over the rows that there are, and the call can be made."""

    def dropped(rewards, values, gamma, gae_lambda):
        given = rewards[:-1], values, np.zeros_like(rewards[:-1], bool)
        advantages = fastgae.gae(*given, gamma=gamma, gae_lambda=gae_lambda).advantages
        return (advantages - advantages.mean()) / advantages.std()

    found = identify(dropped)
    assert detectors(found) == ["last_row_dropped"]
    assert found.outputs == {"result": "normalised advantages (mean 0, std 1)"}
    rewards, values = np.random.default_rng(0).normal(size=(2, 9, 3))
    names = {"rewards": rewards, "values": values, "gamma": 0.9, "gae_lambda": 0.5, "fastgae": fastgae, "np": np}
    np.testing.assert_array_equal(eval(found.call, names).advantages.shape, (8, 3))


def test_the_flag_of_each_next_observation():
    """``next_done`` is a flag of the last step, unless no other argument has the flags of the steps."""

    def loop(reward, value, next_value, next_done):
        return fastgae.gae(reward, value, next_done, next_values=next_value).advantages

    found = identify(loop)
    assert found.known
    assert "next_value (next_values), next_done (done); passed as" in found.arguments


def test_calls_of_loops_without_flags_can_be_made():
    def loop(rewards, values, mask, gamma, gae_lambda):
        decay = np.where(mask, gamma * gae_lambda, 1).astype(np.float32)
        return fastgae.reverse_scan((rewards - values) * mask, decay)

    found = identify(loop)
    assert found.known
    rewards, values = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    names = {"rewards": rewards, "values": values, "mask": rewards < 1, "gamma": 0.9, "gae_lambda": 0.5}
    got = eval(found.call, {**names, "np": np, "fastgae": fastgae})
    np.testing.assert_allclose(got, loop(**names), 1e-5, 1e-6)


def test_a_call_whose_arrays_are_other_ones_says_so():
    """One that slices along time is written for NumPy arrays with time first."""

    def dropped(rewards, values, dones):
        given = rewards[:, :-1], values, dones[:, :-1]
        return fastgae.gae(*given, time_axis=1).advantages

    assert "the same bits as this call, with arrays of shape (T, N)" in str(identify(dropped))
    assert "as this call\n" in str(identify(lambda rewards, values, dones: dropped(rewards.T, values.T, dones.T).T))

    def stored(rewards, values, dones):  # as RLinf stores them
        return fastgae.gae(rewards, values, dones[1:]).advantages

    assert "flags with T + 1 rows, of which step t has row t + 1" in identify(stored).arguments


def test_numbers_that_a_loop_clips_are_shown():
    found = identify(written({"rewards[t],": "np.clip(rewards[t], -10, 10),"}))
    assert "the same bits as this call where rewards and values are small" in str(found)
    assert "rewards = [[1000]]" in found.smallest["rollout"]


def test_the_same_numbers_in_another_dtype_are_equal():
    def widened(rewards, values, dones, last_values):
        return fastgae.gae(rewards, values, dones, last_values=last_values).advantages.astype(np.float64)

    assert "equal to this call, but for the dtype or the sign of zeros" in str(identify(widened))


def test_arguments_that_are_filled_in_stay_so():
    def loop(rewards, values, mask, gamma, gae_lambda):
        given = {"last_values": 0.0, "mask": mask, "gamma": gamma, "gae_lambda": gae_lambda}
        return fastgae.gae(rewards, values, None, **given).advantages

    found = identify(partial(loop, mask=None, gamma=0.9))
    assert found.function == "loop"
    assert found.call.endswith("terminated=None, last_values=0.0, gamma=0.9, gae_lambda=gae_lambda)")


def test_garbage_fails():
    """One output that is no result, or a rollout that stops the function, fails, and the report names it."""
    calls = itertools.count()

    def beside(garbage):
        return lambda rewards, values, dones, last_values: (
            (right := fastgae.gae(rewards, values, dones, last_values=last_values)).advantages,
            garbage(right.returns),
        )

    for garbage, said in (
        (lambda returns: returns.astype(int), "result[1] (ndarray of shape (7, 5) and dtype int64) is nothing that"),
        (lambda returns: returns[:-1], "result[1] is nothing that fastgae knows"),
        (lambda returns: returns[:3], "result[1] (ndarray of shape (3, 5) and dtype float32) is nothing that"),
        (lambda returns: "returns", "result[1] (str) is nothing that"),
        (lambda returns: None, "result[1] (None) is nothing that"),
        (lambda returns: returns + 1j, "result[1] (ndarray of shape (7, 5) and dtype complex64) is nothing that"),
        (lambda returns: 1 / (len(returns) - 1) * returns, "ZeroDivisionError: division by zero (1 step)"),
        (lambda returns: returns if next(calls) % 3 else 1 / 0, "ZeroDivisionError: division by zero ("),
    ):
        with pytest.raises(AssertionError) as error:
            assert_gae(beside(garbage))
        assert said in " ".join(str(error.value).split()), str(error.value)

    def one_flag(rewards, values, terminated, truncated, last_values, final_values):
        assert not (terminated & truncated).any(), "two flags at once"
        given = rewards, values, terminated, truncated
        return fastgae.gae(*given, last_values=last_values, final_values=final_values)

    with pytest.raises(AssertionError, match=r"\(7 steps with both flags at the\s+same ends\)"):
        assert_gae(one_flag)


def test_forms_of_functions():
    """Positional arguments alone, lists of numbers, dicts, masked and tail-normalised results, and one env."""

    def of_one_env(rew, val, d, /):
        advantages = []
        for t in reversed(range(len(rew))):
            going_on = not d[t]
            delta = rew[t] + 0.99 * val[t + 1] * going_on - val[t]
            advantages.insert(0, delta + 0.99 * 0.95 * going_on * (advantages[0] if advantages else 0))
        return advantages

    found = identify(of_one_env, names={"val": "values", "d": "done"})
    assert (found.known, found.findings) == (True, ())
    assert "shape (T,), values with T + 1 rows" in found.arguments

    def with_dones(rewards, values, dones, last_value):
        return fastgae.gae(rewards, values, dones, last_values=last_value).advantages

    found = identify(with_dones, names={"dones": "terminated"})
    assert (found.known, found.findings) == (True, ())
    assert "dones (terminated)" in found.arguments

    def tail(rewards, values, terminated, last_values, gamma, gae_lambda):
        result = fastgae.gae(
            rewards, values, terminated, last_values=last_values, gamma=gamma, gae_lambda=gae_lambda, time_axis=1,
            tail_normalized=True,
        )  # fmt: skip
        return {"targets": result.returns, "weights": result.advantages / result.advantages.std()}

    def centred(rewards, values, gamma, gae_lambda):
        advantages = fastgae.gae(rewards, values, None, last_values=0, gamma=gamma, gae_lambda=gae_lambda).advantages
        return advantages - advantages.mean(0), advantages - advantages.mean()

    words = {"result[0]": "centred advantages (per env, mean 0)", "result[1]": "centred advantages (mean 0)"}
    assert identify(centred).outputs == words

    found = identify(tail)
    assert found.call.endswith("tail_normalized=True, gamma=gamma, gae_lambda=gae_lambda, time_axis=1)")
    assert found.outputs == {"targets": "returns", "weights": "advantages divided by their std"}


def test_annotations_that_only_a_type_checker_knows():
    """From Python 3.14 on, they fail when they are read; before, they can only be strings."""
    quote = "" if sys.version_info >= (3, 14) else "'"
    loop = written({"loop(rewards": f"loop(rewards: {quote}Unknown{quote}"})
    assert not identify(loop).findings


def test_arguments_as_people_hold_them():
    """Lists of tensors, tuples, names with a word around them, arguments by position, and columns."""
    torch = pytest.importorskip("torch")

    def loop(batch_rewards, values_list, dones, next_value):
        rewards, values, dones = map(joined, (batch_rewards, values_list, dones))
        assert rewards.shape == (len(batch_rewards),)
        return fastgae.gae(rewards, values, dones, last_values=next_value.item()).advantages

    words = {torch.stack: "lists of T arrays without axes", torch.cat: "lists of T arrays of shape (1,)"}
    for joined in words:
        found = identify(wraps(loop)(lambda *given: loop(*given)))
        assert (found.known, found.findings) == (True, ())
        assert words[joined] in found.arguments

    def of_tuples(rewards, values, dones, next_value):
        values = values + (next_value,)  # noqa: RUF005 – a list or an array would take it in another way
        return fastgae.gae(*map(np.array, (rewards, values, dones)), gamma=0.9, gae_lambda=0.5).advantages

    assert "tuples of T arrays of shape (N,)" in identify(of_tuples).arguments

    def of_columns(rewards, values):
        advantages = fastgae.gae(rewards.reshape(-1, 1), values.reshape(-1, 1), None, last_values=0.0).advantages
        return advantages, advantages + values

    found = identify(of_columns)
    assert not found.findings
    assert "arrays of shape (T, 1)" in found.arguments


def test_rows_that_come_late():
    """As in PufferLib: with the next observation, and with one result less."""

    def loop(rewards, values, dones, gamma, gae_lambda):
        return fastgae.gae(rewards[1:], values, dones[1:], gamma=gamma, gae_lambda=gae_lambda).advantages

    found = identify(loop)
    assert (found.findings, found.error) == ((), 0.0)
    assert "one row late" in found.convention[0]


def test_functions_that_keep_their_memory():
    """A list of results, memory that is used again, and optional arguments that exclude each other."""
    memory = np.empty((2, 7, 3), np.float32)

    def reusing(rewards, values, terminated, next_value, next_values=None, values_file=None):
        assert next_values is None
        out = tuple(memory) if rewards.shape == (7, 3) else None
        return list(fastgae.gae(rewards, values, terminated, last_values=next_value, out=out))

    found = identify(reusing, names={"next_values": None})
    assert (found.known, found.findings, found.error) == (True, (), 0.0)
    assert found.outputs == {"result[0]": "advantages", "result[1]": "returns"}

    def noisy(rewards, values):
        memory[0, : len(rewards), : len(rewards.T)] = np.random.default_rng().normal(size=rewards.shape)
        return memory[0, : len(rewards), : len(rewards.T)]

    assert detectors(identify(noisy)) == ["not_deterministic"]


class OfUnknownArguments:
    """It can be called, and is shown in many lines."""

    __call__ = __signature__ = max

    def __repr__(self):
        return "\n" * 65


def test_functions_that_cannot_be_identified():
    for function, error in (
        (lambda rewards, values, foo: rewards, r"the argument foo is: say so with names=\{'foo': ...\}"),
        (lambda rewards, values, foo: rewards, r"fill it in with identify\(functools.partial\(f, foo=...\)\), or make"),
        (lambda batch: batch["rewards"], r"or make it in a lambda: identify\(lambda rewards, values, dones: f"),
        (lambda *given: given, r"in a lambda that names them: identify\(lambda rewards, values, dones: f\(...\)\)"),
        (lambda values: values, "no argument of the function is rewards: say what they are with names"),
        (lambda rewards, critics, val: val, "critics and val are all values: say what they are with names"),
        (np.zeros((500, 50)), "identify takes a function, and got ndarray: .* look at arrays with fastgae.diagnose"),
        (OfUnknownArguments(), "cannot tell the arguments of OfUnknownArguments: pass a lambda that calls it"),
        (lambda rewards, values: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda rewards, values: None, "returned no floats of the shape of rewards, but None: pass a lambda"),
        (lambda rewards, values: rewards.sum(), r"rewards, but float32 of shape \(\) and dtype float32: pass a lambda"),
        (lambda rewards, values: (), "returned no floats of the shape of rewards, but nothing: pass a lambda"),
    ):
        with pytest.raises(TypeError, match=error) as raised:
            identify(function)
        assert "\n" not in str(raised.value)
    for names, error in (({"x": "values"}, "names has 'x'"), ({"values": "qqq"}, "expected one of discounts, done, ")):
        with pytest.raises(ValueError, match=error):
            identify(lambda rewards, values: rewards, names=names)
    with pytest.raises(TypeError, match=r"names\['values'\] is None, and it has no default: say what it is with names"):
        identify(lambda rewards, values: rewards, names={"values": None})
    with pytest.raises(TypeError, match=r"names must be a dict, such as \{.d.: .terminated.\}, got \['values'\]"):
        identify(lambda rewards, values: rewards, names=["values"])
    with pytest.raises(TypeError, match="next_done has no done or starts beside it"):
        identify(lambda rewards, values, terminated, x: rewards, names={"x": "next_done"})
