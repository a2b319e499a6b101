"""Numbers of a process of its own: ``of_process`` starts this file with the name of a function below and arguments."""

import json
import sys
from pathlib import Path
from time import thread_time
from typing import Any

from speed import places

SECONDS = 0.12
CHECKED = 128 * 1024  # the reference would take too long on larger rollouts, and on a single trajectory


def of_process(what: str, *arguments: str, place: Path, **variables: str) -> dict[str, float]:
    """Return the numbers of the fastgae in that place; raise ImportError if the process lacks a library."""
    return places.found_by("speed.gate.alone", what, *arguments, place=place, environment=places.clean() | variables)


def times(*names: str) -> dict[str, float]:
    """Return the best seconds of this thread for the rows, or for all, but those that this fastgae does not know."""
    from speed.calls import Prepared
    from speed.contenders import Contender
    from speed.table import AB
    from speed.timing import best

    found = {}
    for row in AB:
        if not names or row.name in names:
            contender = Contender("cpp", "cpp")
            try:
                ready = Prepared(row)
                if row.size <= CHECKED and row.envs > 1:
                    assert ready.right(contender), f"{row.name}: wrong"
                found[row.name] = best({"cpp": ready.timer(contender, thread_time)}, SECONDS)["cpp"]
            except (AttributeError, TypeError):
                continue
    return found


def compilations() -> dict[str, float]:
    from numba.core import event

    from speed.calls import Prepared
    from speed.contenders import Contender
    from speed.rows import case

    with event.install_recorder("numba:compile") as record:
        for name in ("plain", "mask"):
            Prepared(case(name, 16, 8)).call(Contender("numba", "numba"))()
    return {"compilations": len(record.buffer)}


def launches() -> dict[str, float]:
    import torch
    from triton.runtime.interpreter import GridExecutor

    import fastgae
    from speed.rows import CASES, case

    count = 0
    launch = GridExecutor.__call__

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        return launch(*arguments, **named)

    GridExecutor.__call__ = counted
    found = {}
    for name in ("plain", "next_values", "mask", "V-trace", "normalize", "packed", "td_lambda", "retrace", "upgo"):
        row = case(name, 8, 4)
        given = {k: torch.from_numpy(v) if hasattr(v, "nbytes") else v for k, v in row.arguments().items()}
        count = 0
        getattr(fastgae, CASES[name].get("function", "gae"))(**given, backend="triton")
        found[name] = count
    return found


def kernels() -> dict[str, float]:
    """Return what the machine code of usual calls on a GPU takes, and the Python functions of a call made before."""
    import torch

    import fastgae
    from speed.gpu.compiled import calls_of, code_of, compile_for

    started = compile_for(90)
    tokens, rollout, long = (512, 8192), (128, 4096), (2**20,)
    packed = {"function": "gae_packed", "gamma": 1.0, "cu_seqlens": torch.arange(0, 2**20 + 1, 2**11)}
    calls: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
        "time-major": (rollout, {}),
        "time-major, float64": (rollout, {"dtype": torch.float64}),
        "time-major, mask": (rollout, {"mask": torch.ones(rollout)}),
        "time-major, V-trace": (rollout, {"function": "vtrace", "ratios": torch.ones(rollout)}),
        "env-major": (tokens, {"time_axis": 1}),
        "env-major, gamma lambda 1": (tokens, {"time_axis": 1, "gamma": 1.0, "gae_lambda": 1.0}),
        "one env": (long, {}),
        "packed": (long, packed),
        "packed, gamma lambda 1": (long, {**packed, "gae_lambda": 1.0}),
        "normalize": (rollout, {"normalize": "global"}),
    }
    found: dict[str, float] = {}
    for name, (shape, options) in calls.items():
        function = getattr(fastgae, options.pop("function", "gae"))
        rewards = torch.ones(shape, dtype=options.pop("dtype", torch.float32))
        given = {"rewards": rewards, "values": rewards, "terminated": rewards != 1, "last_values": 0.0, **options}

        def call(function: Any = function, given: dict[str, Any] = given) -> object:
            return function(**given, backend="triton")

        found[f"Python calls, {name}"] = len(calls_of(call))
        del started[:]
        call()
        for number, code in enumerate(map(code_of, started), 1):
            kernel, *counts = code
            for what, count in zip(code._fields[1:], counts, strict=True):
                found[f"{what}, {name}, {number} {kernel}"] = count
    return found


if __name__ == "__main__":
    try:
        found: dict[str, Any] = globals()[sys.argv[1]](*sys.argv[2:])
    except ImportError as error:
        found = {"missing": [error.name or str(error)]}
    print(json.dumps(found))
