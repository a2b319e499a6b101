"""Who computes a rollout that lies on a GPU. Every contender returns (advantages, returns)."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fastgae

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the GPU's memory
GAMMA, LAMBDA = 0.99, 0.95
# Longer loops take torch.compile minutes, because it unrolls them.
MOST_STEPS_COMPILED = 128
MOST_STEPS_LOOPED = 8192  # a call of a longer loop takes seconds
MOST_STEPS_VECTORISED = 32768  # torchrl's form needs memory for the square of the steps
BYTES_OF_ADD = 12  # of two operands and a sum

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Rollout:
    """Tensors of one shape, of which ``values`` has one step more; or sequences end to end, between ``boundaries``."""

    rewards: torch.Tensor
    values: torch.Tensor
    terminated: torch.Tensor
    time_axis: int = 0
    boundaries: torch.Tensor | None = None
    discounted: bool = True  # False: gamma and lambda are 1
    more: tuple[tuple[str, Any], ...] = ()  # arguments of one of the options

    @property
    def bytes(self) -> int:
        """Return how many bytes a call must move: its tensors, and two results."""
        given = self.rewards, self.values, self.terminated, *(each for _, each in self.more)
        wide = max(self.rewards.itemsize, 4)  # of 16-bit floats, the results are float32
        return sum(each.nbytes for each in given if isinstance(each, torch.Tensor)) + 2 * wide * self.rewards.numel()

    @property
    def steps(self) -> int:
        return self.rewards.shape[self.time_axis]

    def of_step(self, tensor: torch.Tensor, t: int) -> torch.Tensor:
        return tensor.select(self.time_axis, t)

    def moved(self, move: Callable[[torch.Tensor], torch.Tensor]) -> "Rollout":
        tensors = move(self.rewards), move(self.values), move(self.terminated)
        boundaries = None if self.boundaries is None else move(self.boundaries)
        more = tuple((name, move(each) if isinstance(each, torch.Tensor) else each) for name, each in self.more)
        return Rollout(*tensors, self.time_axis, boundaries, self.discounted, more)

    def on_the_cpu(self) -> "Rollout":
        return self.moved(torch.Tensor.cpu)

    def copied(self) -> "Rollout":
        return self.moved(torch.Tensor.clone)


def made(
    steps: int, envs: int, time_axis: int, device: str, discounted: bool = True, option: str | None = None
) -> Rollout:
    """Return a rollout of random numbers, in which one step in a hundred ends an episode."""
    generator = torch.Generator(device).manual_seed(0)
    shape, longer = [steps, envs], [steps + 1, envs]
    if time_axis:
        shape.reverse()
        longer.reverse()
    rewards = torch.randn(shape, generator=generator, device=device)
    values = torch.randn(longer, generator=generator, device=device)
    terminated = torch.rand(shape, generator=generator, device=device) < 0.01
    if option in ("float64", "bfloat16"):
        rewards, values = (each.to(getattr(torch, option)) for each in (rewards, values))
    more = OPTIONS[option](rewards) if option in OPTIONS else {}
    return Rollout(rewards, values, terminated, time_axis, None, discounted, tuple(more.items()))


OPTIONS: dict[str | None, Callable[[torch.Tensor], dict[str, Any]]] = {
    "mask": lambda rewards: {"mask": rewards > -1},
    "next step": lambda rewards: {"autoreset": "next_step"},
    "V-trace": lambda rewards: {"ratios": rewards.exp()},
    "normalize": lambda rewards: {"normalize": "global"},
}


def packed(sequences: int, longest: int, device: str, discounted: bool = True) -> Rollout:
    """Return answers of random lengths end to end, each of which ends for good."""
    generator = torch.Generator(device).manual_seed(0)
    lengths = torch.randint(longest // 4, longest + 1, (sequences,), generator=generator, device=device)
    boundaries = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    total = int(boundaries[-1])
    rewards, values = torch.randn((2, total), generator=generator, device=device)
    return Rollout(rewards, values, torch.zeros(total, dtype=torch.bool, device=device), 0, boundaries, discounted)


def ours(rollout: Rollout, backend: str | None = None) -> Pair:
    """Compute the tensors where they are."""
    gamma, gae_lambda = coefficients(rollout)
    how: dict[str, Any] = {"gamma": gamma, "gae_lambda": gae_lambda, "backend": backend, **dict(rollout.more)}
    if rollout.boundaries is not None:
        return fastgae.gae_packed(rollout.rewards, rollout.values, rollout.boundaries, **how)
    arrays, time_axis = (rollout.rewards, rollout.values, rollout.terminated), rollout.time_axis
    if "ratios" in how:
        return fastgae.vtrace(*arrays, lambda_=how.pop("gae_lambda"), time_axis=time_axis, **how)
    return fastgae.gae(*arrays, time_axis=time_axis, **how)


def coefficients(rollout: Rollout) -> tuple[float, float]:
    return (GAMMA, LAMBDA) if rollout.discounted else (1.0, 1.0)


def on_the_gpu(rollout: Rollout) -> Pair:
    return ours(rollout, "triton")  # which also says to compute tensors on the CPU by Triton's interpreter


def added(rollout: Rollout) -> Callable[[], object]:
    """Return one torch.add that moves as many bytes as the call."""
    elements = rollout.bytes // BYTES_OF_ADD
    a, b, total = torch.randn((3, elements), device=rollout.rewards.device)
    return lambda: torch.add(a, b, out=total)


def over_the_cpu(rollout: Rollout) -> Pair:
    """Copy the tensors to the CPU, compute them there, and copy the results back."""
    advantages, returns = ours(rollout.on_the_cpu())
    return advantages.to(rollout.rewards.device), returns.to(rollout.rewards.device)


def loop(rollout: Rollout) -> Pair:
    """The loop over time that most libraries have."""
    advantages = torch.empty_like(rollout.rewards)
    following = torch.zeros_like(rollout.of_step(rollout.rewards, 0))
    gamma, gae_lambda = coefficients(rollout)
    for t in reversed(range(rollout.steps)):
        goes_on = 1.0 - rollout.of_step(rollout.terminated, t).float()
        value = rollout.of_step(rollout.values, t)
        next_value = rollout.of_step(rollout.values, t + 1)
        delta = rollout.of_step(rollout.rewards, t) + gamma * next_value * goes_on - value
        following = delta + gamma * gae_lambda * goes_on * following
        rollout.of_step(advantages, t).copy_(following)
    return advantages, advantages + rollout.values.narrow(rollout.time_axis, 0, rollout.steps)


@functools.cache
def compiled() -> Callable[[Rollout], Pair]:
    """Return the same loop, compiled."""
    return torch.compile(loop)


def torchrl(rollout: Rollout) -> Pair:
    """torchrl's form without a loop, which adds in another order."""
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate

    def envs_first(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.movedim(rollout.time_axis, -1).contiguous().unsqueeze(-1)

    value, next_value = (envs_first(rollout.values.narrow(rollout.time_axis, start, rollout.steps)) for start in (0, 1))
    done = envs_first(rollout.terminated)
    results = vec_generalized_advantage_estimate(
        *coefficients(rollout), value, next_value, envs_first(rollout.rewards), done, done
    )
    advantages, returns = (each.squeeze(-1).movedim(-1, rollout.time_axis) for each in results)
    return advantages, returns


@functools.cache
def compiled_by_jax(form: str) -> Callable[..., Any]:
    """Return fastgae, a loop of JAX, or its form for an operation that is associative, which adds in another order."""
    import jax

    def step(following: Any, now: Any) -> Any:
        advantage = now[0] + now[1] * following
        return advantage, advantage

    def joined(later: Any, earlier: Any) -> Any:
        return earlier[0] + earlier[1] * later[0], earlier[1] * later[1]

    def compute(time_axis: int, gamma: float, gae_lambda: float, *given: Any) -> Any:
        if form == "fastgae":
            return tuple(fastgae.gae(*given, time_axis=time_axis, gamma=gamma, gae_lambda=gae_lambda))
        rewards, values, ended = (jax.numpy.moveaxis(each, time_axis, 0) for each in given)
        delta = rewards + gamma * values[1:] * (1 - ended) - values[:-1]
        steps = delta, gamma * gae_lambda * (1 - ended)
        if form == "associative":
            advantages, _ = jax.lax.associative_scan(joined, steps, reverse=True)
        else:
            _, advantages = jax.lax.scan(step, 0 * delta[0], steps, reverse=True)
        return [jax.numpy.moveaxis(each, 0, time_axis) for each in (advantages, advantages + values[:-1])]

    return jax.jit(compute, static_argnums=(0, 1, 2))


def over_jax(rollout: Rollout, form: str) -> Pair:
    """Compute with JAX in the memory of the tensors, and wait."""
    import jax

    given = map(jax.dlpack.from_dlpack, (rollout.rewards, rollout.values, rollout.terminated.float()))
    results = compiled_by_jax(form)(rollout.time_axis, *coefficients(rollout), *given)
    advantages, returns = map(torch.from_dlpack, jax.block_until_ready(results))
    return advantages, returns


@functools.cache
def kernel_of_pufferlib() -> Callable[..., None]:
    """Return PufferLib's operation. If it was installed without nvcc, compile its kernel for GPUs."""
    import pufferlib._C
    from torch.utils import cpp_extension

    name = "pufferlib::compute_puff_advantage"
    if torch.cuda.is_available() and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
        source = Path(pufferlib.__file__).parent / "extensions" / "cuda" / "pufferlib.cu"
        cpp_extension.load("pufferlib_on_a_gpu", [str(source)], is_python_module=False)
    return torch.ops.pufferlib.compute_puff_advantage


@functools.lru_cache(1)
def of_pufferlib(rollout: Rollout) -> tuple[torch.Tensor, ...]:
    """Return values, rewards, flags, ratios and memory for advantages: envs first, rewards and flags one step late."""
    given = rollout.values, rollout.rewards, rollout.terminated.float()
    values, *others = (each.movedim(rollout.time_axis, -1).contiguous() for each in given)
    late = (torch.nn.functional.pad(each, (1, 0)) for each in others)
    return values, *late, torch.ones_like(values), torch.zeros_like(values)


def over_pufferlib(rollout: Rollout) -> Pair:
    """Compute with the layout that PufferLib's trainer has, and with ratios of 1."""
    values, *_, advantages = given = of_pufferlib(rollout)
    kernel_of_pufferlib()(*given, *coefficients(rollout), 1.0, 1.0)
    both = advantages, advantages + values
    return tuple(each[:, :-1].movedim(-1, rollout.time_axis) for each in both)


@dataclass(frozen=True)
class Contender:
    label: str
    compute: Callable[[Rollout], Pair]
    most_steps: int | None = None
    takes_all: bool = False  # also packed sequences and options
    waits: bool = False  # for the CPU: it cannot be captured in a CUDA graph

    def ready(self, rollout: Rollout) -> Callable[[], object]:
        """Return the call that is measured."""
        return added(rollout) if self is YARDSTICK else lambda: self.compute(rollout)


YARDSTICK = Contender("one torch.add", on_the_gpu, takes_all=True)
CONTENDERS = {
    "fastgae": Contender("fastgae on the GPU", on_the_gpu, takes_all=True),
    "add": YARDSTICK,
    "cpu": Contender(".cpu(), fastgae, and back", over_the_cpu, takes_all=True, waits=True),
    "loop": Contender("a loop in torch", loop, MOST_STEPS_LOOPED),
    "compiled": Contender("torch.compile of the loop", lambda rollout: compiled()(rollout), MOST_STEPS_COMPILED),
    "jax": Contender("fastgae in jax.jit", functools.partial(over_jax, form="fastgae"), waits=True),
    "scan": Contender("JAX's scan", functools.partial(over_jax, form="scan"), waits=True),
    "associative": Contender("JAX's associative_scan", functools.partial(over_jax, form="associative"), waits=True),
    "torchrl": Contender("torchrl, vectorised", torchrl, MOST_STEPS_VECTORISED),
    "pufferlib": Contender("PufferLib's kernel", over_pufferlib),
}


def takes(contender: Contender, rollout: Rollout) -> bool:
    if rollout.boundaries is not None or rollout.more or rollout.rewards.dtype != torch.float32:
        return contender.takes_all
    return contender.most_steps is None or rollout.steps <= contender.most_steps
