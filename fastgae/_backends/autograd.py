"""The derivatives of a call with torch tensors, on any device: its equations in operations that torch differentiates.

All but the scan is elementwise. ``Scan`` is ``reverse_scan``, whose derivatives are scans too, so any order of
derivatives works. Only the derivatives of these results are used; the results themselves come from a kernel.
"""

import functools
import operator
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from fastgae._call import EPS, Call, GAEResult
from fastgae._equation import arrays as equation
from fastgae._interop.arrays import OnDevice
from fastgae._interop.libraries import FUNCTIONS

RECURSIONS = equation.RECURSIONS


def takes(array: OnDevice) -> bool:
    return isinstance(array.array, Tensor)


class Scan(torch.autograd.Function):  # type: ignore[misc]
    """Compute y_t = x_t + d_t y_{t+1} with y_T = 0, for two tensors of one shape.

    With the gradient g of y, a_t = g_t + d_{t-1} a_{t-1} is the gradient of x_t, and a_t y_{t+1} the gradient of d_t.
    """

    @staticmethod
    def forward(x: Tensor, decay: Tensor) -> Any:
        reverse_scan: Any = FUNCTIONS["reverse_scan"]
        if is_legacy_batchedtensor(x):
            # A batch of gradients, as in jacobian(vectorize=True): torch makes the calls of an operation one by one.
            from fastgae._interop.torch_ops import traced

            return traced(reverse_scan, reverse_scan.__kwdefaults__ | {"x": x, "decay": decay})
        return reverse_scan(x, decay)

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
    def jvp(ctx: Any, of_x: Tensor, of_decay: Tensor) -> Any:
        decay, y = ctx.saved_tensors
        return scan(of_x + of_decay * later(y), decay)

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
    return equation.gae(Tensors(call.rewards, call.time_axis), call)


class Tensors(equation.Library):
    """Tensors of torch. Both factors behind a closed gate become 0 before they are multiplied."""

    xp = torch
    differentiates = True

    def __init__(self, rewards: Any, axis: int):
        self.dtype, self.axis, self.device = getattr(torch, rewards.dtype.name), axis, rewards.array.device

    def array(self, given: Any, dtype: Any = None) -> Tensor:
        tensor = torch.as_tensor(given.array if isinstance(given, OnDevice) else given, device=self.device)
        if dtype is None and tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
            dtype = torch.int64  # torch adds and compares no others with these
        return tensor if dtype is None else tensor != 0 if dtype is bool else tensor.to(dtype)

    def moved(self, array: Tensor, axis: int, to: int) -> Tensor:
        return array.movedim(axis, to)  # torch.func.vmap has no rule for moveaxis

    def rounded(self, *factors: Any) -> Tensor:
        # Only derivatives of these products are used, so float64 would bring nothing.
        return functools.reduce(
            operator.mul, (torch.as_tensor(each, dtype=self.dtype, device=self.device) for each in factors)
        )

    def wide(self, given: Any) -> Tensor:
        return self.rounded(given)

    def times(self, gate: Any, one: Any, other: Any) -> Tensor:
        return _gated(gate, one) * _gated(gate, other)

    def plus(self, gate: Any, term: Tensor, one: Any, other: Any) -> Tensor:
        return term + self.times(gate, one, other)

    def minus(self, one: Tensor, other: Tensor) -> Tensor:
        return one - other

    def scan(self, terms: Tensor, decay: Any, gate: Any, exists: Any, last: Tensor) -> Tensor:
        gate = torch.as_tensor(gate, device=self.device).expand(terms.shape)
        if exists is not None:  # a step that does not exist passes on what follows it
            terms, decay, gate = torch.where(exists, terms, 0.0), torch.where(exists, decay, 1.0), gate | ~exists
        decay = _gated(gate, decay)
        return scan(torch.cat([terms[:-1], self.plus(gate[-1:], terms[-1:], decay[-1:], last)]), decay)

    def next_existing(self, rows: Tensor, last: Tensor, exists: Any) -> Tensor:
        rows = torch.cat([rows, last.expand(rows.shape[1:]).unsqueeze(0)])
        if exists is None:
            return rows[1:]
        place = torch.arange(len(exists), device=self.device).reshape(-1, *(1,) * (exists.ndim - 1))
        place = torch.where(exists, place, len(exists))
        place = torch.cat([place[1:], torch.full_like(place[:1], len(exists))])
        return rows.take_along_dim(place.flip(0).cummin(0).values.flip(0), 0)

    def n_steps(self, rewards: Tensor, returns: Tensor, goes_on: Any, gamma: Tensor, n: int, after: Any) -> Tensor:
        rows = slice(-1) if after is None else slice(None)
        goes_on = torch.as_tensor(goes_on, device=self.device)  # True where no step ends an episode
        gamma, goes_on = (each.expand(rewards.shape)[rows] for each in (gamma, goes_on))
        for _ in range(min(n, len(rewards)) - 1):
            following = returns[1:] if after is None else returns.take_along_dim(after, 0)
            longer = self.plus(goes_on, rewards[rows], gamma, following)
            returns = torch.cat([torch.where(goes_on, longer, returns[rows]), returns[len(longer) :]])
        return returns

    def normalized(self, advantages: Tensor, exists: Any, by: str) -> Tensor:
        lives = torch.ones_like(advantages, dtype=torch.bool) if exists is None else exists
        axes = tuple(range(advantages.ndim)) if by == "global" else (0,)
        count = lives.sum(axes, keepdim=True).clamp(min=1)
        total = torch.where(lives, advantages, 0.0).sum(axes, keepdim=True)
        centered = torch.where(lives, advantages - total / count, 0.0)
        variance = (centered**2).sum(axes, keepdim=True) / count
        varies = variance > 0  # the root has no derivative at 0
        return centered / (torch.where(varies, variance, 1.0).sqrt() * varies + EPS)


def _gated(gate: Any, given: Any) -> Any:
    return given if gate is True else torch.where(gate, given, 0.0)


def later(rows: Tensor) -> Tensor:
    """Return the rows one step later, and zeros as the last row."""
    return torch.cat([rows[1:], torch.zeros_like(rows[:1])])
