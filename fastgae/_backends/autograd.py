"""The derivatives of a call with torch tensors, on any device: its equations in operations that torch differentiates.

All but the scan is elementwise. ``Scan`` is ``reverse_scan``, whose derivatives are scans too, so any order of
derivatives works. Only the derivatives of these results are used; the results themselves come from a kernel. Numbers
behind a closed gate, or at a step that does not exist, are replaced before anything is multiplied by them, because 0
times NaN is NaN. Arrays have time as their first axis in here.
"""

from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from fastgae._call import EPS, Call, GAEResult
from fastgae._canonical import NEXT_STEP
from fastgae._interop import FUNCTIONS, OnDevice

RECURSIONS = ("gae", "n_step_returns", "retrace")


def takes(array: OnDevice) -> bool:
    return isinstance(array.array, Tensor)


class Scan(torch.autograd.Function):  # type: ignore[misc]
    """Compute y_t = x_t + d_t y_{t+1} with y_T = 0, for two tensors of one shape.

    With the gradient g of y, a_t = g_t + d_{t-1} a_{t-1} is the gradient of x_t, and a_t y_{t+1} the gradient of d_t.
    """

    @staticmethod
    def forward(x: Tensor, decay: Tensor) -> Any:
        reverse_scan: Any = FUNCTIONS["reverse_scan"]
        if is_legacy_batchedtensor(x) or is_legacy_batchedtensor(decay):
            # A batch of gradients, as in jacobian(vectorize=True): torch makes the calls of an operation one by one.
            from fastgae._interop.torch_ops import traced

            return traced(reverse_scan, reverse_scan.__kwdefaults__ | {"x": x, "decay": decay})
        return reverse_scan(x.detach(), decay.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1], output)
        ctx.save_for_forward(inputs[1], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        decay, y = ctx.saved_tensors
        before = torch.cat([torch.zeros_like(decay[:1]), decay[:-1]])
        of_x = scan(gradient.flip(0), before.flip(0)).flip(0)
        return of_x, of_x * later(y) if ctx.needs_input_grad[1] else None

    @staticmethod
    def jvp(ctx: Any, of_x: Tensor | None, of_decay: Tensor | None) -> Any:
        decay, y = ctx.saved_tensors
        moved = 0 if of_decay is None else of_decay * later(y)
        return scan((torch.zeros_like(y) if of_x is None else of_x) + moved, decay)

    @staticmethod
    def vmap(info: Any, axes: tuple[int | None, int | None], x: Tensor, decay: Tensor) -> tuple[Tensor, int]:
        """Make the batch one more axis of envs, the last."""
        batch = [
            each.unsqueeze(-1) if axis is None else each.movedim(axis, -1)
            for each, axis in zip((x, decay), axes, strict=True)
        ]
        return scan(*batch), x.ndim - (axes[0] is not None)


def scan(x: Tensor, decay: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(x.shape, decay.shape)  # broadcast_tensors has no rule for batches of gradients
    y: Tensor = Scan.apply(x.expand(shape), decay.expand(shape))
    return y


def gae(call: Call) -> GAEResult:
    """Compute a checked call."""
    reader = _Reader(call)
    steps, flags, envs, coefficient = reader.steps, reader.flags, reader.envs, reader.coefficient
    rewards, values, following = steps(call.rewards), steps(call.values), steps(call.next_values)
    terminated, truncated, exists = flags(call.terminated), flags(call.truncated), flags(call.mask)
    everywhere = torch.ones_like(rewards, dtype=torch.bool)
    ends = _either(terminated, truncated)
    last = envs(call.last_values)
    if values is not None and len(values) > len(rewards):
        values, last = values[:-1], values[-1]
    if values is not None and following is None:
        following = _next_existing(values, last, exists)
    if call.autoreset == NEXT_STEP:
        exists = _without_resets(ends, flags(call.prev_done, per_env=True), exists)
    if call.final_values is not None:
        following = torch.where(truncated, steps(call.final_values), 0.0 if following is None else following)
    lives = everywhere if exists is None else exists
    open_to_values = lives if terminated is None else lives & ~terminated
    goes_on = lives if ends is None else lives & ~ends

    def live(array: Any, gate: Any = lives, otherwise: float = 0.0) -> Any:
        return torch.where(gate, array, otherwise)

    gamma = coefficient(call.gamma)
    one_step = live(rewards)
    if following is not None:
        one_step = one_step + live(gamma, open_to_values) * live(following, open_to_values)
    if call.recursion == "n_step_returns":
        return GAEResult(None, reader.back(_n_step_returns(live(rewards), one_step, goes_on, gamma, call.n)))
    deltas = one_step if values is None else one_step - live(values)
    gae_lambda = coefficient(call.gae_lambda)
    if call.recursion == "retrace":
        traces = live(gae_lambda) * _weights(live(steps(call.ratios)), 1.0, 0.0)
        gae_lambda = _next_existing(traces, traces.new_zeros(()), exists)

    def scanned(terms: Tensor, decay: Any, initial: Any = None) -> Tensor:
        """Scan with gates. A step that does not exist passes on what it gets."""
        decay = torch.where(goes_on, decay, 0.0) + torch.where(lives, 0.0, 1.0)
        if initial is not None:
            after = torch.where((goes_on | ~lives)[-1:], initial, 0.0)
            terms = torch.cat([terms[:-1], terms[-1:] + decay[-1:] * after])
        return scan(terms, decay)

    discounted = gamma * gae_lambda
    if call.tail_normalized:
        left = scanned(live(torch.ones_like(deltas)), coefficient(call.gae_lambda))
        left = live(left, otherwise=1.0)
        advantages = scanned(left * deltas, discounted) / left
    elif call.ratios is not None and call.recursion == "gae":
        ratios = live(steps(call.ratios))
        weights = [_weights(ratios, clip, call.leaky) for clip in (call.rho_clip, call.c_clip, call.advantage_clip)]
        advantages = scanned(weights[0] * deltas, weights[1] * discounted)
    else:
        advantages = scanned(deltas, discounted, envs(call.last_advantages))
    traced = advantages
    if call.returns_lambda is not None:
        traced = scanned(deltas, gamma * coefficient(call.returns_lambda))
    returns = None if values is None else traced + (values if call.carry_over else live(values))
    if call.ratios is not None and call.recursion == "gae":
        advantages = weights[2] * (deltas + live(discounted, goes_on) * live(later(advantages), goes_on))
    if exists is not None and not call.carry_over:
        advantages = live(advantages)
        returns = None if returns is None else torch.where(exists, returns, values)
    if call.normalize is not None:
        advantages = _normalized(advantages, lives, call.normalize)
    results: Any = (None if each is None else reader.back(each) for each in (advantages, returns))
    return GAEResult(*results)


class _Reader:
    """The arguments of a checked call as tensors of one dtype, with time as the first axis."""

    def __init__(self, call: Call):
        self.dtype, self.axis, self.like = getattr(torch, call.rewards.dtype.name), call.time_axis, call.rewards.array

    def back(self, result: Tensor) -> Tensor:
        return result.movedim(0, self.axis)

    def steps(self, given: Any) -> Any:
        return None if given is None else given.array.to(self.dtype).movedim(self.axis, 0)

    def flags(self, given: Any, per_env: bool = False) -> Any:
        if given is None:
            return None
        flags = given.array != 0
        return flags if per_env else flags.movedim(self.axis, 0)

    def envs(self, given: Any) -> Any:
        if given is None:
            return None
        shape = [length for axis, length in enumerate(self.like.shape) if axis != self.axis]
        return self.tensor(given).expand(shape)

    def coefficient(self, given: Any) -> Any:
        """Return one number, or a tensor that broadcasts to all steps."""
        tensor = self.tensor(given)
        return tensor.movedim(self.axis, 0) if tensor.ndim else tensor

    def tensor(self, given: Any) -> Tensor:
        array = given.array if isinstance(given, OnDevice) else given
        return torch.as_tensor(array, dtype=self.dtype, device=self.like.device)


def later(rows: Tensor) -> Tensor:
    """Return the rows one step later, and zeros as the last row."""
    return torch.cat([rows[1:], torch.zeros_like(rows[:1])])


def _either(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one | other


def _numbers(rows: Tensor) -> Tensor:
    """Return the number of each row, in the shape of the rows."""
    numbers = torch.arange(len(rows), device=rows.device)
    return numbers.reshape(-1, *(1,) * (rows.ndim - 1)).expand(rows.shape)


def _next_existing(rows: Tensor, last: Any, exists: Any) -> Tensor:
    """Return for every step the row of the next step that exists, or ``last`` if there is none."""
    rows = torch.cat([rows, last.expand(rows.shape[1:]).unsqueeze(0)])
    if exists is None or not exists.numel():
        return rows[1:]
    place = torch.where(exists, _numbers(exists), len(exists))
    place = torch.cat([place[1:], torch.full_like(place[:1], len(exists))])
    return rows.take_along_dim(place.flip(0).cummin(0).values.flip(0), 0)


def _without_resets(ends: Tensor, before: Any, exists: Any) -> Tensor:
    """Return where a step exists: it is in the mask, and the step before it in the mask ended no episode."""
    before = torch.zeros_like(ends[:1]) if before is None else before.expand(ends.shape[1:]).unsqueeze(0)
    ends = torch.cat([before, ends])
    if exists is None or not exists.numel():
        return ~ends[:-1]
    place = torch.where(exists, _numbers(exists) + 1, 0)
    place = torch.cat([torch.zeros_like(place[:1]), place[:-1]])
    return exists & ~ends.take_along_dim(place.cummax(0).values, 0)


def _weights(ratios: Tensor, clip: Any, leaky: Any) -> Tensor:
    """Return (1 - leaky) min(ratio, clip) + leaky ratio. The gradient of min() at the clip is that of the ratio."""
    clipped = torch.where(ratios > clip, clip, ratios)
    return clipped if leaky == 0 else (1 - leaky) * clipped + leaky * ratios


def _n_step_returns(rewards: Tensor, returns: Tensor, goes_on: Tensor, gamma: Tensor, n: int) -> Tensor:
    """Compute all returns together, one more step in each pass."""
    gamma, goes_on = gamma.expand(rewards.shape)[:-1], goes_on[:-1]
    for _ in range(min(n, len(rewards)) - 1):
        longer = rewards[:-1] + gamma * torch.where(goes_on, returns[1:], 0.0)
        returns = torch.cat([torch.where(goes_on, longer, returns[:-1]), returns[-1:]])
    return returns


def _normalized(advantages: Tensor, lives: Tensor, by: str) -> Tensor:
    """Return advantages with mean 0 and standard deviation 1, over all steps that exist or over those of each env."""
    axes = tuple(range(advantages.ndim)) if by == "global" else (0,)
    count = lives.sum(axes, keepdim=True).clamp(min=1)
    centered = torch.where(lives, advantages - torch.where(lives, advantages, 0.0).sum(axes, keepdim=True) / count, 0.0)
    variance = (centered**2).sum(axes, keepdim=True) / count
    varies = variance > 0  # the root has no derivative at 0
    return centered / (torch.where(varies, variance, 1.0).sqrt() * varies + EPS)
