"""What a hook puts where, in modules with only the documented names of a library; tests/peers has the libraries."""

import importlib
import pickle
import pkgutil
import re
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from fastgae import compat as package
from fastgae.compat import _hooks, skrl

SKRL = (
    "*, rewards, terminated, truncated, values, last_values, discount_factor, lambda_coefficient, time_limit_bootstrap"
)
SKRL_2_0 = "*, rewards, terminated, values, next_values, discount_factor, lambda_coefficient"
RL_GAMES = "self, fdones, last_extrinsic_values, mb_fdones, mb_extrinsic_values, mb_rewards"
VERL = "token_level_rewards, values, response_mask, gamma, lam"
# compat module -> where its install() puts something: (library's module, path of the function there, its parameters)
PLACES = {
    "pufferlib": [
        (
            "pufferlib.pufferl",
            "compute_puff_advantage",
            "values, rewards, terminals, ratio, advantages, gamma, gae_lambda, vtrace_rho_clip, vtrace_c_clip",
        )
    ],
    "rl_games": [
        ("rl_games.common.a2c_common", "A2CBase.discount_values_masks", f"{RL_GAMES}, mb_masks"),
        ("rl_games.common.a2c_common", "A2CBase.discount_values", RL_GAMES),
    ],
    "sample_factory": [
        ("sample_factory.algo.learning.learner", "gae_advantages", "rewards, dones, values, valids, γ, λ"),
    ],
    "skrl": [(module, "compute_gae", SKRL_2_0 if "rnn" in module else SKRL) for module in (*skrl.AGENTS, skrl.AMP)],
    "stable_baselines3": [
        ("stable_baselines3.common.buffers", "RolloutBuffer.compute_returns_and_advantage", "self, last_values, dones")
    ],
    "tianshou": [("tianshou.algorithm.algorithm_base", "_gae", "v_s, v_s_, rew, end_flag, gamma, gae_lambda")],
    "verl": [
        ("verl.trainer.ppo.core_algos", "ADV_ESTIMATOR_REGISTRY.gae", VERL),
        ("verl.trainer.ppo.core_algos", "compute_gae_advantage_return", VERL),
    ],
}


def taking(parameters):
    """Make a function of a library with these parameters."""
    return eval(f"lambda {parameters}: None")


@pytest.fixture
def installed(monkeypatch):
    """Say which version of a library is installed: by default the newest that its hook knows."""

    def say(compat, version=None, package=None):
        def version_of(name):
            if name != (package or compat.LIBRARY.package):
                raise PackageNotFoundError(name)
            return version or compat.LIBRARY.newest

        monkeypatch.setattr(_hooks, "version", version_of)

    return say


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


def read(owner, name):
    return owner[name] if isinstance(owner, dict) else getattr(owner, name)


def write(owner, name, function):
    if isinstance(owner, dict):
        owner[name] = function
    else:
        setattr(owner, name, function)


def remove(owner, name):
    if isinstance(owner, dict):
        del owner[name]
    else:
        delattr(owner, name)


@pytest.fixture(params=PLACES)
def hook(request, library, installed):
    """The compat module, and the places of its hook, each with the library's function in it."""
    compat = importlib.import_module(f"fastgae.compat.{request.param}")
    installed(compat)
    places = []
    for module, path, parameters in PLACES[request.param]:
        owner = library(module)
        outer, _, name = path.rpartition(".")
        if outer:
            owner = owner.__dict__.setdefault(outer, {} if outer.isupper() else type(outer, (), {}))
        theirs = taking(parameters)
        write(owner, name, theirs)
        places.append((owner, name, theirs))
    return compat, places


def in_place(places):
    return [read(owner, name) is not theirs for owner, name, theirs in places]


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


def refused(compat, match):
    """install() raises one sentence that says what it knows, and what to do."""
    known = compat.LIBRARY
    with pytest.raises(RuntimeError, match=match) as error:
        compat.install()
    message = str(error.value)
    assert f"knows versions {known.oldest} to {known.newest}: install one of these, or a newer fastgae" in message
    assert message.startswith(f"{known.package}: ")
    return True


@pytest.mark.parametrize("version", ["0.0.9", "99.0"])
def test_a_version_that_was_not_tested(hook, installed, version):
    compat, places = hook
    installed(compat, version)
    assert refused(compat, f"{version} is installed")
    assert not any(in_place(places))


@pytest.mark.parametrize("version", ["oldest", "newest"])
def test_the_oldest_and_the_newest(hook, installed, version):
    compat, places = hook
    installed(compat, getattr(compat.LIBRARY, version) + ".post1")
    with compat.install():
        assert all(in_place(places))


def test_all_or_none(hook):
    compat, places = hook
    owner, missing, _ = places[-1]
    remove(owner, missing)
    assert refused(compat, f"{missing} does not exist")
    assert not any(in_place(places[:-1]))


def test_other_parameters(hook):
    compat, places = hook
    owner, name, _ = places[-1]
    write(owner, name, taking("a, b"))
    assert refused(compat, rf"{name} has the parameters \(a, b\), not \(")
    assert not any(in_place(places[:-1]))


def test_what_a_version_may_lack(library, installed):
    """rl_games 2.0 has no masks."""
    compat = importlib.import_module("fastgae.compat.rl_games")
    installed(compat, "2.0.0")
    theirs = taking(RL_GAMES)
    base = type("A2CBase", (), {"discount_values": theirs})
    library("rl_games.common.a2c_common").A2CBase = base
    with compat.install():
        assert base.discount_values is not theirs
        assert not hasattr(base, "discount_values_masks")
    assert base.discount_values is theirs


@pytest.mark.parametrize("hook", ["pufferlib"], indirect=True)
def test_another_package_with_the_same_modules(hook, installed):
    compat, places = hook
    installed(compat, package="pufferlib-core")
    with compat.install():
        assert all(in_place(places))


def test_a_library_that_is_not_installed(hook, installed):
    compat, places = hook
    installed(compat, package="another one")
    with pytest.raises(PackageNotFoundError):
        compat.install()
    assert not any(in_place(places))


def test_a_function_that_torch_compiled(library, installed):
    """It has no signature. sample-factory's function is one."""
    compat = importlib.import_module("fastgae.compat.sample_factory")
    installed(compat)
    learner = library("sample_factory.algo.learning.learner")
    arguments = [SimpleNamespace(name=name) for name in ("rewards", "dones", "values", "valids", "γ", "λ")]
    learner.gae_advantages = theirs = SimpleNamespace(schema=SimpleNamespace(arguments=arguments))
    with compat.install():
        assert learner.gae_advantages is compat.gae_advantages
    assert learner.gae_advantages is theirs
    arguments.pop()
    assert refused(compat, r"gae_advantages has the parameters \(rewards, dones, values, valids, γ\), not \(")


@pytest.mark.parametrize(
    ("text", "numbers"), [("2.1", (2, 1, 0)), ("10.0.1.post1", (10, 0, 1)), ("3rc1", (3, 0, 0)), ("1.2.3.4", (1, 2, 3))]
)
def test_numbers_of_a_version(text, numbers):
    assert _hooks.numbers(text) == numbers


def test_a_class_is_made_once():
    module = {"__name__": "library"}
    one = _hooks.made_once(module, "Made", Made=lambda: type("Inner", (), {}))
    assert module["Made"] is one
    assert one.__qualname__ == "Made"


@pytest.mark.parametrize("name", ["torchrl", "rsl_rl", "rllib"])
def test_modules_have_no_other_attributes(name):
    with pytest.raises(AttributeError, match=f"fastgae.compat.{name}' has no attribute 'Missing'"):
        _ = importlib.import_module(f"fastgae.compat.{name}").Missing


def test_a_class_of_a_version_that_was_not_tested(made, installed):
    installed(importlib.import_module("fastgae.compat.stable_baselines3"), "1.8.0")
    with pytest.raises(RuntimeError, match=r"stable-baselines3: 1\.8\.0 is installed"):
        made("stable_baselines3", "RolloutBuffer")


@pytest.fixture
def made(monkeypatch):
    """Have a compat module make its class of a fake library, and forget it after the test."""

    def make(name, class_name):
        compat = importlib.import_module(f"fastgae.compat.{name}")
        monkeypatch.setitem(compat.__dict__, class_name, None)
        del compat.__dict__[class_name]
        return getattr(compat, class_name)

    return make


def test_the_learner_of_rllib(library, made, installed):
    installed(importlib.import_module("fastgae.compat.rllib"))
    connector = library("ray.rllib.connectors.learner.general_advantage_estimation")
    connector.compute_value_targets = theirs = taking("values, rewards, terminateds, truncateds, gamma, lambda_")
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


def test_final_observations_of_skrl_before_2_1(installed):
    installed(skrl, "2.0.0")
    with pytest.raises(RuntimeError, match=r"install_final_obs\(\) needs skrl 2.1 or newer"):
        skrl.install_final_obs()


def test_versions_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "my-library.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    found = set()
    for row in rows:
        name = re.search(r"\(hooks\.md#([\w-]+)\)", row)[1].replace("-", "_")
        library = getattr(importlib.import_module(f"fastgae.compat.{name}"), "LIBRARY", None)
        if library is not None and name not in found:  # the row of sb3-contrib leads to that of Stable-Baselines3
            versions = {library.oldest: None, library.newest: None}
            assert f"| {' to '.join(versions)} |" in row
            found.add(name)
    assert found == {module.name for module in pkgutil.iter_modules(package.__path__) if has_hook(module.name)}


def has_hook(name):
    return hasattr(importlib.import_module(f"fastgae.compat.{name}"), "LIBRARY")


def test_final_observations_of_rsl_rl(library, made, installed):
    torch = pytest.importorskip("torch")
    installed(importlib.import_module("fastgae.compat.rsl_rl"))
    stored = []

    class PPO:
        gamma = 0.5

        def compute_returns(self, obs): ...

        def process_env_step(self, obs, rewards, dones, extras):
            stored.append((rewards, sorted(extras)))

    class Critic:
        state = "before"

        def __call__(self, obs):
            self.state = "after"
            return obs[:, None]

        def get_hidden_state(self):
            return self.state

        def reset(self, hidden_state):
            self.state = hidden_state

    library("rsl_rl.algorithms").PPO = PPO
    made("rsl_rl", "PPO")
    algorithm = made("rsl_rl", "PPOWithFinalObs")()
    algorithm.critic = Critic()
    rewards, final = torch.ones(3), torch.tensor([2.0, torch.nan, torch.inf])
    extras = {"time_outs": torch.tensor([True, False, False]), "final_obs": final, "log": {}}
    algorithm.process_env_step(None, rewards, None, extras)
    assert stored[0][0].tolist() == [2.0, 1.0, 1.0]  # where nothing timed out, no value is read
    assert stored[0][1] == ["final_obs", "log"]  # rsl_rl adds no bootstrap of its own
    assert algorithm.critic.state == "before"
    assert rewards.tolist() == [1.0, 1.0, 1.0]

    del extras["final_obs"]
    with pytest.raises(KeyError, match="extras has no final_obs at a step that timed out"):
        algorithm.process_env_step(None, rewards, None, extras)
    algorithm.process_env_step(None, rewards, None, {"time_outs": torch.zeros(3)})
    assert stored[1][0] is rewards
