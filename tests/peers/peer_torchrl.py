"""torchrl.objectives.value.functional, in float32."""

import torch

from fastgae.compat import torchrl as ours

from .compare import called, flags, normal

PACKAGE = "torchrl==0.14.1"


def comparisons(rng):
    from torchrl.objectives.value import functional as theirs

    shape, gamma, lmbda = (4, 64, 2), 0.99, 0.95
    values, following, reward, log_pi, log_mu = normal(rng, 5, *shape)
    done, terminated = flags_of(rng, shape)
    without = {"next_state_value": following, "reward": reward, "done": done}
    targets = {**without, "terminated": terminated}
    both = {"state_value": values, **targets}
    for name, positional, named, tolerance in [
        ("generalized_advantage_estimate", (gamma, lmbda), both, 0.0),
        ("vec_generalized_advantage_estimate", (gamma, lmbda), both, 1e-5),
        ("td_lambda_return_estimate", (gamma, lmbda), targets, 1e-5),
        ("td_lambda_return_estimate", (gamma, lmbda), without, 1e-5),
        ("td_lambda_advantage_estimate", (gamma, lmbda), both, 1e-5),
        ("vec_td_lambda_return_estimate", (gamma, lmbda), targets, 1e-5),
        ("vtrace_advantage_estimate", (gamma, log_pi / 4, log_mu / 4), both, 0.0),
        ("reward2go", (reward, done, gamma), {}, 1e-5),
    ]:
        by = name.replace("vec_td", "td")
        functions = getattr(theirs, name), getattr(ours, by)
        yield called(name, *functions, *positional, **named, tolerance=tolerance, by=by)

    # What torchrl's own tests vary: coefficients that are tensors, several axes of batch and of features, the dtype.
    for dtype, shape, time_dim in [
        (torch.float32, (7, 3, 5, 1), -2),
        (torch.float32, (3, 20, 2, 5), -3),
        (torch.float32, (2, 3, 20, 4, 1), 2),
        (torch.float64, (3, 200, 1), -2),
    ]:
        given = [*torch.from_numpy(rng.normal(size=(3, *shape))).to(dtype), *flags_of(rng, shape)]
        each = torch.from_numpy(rng.uniform(0.5, 1, shape)).to(dtype)
        for kind, *coefficients in [
            ("numbers", 0.95, 0.9),
            ("tensors of one", torch.tensor([0.95]), torch.tensor([0.9])),
            ("a tensor and a number", torch.tensor(0.95), 0.9),
            ("gamma of each step", each, torch.tensor(0.9)),
        ]:
            functions = (module.generalized_advantage_estimate for module in (theirs, ours))
            # Torch rounds lambda to the dtype of gamma before it multiplies the two; fastgae multiplies first.
            exact = dtype is torch.float32 and kind != "a tensor and a number"
            name = f"generalized_advantage_estimate, {'×'.join(map(str, shape))} {dtype}, {kind}"
            settings = {"time_dim": time_dim, "tolerance": 0.0 if exact else 1e-6}
            yield called(name, *functions, *coefficients, *given, **settings)


def flags_of(rng, shape):
    """Return done and terminated."""
    ends, limit = flags(rng, 0.2, *shape), flags(rng, 0.5, *shape)
    return ends, ends & ~limit
