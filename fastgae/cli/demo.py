"""``fastgae demo``: collect a real rollout, compute its advantages on every backend, and compare their bits."""

import argparse
import contextlib
import functools
import importlib
import json
import statistics
import timeit
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fastgae
from fastgae import _dispatch, _threads
from fastgae.cli.options import CommandError, Formatter, non_negative, plot_file, positive, unit_interval

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from fastgae.cli.options import Commands
    from fastgae.compat.gymnasium import Rollout

DESCRIPTION = """\
Collect a rollout from a vectorised Gymnasium environment with random actions,
fit a value function to it, compute advantages with every backend that runs
here, and compare their bits and their times.

The exit status is 0 if all backends give the same bits, 1 if they do not or a
package is missing, and 2 if an option cannot be used.
"""

EXAMPLES = """\
examples:
  fastgae demo
  fastgae demo --env Pendulum-v1 --num-steps 256     episodes are truncated after 200 steps
  fastgae demo --env FrozenLake-v1 --num-envs 32 --seed 7
  fastgae demo --env Acrobot-v1 --num-envs 16 --num-steps 1024 --plot acrobot.png
  fastgae demo --json                                for programs
"""

PLAIN_CALL = """\
A plain call has only rewards, values, terminated and last_values. The call in
the column before it also has truncated, final_values and autoreset. README.md
gives the time of a plain call on 128 x 8 steps."""

Track = Callable[..., Iterable[Any]]


def add_parser(commands: "Commands") -> None:
    parser = commands.add_parser(
        "demo",
        help="collect a real rollout and compare all backends on it",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=Formatter,
    )
    add = parser.add_argument
    add("--env", default="CartPole-v1", metavar="ID", help="Gymnasium environment (default: %(default)s)")
    add("--num-envs", default=8, type=positive, metavar="N", help="number of environments (default: %(default)s)")
    add(
        "--num-steps",
        default=128,
        type=positive,
        metavar="T",
        help="number of steps in each environment (default: %(default)s)",
    )
    add(
        "--seed",
        default=0,
        type=non_negative,
        metavar="S",
        help="seed of the environments, the actions and the value function (default: %(default)s)",
    )
    add("--gamma", default=0.99, type=unit_interval, metavar="G", help="discount per step (default: %(default)s)")
    add("--gae-lambda", default=0.95, type=unit_interval, metavar="L", help="trace decay (default: %(default)s)")
    add(
        "--plot",
        type=plot_file,
        metavar="FILE.png",
        help="draw rewards, values, returns and advantages of the environment whose returns vary most",
    )
    add("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    _require("gymnasium", "rich", *(["matplotlib"] if args.plot else []))
    from fastgae.cli import rollout

    try:
        num_threads = _dispatch.resolve_threads(None) or _threads.usable_cpus()
        default = default_variant()
    except (ValueError, fastgae.BackendUnavailableError) as error:
        raise CommandError(str(error)) from error
    try:
        envs = rollout.make_envs(args.env, args.num_envs)
    except Exception as error:  # another package's constructor may raise anything
        raise CommandError(f"argument --env: cannot make {args.env!r}: {error}", exit_code=2) from error

    with contextlib.closing(envs), _progress() as progress:
        collected = rollout.collect(envs, args.num_steps, args.seed, _track(progress, f"Collecting {args.env}"))
        values = rollout.ValueFunction(collected.observations, args.seed)
        explained_variance = values.fit(collected, args.gamma) if np.isfinite(collected.rewards).all() else None
        arguments = {**collected.arguments(values), "gamma": args.gamma, "gae_lambda": args.gae_lambda}
        calls = {name: functools.partial(fastgae.gae, **arguments | {"backend": name}) for name in variants()}
        computed = {name: calls[name]() for name in _track(progress, "Computing advantages")(calls)}
        seconds = median_seconds(calls, _track(progress, "Timing the backends"))
        plain = without_truncation(arguments)
        plain_calls = {name: functools.partial(fastgae.gae, **plain | {"backend": name}) for name in calls}
        plain_seconds = median_seconds(plain_calls, _track(progress, "Timing a plain call"))

    facts = {
        **{name: getattr(args, name) for name in ("env", "num_envs", "num_steps", "seed", "gamma", "gae_lambda")},
        "terminated": int(collected.terminated.sum()),
        "truncated": int((collected.truncated & ~collected.terminated).sum()),
        "nan_rewards": int(np.isnan(collected.rewards).sum()),
        "infinite_rewards": int(np.isinf(collected.rewards).sum()),
        "advantages_not_finite": int(np.count_nonzero(~np.isfinite(computed["numpy"].advantages))),
        "explained_variance": explained_variance,
        "num_threads": num_threads,
        "default": default,
        "backends": [
            {"name": name, "seconds": seconds[name], "seconds_of_plain_call": plain_seconds[name]} for name in calls
        ],
        "different": differing(computed),
    }
    if args.plot:
        _plot(args, collected, arguments, computed["numpy"])
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts, args.plot)
    return 1 if facts["different"] else 0


def default_variant() -> str:
    """Return the backend that a call uses by default, with its CPU target if it has several."""
    module, target = _dispatch.resolve_backend(None)
    return ":".join(filter(None, (module.__name__.rpartition(".")[2], target or next(iter(module.targets()), None))))


def without_truncation(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the plain call that README.md times: every end terminates, so no final value is read."""
    ends = arguments["terminated"] | arguments["truncated"]
    kept = ("rewards", "values", "last_values", "gamma", "gae_lambda")
    return {**{name: arguments[name] for name in kept}, "terminated": ends}


def _require(*packages: str) -> None:
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise CommandError(f"{package} cannot be imported ({error}): pip install 'fastgae-rl[demo]'") from error


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # The bar is on stderr, so that a redirected table stays clean, and only on a terminal.
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _track(progress: "Progress", description: str) -> Track:
    return lambda steps: progress.track(steps, description=description)


def variants() -> list[str]:
    """Return every backend that computes on the CPU here, or each of its CPU targets if it has several."""
    return [
        name
        for backend in fastgae.backends()
        if backend.available and backend.device == "CPU"
        for name in ([f"{backend.name}:{target}" for target in backend.targets] or [backend.name])
    ]


def differing(computed: Mapping[str, fastgae.GAEResult]) -> dict[str, int]:
    """Return how many numbers differ in any bit from the NumPy reference, for each variant with a difference."""
    reference = _bits(computed["numpy"])
    counts = {name: int(np.count_nonzero(_bits(result) != reference)) for name, result in computed.items()}
    return {name: count for name, count in counts.items() if count}


def _bits(result: fastgae.GAEResult) -> Any:
    # Compare integers, because as integers NaN equals itself, and 0.0 differs from -0.0.
    return np.stack([result.advantages, result.returns]).view(np.uint32)


def verdict(names: list[str], different: Mapping[str, int]) -> str:
    if different:
        wrong = ", ".join(f"{name} ({count:,} numbers)" for name, count in different.items())
        return f"NOT the same bits as numpy: {wrong}. Please report this with the output of `fastgae info`."
    backends = len({name.partition(":")[0] for name in names})
    if len(names) == 1:
        return "Only numpy can run here, so there is nothing to compare it with."
    of_which = f" ({len(names)} variants)" if len(names) > backends else ""
    return f"All {backends} backends{of_which} agree bit for bit."


def median_seconds(
    calls: Mapping[str, Callable[[], object]], track: Track = iter, rounds: int = 15, run_seconds: float = 0.005
) -> dict[str, float]:
    """Return the median time of each call, over runs of about ``run_seconds`` that alternate to share disturbances."""
    timers = {name: timeit.Timer(call) for name, call in calls.items()}
    # The warm-up also measures how many calls fill a run.
    numbers = {name: 1 + int(run_seconds / min(timer.repeat(3, 1))) for name, timer in timers.items()}
    runs: dict[str, list[float]] = {name: [] for name in calls}
    for _ in track(range(rounds)):
        for name, timer in timers.items():
            runs[name].append(timer.timeit(numbers[name]) / numbers[name])
    return {name: statistics.median(times) for name, times in runs.items()}


def _print(facts: Mapping[str, Any], plot: Path | None) -> None:
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """Leave a closed pipe to ``main``, where rich would end the process with status 1."""
            raise

    console = Output()
    line = functools.partial(console.print, markup=False, highlight=False, soft_wrap=True)
    console.print(_summary(facts), highlight=False)
    console.print(_table(facts))
    console.print(PLAIN_CALL, highlight=False)
    for backend in fastgae.backends():
        if backend.device == "CPU" and not backend.available:
            line(f"{backend.name} cannot run here: {(backend.why_missing or '').partition(chr(10))[0]}")
    names = [backend["name"] for backend in facts["backends"]]
    line(verdict(names, facts["different"]), style="bold red" if facts["different"] else "bold green")
    if plot:
        line(f"Plot written to {plot}")


def _summary(facts: Mapping[str, Any]) -> "Table":
    from rich.table import Table

    envs, steps = facts["num_envs"], facts["num_envs"] * facts["num_steps"]
    terminated, truncated = facts["terminated"], facts["truncated"]
    grid = Table.grid(padding=(0, 2))
    grid.add_row("environment", f"{facts['env']}, {envs:,} environment{'s'[: envs > 1]} x {facts['num_steps']:,} steps")
    grid.add_row("policy", f"uniformly random actions, seed {facts['seed']}")
    grid.add_row("steps", f"{steps:,}")
    grid.add_row("episode ends", f"{terminated + truncated:,}: {terminated:,} terminated, {truncated:,} truncated")
    kinds = [(facts["nan_rewards"], "NaN"), (facts["infinite_rewards"], "infinite")]
    if bad := " and ".join(f"{count:,} {kind}" for count, kind in kinds if count):
        grid.add_row("rewards", f"{bad} of {steps:,}; they reach {facts['advantages_not_finite']:,} advantages")
    grid.add_row("value function", _fit(facts["explained_variance"], bool(bad)))
    return grid


def _fit(explained_variance: float | None, bad_rewards: bool) -> str:
    if bad_rewards:
        return "0 everywhere, because no function can be fitted to such rewards"
    if explained_variance is None:
        return "fits the discounted returns, which are the same at every step: advantages are 0"
    return f"explains {explained_variance:.1%} of the variance of the discounted returns"


def _table(facts: Mapping[str, Any]) -> "Table":
    from rich.table import Table

    threads = f"{facts['num_threads']} thread{'s'[: facts['num_threads'] > 1]}"
    coefficients = f"gamma {facts['gamma']:g}, gae_lambda {facts['gae_lambda']:g}"
    table = Table(title=f"fastgae.gae, {coefficients}, at most {threads}")
    table.add_column("backend")
    for heading in ("time per call", "plain call", "steps/s", "speed-up"):
        table.add_column(heading, justify="right")
    steps = facts["num_envs"] * facts["num_steps"]
    numpy_seconds = next(each["seconds"] for each in facts["backends"] if each["name"] == "numpy")
    for each in facts["backends"]:
        name, seconds, plain = each["name"], each["seconds"], each["seconds_of_plain_call"]
        table.add_row(
            f"{name} (default)" if name == facts["default"] else name,
            f"{seconds * 1e6:,.1f} us",
            f"{plain * 1e6:,.1f} us",
            _with_prefix(steps / seconds),
            f"{numpy_seconds / seconds:,.1f} x",
        )
    return table


def _with_prefix(number: float) -> str:
    scale, prefix = next((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")) if number >= s or s == 1.0)
    return f"{number / scale:.1f} {prefix}"


def _plot(
    args: argparse.Namespace, collected: "Rollout", arguments: Mapping[str, Any], result: fastgae.GAEResult
) -> None:
    from fastgae.cli import plot

    final_values = np.full(collected.rewards.shape, np.nan, np.float32)
    final_values[collected.truncated] = arguments["final_values"]
    # If the step is terminated too, nothing follows it, so its final observation has no value.
    final_values[collected.terminated] = np.nan
    # If some returns are NaN, draw another environment, whose returns are not.
    with np.errstate(invalid="ignore"):
        env = int(np.argmax(np.nan_to_num(result.returns.std(0), nan=-1.0)))
    series = plot.Series(
        rewards=collected.rewards[:, env],
        values=arguments["values"][:, env],
        advantages=result.advantages[:, env],
        returns=result.returns[:, env],
        terminated=collected.terminated[:, env],
        truncated=collected.truncated[:, env],
        final_values=final_values[:, env],
    )
    title = f"{args.env}, environment {env} of {args.num_envs}, gamma {args.gamma:g}, gae_lambda {args.gae_lambda:g}"
    try:
        plot.draw(args.plot, title, series)
    except OSError as error:
        raise CommandError(f"argument --plot: cannot write {str(args.plot)!r}: {error.strerror or error}") from error
