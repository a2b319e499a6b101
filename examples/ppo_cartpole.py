"""PPO on CartPole with rollouts in NumPy and a network in PyTorch, in Gymnasium's default mode, where the row after the
end of an episode only resets it: ``gae`` and ``valid_steps`` know these rows.

It needs gymnasium, torch, fastgae and, for --plot, matplotlib. Copy it and change it.
"""

import argparse
from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

import fastgae

ENVS, STEPS, EPOCHS, MINIBATCHES = 8, 64, 10, 4
GAMMA, GAE_LAMBDA, CLIP, RATE = 0.98, 0.9, 0.2, 1e-3


def network(inputs: int, outputs: int) -> nn.Sequential:
    last = nn.Linear(64, outputs)
    nn.init.orthogonal_(last.weight, 0.01)
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), last)


def train(updates: int, seed: int = 0) -> list[float]:
    """Return the mean return of the last 100 episodes after each update."""
    torch.manual_seed(seed)
    envs = gymnasium.make_vec("CartPole-v1", ENVS)
    envs.action_space.seed(seed)
    policy, critic = network(4, 2), network(4, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], RATE)
    observation, _ = envs.reset(seed=seed)
    prev_done, running = np.zeros(ENVS, bool), np.zeros(ENVS)
    finished: list[float] = []
    curve: list[float] = []

    observations = np.zeros((STEPS + 1, ENVS, 4), np.float32)
    actions, rewards = np.zeros((STEPS, ENVS), np.int64), np.zeros((STEPS, ENVS), np.float32)
    terminated, truncated = np.zeros((2, STEPS, ENVS), bool)
    for number in range(updates):
        before = prev_done
        for t in range(STEPS):
            observations[t] = observation
            with torch.no_grad():
                logits = policy(torch.from_numpy(observations[t]))
            actions[t] = torch.distributions.Categorical(logits=logits).sample().numpy()
            observation, rewards[t], terminated[t], truncated[t], _ = envs.step(actions[t])
            running = np.where(prev_done, 0.0, running + rewards[t])  # the row after an end has no reward
            prev_done = terminated[t] | truncated[t]
            finished.extend(running[prev_done].tolist())
        observations[STEPS] = observation

        with torch.no_grad():
            values = critic(torch.from_numpy(observations))[..., 0].numpy()  # one row more than rewards
        advantages, returns = fastgae.gae(
            rewards,
            values,
            terminated,
            truncated,
            prev_done=before,
            autoreset="next_step",
            gamma=GAMMA,
            gae_lambda=GAE_LAMBDA,
            normalize="global",
        )
        valid = fastgae.valid_steps(terminated, truncated, prev_done=before)
        batch = [torch.from_numpy(each[valid]) for each in (observations[:-1], actions, advantages, returns)]
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - number / updates)
        update(policy, critic, optimizer, batch)
        curve.append(float(np.mean(finished[-100:])) if finished else 0.0)
    envs.close()
    return curve


def update(policy: nn.Module, critic: nn.Module, optimizer: torch.optim.Optimizer, batch: list[Tensor]) -> None:
    def log_probs(observations: Tensor, actions: Tensor) -> Tensor:
        logs: Tensor = policy(observations).log_softmax(-1).gather(1, actions[:, None])[:, 0]
        return logs

    with torch.no_grad():
        old = log_probs(*batch[:2])
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(old)).chunk(MINIBATCHES):
            observations, actions, advantages, returns = (each[chosen] for each in batch)
            ratio = (log_probs(observations, actions) - old[chosen]).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            of_policy = -torch.min(ratio * advantages, clipped * advantages).mean()
            of_value = 0.5 * (critic(observations)[:, 0] - returns).square().mean()
            optimizer.zero_grad()
            (of_policy + 0.5 * of_value).backward()
            nn.utils.clip_grad_norm_([*policy.parameters(), *critic.parameters()], 0.5)
            optimizer.step()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=200, help="rollouts, each followed by an update (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="draw the learning curve to this file")
    given = parser.parse_args(arguments)
    if given.updates < 1:
        parser.error("--updates must be at least 1")
    if given.plot and not given.plot.parent.is_dir():
        parser.error(f"--plot: there is no folder {given.plot.parent}")
    torch.set_num_threads(1)  # the networks are too small for threads to pay
    curve = train(given.updates, given.seed)
    print(f"{given.updates * ENVS * STEPS:,} rows: mean return of the last 100 episodes {curve[-1]:.1f}")
    if given.plot:
        from matplotlib.figure import Figure

        axes = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
        axes.plot(ENVS * STEPS * np.arange(1, given.updates + 1), curve)
        axes.set(xlabel="steps", ylabel="mean return of the last 100 episodes", title="PPO on CartPole-v1")
        figure.savefig(given.plot)


if __name__ == "__main__":
    main()
