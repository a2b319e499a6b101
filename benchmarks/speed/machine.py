"""The machine that numbers were measured on."""

import os
import platform
from typing import Any

import numpy as np

import fastgae
from fastgae._support.threads import usable_cpus

from .caches import described, from_proc


def describe_machine() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "fastgae": fastgae.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "CPU": from_proc("cpuinfo", "model name") or platform.processor() or platform.machine(),
        "caches": described(),
        "usable CPUs": usable_cpus(),
    }
    if hasattr(os, "getloadavg"):
        # A load above 0 before anything has run here means that others use the CPUs and the memory bus too.
        facts["load"] = round(os.getloadavg()[0], 1)
    for backend in fastgae.backends():
        if backend.available:
            facts[backend.name] = " ".join(filter(None, [backend.version, *backend.targets[:1]]))
        else:
            facts[backend.name] = "missing: " + (backend.why_missing or "").partition("\n")[0]
    return facts
