"""What a hook puts where, in modules with only the documented names of a library; tests/peers has the libraries."""

import importlib
import pickle
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from fastgae.compat import _hooks, skrl
from support.cases import assert_same_bits

# compat module -> where its install() puts something: (library's module, path of the function there)
PLACES = {
    "rl_games": [
        ("rl_games.common.a2c_common", "A2CBase.discount_values"),
        ("rl_games.common.a2c_common", "A2CBase.discount_values_masks"),
    ],
    "skrl": [(module, "compute_gae") for module in (*skrl.AGENTS, *skrl.RECURRENT_AGENTS)],
    "tianshou": [("tianshou.algorithm.algorithm_base", "_gae")],
    "verl": [("verl.trainer.ppo.core_algos", "compute_gae_advantage_return")],
}


def theirs(*given, **named):
    raise AssertionError("the library's own function is called")


@pytest.fixture
def library(monkeypatch):
    """Make a module of a library, with the packages around it."""

    def make(module):
        names = module.split(".")
        for i in range(len(names)):
            name = ".".join(names[: i + 1])
            if not isinstance(sys.modules.get(name), Fake):
                monkeypatch.setitem(sys.modules, name, Fake(name))
        return sys.modules[module]

    return make


class Fake(ModuleType):
    __path__ = ()


def owner_and_name(module, path):
    *classes, name = path.split(".")
    for each in classes:
        module = getattr(module, each)
    return module, name


@pytest.fixture(params=PLACES)
def hook(request, library):
    """The compat module, and the places of its hook, each with the library's function in it."""
    places = []
    for module, path in PLACES[request.param]:
        made = library(module)
        if "." in path:
            made.__dict__.setdefault(path.partition(".")[0], type(path.partition(".")[0], (), {}))
        owner, name = owner_and_name(made, path)
        setattr(owner, name, theirs)
        places.append((owner, name))
    return importlib.import_module(f"fastgae.compat.{request.param}"), places


def in_place(places):
    return [getattr(owner, name) is not theirs for owner, name in places]


def test_install_and_undo(hook):
    compat, places = hook
    undo = compat.install()
    assert all(in_place(places))
    undo.close()
    assert not any(in_place(places))


def test_install_for_a_while(hook):
    compat, places = hook
    with compat.install():
        assert all(in_place(places))
    assert not any(in_place(places))


def test_a_second_install_changes_nothing(hook):
    compat, places = hook
    first = compat.install()
    second = compat.install()
    second.close()
    assert all(in_place(places))
    second = compat.install()
    first.close()
    second.close()
    assert not any(in_place(places))


def test_all_or_none(hook):
    compat, places = hook
    owner, missing = places[-1]
    delattr(owner, missing)
    with pytest.raises(AttributeError, match=missing):
        compat.install()
    assert not any(in_place(places[:-1]))


def test_a_class_is_made_once():
    module = {"__name__": "library"}
    one = _hooks.made_once(module, "Made", Made=lambda: type("Inner", (), {}))
    assert module["Made"] is one
    assert one.__qualname__ == "Made"


@pytest.mark.parametrize("name", ["torchrl", "rsl_rl", "rllib"])
def test_modules_have_no_other_attributes(name):
    with pytest.raises(AttributeError, match=f"fastgae.compat.{name}' has no attribute 'Missing'"):
        _ = importlib.import_module(f"fastgae.compat.{name}").Missing


@pytest.fixture
def made(monkeypatch):
    """Have a compat module make its class of a fake library, and forget it after the test."""

    def make(name, class_name):
        compat = importlib.import_module(f"fastgae.compat.{name}")
        monkeypatch.setitem(compat.__dict__, class_name, None)
        del compat.__dict__[class_name]
        return getattr(compat, class_name)

    return make


def test_the_learner_of_rllib(library, made):
    connector = library("ray.rllib.connectors.learner.general_advantage_estimation")
    connector.compute_value_targets = theirs
    built = []
    learner = type("PPOTorchLearner", (), {"build": lambda self: built.append(self)})
    library("ray.rllib.algorithms.ppo.torch.ppo_torch_learner").PPOTorchLearner = learner
    ours = made("rllib", "PPOTorchLearner")
    assert issubclass(ours, learner)
    assert pickle.loads(pickle.dumps(ours)) is ours
    assert connector.compute_value_targets is theirs
    one = ours()
    one.build()
    assert built == [one]
    assert connector.compute_value_targets is importlib.import_module("fastgae.compat.rllib").compute_value_targets


@pytest.mark.parametrize("per_mini_batch", [False, True])
def test_the_algorithm_of_rsl_rl(library, made, per_mini_batch):
    torch = pytest.importorskip("torch")
    library("rsl_rl.algorithms").PPO = type("PPO", (), {"compute_returns": theirs})
    rng, calls = np.random.default_rng(0), []
    values, rewards = torch.from_numpy(rng.normal(size=(2, 6, 3, 1))).float()
    storage = SimpleNamespace(
        rewards=rewards[:-1], values=values[:-1], dones=torch.zeros(5, 3, 1).byte(), returns=torch.zeros(5, 3, 1)
    )

    class Critic:
        def __call__(self, obs):
            calls.append("look ahead")
            return obs

        def get_hidden_state(self):
            calls.append("keep")
            return 7

        def reset(self, hidden_state):
            calls.append(hidden_state)

    ppo = made("rsl_rl", "PPO")()
    ppo.__dict__.update(
        storage=storage, critic=Critic(), gamma=0.99, lam=0.95, normalize_advantage_per_mini_batch=per_mini_batch
    )
    own = storage.returns
    ppo.compute_returns(values[-1])
    assert calls == ["keep", "look ahead", 7]
    assert storage.returns is own
    returns, advantages = importlib.import_module("fastgae.compat.rsl_rl").compute_returns(
        storage.rewards, storage.values, storage.dones, values[-1], 0.99, 0.95, False
    )
    assert_same_bits(own.numpy(), returns.numpy())
    if not per_mini_batch:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    assert_same_bits(storage.advantages.numpy(), advantages.numpy())
