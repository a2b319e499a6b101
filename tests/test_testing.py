"""fastgae.testing names the mistakes planted in a loop; test_readings.py has the forms that a loop may have."""

import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae.testing import assert_gae, identify
from fastgae.testing.conventions import MISTAKES
from loops import environments

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
    ("last_values_of_the_first_step", {"else last_values": "else values[0]"}),
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
    ("trace_not_cut", {TRACE: "np.where(terminated[t], 0, advantage)", BOOTSTRAP: "np.where(done, 0, following)"}),
    ("flags_mixed_up", {BOOTSTRAP: "np.where(truncated[t], 0, following)"}),  # Mava, #951
    ("flags_mixed_up", {TRACE: "np.where(truncated[t], 0, advantage)"}),  # rlevo, #344
    ("values_not_subtracted", {" - values[t]": ""}),
    ("values_not_subtracted", {" - values[t]": " - np.where(done, 0, values[t])"}),
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
    ("rows_reversed", {"return advantages,": "advantages = advantages[::-1]\n    return advantages,"}),
    ("last_row_dropped", {"range(len(rewards))": "range(len(rewards) - 1)"}),
    ("long_rollouts", {"delta + decay": "delta * np.float32(decay**t) / np.float32(decay**t) + decay"}),
    ("one_env", {"return advantages,": "advantages = advantages[:, ::-1]\n    return advantages,"}),
    ("inputs_written", {"np.zeros_like(rewards)": "rewards"}),
    ("not_deterministic", {"advantages[t] =": "advantages[t] = np.random.default_rng().normal(0, 1e-6) +"}),
    ("not_finite", {"return": "advantages[0] /= 0 * values[0]\n    return"}),
    ("both_flags", {BOOTSTRAP: "np.where(terminated[t] & ~truncated[t], 0, following)"}),
]
WHY = {"gamma_missing": "later rewards count too much", "gamma_twice": "later rewards count too little"}
WHAT = {"long_rollouts": "in long ones: result[0], result[1]"}  # in one order in every process


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
    assert (found.findings, found.error) == ((), 0.0)
    assert found.call == (
        "fastgae.gae(rewards, values, terminated, truncated, last_values=last_values, final_values=final_values, "
        "gamma=gamma, gae_lambda=gae_lambda)"
    )
    assert all("the same bits" in shown for shown in (str(found), found._repr_html_()))
    assert_gae(written({}), tolerance=0.0)


def test_planted_mistakes_are_named_and_can_be_allowed():
    mistake, changes = PLANTED[0]
    with pytest.raises(AssertionError, match=mistake):
        assert_gae(written(changes))
    assert_gae(written(changes), allow=(mistake,))
    for mistake, changes in PLANTED:
        found = identify(written(changes))
        assert detectors(found) == [mistake], f"{changes}: {found}"
        assert found.error < 1e-5 or mistake == "not_finite", f"{changes}: {found}"
        assert WHY.get(mistake, "") in found.findings[0].why
        assert WHAT.get(mistake, "") in found.findings[0].what


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


def test_a_loop_that_is_right_in_part_is_unknown():
    for changes in (
        {"    decay =": "    gae_lambda *= len(rewards) < 100\n    decay ="},
        {TRACE: "np.where(done | (t % 64 == 63), 0, advantage)"},
        {STEPS: f"    gamma = 0.99\n{STEPS}"},
    ):
        assert not identify(written(changes)).known


def test_coefficients_that_are_built_in_are_measured():
    for measured in (("gamma=0.9", "gae_lambda=0.5"), ("gamma=0.9",), ("gamma=1",), ("gae_lambda=0.5",)):
        numbers = {"gamma": "0.9", "gae_lambda": "0.5"} | dict(each.split("=") for each in measured)
        loop = written({", gamma, gae_lambda)": ", gamma={gamma}, gae_lambda={gae_lambda})".format(**numbers)})
        found = identify(loop, names={each.partition("=")[0]: None for each in measured})
        assert all(each in found.call for each in measured)
        assert found.error == 0.0
    found = identify(written({"gamma * gae_lambda)": "gamma * 0.95)"}))
    assert found.call.endswith("gamma=gamma, gae_lambda=0.95)")


def test_annotations_that_only_a_type_checker_knows():
    """From Python 3.14 on, they fail when they are read; before, they can only be strings."""
    quote = "" if sys.version_info >= (3, 14) else "'"
    assert not identify(written({"loop(rewards": f"loop(rewards: {quote}Unknown{quote}"})).findings


def test_a_call_that_normalises_along_axis_0_takes_time_first():
    loop = written({STEPS: f"    rewards = (rewards - rewards.mean(0)) / rewards.std(0, ddof=1)\n{STEPS}"})

    def transposed(rewards, values, dones, last_values, gamma, gae_lambda):
        return loop(rewards.T, values.T, dones.T, dones.T & False, last_values, values.T, gamma, gae_lambda)[0].T

    found = identify(transposed)
    assert "rewards.mean(0)" in found.call
    assert "time_axis" not in found.call
    assert "with arrays of shape (T, N)" in str(found)


def test_a_global_that_raises_when_it_is_looked_at():
    """So does ``wandb.config`` before ``wandb.init()``."""

    class Config:
        def __getattr__(self, name):
            raise RuntimeError("call init() first")

    config = Config()

    def loop(rewards, values, dones, last_values):
        return config and fastgae.gae(rewards, values, dones, last_values=last_values)

    assert identify(loop).known


def test_numbers_that_a_loop_clips_are_shown():
    found = identify(written({"rewards[t],": "np.clip(rewards[t], -10, 10),"}))
    assert "the same bits as this call where rewards and values are small" in str(found)
    both = identify(written({BOOTSTRAP: "np.where(terminated[t] & ~truncated[t], 0, following)"}))
    assert "the same bits as this call where no step has both flags" in str(both)
    assert "rewards = [[1000]]" in found.smallest["rollout"]


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


def test_what_is_no_gae_is_refused_and_settings_are_checked():
    """Identify knows these estimators, and they have no mistakes."""
    for name, how in (("upgo", {}), ("n_step_returns", {"n": 3}), ("gae", {"tail_normalized": True})):
        other = partial(getattr(fastgae, name), **how)
        with pytest.raises(AssertionError, match=rf"no findings\n(?s:.*) fastgae\.{name}\("):
            assert_gae(
                lambda rewards, values, dones, last_values, other=other: other(
                    rewards, values, dones, last_values=last_values
                )
            )
    for wrong, message in (
        ({"tolerance": 1e-2}, r"tolerance must be in \[0, 0.0001\]"),
        ({"allow": None}, "allow must be a tuple of names of findings, got None"),
        ({"allow": "flags_late"}, "allow must be a tuple of names of findings, got"),
        ({"allow": ("no_mistake",)}, "allow must be a tuple of names of findings, got"),
        ({"gamma": 2.0}, r"gamma must be a number in \[0, 1\], got 2.0"),
        ({"gamma": 0.0}, "gamma must not be 0"),
    ):
        with pytest.raises(ValueError, match=message):
            assert_gae(fastgae.gae, **wrong)
