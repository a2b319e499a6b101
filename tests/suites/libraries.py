"""The libraries that publish tests of advantages, and how fastgae takes the place of their own code in these tests.

Stable-Baselines3 and verl publish their tests in their source distributions, and RLax in its wheel. Those of torchrl,
Tianshou, rsl_rl and skrl are in their repositories alone: FASTGAE_TEST_REPOSITORIES names a folder with checkouts, each
in a folder with the package's name.
"""

import importlib
from collections.abc import Callable
from typing import Literal, NamedTuple

RLAX = ("multistep", "value_learning", "vtrace")  # the modules of RLax's functions


class Library(NamedTuple):
    """The published tests of a library that concern advantages, and the function that puts fastgae in place."""

    package: str  # its name on the package index
    tests: tuple[str, ...]  # files and folders of the distribution
    put_in_place: Callable[[], object]  # called before the tests are imported
    where: Literal["sdist", "wheel", "repository"] = "sdist"
    ignored: tuple[str, ...] = ()
    selected: str = ""  # as for pytest -k


def install(library: str) -> Callable[[], object]:
    """Return a function that calls the library's hook in fastgae.compat."""
    return lambda: importlib.import_module(f"fastgae.compat.{library}").install()


def rollout_buffers() -> None:
    """Make fastgae's rollout buffers those that algorithms choose by themselves."""
    chosen_by = importlib.import_module("stable_baselines3.common.on_policy_algorithm")
    ours = importlib.import_module("fastgae.compat.stable_baselines3")
    for name in ("RolloutBuffer", "DictRolloutBuffer"):
        setattr(chosen_by, name, getattr(ours, name))


def estimator_of_torchrl() -> None:
    """Make fastgae's GAE the one that tests import."""
    ours = importlib.import_module("fastgae.compat.torchrl").GAE
    for place in ("value", "value.advantages"):
        importlib.import_module(f"torchrl.objectives.{place}").GAE = ours


def algorithm_of_rsl_rl() -> None:
    """Make fastgae's PPO the one that runners find by its name and tests import."""
    ours = importlib.import_module("fastgae.compat.rsl_rl").PPO
    for place in ("algorithms", "algorithms.ppo"):
        importlib.import_module(f"rsl_rl.{place}").PPO = ours


def functions_of_rlax() -> None:
    """Replace every function of RLax that fastgae.compat.rlax has, wherever RLax or a test of it looks it up."""
    compat = importlib.import_module("fastgae.compat.rlax")
    ours = {name: each for name, each in vars(compat).items() if getattr(each, "__module__", "") == compat.__name__}
    for place in ("rlax", *(f"rlax._src.{name}" for name in RLAX)):
        module = importlib.import_module(place)
        for name in ours.keys() & vars(module).keys():
            setattr(module, name, ours[name])


LIBRARIES = {
    "rlax": Library(
        "rlax",
        tuple(f"rlax/_src/{name}_test.py" for name in RLAX),
        functions_of_rlax,
        where="wheel",
        selected="multistep or vtrace or Lambda or Retrace",  # the rest of value_learning calls nothing of fastgae's
    ),
    "stable_baselines3": Library(
        "stable-baselines3",
        ("tests",),
        rollout_buffers,
        # test_utils imports the emulator of Atari. test_logger takes a third of the time, and reads only the log.
        ignored=("tests/test_utils.py", "tests/test_logger.py"),
        # These algorithms have advantages; the other tests would take minutes, and two that start processes, seconds.
        selected="(A2C or PPO) and not multiprocessing",
    ),
    "rsl_rl": Library("rsl-rl-lib", ("tests/algorithms", "tests/runners"), algorithm_of_rsl_rl, where="repository"),
    "skrl": Library(
        "skrl",
        tuple(f"tests/{kind}agents/torch" for kind in ("", "multi_")),
        install("skrl"),
        where="repository",
        selected="a2c or amp or ppo or rpo or trpo",
    ),
    # The other tests that use advantages train until they reach a score, which takes minutes each.
    "tianshou": Library("tianshou", ("test/base/test_returns.py",), install("tianshou"), where="repository"),
    "torchrl": Library(
        "torchrl",
        ("test/objectives/test_values.py", "test/objectives/test_ppo.py"),
        estimator_of_torchrl,
        where="repository",
        selected="gae",
    ),
    "verl": Library("verl", ("tests/trainer/ppo/test_core_algos_on_cpu.py",), install("verl")),
}
