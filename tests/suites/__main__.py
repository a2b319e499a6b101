"""`python -m suites`, in the folder `tests`, prints what the tests found, for `python benchmarks figures`."""

import json
from importlib.metadata import version

from .libraries import LIBRARIES
from .run import compared


def main() -> None:
    rows, missing = [], []
    for name, library in LIBRARIES.items():
        try:
            before, after = compared(name)
        except ModuleNotFoundError:
            missing.append(name)
            continue
        rows.append(
            {
                "library": f"{library.package} {version(library.package)}",
                "before": len(before.passed),
                "after": len(after.passed & before.passed),
                "calls": after.calls,
            }
        )
    print(json.dumps({"rows": rows, "missing": missing}))


if __name__ == "__main__":
    main()
