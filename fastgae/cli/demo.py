"""``fastgae demo``: collect a real rollout, compute its advantages on every backend, and compare their bits."""

import argparse
import contextlib
import importlib
import json
import timeit
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import fastgae
from fastgae._engine import dispatch
from fastgae._support import threads
from fastgae._support.memory import usable_memory
from fastgae._support.project import how_to_install
from fastgae.cli import info
from fastgae.cli.options import CommandError, non_negative, plot_file, positive, unit_interval

if TYPE_CHECKING:
    from rich.progress import Progress

    from fastgae.compat.gymnasium import Rollout

HELP = "collect a real rollout and compare all backends on it"

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

Track = Callable[..., Iterable[Any]]


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--env", default="CartPole-v1", metavar="ID", help="Gymnasium environment (default: %(default)s)")
    add("--num-envs", default=8, type=positive, metavar="N", help="number of environments (default: %(default)s)")
    about = "number of steps in each environment (default: %(default)s)"
    add("--num-steps", default=128, type=positive, metavar="T", help=about)
    about = "seed of the environments, the actions and the value function (default: %(default)s)"
    add("--seed", default=0, type=non_negative, metavar="S", help=about)
    add("--gamma", default=0.99, type=unit_interval, metavar="G", help="discount per step (default: %(default)s)")
    add("--gae-lambda", default=0.95, type=unit_interval, metavar="L", help="trace decay (default: %(default)s)")
    about = "draw rewards, values, returns and advantages of the environment whose returns vary most"
    add("--plot", type=plot_file, metavar="FILE.png", help=about)
    add("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    _require("gymnasium", "rich", *(["matplotlib"] if args.plot else []))
    from fastgae.cli import rollout

    if (size := 8 * args.num_steps * args.num_envs) > usable_memory():
        raise MemoryError(f"the rewards alone would take {size // 2**30:,} GiB")
    try:
        dispatch.recycle()
        num_threads = dispatch.resolve_threads(None) or threads.usable_cpus()
        default = default_variant()
    except (ValueError, fastgae.BackendUnavailableError) as error:
        raise CommandError(str(error)) from error
    try:
        envs = rollout.make_envs(args.env, args.num_envs)
    except Exception as error:  # another package's constructor may raise anything
        raise CommandError(f"argument --env: cannot make {args.env!r}: {error}", exit_code=2) from error

    with contextlib.closing(envs), _progress() as progress:
        collected = rollout.collect(
            envs, args.num_steps, args.seed, partial(progress.track, description=f"Collecting {args.env}")
        )
        values = rollout.ValueFunction(collected.observations, args.seed)
        explained_variance = values.fit(collected, args.gamma) if np.isfinite(collected.rewards).all() else None
        arguments = {**collected.arguments(values), "gamma": args.gamma, "gae_lambda": args.gae_lambda}
        calls = {name: partial(fastgae.gae, **arguments | {"backend": name}) for name in variants()}
        computed = {name: call() for name, call in calls.items()}
        seconds = best_seconds(calls, partial(progress.track, description="Timing the backends"))

    facts = {
        **{name: getattr(args, name) for name in ("env", "num_envs", "num_steps", "seed", "gamma", "gae_lambda")},
        "terminated": int(collected.terminated.sum()),
        "truncated": int((collected.truncated & ~collected.terminated).sum()),
        "rewards_not_finite": int(np.count_nonzero(~np.isfinite(collected.rewards))),
        "explained_variance": explained_variance,
        "num_threads": num_threads,
        "default": default,
        "backends": [{"name": name, "seconds": seconds[name]} for name in calls],
        "different": differing(computed),
    }
    if args.plot:
        _plot(args, collected, arguments, computed["numpy"])
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts)
        if args.plot:
            print(f"Plot written to {args.plot}")
    return 1 if facts["different"] else 0


def default_variant() -> str:
    """Return the backend that a call uses by default, with its CPU target if it has several."""
    return ":".join(filter(None, info.resolved(None).values()))


def _require(*packages: str) -> None:
    for package in packages:
        try:
            importlib.import_module(package)
        except Exception as error:  # a package that does not fit the installed NumPy may raise any exception
            raise CommandError(
                f"{package} cannot be imported ({dispatch.why(error)}): run {how_to_install('demo')}"
            ) from error


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # The bar is on stderr, so that a redirected table stays clean, and only on a terminal.
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


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


def best_seconds(
    calls: Mapping[str, Callable[[], object]], track: Track = iter, rounds: int = 9, run_seconds: float = 0.005
) -> dict[str, float]:
    """Return the best time of each call, over runs that alternate to share disturbances."""
    timers = {name: timeit.Timer(call) for name, call in calls.items()}
    numbers = {name: 1 + int(run_seconds / min(timer.repeat(3, 1))) for name, timer in timers.items()}
    best = dict.fromkeys(calls, float("inf"))
    for _ in track(range(rounds)):
        for name, timer in timers.items():
            best[name] = min(best[name], timer.timeit(numbers[name]) / numbers[name])
    return best


def _print(facts: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """Leave a closed pipe to ``main``, where rich would end the process with status 1."""
            raise

    terminated, truncated, bad = facts["terminated"], facts["truncated"], facts["rewards_not_finite"]
    steps, explained = facts["num_envs"] * facts["num_steps"], facts["explained_variance"]
    grid = Table.grid(padding=(0, 2))
    grid.add_row("environment", f"{facts['env']}, {facts['num_envs']:,} x {facts['num_steps']:,} steps")
    grid.add_row("policy", f"uniformly random actions, seed {facts['seed']}")
    grid.add_row("episode ends", f"{terminated + truncated:,}: {terminated:,} terminated, {truncated:,} truncated")
    if bad:
        grid.add_row("rewards", f"{bad:,} of {steps:,} are NaN or infinite")
    fit = "0 everywhere" if bad else "fitted to discounted returns that do not vary"
    if explained is not None:
        fit = f"explains {explained:.1%} of the variance of the discounted returns"
    grid.add_row("value function", fit)

    coefficients = f"gamma {facts['gamma']:g}, gae_lambda {facts['gae_lambda']:g}"
    table = Table(title=f"{coefficients}, at most {facts['num_threads']} threads")
    table.add_column("backend")
    for heading in ("time per call", "steps/s", "speed-up"):
        table.add_column(heading, justify="right")
    seconds = {each["name"]: each["seconds"] for each in facts["backends"]}
    for name, time in seconds.items():
        shown = f"{name} (default)" if name == facts["default"] else name
        speed, factor = f"{steps / time / 1e6:,.1f} M", f"{seconds['numpy'] / time:,.1f} x"
        table.add_row(shown, f"{time * 1e6:,.1f} us", speed, factor)

    console = Output()
    console.print(grid, table, highlight=False)
    line = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    for backend in fastgae.backends():
        if backend.device == "CPU" and not backend.available:
            line(f"{backend.name} cannot run here: {(backend.why_missing or '').partition(chr(10))[0]}")
    line(verdict([*seconds], facts["different"]), style="bold red" if facts["different"] else "bold green")


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
    drawn = {
        "rewards": collected.rewards,
        "values": arguments["values"],
        "advantages": result.advantages,
        "returns": result.returns,
        "terminated": collected.terminated,
        "truncated": collected.truncated,
        "final_values": final_values,
    }
    title = f"{args.env}, environment {env} of {args.num_envs}, gamma {args.gamma:g}, gae_lambda {args.gae_lambda:g}"
    try:
        plot.draw(args.plot, title, {name: array[:, env] for name, array in drawn.items()})
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"argument --plot: cannot write {str(args.plot)!r}: {reason}", exit_code=2) from error
