"""Call a peer's function with arrays of NumPy and with tensors of torch; its results must be of the same kind."""

import numpy as np
import pytest

KINDS = ["numpy", "torch"]
SHAPES = [(1, 1), (2, 3), (9, 1), (17, 8), (128, 5)]


def called(kind, function, *arguments, **named):
    """Return the results as NumPy arrays, and assert that they were of the same kind as the arguments."""
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
