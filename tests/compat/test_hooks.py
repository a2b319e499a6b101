"""What a hook puts where, in modules with only the documented names of a library; tests/peers has the libraries."""

import importlib
import inspect
import pickle
import pkgutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from fastgae import compat as package
from fastgae.compat import _hooks, pufferlib, rl_games, rsl_rl, sample_factory, skrl, stable_baselines3, tianshou, verl
from support.compat_calls import CALLS


def compat_of(name):
    return importlib.import_module(f"fastgae.compat.{name}")


NAMES = [each.name for each in pkgutil.iter_modules(package.__path__)]
HOOKS = [name for name in NAMES if hasattr(compat_of(name), "install")]
BUFFERS = "stable_baselines3.common.buffers"
SINGLE = ("a2c", "ppo", "rpo", "trpo")
# Which of our functions a hook must put where.
OURS = {
    "pufferlib.pufferl:compute_puff_advantage": pufferlib.compute_puff_advantage,
    **{f"rl_games.common.a2c_common:A2CBase.{name}": method for name, method in rl_games.METHODS.items()},
    "sample_factory.algo.learning.learner:gae_advantages": sample_factory.gae_advantages,
    **{f"skrl.agents.torch.{name}.{name}:compute_gae": skrl.compute_gae for name in SINGLE},
    **{f"skrl.agents.torch.{name}.{name}_rnn:compute_gae": skrl._with_next_values for name in SINGLE},
    **{f"skrl.multi_agents.torch.{name}.{name}:compute_gae": skrl.compute_gae for name in ("ippo", "mappo")},
    "skrl.agents.torch.amp.amp:compute_gae": skrl._amp_of_2_0,
    f"{BUFFERS}:RolloutBuffer.compute_returns_and_advantage": stable_baselines3.compute_returns_and_advantage,
    "tianshou.algorithm.algorithm_base:_gae": tianshou._gae,
    "verl.trainer.ppo.core_algos:compute_gae_advantage_return": verl._whitened_by_verl,
    "verl.trainer.ppo.core_algos:ADV_ESTIMATOR_REGISTRY.gae": verl._whitened_by_verl,
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


@pytest.fixture(params=HOOKS)
def hook(request, library, installed):
    """The compat module, and for each place of its hook the function in it, with the parameters of ours, and ours.

    tests/peers shows that the library's own functions have them, too.
    """
    compat, places = compat_of(request.param), {}
    installed(compat)
    for place, ours in ((place, ours) for place, ours in OURS.items() if ours.__module__ == compat.__name__):
        module, _, path = place.partition(":")
        owner = library(module)
        outer, _, name = path.rpartition(".")
        if outer:
            owner = owner.__dict__.setdefault(outer, {} if outer.isupper() else type(outer, (), {}))
        theirs = taking(", ".join(_hooks._parameters(ours)))
        owner.__setitem__(name, theirs) if isinstance(owner, dict) else setattr(owner, name, theirs)
        places[place] = theirs, ours
    return compat, places


def in_place(places):
    """Return for each place whether it has our function; otherwise it must have theirs."""
    return [functions.index(_hooks.found_at(place)) == 1 for place, functions in places.items()]


def test_only_numpy_is_imported(python):
    """Nobody pays for a library that is not used: fastgae.compat imports neither the peers nor torch nor JAX."""
    modules = ", ".join(f"fastgae.compat.{name}" for name in NAMES)
    loaded = {name.partition(".")[0] for name in python(f"import sys, {modules}; print(*sys.modules)").split()}
    assert "numpy" in loaded
    assert not {"torch", "jax", "gymnasium", "ray", *NAMES} & loaded


def test_install_and_undo(hook):
    """A second hook changes nothing, nor does its end, and what it needs stays until then."""
    compat, places = hook
    with compat.install():
        assert all(in_place(places))
        compat.install().close()
        assert all(in_place(places))
        second = compat.install()
    assert all(in_place(places))
    second.close()
    second.close()
    assert not any(in_place(places))


def test_a_function_that_a_class_inherits():
    """It is left alone, and still inherited afterwards."""
    theirs, ours = taking("self"), taking("self")
    base = type("Base", (), {"method": theirs})
    derived = type("Derived", (base,), {})
    with _hooks.replace(base, method=ours):
        with _hooks.replace(derived, method=ours):
            assert derived.method is ours
        assert derived.method is ours
    assert derived.method is base.method is theirs


def refused(compat, match):
    """install() raises one sentence that says what it knows, and what to do."""
    known = compat.LIBRARY
    with pytest.raises(RuntimeError, match=match) as error:
        compat.install()
    message = str(error.value)
    assert f"knows versions {known.oldest} to {known.newest}: install one of these, or a newer fastgae" in message
    assert message.startswith(f"{known.package}: ")


def test_versions(hook, installed):
    compat, places = hook
    for version in ("0.0.9", "99.0"):
        installed(compat, version)
        refused(compat, f"{version} is installed")
        assert not any(in_place(places))
    for version in compat.LIBRARY.oldest, compat.LIBRARY.newest:
        installed(compat, version + ".post1")
        with compat.install():
            assert all(in_place(places))


def test_all_or_none(hook):
    """Also where the last function has other parameters, or is missing."""
    compat, places = hook
    *others, last = places
    owner, name = _hooks._owner_and_name(last)
    wrong = [(taking("a, b"), r"has the parameters \(a, b\), not \("), (None, "does not exist")]
    for other, said in wrong[: 1 + (name != "discount_values_masks")]:  # which a version may lack
        _hooks.replace(owner, **{name: other}).pop_all()
        refused(compat, f"{name} {said}")
        assert not any(in_place({place: places[place] for place in others}))


def test_what_a_version_may_lack(library, installed):
    """rl_games 2.0 has no masks."""
    installed(rl_games, "2.0.0")
    theirs = taking(", ".join(_hooks._parameters(rl_games.METHODS["discount_values"])))
    base = type("A2CBase", (), {"discount_values": theirs})
    library("rl_games.common.a2c_common").A2CBase = base
    with rl_games.install():
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
    package = compat.LIBRARY.package
    with pytest.raises(ModuleNotFoundError, match=f"{package} is not installed, .*: python -m pip install {package}"):
        compat.install()
    assert not any(in_place(places))


def test_a_function_that_torch_compiled(library, installed):
    """It has no signature. sample-factory's function is one."""
    installed(sample_factory)
    learner = library("sample_factory.algo.learning.learner")
    arguments = [SimpleNamespace(name=name) for name in ("rewards", "dones", "values", "valids", "γ", "λ")]
    learner.gae_advantages = theirs = SimpleNamespace(schema=SimpleNamespace(arguments=arguments))
    with sample_factory.install():
        assert learner.gae_advantages is sample_factory.gae_advantages
    assert learner.gae_advantages is theirs
    arguments.pop()
    refused(sample_factory, r"gae_advantages has the parameters \(rewards, dones, values, valids, γ\), not \(")


@pytest.mark.parametrize(
    ("text", "numbers"), [("2.1", (2, 1, 0)), ("10.0.1.post1", (10, 0, 1)), ("3rc1", (3, 0, 0)), ("1.2.3.4", (1, 2, 3))]
)
def test_numbers_of_a_version(text, numbers):
    assert _hooks.numbers(text) == numbers


def test_classes_that_are_not_made(made, installed):
    for name in ("torchrl", "rsl_rl", "rllib"):
        with pytest.raises(AttributeError, match=f"fastgae.compat.{name}' has no attribute 'Missing'"):
            _ = compat_of(name).Missing
    installed(compat_of("stable_baselines3"), "1.8.0")
    with pytest.raises(RuntimeError, match=r"stable-baselines3: 1\.8\.0 is installed"):
        made("stable_baselines3", "RolloutBuffer")


@pytest.fixture
def made(monkeypatch):
    """Have a compat module make its class of a fake library, and forget it after the test."""

    def make(name, class_name):
        compat = compat_of(name)
        monkeypatch.setitem(compat.__dict__, class_name, None)
        del compat.__dict__[class_name]
        return getattr(compat, class_name)

    return make


def test_the_buffers_of_stable_baselines3(library, made, installed):
    installed(stable_baselines3)
    for name in ("RolloutBuffer", "DictRolloutBuffer"):
        theirs = type(name, (), {"compute_returns_and_advantage": taking("self, last_values, dones")})
        setattr(library(BUFFERS), name, theirs)
        ours = made("stable_baselines3", name)
        assert ours.__base__ is theirs
        assert ours.compute_returns_and_advantage is stable_baselines3.compute_returns_and_advantage
        assert "fastgae" in ours.__doc__
        assert pickle.loads(pickle.dumps(ours)) is ours


def test_the_learner_of_rllib(library, made, installed):
    installed(compat_of("rllib"))
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
    assert connector.compute_value_targets is compat_of("rllib").compute_value_targets


def test_the_estimator_of_torchrl(library, made, installed):
    """It is ours in the thread that calls it, and torchrl's in another one. Its coefficients may have 16 bits."""
    torch = pytest.importorskip("torch")
    compat = compat_of("torchrl")
    installed(compat)
    advantages = library("torchrl.objectives.value.advantages")
    parameters = "gamma, lmbda, state_value, next_state_value, reward, done, terminated=None, *, time_dim=-2"
    theirs = eval(f"lambda {parameters}: 'theirs'")
    advantages.generalized_advantage_estimate = advantages.vec_generalized_advantage_estimate = theirs
    rows = torch.arange(12.0).reshape(3, 4, 1)

    class GAE:
        def forward(self, *coefficients):
            call = partial(advantages.generalized_advantage_estimate, *coefficients, rows, rows, rows, rows > 6)
            with ThreadPoolExecutor() as pool:
                return call(), pool.submit(call).result()

    advantages.GAE = GAE
    here, there = made("torchrl", "GAE")().forward(*torch.tensor([0.5, 0.25], dtype=torch.bfloat16))
    assert there == "theirs"
    expected = compat.generalized_advantage_estimate(0.5, 0.25, rows, rows, rows, rows > 6)
    assert all(map(torch.equal, here, expected))
    assert advantages.generalized_advantage_estimate is theirs


def test_final_observations_of_skrl(library, installed):
    """A truncated step gets the observation before the reset, but not one that is terminated, too."""
    torch = pytest.importorskip("torch")
    stored = []
    for place in skrl.LOOKING_AHEAD:
        module, _, name = place.partition(":")
        record = lambda self, **given: stored.append(given)  # noqa: E731
        record.__signature__ = inspect.signature(taking(skrl.RECORDED.replace(" ", ", ")))
        cfg, space = SimpleNamespace(time_limit_bootstrap=True), None
        attributes = {"record_transition": record, "cfg": cfg, "observation_space": space, "state_space": space}
        attributes["training"] = True
        setattr(library(module), name, type(name, (), attributes))
    spaces = library("skrl.utils.spaces.torch")
    spaces.flatten_tensorized_space = lambda given: given
    spaces.tensorize_space = lambda space, given, device: torch.as_tensor(given)
    agent = library("skrl.agents.torch.ppo.ppo").PPO()
    flags = {"terminated": torch.tensor([[0], [1], [0]]) > 0, "truncated": torch.tensor([[1], [1], [0]]) > 0}
    observations, states = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[4.0], [5.0], [6.0]])
    following = {"next_observations": observations, "next_states": states}
    given = {**dict.fromkeys(skrl.RECORDED.split()), **flags, **following}
    installed(skrl, "2.1.0")
    first, second = skrl.install_final_obs(), skrl.install_final_obs()
    first.close()
    with second:
        groups = {"policy": torch.tensor([[7.0], [8.0], [9.0]]), "critic": torch.tensor([[0.0], [8.0], [9.0]])}
        for final, state in (([np.float32([7]), np.float32([8]), None], 7.0), (groups, 0.0)):
            agent.record_transition(**{**given, "infos": {"final_obs": final}})
            assert stored[-1]["next_observations"].tolist() == [[7.0], [2.0], [3.0]]
            assert stored[-1]["next_states"].tolist() == [[state], [5.0], [6.0]]
            assert stored[-1]["truncated"].tolist() == [[True], [False], [False]]
        with pytest.raises(KeyError, match="infos has no final_obs"):
            agent.record_transition(**{**given, "infos": {}})
        agent.training = False  # in an evaluation, nothing is stored, and the envs may reset in another way
        agent.record_transition(**{**given, "infos": {}})
        agent.training = True
        type(agent).cfg.time_limit_bootstrap = False
        with pytest.raises(ValueError, match="time_limit_bootstrap is False"):
            agent.record_transition(**{**given, "infos": {}})
    agent.record_transition(**given)
    assert stored[-1]["truncated"] is flags["truncated"]
    assert given["next_observations"].tolist() == [[1.0], [2.0], [3.0]]  # the envs may use their memory
    others = lambda self, **given: stored.append("others")  # noqa: E731
    others.__signature__ = record.__signature__
    type(agent).record_transition = others
    type(agent).cfg.time_limit_bootstrap = True
    with skrl.install_final_obs():
        agent.record_transition(**{**given, "infos": {"final_obs": final}})
    assert stored[-1] == "others"
    installed(skrl, "2.0.0")
    with pytest.raises(RuntimeError, match=r"install_final_obs\(\) needs skrl 2.1 or newer"):
        skrl.install_final_obs()


def test_coefficients_of_rl_games():
    _, given, _ = CALLS["rl_games"]
    agent = SimpleNamespace(gamma=given["gamma"], tau=given["tau"])
    arrays = [each for each in given.values() if isinstance(each, np.ndarray)]
    np.testing.assert_array_equal(
        rl_games.METHODS["discount_values"](agent, *arrays), rl_games.discount_values(**given)
    )


class Critic:
    """A recurrent one."""

    state = "before"

    def __call__(self, obs):
        self.state = "after"
        return SimpleNamespace(detach=lambda: obs[:, None])

    def get_hidden_state(self):
        return self.state

    def reset(self, hidden_state):
        self.state = hidden_state


def test_returns_of_rsl_rl(library, made, installed):
    """They are normalised where mini batches are not. Before 5.3, to look ahead changes the state of the critic."""
    library("rsl_rl.algorithms").PPO = type("PPO", (), {"compute_returns": taking("self, obs")})
    given = {name: each[..., np.newaxis] if np.ndim(each) else each for name, each in CALLS["rsl_rl"][1].items()}
    returns, advantages = rsl_rl.compute_returns(**given, normalize_advantage=False)
    obs, stored = given.pop("last_values")[:, 0], []
    normalized = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for version, of_mini_batches, state in (("5.2.1", True, "after"), ("5.3.0", False, "before")):
        installed(rsl_rl, version)
        ppo = made("rsl_rl", "PPO")()
        ppo.gamma, ppo.lam, ppo.normalize_advantage_per_mini_batch = given["gamma"], given["lam"], of_mini_batches
        ppo.storage, ppo.critic = SimpleNamespace(**given, returns=SimpleNamespace(copy_=stored.append)), Critic()
        ppo.compute_returns(obs)
        np.testing.assert_array_equal(stored[-1], returns)
        np.testing.assert_array_equal(ppo.storage.advantages, advantages if of_mini_batches else normalized)
        assert ppo.critic.state == state


def test_final_observations_of_rsl_rl(library, made, installed):
    torch = pytest.importorskip("torch")
    installed(compat_of("rsl_rl"))
    stored = []

    class PPO:
        gamma = 0.5

        def compute_returns(self, obs): ...

        def process_env_step(self, obs, rewards, dones, extras):
            stored.append((rewards, sorted(extras)))

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
