"""Plug fastgae into a library: replace its functions, or make subclasses of its classes."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


def replace(owner: Any, **functions: Callable[..., Any]) -> ExitStack:
    """Replace functions of a module or class by others of the same names; closing the returned stack restores them.

    Replace all of them or, if one name does not exist, none. Leave a function alone that is already in place, so that
    neither a second call nor closing its result changes anything.
    """
    with ExitStack() as undo:
        for name, ours in functions.items():
            theirs = getattr(owner, name)
            if theirs is not ours:
                setattr(owner, name, ours)
                undo.callback(setattr, owner, name, theirs)
        return undo.pop_all()


def made_once(module: dict[str, Any], name: str, **makers: Callable[[], type]) -> Any:
    """Return a class, and make it at its first use: for the ``__getattr__`` of a module.

    ``module`` is the module's ``globals()``; ``makers`` has one function per name that makes the class.
    """
    if name not in makers:
        raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
    made = makers[name]()
    made.__qualname__ = name  # pickle finds a class by this name, in a worker process too
    return module.setdefault(name, made)
