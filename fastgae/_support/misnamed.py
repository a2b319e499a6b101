"""Names of other libraries for public functions, arguments and settings, and the errors that give the right ones.

A public function takes ``**misnamed``, because Python itself would refuse an unknown name before the function
can say more. That costs a call 0.015 of 1.15 us (Zen 5). Type checkers report any such argument, because
``fastgae._typing.Misnamed`` has none that can be given.
"""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from opcode import opmap
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

IMPORT_FROM = opmap["IMPORT_FROM"]
LIBRARIES = ("numpy", "torch", "jax", "numba", "tensorflow")

# Argument -> what other libraries call it. fastgae.compat has the functions of most of them.
NAMES_ELSEWHERE = {
    "rewards": "reward rew rews r r_t mb_rewards reward_arr rewards_arr rew_buf reward_buf token_level_rewards",
    "values": "value val vals v V v_s v_t v_tm1 vs state_value state_values state_vals critics vf_preds v_pred v_preds "
    "vpred vpreds value_t value_preds value_estimates critic_value critic_values old_values baseline baselines "
    "mb_values mb_extrinsic_values target_qs vals_arr values_arr val_buf value_buf value_old_state",
    "terminated": "term terms done dones done_buf mb_dones fdones mb_fdones dones_arr end_flag traj_flag dw is_done "
    "terminal terminals terminateds termination terminations is_terminal is_terminals end ends is_last "
    "episode_starts first firsts is_first news discount_t nonterminal nonterminals nextnonterminal next_non_terminal "
    "non_terminal non_terminals not_terminal not_terminals not_done not_dones",
    "truncated": "trunc truncs truncateds truncation truncations truncation_t timeout timeouts time_outs "
    "is_truncated time_limit time_limits",
    "last_values": "last_value value_next next_value last_val last_v last_r vpred_last bootstrap bootstrap_val "
    "bootstrap_value bootstrap_values last_extrinsic_values",
    "next_values": "next_state_value next_state_values next_val next_vals next_v_pred next_v_preds next_vpred "
    "next_vpreds mb_next_values v_prime vs_ v_s_ next_v v_next v_t_plus_1 v_tp1 value_tp1 v_preds_next "
    "value_new_state",
    "final_values": "final_value terminal_value terminal_values truncated_value truncated_values",
    "autoreset": "autoreset_mode auto_reset",
    "prev_done": "prev_dones",
    "mask": "masks sample_mask response_mask response_masks completion_mask eos_mask attention_mask loss_mask "
    "action_mask valid valids valid_mask",
    "gamma": "γ discount discounts discounting discount_factor discount_rate gammas gae_gamma",
    "gae_lambda": "λ lambda_ _lambda lam lambd lamda lmb lmbda lbda lambda1 lambda_gae gae_lam gae_lmbda gae_tau "
    "gae_param trace_decay trace_decay_param tau lambda_coefficient lamb td_lambda",
    "lambda_": "λ gae_lambda lam lambd lamda lmbda lbda lambda1 tau lambda_coefficient td_lambda",
    "groups": "group group_ids group_size num_generations uid uids prompt_ids prompt prompts index",
    "parents": "parent parent_id parent_idx parent_index parent_indices",
    "scale": "normalize scale_rewards norm_adv_by_std_in_grpo",
    "ddof": "correction unbiased",
    "eps": "epsilon",
    "initial": "last_values init carry",
    "normalize": "normalise standardize standardise "
    "normalize_advantage normalize_advantages norm_adv advantage_norm average_gae whiten",
    "time_axis": "axis dim time_dim batch_first time_major",
    "cu_seqlens": "seqlens seq_lens lengths sequence_lengths",
    "n": "nstep nsteps n_step n_steps num_steps",
    "ratios": "ratio rho rhos rho_t rho_tm1 log_rhos importance_weights",
    "rho_clip": "rho_bar rho_thresh clip_rho_threshold vtrace_rho_clip",
    "c_clip": "c_bar c_thresh clip_c_threshold vtrace_c_clip",
    "advantage_clip": "clip_pg_rho_threshold",
    "advantages": "advantage adv advs",
    "out": "output inplace in_place",
    "num_threads": "threads n_threads n_jobs nthreads parallel workers num_workers",
}

# The names of flags that are 1 where the episode goes on.
GOING_ON = [name for name in NAMES_ELSEWHERE["terminated"].split() if "non" in name or "not" in name]

# Flags that are not ``terminated`` as they stand: of rows that begin an episode, or of ends of both kinds.
BEGINS = ("episode_starts", "first", "firsts", "is_first", "news")
OTHER_FLAGS = (*GOING_ON, *BEGINS, "is_last", "discount_t")

# The roles of columns of recorded data, which the argument ``columns`` names. "done" is terminated or truncated.
COLUMN_ROLES = (
    *("file", "env", "episode", "step"),
    *("rewards", "values", "next_values", "done", "terminated", "truncated", "mask"),
)

# Notes for names where the right name alone does not explain what to pass.
_MOVED = (
    "row t there says that observation t begins an episode, so pass the flags of row t + 1 (docs/which-arguments.md)"
)
_FLAGS = "the flags that env.step returned with rewards; flags of a time limit belong in truncated"
_BOUNDARIES = "where each sequence begins and the last one ends: np.cumsum([0, *lengths])"
NOTES = {
    "done": _FLAGS,
    "dones": f"{_FLAGS}. In CleanRL {_MOVED}",
    **dict.fromkeys(BEGINS, _MOVED),
    "is_last": _FLAGS,
    **{name: f"which is 1 - {name}" for name in GOING_ON},
    "discount_t": "1 where discount_t is 0, together with a single gamma",
    "next_value": "V after the last step. V of the next state of every step is next_values",
    "masks": "True where the step exists. If masks is 1 - done, as in some loops, pass done as terminated",
    "attention_mask": "True where the policy wrote the token: attention_mask holds the prompt, too",
    **dict.fromkeys(("normalize_advantage", "normalize_advantages", "norm_adv"), 'with "global" or "per_env"'),
    "log_rhos": "exp of the logarithms",
    **dict.fromkeys(("lengths", "seq_lens"), _BOUNDARIES),
    **dict.fromkeys(("group_size", "num_generations"), "a label for each answer: np.arange(len(rewards)) // {name}"),
    "unbiased": "1 for True and 0 for False",
    **dict.fromkeys(("batch_first", "time_major"), "1 for arrays of shape (N, T)"),
}

# Arguments that have no default, because with a wrong one nobody would notice -> what to pass.
_ENDS = "pass the flags of the steps that ended an episode, as env.step returned them"
NO_DEFAULT = {
    "rewards": "pass the reward of every step, an array of shape (T, N) or (T,)",
    "values": "pass V of the observation of every step; without a critic, call discounted_returns",
    "next_values": "pass V of the next observation of every step, before any reset",
    "ratios": "pass exp(log_prob - log_prob of the policy that acted) of every action",
    "n": "pass the number of rewards in each return, by name: n=5",
    "decay": "pass what y_{t+1} is multiplied by: one number, or one per step",
    "groups": "pass one label per answer, the same for all answers to a prompt",
    "cu_seqlens": f"pass {_BOUNDARIES}",
    "parents": "pass the index of the parent of each node, -1 at a root",
    "advantages": "pass the advantages of every step, as gae returns them",
    "terminated": f"{_ENDS}, or None if no step ends one, as among the tokens of an answer",
    "gamma": "pass the discount factor, which is 1.0 in most trainers of language models, and 0.99 in most others",
}

# Functions in which they are something else.
NO_DEFAULT_OF = {
    "diagnose": dict.fromkeys(("rewards", "values"), "pass the arguments of a call of gae, and not its result"),
    "gae_tree": {
        "rewards": "pass the reward of every node, an array of shape (n,)",
        "values": "pass V before every node, or 0.0 if there is no critic",
        "terminated": "pass the flags of the leaves that ended an episode for good, or None",
    },
    "group_advantages": {"rewards": "pass the reward of every answer"},
    "retrace": {"values": "pass Q of the action of every step", "terminated": _ENDS},
    "valid_steps": {"terminated": _ENDS},
}

# Arguments that a function has no counterpart of. gae_packed alone takes the boundaries of sequences.
_LENGTHS = (
    "for padded arrays, pass mask=np.arange(T)[:, None] < lengths; for sequences end to end, call gae_packed with "
    "np.cumsum([0, *lengths])"
)
ABSENT_HERE = {
    **dict.fromkeys(("seqlens", "seq_lens", "length", "lengths", "sequence_lengths"), _LENGTHS),
    "bad_masks": "pass truncated, where the bad_masks of row t + 1 are 0, and V after these steps as final_values",
    **dict.fromkeys(("value_normalizer", "value_normaliser"), "pass values in units of the rewards, scaled back"),
    "cu_seqlens": "call gae_packed, which takes sequences end to end",
    "use_gae": "there is no such switch: GAE with gae_lambda=1.0 gives the discounted return minus V",
    "use_critic": "there is no such switch: without a critic, call discounted_returns",
    "next_done": "the last row of terminated: np.concatenate([dones[1:], next_done[np.newaxis]])",
    "last_done": "the last row of terminated: np.concatenate([dones[1:], last_done[np.newaxis]])",
    **dict.fromkeys(("next_obs", "next_observations"), "pass V of the next observations, as next_values"),
    **dict.fromkeys(
        ("info", "infos", "final_obs", "final_observation", "final_observations", "terminal_observation"),
        "pass V of the final observations of truncated steps, as final_values",
    ),
    **dict.fromkeys(("log_probs", "logprobs", "old_log_probs"), "vtrace and retrace take ratios, exp of a difference"),
    **dict.fromkeys(("returns", "advantages"), "it is a result; out takes arrays to fill"),
    **dict.fromkeys(("lambda_", "gae_lambda", "lam"), "there is no lambda in it; gae, td_lambda and vtrace have one"),
    **dict.fromkeys(("n_steps", "num_steps", "n"), "rewards say how many steps there are; n_step_returns takes n"),
    **dict.fromkeys(("num_envs", "n_envs"), "rewards say how many envs there are"),
    "values": "it needs no values; gae, td_lambda and n_step_returns take them",
    "last_values": "V after the last step is the last row of next_values",
    "autoreset": "fastgae.valid_steps(terminated, truncated) is the mask of rollouts with reset rows",
    "eps": "1e-8 is added to the standard deviation; fastgae.normalize takes another eps",
    "device": "results are on the device of the first argument",
    "dtype": "results have the dtype of the arguments: float32 where all are, else float64",
}

# Public function -> what other libraries call it.
FUNCTIONS_ELSEWHERE = {
    "gae": "compute_gae advantage gaeestimator gae_advantage gae_advantages compute_advantages advantages "
    "estimate_advantages generalized_advantage_estimation generalized_advantage_estimate compute_gae_advantage_return "
    "get_gae",
    "gae_packed": "packed_gae gae_varlen",
    "testing.identify": "identify",
    "td_lambda": "lambda_returns lambda_return td_lambda_returns td_lambda_return_estimate",
    "discounted_returns": "compute_returns returns discount_cumsum discounted_cumsum rewards_to_go cumulative_returns",
    "n_step_returns": "nstep n_step nstep_returns compute_nstep_return n_step_bootstrapped_returns",
    "group_advantages": "grpo rloo dr_grpo grpo_advantages rloo_advantages group_relative_advantages",
    "normalize": "whiten standardize normalise standardise masked_whiten",
    "valid_steps": "valid_mask masks",
    "vtrace": "v_trace vtrace_returns compute_vtrace vtrace_advantage_estimate from_importance_weights",
}

# Module of fastgae.compat -> what others call the library.
MODULES_ELSEWHERE = {
    "stable_baselines3": "sb3 sb3_contrib stablebaselines3 baselines stable_baselines",
    "gymnasium": "gym",
    "rllib": "ray",
    "cleanrl": "clean_rl",
    "spinningup": "spinup",
    "rsl_rl": "rslrl rsl isaaclab",
    "rl_games": "rlgames",
    "torchrl": "torch_rl",
    "sample_factory": "samplefactory",
    "pufferlib": "puffer",
}

# What stands for a setting elsewhere -> the setting here.
NORMALIZE_ELSEWHERE = {
    "'global'": "True batch all minibatch advantages mean_std",
    "'per_env'": "env envs per_environment row sequence",
    "None": "False none no off",
}
AUTORESET_ELSEWHERE = {
    "'next_step', Gymnasium's default": "True auto gymnasium gym",
    "'same_step'": "same",
    "'disabled'": "partial",
    "None": "False none no off",
}
RELATIVE_ELSEWHERE = {
    "'leave_one_out'": "loo rloo",
    "'mean'": "avg average",
    "'std'": "True group grpo",
    "'batch'": "global all",
    "'none'": "False no off zero drgrpo",
}
_LEAVE_OUT = "leave it out: fastgae chooses a backend for"
BACKENDS_ELSEWHERE = {
    f"{_LEAVE_OUT} tensors on a GPU": "cuda gpu mps rocm",
    f"{_LEAVE_OUT} torch tensors and JAX arrays": "torch pytorch jax xla tensorflow",
    f"{_LEAVE_OUT} NumPy arrays, the fastest one first": "auto best default fast any",
    "do you mean 'cpp'?": "c++ c cxx native compiled cython cpu",
    "do you mean 'numpy'?": "python np reference",
}


class _Source(str):
    """An annotation as it stands in the source. ``help`` shows it without quotes."""

    __repr__ = str.__str__


def shows_its_source(function: Function) -> Function:
    """Hide ``unnamed`` and ``misnamed`` in a signature, and let ``help`` show annotations as the source has them.

    ``ArrayLike`` alone is a type of 350 characters. The module of the function says ``from __future__ import
    annotations``; ``typing.get_type_hints`` has the types.
    """
    function.__annotations__ = {name: _Source(text) for name, text in function.__annotations__.items()}
    shown = inspect.signature(function)
    known = [each for each in shown.parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    function.__signature__ = shown.replace(parameters=known)  # type: ignore[attr-defined]
    return function


def refuses_misnamed(function: Function) -> Function:
    """Let a function raise the errors that give the right name of an argument, and the names of those without place."""
    known = inspect.signature(function).parameters
    most = sum(each.kind is not each.KEYWORD_ONLY for each in known.values())

    @functools.wraps(function)
    def called(*positional: Any, **named: Any) -> Any:
        if len(positional) > most:
            raise too_many(function, len(positional))
        if not named.keys() <= known.keys():
            raise no_argument(function, named)
        return function(*positional, **named)

    return called  # type: ignore[return-value]


def no_argument(function: Callable[..., Any], named: Iterable[str]) -> TypeError:
    """Return the error for the first of these arguments that a function does not have. It gives the right name."""
    known = tuple(inspect.signature(function).parameters)
    given = next(name for name in named if name not in known)
    advice = _advice(function, known, given)
    return TypeError(f"{function.__qualname__}() got an unexpected keyword argument {given!r}: {advice}")


def _advice(function: Callable[..., Any], known: tuple[str, ...], given: str) -> str:
    in_compat = function.__module__.startswith("fastgae.compat.")
    # The notes are about the conventions of fastgae, and not about those of fastgae.compat.
    if given not in NOTES or not in_compat:
        families = [{right, *names.split()} for right, names in NAMES_ELSEWHERE.items()]
        roles = COLUMN_ROLES if "columns" in known else ()
        meant = [
            f"columns={{{role!r}: NAME}}" for role in roles if given in (role, *NAMES_ELSEWHERE.get(role, "").split())
        ]
        meant += [word for word in known if any({given, word} <= family for family in families)]
        if meant:
            note = "" if given in roles else NOTES.get(given, "").format(name=given)
            return f"pass {meant[0]}{', ' * bool(note)}{note}"
        if given in ABSENT_HERE and not (roles or in_compat):
            return ABSENT_HERE[given]
    alike = closest(given, known)
    return f"do you mean {alike}?" if alike else f"it takes {', '.join(known)}"


def closest(given: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """Return the known word that looks most like another one, whatever its case and its dashes; None if none does."""
    import difflib  # here, because only an error needs it

    plain = {word.lower().replace("-", "_"): word for word in known}
    alike = difflib.get_close_matches(given.lower().replace("-", "_"), plain, n=1, cutoff=cutoff)
    return plain[alike[0]] if alike else None


def elsewhere(given: object, names: Mapping[str, str]) -> str | None:
    """Return what a word of other libraries, or a switch, is here."""
    word = given.lower() if isinstance(given, str) else repr(given).lower() if isinstance(given, bool) else ""
    return next((right for right, words in names.items() if word in words.lower().split()), None)


def choose_one(given: object, known: Iterable[str], names: Mapping[str, str]) -> str:
    """Return the end of an error message about a setting: what the caller may mean."""
    right = elsewhere(given, names)
    if right is None and isinstance(given, str):
        alike = closest(given, known, 0.6)
        right = alike and repr(alike)
    return f"; do you mean {right}?" if right else ""


def no_name(module: str, name: str, known: Iterable[str]) -> Exception:
    """Return the error for a name that a module does not have.

    Only its ``__getattr__`` may call this, because the frame above that is read.
    """
    known_elsewhere = {"fastgae": FUNCTIONS_ELSEWHERE, "fastgae.compat": MODULES_ELSEWHERE}
    right = elsewhere(name, known_elsewhere.get(module, {}))
    right = right or closest(name, known)
    in_compat = [] if name.startswith("_") else _modules_with(name)  # tools ask for __wrapped__ and others
    advice = []
    if name in LIBRARIES:
        advice.append("functions take and return arrays of NumPy, torch and JAX as they are")
    elif right:
        advice.append(f"{'use' if module.endswith('compat') else 'call'} {module}.{right}")
    if in_compat:
        advice.append(f"as in the library of that name, it is in {' and '.join(in_compat)}")
    elif right in FUNCTIONS_ELSEWHERE:
        advice.append("fastgae.compat has the functions of other libraries by their own names")
    if not advice and module != "fastgae":
        advice.append(f"it has {', '.join(known)}")
    message = f"module {module!r} has no attribute {name!r}{': ' * bool(advice)}{'; '.join(advice)}"
    # In `from fastgae import name`, Python would replace the message of an AttributeError by its own.
    frame = sys._getframe(2)
    in_import = frame.f_code.co_code[frame.f_lasti] == IMPORT_FROM
    return ImportError(message, name=name) if in_import else AttributeError(message)


def _modules_with(name: str) -> list[str]:
    """Return the modules of ``fastgae.compat`` that define a function or a class."""
    defined = re.compile(rf"^\s*(?:def|class) {re.escape(name)}\b|^    makers = .*\"{re.escape(name)}\"", re.MULTILINE)
    sources = sorted((Path(__file__).parents[1] / "compat").glob("[a-z]*.py"))
    return [f"fastgae.compat.{each.stem}" for each in sources if defined.search(each.read_text(encoding="utf-8"))]


def too_many(function: Callable[..., Any], count: int) -> TypeError:
    """Return the error for more positional arguments than a function takes."""
    parameters = inspect.signature(function).parameters.values()
    first = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
    named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    return TypeError(
        f"{function.__name__}() takes {len(first)} positional arguments ({', '.join(first)}), and {count} are given: "
        f"pass the others by name, which are {', '.join(named)}"
    )


def missing(function: Callable[..., Any], names: list[str], may_be_none: bool = True) -> TypeError:
    """Return the error for arguments without a default that are not given, or are None where that may not be."""
    of_function = NO_DEFAULT | NO_DEFAULT_OF.get(function.__name__, {})
    known = {} if function.__module__.startswith("fastgae.compat.") else of_function
    advice = [known[name] for name in names[:1] if name in known]
    advice = advice if may_be_none else [each.partition(", or None")[0] for each in advice]
    some = f"argument {names[0]!r}" if len(names) == 1 else f"arguments {', '.join(map(repr, names))}"
    return TypeError(": ".join([f"{function.__name__}() is missing the {some}", *advice]))
