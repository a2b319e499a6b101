"""torchrl.objectives.value.functional, in float32."""

from functools import partial
from importlib.metadata import version

import numpy as np

from fastgae.compat import torchrl as ours

from .compare import Comparison

PACKAGE = "torchrl==0.14.1"
VERSION = partial(version, "torchrl")


def comparisons(rng):
    import torch
    from torchrl.objectives.value import functional as theirs

    shape, gamma, lmbda = (4, 64, 2), 0.99, 0.95
    values, following, reward, log_pi, log_mu = torch.from_numpy(rng.normal(size=(5, *shape)).astype(np.float32))
    ends, limit = (torch.from_numpy(rng.random(shape) < p) for p in (0.2, 0.5))
    flags = {"done": ends, "terminated": ends & ~limit}
    value_arguments = {"next_state_value": following, "reward": reward, **flags}
    both = {"state_value": values, **value_arguments}
    calls = [
        ("generalized_advantage_estimate", (gamma, lmbda), both, 0.0),
        ("vec_generalized_advantage_estimate", (gamma, lmbda), both, 1e-5),
        ("td_lambda_return_estimate", (gamma, lmbda), value_arguments, 1e-5),
        ("td_lambda_advantage_estimate", (gamma, lmbda), both, 1e-5),
        ("vec_td_lambda_return_estimate", (gamma, lmbda), value_arguments, 1e-5),
        ("vtrace_advantage_estimate", (gamma, log_pi / 4, log_mu / 4), both, 0.0),
        ("reward2go", (reward, ends, gamma), {}, 1e-5),
    ]
    for name, positional, named, tolerance in calls:
        our_name = name.replace("vec_td", "td")
        results = [getattr(*where)(*positional, **named) for where in ((theirs, name), (ours, our_name))]
        pairs = [result if isinstance(result, tuple) else (result,) for result in results]
        yield Comparison(name, *(tuple(t.numpy() for t in pair) for pair in pairs), tolerance)
