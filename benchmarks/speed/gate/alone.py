"""Count something in this process, by the name that is its argument, and print it as JSON."""

import json
import sys
from typing import Any


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


if __name__ == "__main__":
    try:
        found: dict[str, Any] = globals()[sys.argv[1]]()
    except ImportError as error:
        found = {"missing": str(error)}
    print(json.dumps(found))
