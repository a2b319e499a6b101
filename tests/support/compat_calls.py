"""Functions of fastgae.compat that take arrays: their numbers, which may be integers, and their other arguments."""

import numpy as np

from fastgae.compat import (
    brax,
    cleanrl,
    envpool,
    labml,
    openrlhf,
    paper2code,
    pufferlib,
    rl_games,
    rlax,
    rllib,
    rsl_rl,
    sample_factory,
    skrl,
    tianshou,
    torchrl,
    trl,
    verl,
)

SIZE = STEPS, ENVS = 7, 4
RNG = np.random.default_rng(0)


def whole(*shape):
    return RNG.integers(-3, 4, shape)


def flags(*shape):
    return RNG.random(shape) < 0.2


def positive(*shape):
    return RNG.integers(1, 3, shape)


def without(arguments, name):
    return {key: given for key, given in arguments.items() if key != name}


BATCH = ENVS, STEPS  # time along the last axis
TORCHRL = {
    "gamma": 0.9,
    "lmbda": 0.8,
    "state_value": whole(ENVS, STEPS, 1),
    "next_state_value": whole(ENVS, STEPS, 1),
    "reward": whole(ENVS, STEPS, 1),
    "done": flags(ENVS, STEPS, 1),
}
ONE = {"r_t": whole(STEPS), "discount_t": np.linspace(0.9, 0.5, STEPS), "lambda_": 0.8}
VTRACE = {**ONE, "v_tm1": whole(STEPS), "v_t": whole(STEPS), "rho_tm1": positive(STEPS)}
ACTIONS = 3
POLICY = np.linspace(0.1, 0.6, STEPS * ACTIONS).reshape(STEPS, ACTIONS)
OFF_POLICY = {**without(ONE, "lambda_"), "c_t": np.linspace(0.2, 0.8, STEPS)}
RETRACE = {
    **ONE,
    "q_tm1": whole(STEPS, ACTIONS),
    "q_t": whole(STEPS, ACTIONS),
    "a_tm1": RNG.integers(0, ACTIONS, STEPS),
    "a_t": RNG.integers(0, ACTIONS, STEPS),
    "pi_t": POLICY,
    "mu_t": np.linspace(0.1, 0.9, STEPS),
}
RL_GAMES = {
    "fdones": flags(ENVS),
    "last_extrinsic_values": whole(ENVS, 1),
    "mb_fdones": flags(*SIZE),
    "mb_extrinsic_values": whole(*SIZE, 1),
    "mb_rewards": whole(*SIZE, 1),
    "gamma": 0.9,
    "tau": 0.8,
}
TOKENS = {"values": whole(*BATCH), "rewards": whole(*BATCH)}
ONES = np.ones(BATCH, int)
MASK = (RNG.random(BATCH) < 0.8).astype(int)


# name: (function, arguments, the names of its numbers)
CALLS = {
    "brax": (
        brax.compute_gae,
        {
            "truncation": flags(*SIZE),
            "termination": flags(*SIZE),
            "rewards": whole(*SIZE),
            "values": whole(*SIZE),
            "bootstrap_value": whole(ENVS),
            "lambda_": 0.9,
        },
        ("rewards", "values", "bootstrap_value"),
    ),
    "cleanrl": (
        cleanrl.compute_gae,
        {
            "rewards": whole(*SIZE),
            "values": whole(*SIZE),
            "dones": flags(*SIZE),
            "next_value": whole(1, ENVS),
            "next_done": flags(ENVS),
        },
        ("rewards", "values", "next_value"),
    ),
    "paper2code": (
        paper2code.compute_gae,
        {"rewards": whole(*SIZE), "values": whole(STEPS + 1, ENVS), "terminateds": flags(*SIZE)},
        ("rewards", "values"),
    ),
    "paper2code per env": (
        paper2code.compute_gae,
        {
            "rewards": whole(*SIZE),
            "values": whole(STEPS + 1, ENVS),
            "terminateds": flags(*SIZE),
            "truncateds": flags(*SIZE),
            "advantage_norm": "per_env",
        },
        ("rewards", "values"),
    ),
    "paper2code one env": (
        paper2code.compute_gae,
        {"rewards": whole(STEPS), "values": whole(STEPS + 1), "terminateds": flags(STEPS)},
        ("rewards", "values"),
    ),
    "rl_games": (
        rl_games.discount_values,
        RL_GAMES,
        ("mb_rewards", "mb_extrinsic_values", "last_extrinsic_values"),
    ),
    "rl_games masks": (
        rl_games.discount_values_masks,
        {**RL_GAMES, "mb_masks": ~flags(*SIZE)},
        ("mb_rewards", "mb_extrinsic_values", "last_extrinsic_values"),
    ),
    "rlax gae": (
        rlax.truncated_generalized_advantage_estimation,
        {**ONE, "values": whole(STEPS + 1)},
        ("r_t", "values"),
    ),
    "rlax lambda_returns": (rlax.lambda_returns, {**ONE, "v_t": whole(STEPS)}, ("r_t", "v_t")),
    "rlax discounted_returns": (
        rlax.discounted_returns,
        {**without(ONE, "lambda_"), "v_t": whole(STEPS)},
        ("r_t", "v_t"),
    ),
    "rlax n_step_bootstrapped_returns": (
        rlax.n_step_bootstrapped_returns,
        {**without(ONE, "lambda_"), "v_t": VTRACE["v_t"], "n": 3, "lambda_t": 0.8},
        ("r_t", "v_t"),
    ),
    "rlax vtrace": (rlax.vtrace, VTRACE, ("r_t", "v_t", "v_tm1", "rho_tm1")),
    "rlax vtrace advantage": (
        rlax.vtrace_td_error_and_advantage,
        {**VTRACE, "clip_pg_rho_threshold": 1.5},
        ("r_t", "v_t", "v_tm1", "rho_tm1"),
    ),
    "rlax vtrace masked": (
        rlax.vtrace,
        {**VTRACE, "sample_mask": ~flags(STEPS)},
        ("r_t", "v_t", "v_tm1", "rho_tm1"),
    ),
    "rlax leaky_vtrace": (rlax.leaky_vtrace, {**VTRACE, "alpha_": 0.6}, ("r_t", "v_t", "v_tm1", "rho_tm1")),
    "rlax leaky_vtrace advantage": (
        rlax.leaky_vtrace_td_error_and_advantage,
        {**VTRACE, "alpha": 0.6, "clip_pg_rho_threshold": 1.5},
        ("r_t", "v_t", "v_tm1", "rho_tm1"),
    ),
    "rlax off-policy returns": (
        rlax.general_off_policy_returns_from_q_and_v,
        {**OFF_POLICY, "c_t": OFF_POLICY["c_t"][1:], "q_t": whole(STEPS - 1), "v_t": whole(STEPS)},
        ("r_t", "v_t", "q_t"),
    ),
    "rlax off-policy returns of action values": (
        rlax.general_off_policy_returns_from_action_values,
        {**OFF_POLICY, "q_t": RETRACE["q_t"], "a_t": RETRACE["a_t"], "pi_t": POLICY},
        ("r_t", "q_t"),
    ),
    "rlax retrace": (rlax.retrace, RETRACE, ("r_t", "q_t", "q_tm1")),
    "rlax retrace_continuous": (
        rlax.retrace_continuous,
        {**ONE, "q_tm1": whole(STEPS), "q_t": whole(STEPS - 1), "v_t": whole(STEPS), "log_rhos": whole(STEPS - 1)},
        ("r_t", "v_t", "q_t", "q_tm1", "log_rhos"),
    ),
    "rsl_rl": (
        rsl_rl.compute_returns,
        {
            "rewards": whole(*SIZE),
            "values": whole(*SIZE),
            "dones": flags(*SIZE),
            "last_values": whole(ENVS),
            "gamma": 0.98,
            "lam": 0.9,
        },
        ("rewards", "values", "last_values"),
    ),
    "sample_factory": (
        sample_factory.gae_advantages,
        {
            "rewards": whole(*BATCH),
            "dones": flags(*BATCH),
            "values": whole(ENVS, STEPS + 1),
            "valids": np.hstack([MASK, MASK[:, -1:]]) != 0,
            "γ": 0.9,
            "λ": 0.8,
        },
        ("rewards", "values"),
    ),
    "skrl": (
        skrl.compute_gae,
        {
            "rewards": whole(*SIZE),
            "terminated": flags(*SIZE),
            "truncated": flags(*SIZE),
            "values": whole(*SIZE),
            "last_values": whole(ENVS),
        },
        ("rewards", "values", "last_values"),
    ),
    "torchrl gae": (
        torchrl.generalized_advantage_estimate,
        TORCHRL,
        ("state_value", "next_state_value", "reward"),
    ),
    "torchrl td_lambda": (
        torchrl.td_lambda_return_estimate,
        without(TORCHRL, "state_value"),
        ("next_state_value", "reward"),
    ),
    "torchrl td_lambda advantage": (
        torchrl.td_lambda_advantage_estimate,
        TORCHRL,
        ("state_value", "next_state_value", "reward"),
    ),
    "torchrl reward2go": (
        torchrl.reward2go,
        {"reward": TORCHRL["reward"], "done": TORCHRL["done"], "gamma": 0.9},
        ("reward",),
    ),
    "trl": (trl.compute_advantages, {**TOKENS, "mask": ONES, "gamma": 0.9}, ("values", "rewards")),
    "trl whitened": (
        trl.compute_advantages,
        {**TOKENS, "mask": MASK, "whiten_rewards": True},
        ("values", "rewards"),
    ),
    "openrlhf": (
        openrlhf.get_advantages_and_returns,
        {**TOKENS, "action_mask": ONES, "gamma": 0.9, "lambd": 0.8},
        ("values", "rewards"),
    ),
    "verl": (
        verl.compute_gae_advantage_return,
        {
            "token_level_rewards": TOKENS["rewards"],
            "values": TOKENS["values"],
            "response_mask": MASK,
            "gamma": 0.9,
            "lam": 0.8,
        },
        ("token_level_rewards", "values"),
    ),
}


PUFFERLIB = {
    **TOKENS,
    "terminals": flags(*BATCH),
    "ratio": positive(*BATCH),
    "advantages": np.zeros(BATCH, np.float32),
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "vtrace_rho_clip": 1.5,
    "vtrace_c_clip": 1.0,
}


def puff_elsewhere(advantages, **given):
    return pufferlib.compute_puff_advantage(advantages=advantages.clone(), **given)


# These take tensors alone, or fill one.
TORCH_CALLS = {
    "torchrl vtrace": (
        torchrl.vtrace_advantage_estimate,
        {**without(TORCHRL, "lmbda"), "log_pi": RNG.random((ENVS, STEPS, 1)), "log_mu": RNG.random((ENVS, STEPS, 1))},
        ("state_value", "next_state_value", "reward"),
    ),
    "pufferlib": (puff_elsewhere, PUFFERLIB, ("values", "rewards", "ratio")),
}
# These take NumPy's arrays alone, or fill one.
NUMPY_CALLS = {
    "envpool": (
        envpool.compute_gae,
        {
            "gamma": 0.9,
            "gae_lambda": 0.8,
            "value": whole(*SIZE),
            "reward": whole(*SIZE),
            "done": flags(*SIZE),
            "env_id": np.tile(np.arange(ENVS), (STEPS, 1)),
            "numenv": ENVS,
        },
        ("value", "reward"),
    ),
    "labml": (
        labml.GAE(ENVS, STEPS, 0.9, 0.8),
        {"done": flags(*BATCH), "rewards": whole(*BATCH), "values": whole(ENVS, STEPS + 1)},
        ("rewards", "values"),
    ),
    "pufferlib": (pufferlib.compute_puff_advantage, PUFFERLIB, ("values", "rewards", "ratio")),
    "rllib": (
        rllib.compute_value_targets,
        {
            "values": whole(STEPS),
            "rewards": whole(STEPS),
            "terminateds": flags(STEPS),
            "truncateds": flags(STEPS),
            "gamma": 0.9,
            "lambda_": 0.8,
        },
        ("values", "rewards"),
    ),
    "tianshou": (
        tianshou._gae,
        {
            "v_s": whole(STEPS),
            "v_s_": whole(STEPS),
            "rew": whole(STEPS),
            "end_flag": flags(STEPS),
            "gamma": 0.9,
            "gae_lambda": 0.8,
        },
        ("v_s", "v_s_", "rew"),
    ),
}


def given_as(convert, arguments, numbers, dtypes):
    """Return the arguments with numbers in these dtypes by turns, and discounts in float32."""
    place = {name: number for number, name in enumerate(numbers)}

    def array(name, given):
        if name in place:
            return convert(given, dtypes[place[name] % len(dtypes)])
        return convert(given, "bool" if given.dtype == bool else "float32" if given.dtype.kind == "f" else "int64")

    return {name: array(name, given) if isinstance(given, np.ndarray) else given for name, given in arguments.items()}


def of_numpy(given, dtype):
    return given.astype(dtype)


def tensor_of(given, dtype):
    import torch  # here, because it is not installed everywhere

    return torch.from_numpy(np.array(given)).to(getattr(torch, dtype))


def arrays_of(result):
    return result if isinstance(result, tuple) else (result,)
