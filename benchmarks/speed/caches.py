"""The caches of this machine, as the system reports them, and how much memory is free."""

import functools
import os
from pathlib import Path

SYSFS = Path("/sys/devices/system/cpu")
MIB = 1 << 20


@functools.cache
def caches() -> dict[str, int]:
    """Return the bytes of each cache for data that a CPU of this process uses, nearest first: {"L1": 32768, …}.

    A virtual machine often reports the last-level cache of the whole processor by sysconf, and its own share in sysfs,
    so sysfs comes first. Where neither knows, there is nothing.
    """
    return dict(sorted((_from_sysfs() or _from_sysconf()).items()))


def last_level() -> int | None:
    return list(caches().values())[-1] if caches() else None


def beyond_caches(times: int) -> int:
    """Return so many times the bytes of the last-level cache, but at most a quarter of the memory that is free."""
    wanted = times * (last_level() or 32 * MIB)
    free = available_memory()
    return wanted if free is None else min(wanted, free // 4)


def available_memory() -> int | None:
    kib = from_proc("meminfo", "MemAvailable")
    return 1024 * int(kib.split()[0]) if kib else None


def from_proc(file: str, name: str) -> str:
    """Return the first entry of this name in a file of /proc, and nothing on systems without it."""
    try:
        lines = Path("/proc", file).read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(name))
    except (OSError, StopIteration):
        return ""


def described() -> str:
    """Return the caches as text, such as "L1 48 KiB, L2 1 MiB, L3 32 MiB"."""
    return ", ".join(f"{name} {_shown(size)}" for name, size in caches().items()) or "unknown"


def _shown(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"


def _from_sysfs() -> dict[str, int]:
    cpu = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    found = {}
    for place in SYSFS.glob(f"cpu{cpu}/cache/index*"):
        try:
            kind, level, size = (place.joinpath(name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            found[f"L{level}"] = int(size[:-1]) * {"K": 1024, "M": MIB}[size[-1]]
    return found


def _from_sysconf() -> dict[str, int]:
    names = {"L1": "SC_LEVEL1_DCACHE_SIZE", "L2": "SC_LEVEL2_CACHE_SIZE", "L3": "SC_LEVEL3_CACHE_SIZE"}
    known = {level: os.sysconf(name) for level, name in names.items() if name in getattr(os, "sysconf_names", {})}
    return {level: size for level, size in known.items() if size > 0}
