"""Choose the backend of a call by name. The only place that reads os.environ.

The variables are read once, when fastgae is imported; ENVIRONMENT lists them.
"""

import contextlib
import functools
import importlib
import os
from _thread import RLock, _local  # to import threading takes a tenth of the time of `import fastgae`
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from fastgae._backends import CPU_TARGETS, Backend, BackendUnavailableError, DeviceBackend, ShortCut
from fastgae._canonical.arguments import as_count, shown
from fastgae._support import memory
from fastgae._support.misnamed import BACKENDS_ELSEWHERE, choose_one, elsewhere
from fastgae._support.project import how_to_install
from fastgae._support.warn import warn_caller
from fastgae._typing import BackendName

if TYPE_CHECKING:  # here mypy compares every backend with the contract, because modules are imported by name below
    from fastgae._backends import cpp, numba, numpy, triton, xla

    _: tuple[Backend, ...] = (cpp, numba, numpy)
    _on_devices: tuple[DeviceBackend, ...] = (triton, xla)

CHOICES: tuple[str, ...] = get_args(BackendName)
*BACKENDS, ON_DEVICES = (name for name in CHOICES if ":" not in name)
# Modules that may be missing, because they are optional.
NEEDS = {
    "cpp": ("fastgae._core",),
    "numba": ("numba",),
    "numpy": (),
    ON_DEVICES: ("triton", "torch"),
    "autograd": ("torch",),
    "xla": ("jax",),
}
MOST_THREADS = 1024  # a larger number of threads counts as this number

ENVIRONMENT = {
    "FASTGAE_BACKEND": "backend to use if none is given: " + ", ".join(BACKENDS) + ", or a CPU target such as cpp:avx2",
    "FASTGAE_CPU": "CPU target of the cpp backend, which it also chooses if no backend is given: "
    + ", ".join(CPU_TARGETS),
    "FASTGAE_NUM_THREADS": "largest number of threads of a call, if num_threads is not given",
    "OMP_NUM_THREADS": "the same, if FASTGAE_NUM_THREADS is not set",
    "FASTGAE_RECYCLE": "memory of dropped results to keep for the next ones, such as 256MB; 0: none",
}
SETTINGS = {name: os.environ.get(name) or None for name in ENVIRONMENT}


class BackendInfo(NamedTuple):
    """One backend, as a named tuple.

    Attributes
    ----------
    name : str
        The name to pass as ``backend``.
    available : bool
        Whether it can run here.
    version : str or None
        The compiler or library that it is built on, with its version. None if the backend cannot run here.
    targets : tuple of str
        The CPU targets that it can run, best first.
    why_missing : str or None
        Why it cannot run here. None if it can.
    device : str
        Where its arrays are: "CPU" or "GPU".
    """

    name: str
    available: bool
    version: str | None
    targets: tuple[str, ...]
    why_missing: str | None
    device: str


def backends() -> tuple[BackendInfo, ...]:
    """Return every backend: whether it can run here, its version and CPU targets, or why it is missing.

    The backends of the CPU come first, best first.
    """
    return (*(_info(name, "CPU") for name in BACKENDS), _info(ON_DEVICES, "GPU"))


def _info(name: str, device: str) -> BackendInfo:
    found = _import(name)
    if isinstance(found, Exception):
        return BackendInfo(name, False, None, (), why(found), device)
    return BackendInfo(name, True, found.version(), found.targets() if device == "CPU" else (), None, device)


# A lock that another thread holds during a fork stays locked in the child for ever. A fork therefore waits for these
# locks, in this order: the one around the import of a backend, and those that a backend holds while it compiles.
_importing = RLock()
_fork_waits_for: list[Any] = [_importing]
_forking = _local()  # the locks that this thread took, because an exception such as Ctrl-C may end the wait for one


def _before_fork() -> None:
    _forking.locks = []
    for lock in _fork_waits_for:
        lock.acquire()
        _forking.locks.append(lock)


def _after_fork() -> None:
    while _forking.locks:
        _forking.locks.pop().release()


@functools.cache
def _watch_forks() -> None:
    # A fork also takes the lock of logging, which Numba needs while it compiles. What is registered last comes first.
    import logging  # noqa: F401

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@contextlib.contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Let Ctrl-C wait for the end of an import: after a part of it, Numba can no longer be imported."""
    import signal  # not at the top: only the first call needs it

    waiting: list[Any] = []
    handler = signal.getsignal(signal.SIGINT)
    try:
        if callable(handler):
            signal.signal(signal.SIGINT, lambda *given: waiting.append(given))
    except ValueError:  # only the main thread gets signals
        handler = None
    try:
        yield
    finally:
        if callable(handler):
            signal.signal(signal.SIGINT, handler)
            if waiting:
                handler(*waiting[0])


@functools.cache
def _import(name: str) -> Any:
    """Import a backend, or return the exception that says why it cannot run."""
    try:
        _watch_forks()
        with _importing, _ctrl_c_waits():  # in this order, or a fork by another thread may keep the handler of Ctrl-C
            module = importlib.import_module(f"fastgae._backends.{name}")
            locks = getattr(module, "FORK_WAITS_FOR", ())
            _fork_waits_for.extend(lock for lock in locks if lock not in _fork_waits_for)
            return module
    except (MemoryError, RecursionError):  # not a property of the backend: the next call may find room
        raise
    except Exception as error:  # a package that does not fit the installed NumPy may raise any exception
        if not NEEDS[name]:  # only this moment can be to blame, such as one without free file descriptors
            _import.cache_clear()
            raise
        missing = isinstance(error, ModuleNotFoundError) and error.name in NEEDS[name]
        without_gpu = name == ON_DEVICES and isinstance(error, BackendUnavailableError)
        if not (missing or without_gpu):
            warn_caller(f"fastgae: the {name} backend is installed but does not load: {why(error)}", RuntimeWarning)
        return error


def why(error: Exception) -> str:
    """Return the message of a failed import, with the type of the error if the message alone may not explain it."""
    readable = isinstance(error, ImportError | BackendUnavailableError)
    return str(error) if readable else f"{type(error).__name__}: {error}"


class Chosen:
    """The backend, CPU target, number of threads and short cut that compute a call."""

    __slots__ = ("module", "short_cut", "target", "threads")  # Python reads these faster than fields of a named tuple

    def __init__(self, module: Backend, target: str | None, threads: int, short_cut: ShortCut | None):
        self.module = module
        self.target = target  # CPU target; None where the backend has none
        self.threads = threads  # 0: usable_cpus()
        self.short_cut = short_cut


@functools.lru_cache(typed=True)  # bounded, because a program may pass any number of threads
def resolve(backend: str | None, num_threads: int | None) -> Chosen:
    """Return what computes a call with these two arguments."""
    module, target = resolve_backend(backend)
    chosen = Chosen(module, target, resolve_threads(num_threads), getattr(module, "short_cut", None))
    recycle()
    if backend is None:
        _warn_of_fallback()
    return chosen


def choose(backend: object, num_threads: object) -> Chosen:
    """Call ``resolve`` with any two objects, without its cache if one of them cannot be hashed; then it raises."""
    try:
        return resolve(backend, num_threads)
    except TypeError:
        return resolve.__wrapped__(backend, num_threads)


@functools.cache
def recycle() -> None:
    """Begin to keep the memory of dropped results, up to the limit of FASTGAE_RECYCLE."""
    limit = memory.limit_from("FASTGAE_RECYCLE", SETTINGS["FASTGAE_RECYCLE"])
    with _importing:
        memory.set_limit(limit)


def resolve_backend(backend: str | None) -> tuple[Backend, str | None]:
    """Return the backend to call and the CPU target to pass to it. A backend that was chosen never falls back."""
    known = [name for name in CHOICES if name != ON_DEVICES]
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend must be one of {', '.join(known)}, or None, got {shown(backend)}")
    source, asked = ("backend", backend) if backend is not None else ("FASTGAE_BACKEND", SETTINGS["FASTGAE_BACKEND"])
    request, cpu = f"{source}={shown(asked)}", SETTINGS["FASTGAE_CPU"]
    if asked == ON_DEVICES:
        raise (TypeError if backend is not None else ValueError)(
            f"{request}: this backend computes only torch tensors on a GPU, and fastgae chooses it for them: leave it "
            "out"
        )
    if asked not in (None, *known):
        advice = elsewhere(asked, BACKENDS_ELSEWHERE)
        more = f"; {advice}" if advice else choose_one(asked, known, {})
        raise ValueError(f"{request} is not a backend: choose one of {', '.join(known)}{more}")
    if cpu and asked in (None, "cpp"):
        # Only cpp has CPU targets, so to name a target is to choose cpp.
        if cpu not in CPU_TARGETS:
            meant = choose_one(cpu, CPU_TARGETS, {})
            raise ValueError(f"FASTGAE_CPU={cpu!r} is not a CPU target: choose one of {', '.join(CPU_TARGETS)}{meant}")
        request = f"{request} and FASTGAE_CPU={cpu!r}" if asked else f"FASTGAE_CPU={cpu!r}"
        asked = f"cpp:{cpu}"
    if asked is None:
        asked = next(name for name in BACKENDS if not isinstance(_import(name), Exception))
    name, _, target = asked.partition(":")
    module = _import(name)
    if isinstance(module, Exception):
        raise BackendUnavailableError(f"{request}, but the {name} backend cannot run here: {why(module)}") from module
    targets = module.targets()
    if target and target not in targets:
        cause = RuntimeError(f"this build on this CPU runs {', '.join(targets)}")
        raise BackendUnavailableError(f"{request}, but {target} cannot run here: {cause}") from cause
    return module, target or next(iter(targets), None)


def fallback() -> str | None:
    """Return why calls fall back to NumPy, and what to run; None if they do not, or if NumPy was chosen."""
    if SETTINGS["FASTGAE_BACKEND"] or SETTINGS["FASTGAE_CPU"]:
        return None
    *fast, slow = BACKENDS
    if not all(isinstance(_import(name), Exception) for name in fast):
        return None
    return (
        f"fastgae falls back to backend={slow!r}, which is many times slower, because {' and '.join(fast)} cannot run "
        f"here. `python -m fastgae info` says why and how to build cpp; {how_to_install('numba')} needs no compiler. "
        f"To choose {slow} without this warning, set FASTGAE_BACKEND={slow}"
    )


@functools.cache
def _warn_of_fallback() -> None:
    """Warn once."""
    if message := fallback():
        warn_caller(message, RuntimeWarning)


def on_devices(name: str, array: Any, num_threads: int | None = None) -> DeviceBackend:
    """Return the backend that computes on the device of an argument. A number of threads has no effect there."""
    resolve_threads(num_threads)
    module = _import(array.backend)
    if isinstance(module, Exception):
        raise BackendUnavailableError(
            f"{name} is {array!r}, but the {ON_DEVICES} backend cannot run here: {why(module)}; run "
            f"{how_to_install('gpu')}, on a machine with a GPU, or pass {name}.cpu() and no backend"
        ) from module
    found: DeviceBackend = module
    if not found.takes(array):
        raise TypeError(f"{name} is {array!r}, and backend={ON_DEVICES!r} computes tensors on a GPU: leave it out")
    return found


def resolve_threads(num_threads: int | None) -> int:
    """Return num_threads, FASTGAE_NUM_THREADS or OMP_NUM_THREADS, the first that is given; or 0 for usable_cpus()."""
    if num_threads is not None:
        return as_count("num_threads", num_threads, MOST_THREADS)
    for name in ("FASTGAE_NUM_THREADS", "OMP_NUM_THREADS"):
        # OMP_NUM_THREADS may be a list, one number per nesting level.
        text = (SETTINGS[name] or "").partition(",")[0].strip()
        if text:
            return as_count(name, int(text) if text.isdecimal() else text, MOST_THREADS)
    return 0
