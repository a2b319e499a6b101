"""Arguments that are missing, swapped, or of a wrong type or shape: every function of compat names the argument."""

import inspect
import itertools
import re
from importlib import import_module
from types import FunctionType, MethodType, SimpleNamespace

import numpy as np
import pytest

from fastgae import compat
from fastgae._support.misnamed import NAMES_ELSEWHERE
from fastgae.compat import cleanrl, gymnasium, labml, spinningup, stable_baselines3, tianshou, torchrl, trl, verl
from support.compat_calls import CALLS, ENVS, NUMPY_CALLS, SIZE, STEPS, TORCHRL, VTRACE, flags, prepared
from support.compat_calls import whole as numbers

ROWS, ENDS, SPACE = np.ones(SIZE), flags(STEPS), SimpleNamespace(is_np_flattenable=True)


def having(value, *names, **others):
    return SimpleNamespace(**dict.fromkeys(names, value), **others)


ROLLOUT = gymnasium.Rollout(
    *[ROWS] * 2, {}, ROWS / 2, *[ROWS < 0] * 2, ROWS[0] < 0, *[ROWS[0, :, None]] * 4, "next_step"
)
VECTOR = having(
    SPACE,
    *("num_envs", "reset", "step", "single_observation_space", "single_action_space"),
    metadata={"autoreset_mode": "disabled"},
)
BUFFER = having(ROWS, "rewards", "values", "episode_starts", advantages=0 * ROWS, gamma=0.9, gae_lambda=0.8)
PATH = having(ROWS[0], "rew_buf", "val_buf", "adv_buf", "ret_buf", path_start_idx=0, ptr=2, gamma=0.9, lam=0.8)
RESPONSES = {
    "token_level_rewards": np.arange(ENVS * STEPS).reshape(ENVS, STEPS) % 5 / 2,
    "response_mask": np.arange(STEPS) < np.arange(ENVS)[:, np.newaxis] + 2,
    "index": np.arange(ENVS) // 2,
}
# These take objects, or have no row of their own in the tables of calls.
OTHERS = {
    torchrl.vec_generalized_advantage_estimate: TORCHRL,
    labml.GAE: {"n_workers": ENVS, "worker_steps": STEPS, "gamma": 0.9, "lambda_": 0.8},
    spinningup.discount_cumsum: {"x": numbers(STEPS), "discount": 0.9},
    spinningup.finish_path: {"ppo_buffer": PATH, "last_val": 0.5},
    MethodType(stable_baselines3.compute_returns_and_advantage, BUFFER): {"last_values": ROWS[0], "dones": flags(ENVS)},
    tianshou.compute_episodic_return: {
        "batch": having(ENDS, "terminated", "truncated", rew=numbers(STEPS)),
        "buffer": having(ENDS, "terminated", unfinished_index=lambda: np.arange(0)),
        "indices": np.arange(STEPS),
        "v_s_": numbers(STEPS) / 2,
        "v_s": numbers(STEPS) / 2,
    },
    verl.compute_grpo_outcome_advantage: RESPONSES,
    verl.compute_rloo_outcome_advantage: RESPONSES,
    verl.compute_reinforce_plus_plus_baseline_outcome_advantage: RESPONSES,
    trl.grpo_advantages: {"rewards": np.arange(ENVS) / 2, "num_generations": 2},
    gymnasium.collect: {"envs": VECTOR, "policy": np.zeros_like, "num_steps": 3, "seed": 0},
    ROLLOUT.arguments: {"value_function": lambda batch: np.zeros(len(batch)), "values": ROWS},
}
TABLE = dict(map(prepared, (*CALLS.values(), *NUMPY_CALLS.values(), *VTRACE.values()))) | OTHERS

# If neighbours of one shape are in one of these groups, nobody can see that they are swapped.
EXCHANGEABLE = [
    {*names.split()}
    for names in (
        """rewards values reward value mb_rewards mb_extrinsic_values token_level_rewards r_t v_t v_tm1 q_t q_tm1 v_s
        v_s_ rew ratio advantages state_value next_state_value log_pi log_mu""",
        "a_t a_tm1 n_workers worker_steps",
        "truncation termination terminated truncated terminateds truncateds",
        """gamma gae_lambda lam lambd lambda_ lmbda tau γ λ discount discount_factor lambda_coefficient discount_t c_t
        alpha_ alpha eps clip_rho_threshold clip_pg_rho_threshold""",
        "vtrace_rho_clip vtrace_c_clip",
        "rho_thresh c_thresh",
    )
]
BAD = {"a number": 0.5, "None": None, "text": "text", "an array": np.full((2, 3, 4, 5), 0.5)}
# Good in these functions, as their docstrings say.
GOOD = {
    "discounted_returns: v_t is a number",
    "get_advantages_and_returns: action_mask is None",
    "discount_cumsum: x is an array",
}


def bad_calls(function, given):
    """Yield calls with one mistake each: what it is, the arguments, and the names of which the error has one."""
    parameters = inspect.signature(function).parameters
    whole = {name: given.get(name, each.default) for name, each in parameters.items()}
    for place, (name, each) in enumerate(parameters.items()):
        others = [other for other in parameters if other in given and other != name]
        if each.default is each.empty:
            yield f"without {name}", {other: given[other] for other in others}, [name]
            shifted = dict(zip(parameters, map(given.get, others), strict=False))
            yield f"without {name}, by position", shifted, [*parameters][place:]
        for what, bad in BAD.items():
            good = type(bad) is type(whole[name]) is float or (bad is None and each.default is None)
            if not good and f"{name_of(function).partition('.')[2]}: {name} is {what}" not in GOOD:
                yield f"{name} is {what}", {**whole, name: bad}, [name]
    for one, other in itertools.pairwise(parameters):
        same = type(whole[one]) is type(whole[other]) and np.array_equal(whole[one], whole[other])
        alike = np.shape(whole[one]) == np.shape(whole[other]) and any({one, other} <= names for names in EXCHANGEABLE)
        if not (same or alike):
            yield f"{one} and {other} are swapped", {**whole, one: whole[other], other: whole[one]}, [one, other]


def test_lambda_by_another_name():
    """One error says which name is right, whether the right one is given as well or is missing."""
    names, seen = {"lambda_", *NAMES_ELSEWHERE["lambda_"].split()}, set()
    for function, given in TABLE.items():
        for right in names & {*inspect.signature(function).parameters}:
            seen.add(right)
            for wrong in names - {right}:
                for whole in (given, {name: each for name, each in given.items() if name != right}):
                    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{wrong}': pass {right}$"):
                        function(**whole, **{wrong: 0.5})
    assert seen >= {"gae_lambda", "lambda_", "lam", "lambd", "lmbda", "lambda_coefficient", "tau", "λ"}


def test_the_notes_about_flags_are_for_fastgae_alone():
    with pytest.raises(TypeError, match=r"'nonterminal': it takes rewards, values, dones, "):
        cleanrl.compute_gae(**CALLS["cleanrl"][1], nonterminal=ENDS)


def name_of(function):
    return f"{function.__module__.rpartition('.')[2]}.{getattr(function, '__name__', type(function).__name__)}"


@pytest.mark.parametrize("function", TABLE, ids=name_of)
def test_the_argument_is_named(function):
    if function is torchrl.vtrace_advantage_estimate:
        pytest.importorskip("torch")
    function(**TABLE[function])
    for what, bad, names in bad_calls(function, TABLE[function]):
        with pytest.raises((TypeError, ValueError)) as error:
            pytest.fail(f"{what}: accepted, {function(**bad)}")
        assert re.search(rf"(?<!\w)({'|'.join(names)})(?!\w)", str(error.value)), f"{what}: {error.value}"


@pytest.mark.parametrize(
    ("function", "bad"),
    [
        (ROLLOUT.arguments, {"values": [[1.0], [1.0, 2.0]]}),
        (ROLLOUT.arguments, {"value_function": lambda batch: [[1.0], [1.0, 2.0]], "values": None}),
        (torchrl.vtrace_advantage_estimate, {"rho_thresh": np.nan}),
        (torchrl.vtrace_advantage_estimate, {"c_thresh": -1.0}),
    ],
)
def test_a_bad_value_of_the_right_type(function, bad):
    if function is torchrl.vtrace_advantage_estimate:
        pytest.importorskip("torch")
    with pytest.raises(ValueError, match=rf"^{next(iter(bad))} "):
        function(**{**TABLE[function], **bad})


def test_a_critic_that_gives_integers_does_not_round_the_rewards():
    arguments = ROLLOUT.arguments(lambda batch: np.zeros(len(batch), int))
    np.testing.assert_array_equal(arguments["rewards"], ROLLOUT.rewards)


def test_every_function_is_in_the_table():
    public = {
        f"{module}.{name}"
        for module in compat.__all__
        for name, each in vars(import_module(f"fastgae.compat.{module}")).items()
        if isinstance(each, FunctionType) and each.__module__ == f"fastgae.compat.{module}"
        if not name.startswith("_") and "install" not in name
    }
    assert public <= {name_of(function) for function in TABLE}
