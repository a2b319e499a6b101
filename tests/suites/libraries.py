"""The libraries that publish tests of advantages, and how fastgae takes the place of their own code in these tests.

Stable-Baselines3 and verl publish their tests in their source distributions, and RLax in its wheel. Those of torchrl,
Tianshou, rsl_rl and skrl are in their repositories alone, at FASTGAE_TEST_REPOSITORIES: https://github.com, or a folder
with the same tree of repositories.
"""

import functools
import importlib
from collections.abc import Callable
from typing import NamedTuple

Function = Callable[..., object]
TORCHRL = ("value.functional", "value.advantages", "dreamer_v3")  # the modules in which torchrl looks its functions up
RLAX = ("multistep", "value_learning", "vtrace")  # the modules of RLax's functions


class Library(NamedTuple):
    """The published tests of a library that concern advantages, and the function that puts fastgae in place."""

    package: str  # its name on the package index
    tests: tuple[str, ...]  # files and folders of the distribution
    put_in_place: Callable[[], object]  # called before the tests are imported
    where: str = "sdist"  # or "wheel", or "owner/repository@commit"
    ignored: tuple[str, ...] = ()
    release: str = ""  # the only one with which the tests pass
    selected: str = ""  # as for pytest -k
    collected: Callable[[bool], object] = lambda in_place: None  # called when the tests have been imported


def install(library: str) -> Callable[[], object]:
    """Return a function that calls the library's hook in fastgae.compat."""
    return lambda: importlib.import_module(f"fastgae.compat.{library}").install()


def rollout_buffers() -> None:
    """Make fastgae's rollout buffers those that algorithms choose by themselves."""
    chosen_by = importlib.import_module("stable_baselines3.common.on_policy_algorithm")
    ours = importlib.import_module("fastgae.compat.stable_baselines3")
    for name in ("RolloutBuffer", "DictRolloutBuffer"):
        setattr(chosen_by, name, getattr(ours, name))


def functions_of_torchrl() -> None:
    """Make fastgae's GAE the one that tests import, and replace the functions that fastgae.compat.torchrl has.

    torchrl's own functions compute where fastgae declines: with gradients, and for ``rolling_gamma=False``.
    """
    torch = importlib.import_module("torch")

    def unless_declined(ours: Function, theirs: Function) -> Function:
        @functools.wraps(theirs)
        def estimate(*given: object, **named: object) -> object:
            all_of = (*given, *named.values())
            gradients = torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in all_of)
            declined = gradients or named.get("rolling_gamma") is False
            return (theirs if declined else ours)(*given, **named)

        return estimate

    ours = importlib.import_module("fastgae.compat.torchrl").GAE
    replace_functions("torchrl", [f"torchrl.objectives.{place}" for place in TORCHRL], unless_declined)
    for place in ("value", "value.advantages"):
        importlib.import_module(f"torchrl.objectives.{place}").GAE = ours
    utils = importlib.import_module("torchrl.objectives.utils")
    key = utils.ValueEstimators.GAE  # by which losses find the class
    utils.register_value_estimator(key, default_kwargs=utils.default_value_kwargs(key))(ours)


def algorithm_of_rsl_rl() -> None:
    """Make fastgae's PPO the one that runners find by its name and tests import."""
    ours = importlib.import_module("fastgae.compat.rsl_rl").PPO
    for place in ("algorithms", "algorithms.ppo"):
        importlib.import_module(f"rsl_rl.{place}").PPO = ours


def weights_of_tianshou(in_place: bool) -> None:
    """Let Tianshou's tests of determinism write the weights after each update, or compare them with what they wrote."""
    test = importlib.import_module("test.determinism_test").AlgorithmDeterminismTest
    test.ENABLED, test.FORCE_SNAPSHOT_UPDATE = True, not in_place
    # It would read source files at every step, for the names of the functions, which are not compared.
    determinism = importlib.import_module("tianshou.utils.determinism")
    determinism.format_log_message = lambda logger, level, message, formatter, stacklevel: message


def functions_of_rlax() -> None:
    """Replace every function of RLax that fastgae.compat.rlax has."""
    replace_functions("rlax", ["rlax", *(f"rlax._src.{name}" for name in RLAX)], lambda ours, theirs: ours)


def replace_functions(library: str, places: list[str], chosen: Callable[[Function, Function], Function]) -> None:
    """Replace every function of these modules that fastgae.compat has, by what ``chosen(ours, theirs)`` returns."""
    compat = importlib.import_module(f"fastgae.compat.{library}")
    ours = {name: each for name, each in vars(compat).items() if getattr(each, "__module__", "") == compat.__name__}
    for place in places:
        module = importlib.import_module(place)
        for name in ours.keys() & vars(module).keys():
            setattr(module, name, chosen(ours[name], getattr(module, name)))


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
    "rsl_rl": Library(
        "rsl-rl-lib",
        ("tests/algorithms", "tests/runners"),
        algorithm_of_rsl_rl,
        where="leggedrobotics/rsl_rl@c281c32e5746e75570c1a29bfa78bca0200cc5ff",
    ),
    "skrl": Library(
        "skrl",
        tuple(f"tests/{kind}agents/torch" for kind in ("", "multi_")),
        install("skrl"),
        where="Toni-SM/skrl@c29ced630e83ab32304dc8a3de241a70d3bc5746",
        release="2.0.0",
        selected="a2c or amp or ppo or rpo or trpo",
    ),
    "tianshou": Library(
        "tianshou",
        (
            "test/base/test_returns.py",
            *(f"test/continuous/test_{name}.py" for name in ("npg", "ppo", "trpo")),
            *(f"test/discrete/test_{name}.py" for name in ("a2c_with_il", "ppo_discrete", "reinforce")),
        ),
        install("tianshou"),
        where="thu-ml/tianshou@f2402056b03acafeedf2518a5088db55add004ab",
        selected="not resume",  # which trains once more until it reaches the score
        collected=weights_of_tianshou,
    ),
    "torchrl": Library(
        "torchrl",
        (
            *(f"test/objectives/test_{name}.py" for name in ("dreamer_v3", "mappo", "ppo", "values")),
            "test/compile/test_compile_value.py",
            "test/transforms/test_reward_transforms.py::TestReward2Go",
        ),
        functions_of_torchrl,
        where="pytorch/rl@ae9719f17b1517af5c2523a36c4616f003ee55cf",
        selected="not fails_fullgraph",  # torchrl's function cannot be compiled as one graph, and fastgae's can
    ),
    "verl": Library("verl", ("tests/trainer/ppo/test_core_algos_on_cpu.py",), install("verl")),
}
