"""identify calls functions of all forms, names what they compute, and says what stops it."""

import itertools
from functools import wraps

import numpy as np
import pytest

import fastgae
from fastgae.testing import assert_gae, identify
from loops import forms
from support.identified import PEERS


def text_of(found):
    return " ".join(str(found).split())


def findings_of(found):
    return " ".join([finding.detector for finding in found.findings] + ["unknown"] * (not found.known))


def test_functions_of_all_forms():
    for function, findings, words, names in forms.SAID:
        found = identify(function, names=names)
        assert findings_of(found) == findings, str(found)
        assert all(each in text_of(found) for each in words), f"{words}: {found}"


def test_peers():
    """The functions of fastgae.compat compute what the libraries compute; tests/peers tests the libraries' own."""
    for name, peer in PEERS.items():
        found = identify(peer.adapted(peer.function), names=peer.names)
        assert findings_of(found) == peer.findings, f"{name}: {found}"
        assert found.call == peer.call or not peer.call, name
        assert [*found.outputs.values()] == peer.outputs, name
        assert found.error < 1e-6, name


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

    assert findings_of(identify(loop)) == ""


def test_lists_of_tensors():
    torch = pytest.importorskip("torch")

    def loop(batch_rewards, values_list, dones, next_value):
        rewards, values, dones = map(joined, (batch_rewards, values_list, dones))
        assert rewards.shape == (len(batch_rewards),)
        return fastgae.gae(rewards, values, dones, last_values=next_value.item()).advantages

    words = {torch.stack: "lists of T arrays without axes", torch.cat: "lists of T arrays of shape (1,)"}
    for joined in words:
        found = identify(wraps(loop)(lambda *given: loop(*given)))  # it takes its arguments by position
        assert findings_of(found) == ""
        assert words[joined] in found.arguments


def test_values_of_one_row_more_or_less():
    """A loop that begins with the last row of values is right if that is V after the last step, and if it may be."""

    def loop(rewards, values, dones):
        assert len(values) - len(rewards) in more
        return fastgae.gae(rewards, values[: len(rewards)], dones, last_values=values[-1]).advantages

    more = 0, 1
    found = identify(loop)
    assert findings_of(found) == ""
    assert "values with T + 1 rows" in found.arguments
    assert found.convention[1] == "with values of T rows, the last step bootstraps from V of its own state"
    more = (0,)
    assert findings_of(identify(loop)) == "last_values_of_the_last_step"


def test_the_flag_of_the_first_observation():
    """It may be True, and is about a step before the rollout."""

    def loop(rewards, values, episode_starts, last_values):
        return fastgae.gae(rewards, values, moved(episode_starts), last_values=last_values).advantages

    moved = lambda starts: np.concatenate([starts[1:], 0 * starts[:1]])  # noqa: E731
    assert findings_of(identify(loop)) == ""
    moved = lambda starts: np.roll(starts, -1, 0)  # noqa: E731
    assert findings_of(identify(loop)) == "first_flag"


def test_functions_that_keep_their_memory():
    """A list of results, memory that is used again, and optional arguments that exclude each other."""
    memory = np.empty((2, 150, 5), np.float32)

    def reusing(rewards, values, terminated, next_value, next_values=None, values_file=None):
        assert next_values is None
        out = tuple(memory[:, : len(rewards)]) if rewards.shape[1:] == (5,) else None
        return list(fastgae.gae(rewards, values, terminated, last_values=next_value, out=out))

    found = identify(reusing, names={"next_values": None})
    assert (findings_of(found), found.error) == ("", 0.0)
    assert found.outputs == {"result[0]": "advantages", "result[1]": "returns"}

    def noisy(rewards, values):
        memory[0, : len(rewards), : len(rewards.T)] = np.random.default_rng().normal(size=rewards.shape)
        return memory[0, : len(rewards), : len(rewards.T)]

    assert findings_of(identify(noisy)) == "not_deterministic unknown"


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
    assert findings_of(identify(loop)) == "unknown"


def test_an_unknown_convention_is_said_to_be_unknown():
    def squashed(rewards, values, masks, last_values, gamma):
        return np.tanh(fastgae.gae(rewards, values, 1 - masks, last_values=last_values, gamma=gamma).advantages)

    found = identify(squashed)
    assert not found.known
    assert not found.findings
    text = text_of(found)
    assert text.startswith("squashed: its convention is unknown, and no findings unknown I do not know. ")
    assert "with up to two mistakes" in text
    assert "What would help: say what masks is, with names={'masks': ...}; pass the gamma and gae_lambda that" in text
    assert "the smallest in which squashed and fastgae differ: rewards = [[0]], values = [[0]], masks = [[1]], " in text
    assert found.smallest["it gives"].startswith("result [")
    with pytest.raises(AssertionError, match="unknown") as error:
        assert_gae(squashed, names={"masks": "going_on"})
    assert "say what masks is" not in text_of(error.value)


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
        (lambda returns: returns if next(calls) % 2 else 1 / 0, "ZeroDivisionError: division by zero ("),
    ):
        with pytest.raises(AssertionError) as error:
            assert_gae(beside(garbage))
        assert said in text_of(error.value), str(error.value)
        assert text_of(error.value).count("7 steps") <= 1

    def one_flag(rewards, values, terminated, truncated, last_values, final_values):
        assert not (terminated & truncated).any(), "two flags at once"
        given = rewards, values, terminated, truncated
        return fastgae.gae(*given, last_values=last_values, final_values=final_values)

    with pytest.raises(AssertionError, match=r"\(7 steps with both flags at the\s+same ends\)"):
        assert_gae(one_flag)


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
        (lambda rewards, critics, val: val, "critics and val are all values: .* names={'critics': ..., 'val': ...}, "),
        (lambda rewards, lam, lbda=1: rewards, "lam and lbda are all gae_lambda: .* where None leaves one out, or"),
        (lambda rewards, firsts, not_dones: rewards, "firsts and not_dones are all flags of both ends: say what"),
        (np.zeros((500, 50)), "identify takes a function, and got ndarray: .* look at arrays with fastgae.diagnose"),
        (OfUnknownArguments(), "cannot tell the arguments of OfUnknownArguments: pass a lambda that calls it"),
        (lambda rewards, values: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda rewards, values: {}[rewards.shape], r"most often KeyError: \(7, 5\)"),  # and not that lists have none
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
