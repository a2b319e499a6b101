"""``fastgae demo``: collect a real rollout, compute its advantages on every backend, and compare their bits."""

import argparse
import contextlib
import functools
import importlib
import statistics
import timeit
from collections.abc import Callable, Iterable, Mapping
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
"""

EXAMPLES = """\
examples:
  fastgae demo
  fastgae demo --env Pendulum-v1 --num-steps 256     its episodes are truncated after 200 steps
  fastgae demo --env FrozenLake-v1 --num-envs 32 --seed 7
  fastgae demo --env Acrobot-v1 --num-steps 1024 --plot acrobot.png
"""

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
    add("--num-envs", default=8, type=positive, metavar="N", help="environments (default: %(default)s)")
    add("--num-steps", default=128, type=positive, metavar="T", help="steps of each (default: %(default)s)")
    add("--seed", default=0, type=non_negative, metavar="S", help="seed of everything (default: %(default)s)")
    add("--gamma", default=0.99, type=unit_interval, metavar="G", help="discount per step (default: %(default)s)")
    add("--gae-lambda", default=0.95, type=unit_interval, metavar="L", help="trace decay (default: %(default)s)")
    add(
        "--plot",
        type=plot_file,
        metavar="FILE.png",
        help="draw rewards, values, returns and advantages of the environment with the most episode ends",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    _require("gymnasium", "rich", *(["matplotlib"] if args.plot else []))
    from rich.console import Console

    from fastgae.cli import rollout

    try:
        num_threads = _dispatch.resolve_threads(None) or _threads.usable_cpus()
    except ValueError as error:
        raise CommandError(str(error)) from error
    try:
        envs = rollout.make_envs(args.env, args.num_envs)
    except Exception as error:  # another package's constructor may raise anything
        raise CommandError(f"argument --env: cannot make {args.env!r}: {error}", exit_code=2) from error

    console = Console()
    with contextlib.closing(envs), _progress() as progress:
        collected = rollout.collect(envs, args.num_steps, args.seed, _track(progress, f"Collecting {args.env}"))
        values = rollout.ValueFunction(collected.observations, args.seed)
        explained_variance = values.fit(collected, args.gamma)
        arguments = {**collected.arguments(values), "gamma": args.gamma, "gae_lambda": args.gae_lambda}
        calls = {name: functools.partial(fastgae.gae, **arguments | {"backend": name}) for name in variants()}
        computed = {name: calls[name]() for name in _track(progress, "Computing advantages")(calls)}
        seconds = median_seconds(calls, _track(progress, "Timing the backends"))

    console.print(_summary(args, collected, explained_variance), highlight=False)
    console.print(_table(args, seconds, num_threads))
    for backend in fastgae.backends():
        if backend.device == "CPU" and not backend.available:
            reason = (backend.why_missing or "").partition("\n")[0]
            console.print(f"{backend.name} cannot run here: {reason}", markup=False, highlight=False, soft_wrap=True)
    different = differing(computed)
    style = "bold red" if different else "bold green"
    console.print(verdict(list(computed), different), style=style, markup=False, highlight=False, soft_wrap=True)
    if args.plot:
        _plot(args, collected, arguments, computed["numpy"])
        console.print(f"Plot written to {args.plot}", markup=False, highlight=False, soft_wrap=True)
    return 1 if different else 0


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


def _summary(args: argparse.Namespace, collected: "Rollout", explained_variance: float) -> "Table":
    from rich.table import Table

    terminated = int(collected.terminated.sum())
    truncated = int((collected.truncated & ~collected.terminated).sum())
    if np.isnan(explained_variance):
        fit = "fits the discounted returns, which are the same at every step"
    else:
        fit = f"explains {explained_variance:.1%} of the variance of the discounted returns"
    envs = f"{args.num_envs:,} environment{'s'[: args.num_envs > 1]}"
    grid = Table.grid(padding=(0, 2))
    grid.add_row("environment", f"{args.env}, {envs} x {args.num_steps:,} steps")
    grid.add_row("policy", f"uniformly random actions, seed {args.seed}")
    grid.add_row("steps", f"{collected.rewards.size:,}")
    grid.add_row("episode ends", f"{terminated + truncated:,}: {terminated:,} terminated, {truncated:,} truncated")
    grid.add_row("value function", fit)
    return grid


def _table(args: argparse.Namespace, seconds: Mapping[str, float], num_threads: int) -> "Table":
    from rich.table import Table

    threads = f"{num_threads} thread{'s'[: num_threads > 1]}"
    table = Table(title=f"fastgae.gae, gamma {args.gamma:g}, gae_lambda {args.gae_lambda:g}, at most {threads}")
    table.add_column("backend")
    for heading in ("time per call", "steps/s", "speed-up over numpy"):
        table.add_column(heading, justify="right")
    for name, time in seconds.items():
        rate = args.num_envs * args.num_steps / time
        table.add_row(name, f"{time * 1e6:,.1f} us", _with_prefix(rate), f"{seconds['numpy'] / time:,.1f} x")
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
    env = int(np.argmax((collected.terminated | collected.truncated).sum(0)))
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
