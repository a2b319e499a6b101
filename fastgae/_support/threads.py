"""Count the CPUs that this process may use, and know whether it was forked."""

import functools
import math
import os
import sys
from pathlib import Path

_imported_in = os.getpid()


def is_forked() -> bool:
    """Return whether this process was forked after fastgae was imported."""
    return os.getpid() != _imported_in


def usable_cpus() -> int:
    """Return how many CPUs this process may use: the smaller of its affinity and its control group's quota."""
    return max(1, min(affinity(), _cgroup_cpus()))


def affinity() -> int:
    """Return the number of CPUs on which this process may run. A quota on CPU time does not count."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _cgroup_cpus() -> int:
    """Return how many whole CPUs the control group's quota amounts to, rounded up; sys.maxsize without a quota."""
    # Version 2 of control groups has quota and period in one file, version 1 in two; "max" and -1 mean no limit.
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join(Path("/sys/fs/cgroup", file).read_text() for file in files).split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal():
            return math.ceil(int(quota) / int(period))
    return sys.maxsize
