"""The two ways to plug into a library: to replace its functions, and to make subclasses of its classes."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


def replace(owner: Any, **functions: Callable[..., Any]) -> ExitStack:
    """Functions of a module or class replaced by others of the same name; closing what is returned puts them back.

    All or, where one has no such function, none. What is in place already stays, so that a second call changes nothing,
    and closing its result neither.
    """
    with ExitStack() as undo:
        for name, ours in functions.items():
            theirs = getattr(owner, name)
            if theirs is not ours:
                setattr(owner, name, ours)
                undo.callback(setattr, owner, name, theirs)
        return undo.pop_all()


def made_once(module: dict[str, Any], name: str, **makers: Callable[[], type]) -> Any:
    """A class made when a module, given by its globals, is first asked for it: what ``__getattr__`` there returns."""
    if name not in makers:
        raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
    made = makers[name]()
    made.__qualname__ = name  # where pickle, and a worker that unpickles, look for it
    return module.setdefault(name, made)
