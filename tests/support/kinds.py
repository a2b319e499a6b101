"""A peer's function is called with NumPy's arrays and with torch's tensors, and must answer in kind."""

import numpy as np
import pytest

KINDS = ["numpy", "torch"]
SHAPES = [(1, 1), (2, 3), (9, 1), (17, 8), (128, 5)]


def called(kind, function, *arguments, **named):
    """The results as arrays, each of which came back as the kind of array that went in."""
    if kind == "numpy":
        results = function(*arguments, **named)
    else:
        torch = pytest.importorskip("torch")
        arguments = [_tensor(torch, given) for given in arguments]
        results = function(*arguments, **{name: _tensor(torch, given) for name, given in named.items()})
        tensors = results if isinstance(results, tuple) else (results,)
        assert all(isinstance(tensor, torch.Tensor) and not tensor.requires_grad for tensor in tensors)
        results = tuple(tensor.numpy() for tensor in tensors)
    return results if isinstance(results, tuple) else (results,)


def _tensor(torch, given):
    if not isinstance(given, np.ndarray):
        return given
    tensor = torch.from_numpy(given)
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor
