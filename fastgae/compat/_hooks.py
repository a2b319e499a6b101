"""Plug fastgae into a library: replace its functions, or make subclasses of its classes."""

import importlib
import inspect
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from fastgae._support.signatures import signature

Function = Callable[..., Any]


class Library(NamedTuple):
    """The versions of a library with which a hook was tested. The hook refuses any other, before it changes anything.

    A place in the library is "module:function", "module:Class.method" or "module:DICT.key".
    """

    package: str  # its name in pip
    oldest: str
    newest: str
    also: str = ""  # another package with the same modules and versions

    def release(self) -> tuple[int, ...]:
        """Return the numbers of the installed version; RuntimeError if the hook was not tested with it."""
        installed = _version(self.package) or _version(self.also)
        if installed is None:
            missing = f"{self.package} is not installed, and this hook replaces its functions"
            raise ModuleNotFoundError(f"{missing}: python -m pip install {self.package}")
        if not numbers(self.oldest) <= numbers(installed) <= numbers(self.newest):
            raise self._refusal(f"{installed} is installed")
        return numbers(installed)

    def fitting(self, place: str, *ours: Function) -> Function:
        """Return the first of our functions with the parameters of the function at a place, or raise RuntimeError.

        The names must be the same, in the same order. ``self`` is not compared.
        """
        function = found_at(place)
        if function is None:
            raise self._refusal(f"{place} does not exist")
        theirs = _parameters(function)
        for each in ours:
            if _parameters(each) == theirs:
                return each
        known = " or ".join(f"({', '.join(_parameters(each))})" for each in ours)
        raise self._refusal(f"{place} has the parameters ({', '.join(theirs)}), not {known}")

    def install(self, places: Mapping[str, tuple[Function, ...]], may_lack: tuple[str, ...] = ()) -> ExitStack:
        """Replace the function at each place by the one that fits; closing the returned stack restores them.

        Replace all or none. A place in ``may_lack`` is left out if this version does not have it.
        """
        self.release()
        there = [place for place in places if place not in may_lack or found_at(place) is not None]
        ours = {place: self.fitting(place, *places[place]) for place in there}
        with ExitStack() as undo:
            for place, function in ours.items():
                owner, name = _owner_and_name(place)
                undo.enter_context(replace(owner, **{name: function}))
            return undo.pop_all()

    def _refusal(self, found: str) -> RuntimeError:
        return RuntimeError(
            f"{self.package}: {found}, and fastgae's hook knows versions {self.oldest} to {self.newest}: install one of"
            " these, or a newer fastgae"
        )


def _version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    with suppress(PackageNotFoundError, ValueError):  # the name may be empty
        return version(package)
    return None


def replace(owner: Any, **functions: Function) -> ExitStack:
    """Replace functions of a module, class or dict by others of the same names; closing the stack restores them.

    If a function is already in its place, it stays there until all stacks that want it are closed.
    """
    with ExitStack() as undo:
        for name, ours in functions.items():
            place = _taken(owner, name, ours)
            # A callback, because a generator would run its end as soon as a caller drops the stack.
            undo.callback(place.give_back)
        return undo.pop_all()


class _Place:
    """A place in a library that has a function of ours, and how many stacks want it there."""

    def __init__(self, write: Callable[[Function], None], theirs: Function):
        self.write, self.theirs, self.wanted = write, theirs, 0

    def give_back(self) -> None:
        with _lock:
            self.wanted -= 1
            if not self.wanted:
                self.write(self.theirs)


_places: dict[tuple[int, str], _Place] = {}
_lock = threading.RLock()  # not Lock: where Ctrl-C ends the wait of a fork, it must not release another thread's
if hasattr(os, "register_at_fork"):  # otherwise it could stay locked in the child
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def _taken(owner: Any, name: str, ours: Function) -> _Place:
    """Return the place that has our function now."""
    key = id(owner), name
    with _lock:
        theirs = _read(owner, name)
        if theirs is not ours or key not in _places:
            write = owner.__setitem__ if isinstance(owner, dict) else partial(setattr, owner)
            inherited = theirs is ours
            _places[key] = _Place((lambda function: None) if inherited else partial(write, name), theirs)
            _places[key].write(ours)
        place = _places[key]
        place.wanted += 1
    return place


def made_once(module: dict[str, Any], name: str, **makers: Callable[[], type]) -> Any:
    """Return a class, and create it at its first use. The ``__getattr__`` of a module calls this.

    ``module`` is the module's ``globals()``; ``makers`` has, for each name, a function that creates the class.
    """
    if name not in makers:
        raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
    made = makers[name]()
    made.__qualname__ = name  # pickle finds a class by this name, in a worker process too
    return module.setdefault(name, made)


def numbers(text: str) -> tuple[int, ...]:
    """Return the first three numbers of a version: (2, 1, 0) for "2.1" and for "2.1.0.post1"."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return (*map(int, found[0].split(".") if found else ()), 0, 0, 0)[:3]


def taking(names: str) -> Callable[[Function], Function]:
    """Give a function that passes its arguments on the parameters that ``fitting`` compares."""

    def decorated(function: Function) -> Function:
        shown = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names.split()]
        function.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return function

    return decorated


def _owner_and_name(place: str) -> tuple[Any, str]:
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in outer:
        owner = getattr(owner, each, None)
    return owner, name


def found_at(place: str) -> Any:
    """Return the function at a place in a library, or None."""
    return _read(*_owner_and_name(place))


def _read(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)


def _parameters(function: Function) -> list[str]:
    schema = getattr(function, "schema", None)  # of a function that torch.jit compiled, which has no signature
    names = [each.name for each in schema.arguments] if schema else signature(function).parameters
    return [name for name in names if name != "self"]
