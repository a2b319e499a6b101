"""GRPO, RLOO and PPO on tokens. A small policy learns to answer a prompt, which is one token, with this token twice and
then the token that ends an answer. An answer is cut off after LENGTH tokens.

It needs torch, fastgae and, for --plot, matplotlib. Copy it and change it.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import fastgae

VOCABULARY, END, LENGTH = 16, 0, 4
PROMPTS, ANSWERS = VOCABULARY - 1, 8  # of each update; answers are to the same prompt
EPOCHS, CLIP, RATE = 2, 0.2, 3e-3


class Model(nn.Module):
    """A policy and a critic: of each position, the logits of the next token, and V before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 64)
        self.memory = nn.GRU(64, 64, batch_first=True)
        self.heads = nn.Linear(64, VOCABULARY + 1)

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor]:
        hidden, _ = self.memory(self.embedding(text))
        logits, values = self.heads(hidden).split([VOCABULARY, 1], -1)
        return logits, values[..., 0]


@torch.no_grad()
def sampled(model: Model, prompts: Tensor) -> Tensor:
    """Return the prompts and LENGTH tokens after each."""
    text = prompts[:, None]
    for _ in range(LENGTH):
        logits, _ = model(text)
        text = torch.cat([text, torch.distributions.Categorical(logits=logits[:, -1]).sample()[:, None]], 1)
    return text


def scored(text: Tensor) -> tuple[Tensor, Tensor]:
    """Return a reward of each answer, and which tokens belong to it: all up to its end."""
    prompts, answers = text[:, :1], text[:, 1:]
    ended = (answers == END).cumsum(1)
    mask = (ended == 0) | ((ended == 1) & (answers == END))
    wanted = torch.cat([prompts.expand(-1, 2), torch.full_like(prompts, END)], 1)
    return ((answers[:, :3] == wanted) & mask[:, :3]).float().mean(1), mask


def advantages_of(method: str, rewards: Tensor, values: Tensor, mask: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the advantages of tokens, and value targets, which only PPO needs."""
    if method == "PPO":
        last = mask.sum(1) - 1
        token_rewards = torch.zeros(mask.shape).scatter(1, last[:, None], rewards[:, None])
        # Nothing follows the reward, also not where the answer was cut off.
        advantages, returns = fastgae.gae(
            token_rewards, values, None, last_values=0.0, mask=mask, gamma=1.0, gae_lambda=0.95, time_axis=1
        )
        return fastgae.normalize(advantages, mask), returns
    if method == "RLOO":
        of_answers = fastgae.group_advantages(rewards, prompts, baseline="leave_one_out", scale="none")
    else:
        of_answers = fastgae.group_advantages(rewards, prompts)
    return of_answers[:, None] * mask, torch.zeros(mask.shape)


def train(method: str, updates: int, seed: int = 0) -> list[float]:
    """Return the mean reward of each update."""
    torch.manual_seed(seed)
    model, curve = Model(), []
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for _ in range(updates):
        prompts = torch.randperm(PROMPTS).add(1).repeat_interleave(ANSWERS)
        text = sampled(model, prompts)
        rewards, mask = scored(text)
        curve.append(rewards.mean().item())
        with torch.no_grad():
            logits, values = model(text[:, :-1])
        chosen = text[:, 1:, None]
        old = logits.log_softmax(-1).gather(2, chosen)[..., 0]
        advantages, returns = advantages_of(method, rewards, values, mask, prompts)
        for _ in range(EPOCHS):
            logits, values = model(text[:, :-1])
            ratio = (logits.log_softmax(-1).gather(2, chosen)[..., 0] - old).exp()
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = -torch.min(ratio * advantages, clipped * advantages)[mask].mean()
            if method == "PPO":
                loss = loss + 0.5 * (values - returns)[mask].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return curve


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=200, help="batches of answers, and updates (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="draw the learning curves to this file")
    given = parser.parse_args(arguments)
    if given.updates < 1:
        parser.error("--updates must be at least 1")
    if given.plot and not given.plot.parent.is_dir():
        parser.error(f"--plot: there is no folder {given.plot.parent}")
    torch.set_num_threads(1)  # the model is too small for threads to pay
    curves = {method: train(method, given.updates, given.seed) for method in ("GRPO", "RLOO", "PPO")}
    for method, curve in curves.items():
        print(f"{method}: mean reward {curve[0]:.2f} at the start, {curve[-1]:.2f} after {given.updates} updates")
    if given.plot:
        from matplotlib.figure import Figure

        axes = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
        for method, curve in curves.items():
            axes.plot(curve, label=method)
        axes.set(xlabel="updates", ylabel="mean reward of the answers")
        axes.legend()
        figure.savefig(given.plot)


if __name__ == "__main__":
    main()
