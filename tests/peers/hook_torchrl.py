"""torchrl's value estimator, by itself and in a loss."""

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.modules import OneHotCategorical, ProbabilisticActor
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from fastgae.compat import torchrl as ours

from .compare import Hooked, flags, normal


def rollout(rng, envs, steps):
    values, next_values, reward = normal(rng, 3, envs, steps, 1)
    done, limit = flags(rng, 0.05, envs, steps, 1), flags(rng, 0.5, envs, steps, 1)
    following = {"state_value": next_values, "reward": reward, "done": done, "terminated": done & ~limit}
    return TensorDict({"state_value": values, "next": following}, [envs, steps])


def hooks(rng):
    for envs, steps in [(4, 50), (64, 1024)]:
        for setting, tolerance in [({}, 0.0), ({"vectorized": True}, 1e-5), ({"average_gae": True}, 0.0)]:
            arguments = {"gamma": 0.99, "lmbda": 0.95, "value_network": None, **setting}
            given, name = rollout(rng, envs, steps), ", ".join(f"{key}={value}" for key, value in setting.items())
            calls = [computed(kind(**arguments), given) for kind in (GAE, ours.GAE)]
            timed = steps > 1000 and "average_gae" not in setting
            yield Hooked(f"GAE({name}), {envs} × {steps}", *calls, tolerance=tolerance, timed=timed)

    given = rollout(rng, 4, 50)
    kinds = [kind(gamma=0.99, lmbda=0.95, value_network=None) for kind in (GAE, ours.GAE)]
    calls = [lambda estimator=each: (estimator.value_estimate(given.clone()),) for each in kinds]
    yield Hooked("GAE().value_estimate", *calls, tolerance=1e-5)
    calls = [computed(torch.compile(each, backend="eager", fullgraph=True), given) for each in kinds]
    yield Hooked("torch.compile(GAE())", *calls, declined=True)

    critic = TensorDictModule(torch.nn.Linear(3, 1), in_keys=["obs"], out_keys=["state_value"])
    for name, observed, setting in settings(rng):
        tolerance = 1e-5 if "vectorized" in setting else 0.0
        arguments = {"gamma": 0.99, "lmbda": 0.95, "value_network": critic, **setting}
        calls = [computed(kind(**arguments), observed) for kind in (GAE, ours.GAE)]
        yield Hooked(f"GAE with a critic, {name}", *calls, tolerance=tolerance)
    estimators = [kind(gamma=0.99, lmbda=0.95, value_network=critic) for kind in (GAE, ours.GAE)]
    calls = [called_with_tensors(each, observed) for each in estimators]
    yield Hooked("GAE with a critic, called with tensors", *calls)

    given["obs"], given["next", "obs"] = normal(rng, 2, 4, 50, 3)
    for differentiable in (False, True):  # with gradients, torchrl's own function is called
        calls = [gradients(kind, given, differentiable) for kind in (GAE, ours.GAE)]
        yield Hooked(f"gradients through GAE, differentiable={differentiable}", *calls, declined=differentiable)
    calls = [forward_derivative(kind, given) for kind in (GAE, ours.GAE)]
    yield Hooked("a derivative forward through GAE", *calls, declined=True)

    yield Hooked(
        "ClipPPOLoss: its terms, and the gradients of its networks", *(loss(kind, given) for kind in (GAE, ours.GAE))
    )


def settings(rng):
    """Yield what torchrl's own tests of GAE vary: a name, a rollout of observations, and the arguments of GAE."""

    def observed(envs=4, steps=20):
        given = rollout(rng, envs, steps).exclude("state_value", ("next", "state_value"))
        given["obs"], given["next", "obs"] = normal(rng, 2, envs, steps, 3)
        given.refine_names(..., "time")
        return given

    for setting in (
        {"shifted": True},
        {"shifted": True, "shifted_budget": 2},
        {"shifted": True, "vectorized": True},
        {"deactivate_vmap": True},
        {"value_chunk_size": 3},
        {"num_chunks": 3, "value_chunk_dim": 1},
        {"gamma": torch.tensor(0.9), "lmbda": torch.tensor(0.95)},
        {"time_dim": 1},
    ):
        yield ", ".join(f"{name}={value}" for name, value in setting.items()), observed(), setting

    yield "time first", observed().transpose(0, 1).contiguous(), {"time_dim": 0}
    yield "strides in another order", observed(20, 4).transpose(0, 1), {"time_dim": 1}

    yield "no next observations", observed().exclude(("next", "obs")), {"shifted": True}

    tasks = observed()
    tasks["task"] = torch.tensor([0, 1, 1, 0]).reshape(4, 1, 1).expand(4, 20, 1)
    yield "advantages standardised within tasks", tasks, {"average_gae": True, "group_key": "task"}

    lost = observed()
    lost["next", "done"][:, -1] = lost["next", "terminated"][:, -1] = True
    lost["next", "obs"][:, -1] = torch.nan
    yield "no observation after the last step", lost, {}


def called_with_tensors(estimator, given):
    """Call it with one argument for each key, which torchrl calls dispatch."""
    following = {f"next_{name}": tensor for name, tensor in given["next"].items()}
    return lambda: estimator(obs=given["obs"], **following)


def computed(estimator, given):
    def call():
        result = estimator(given.clone())
        return result["advantage"], result["value_target"]

    return call


def gradients(kind, given, differentiable):
    """Of the sum of advantages with respect to the observations; of the values where nothing flows."""

    def call():
        torch.manual_seed(0)
        critic = TensorDictModule(torch.nn.Linear(3, 1), in_keys=["obs"], out_keys=["state_value"])
        estimator = kind(gamma=0.99, lmbda=0.95, value_network=critic, differentiable=differentiable)
        copy = given.clone().exclude("state_value", ("next", "state_value"))
        copy["obs"].requires_grad_(differentiable)
        advantage = estimator(copy)["advantage"]
        if differentiable:
            advantage.sum().backward()
            return advantage.detach(), copy["obs"].grad
        return advantage, torch.tensor(advantage.is_leaf)

    return call


def forward_derivative(kind, given):
    """Of the sum of advantages, along the rewards."""

    def call():
        estimator = kind(gamma=0.99, lmbda=0.95, value_network=None, differentiable=True)

        def total(rewards):
            copy = given.clone()
            copy["next", "reward"] = rewards
            return estimator(copy)["advantage"].sum()

        rewards = given["next", "reward"]
        return torch.func.jvp(total, (rewards,), (rewards,))

    return call


def loss(kind, given):
    """Of an actor and a critic that differ in nothing but who estimates the advantages."""

    def call():
        torch.manual_seed(0)
        logits = TensorDictModule(torch.nn.Linear(3, 2), in_keys=["obs"], out_keys=["logits"])
        actor = ProbabilisticActor(
            logits, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True
        )
        critic = TensorDictModule(torch.nn.Linear(3, 1), in_keys=["obs"], out_keys=["state_value"])
        module = ClipPPOLoss(actor, critic)
        module.make_value_estimator(kind, gamma=0.99, lmbda=0.95, value_network=critic)
        with torch.no_grad():
            collected = actor(given.clone().exclude("state_value", ("next", "state_value")))
        terms = module(collected)
        names = ("loss_objective", "loss_critic", "loss_entropy")
        sum(terms[name] for name in names).backward()
        gradients = (parameter.grad for parameter in module.parameters())
        return *(terms[name].detach() for name in names), *gradients

    return call
