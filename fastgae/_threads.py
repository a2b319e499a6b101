"""How many CPUs this process may use."""

import functools
import math
import os
import sys
from pathlib import Path


def usable_cpus() -> int:
    """The CPUs this process may use: its affinity, and the quota of its control group."""
    return max(1, min(affinity(), _cgroup_cpus()))


def affinity() -> int:
    """The CPUs on which this process may run, whatever share of them it has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _cgroup_cpus() -> int:
    # Quota and period, in one file (version 2) or in two; "max" and -1 are no limit.
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join(Path("/sys/fs/cgroup", file).read_text() for file in files).split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal():
            return math.ceil(int(quota) / int(period))
    return sys.maxsize
