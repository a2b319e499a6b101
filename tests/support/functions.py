"""The public functions that take arrays, and what their signatures and the record of a call say of their parameters."""

import functools
import inspect
import sys
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import numpy as np

import fastgae
from fastgae._call import ROLES, Role

NO_ARRAYS = (Role.SETTING, Role.CONSTANT)


@functools.cache
def parameters(name):
    """Return the parameters of a public function by name, each with its type as the annotation."""
    function = getattr(fastgae, name)
    hints = get_type_hints(function)
    return {
        each.name: each.replace(annotation=hints.get(each.name))
        for each in inspect.signature(function).parameters.values()
    }


# A parameter without a role counts too, so that the test of the record sees it.
FUNCTIONS = tuple(
    name
    for name in fastgae.__all__
    if inspect.isfunction(getattr(fastgae, name)) and any(ROLES.get(each) not in NO_ARRAYS for each in parameters(name))
)


def required(parameter):
    return parameter.default is inspect.Parameter.empty


def allows_none(parameter):
    return type(None) in get_args(parameter.annotation)


@functools.cache
def gives_two(name):
    """Whether a function returns advantages and returns, and not one array."""
    return get_origin(get_type_hints(getattr(fastgae, name))["return"]) is fastgae.GAEResult


def converted(arguments, convert):
    """With convert(array) in place of every array."""
    return {name: convert(given) if isinstance(given, np.ndarray) else given for name, given in arguments.items()}


def split(arguments, kind=np.ndarray):
    """Return the arguments that are arrays of a kind, and the others."""
    arrays = {name: given for name, given in arguments.items() if isinstance(given, kind)}
    return arrays, {name: given for name, given in arguments.items() if name not in arrays}


def arrays_of(result):
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def ways_of(call):
    """Return the files of the package that are on the way to each function that a call calls, but no Triton kernels."""
    package, ways = str(Path(fastgae.__file__).parent), set()

    def look(frame, event, _):
        files = []
        while event == "call" and frame and (files or frame.f_code.co_filename.startswith(package)):
            file = frame.f_code.co_filename
            if file.startswith(package) and "kernels" not in file.removeprefix(package) and files[-1:] != [file]:
                files.append(file)
            frame = frame.f_back
        ways.add(tuple(Path(file).relative_to(package).as_posix() for file in reversed(files)))

    call()  # what is imported or compiled at the first call is not on the way
    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return ways
