"""Compute a call in the only way: short cut (may decline) -> checks -> matrices of one layout -> backend -> results."""

from collections.abc import Mapping
from typing import Any

from numpy import ndarray

from fastgae._call import MISSING, NEW, Call, Declaration, GAEResult
from fastgae._canonical.arguments import as_switch
from fastgae._canonical.checks import checked, warn_of_reset_rows
from fastgae._canonical.memory import in_one_layout
from fastgae._canonical.packed import as_one_env
from fastgae._engine import dispatch
from fastgae._engine.moments import center_and_scale
from fastgae._equation.arrays import given_only
from fastgae._interop.arrays import OnDevice
from fastgae._interop.calls import check_no_tensors, in_numpy, with_tensors
from fastgae._interop.libraries import is_tensor
from fastgae._support import memory, threads
from fastgae._support.misnamed import missing, no_argument, too_many


def run(
    function: Any,
    given: tuple[Any, ...],
    backend: str | None,
    num_threads: int | None,
    stop_gradients: bool,
    unnamed: tuple[Any, ...],
    misnamed: Mapping[str, Any],
) -> GAEResult[Any]:
    """Compute a call of an estimator: a tuple in the order of ``Call``, whose last arguments may be missing."""
    if type(given[0]) is not ndarray or stop_gradients is not True or unnamed or misnamed:
        results = _unusual(function, given, backend, num_threads, stop_gradients, unnamed, misnamed)
        if results is not None:
            return results
    try:
        chosen = dispatch.resolve(backend, num_threads)
    except TypeError:  # asking `choose` first would cost a small call 0.1 of 1.4 us (Zen 5)
        chosen = dispatch.choose(backend, num_threads)
    if chosen.short_cut is not None:
        result = chosen.short_cut(given, chosen.threads, chosen.target)
        if result is not None:
            return result
        try:
            one_env = as_one_env(given)
        except (TypeError, ValueError):
            _check_given(function, given)  # as without a short cut, what is missing is said first
            raise
        if one_env is not given:
            given = one_env
            result = chosen.short_cut(given, chosen.threads, chosen.target)
            if result is not None:
                return result
    _check_given(function, given)
    call = checked(function.declaration, Call(*given))
    warn_of_reset_rows(call)
    return without_short_cut(call, chosen)


def _unusual(
    function: Any,
    given: tuple[Any, ...],
    backend: str | None,
    num_threads: int | None,
    stop_gradients: bool,
    unnamed: tuple[Any, ...],
    misnamed: Mapping[str, Any],
) -> GAEResult[Any] | None:
    """Raise the error of a wrong call, or return the results of arrays of another library; None for any other call."""
    if misnamed:
        raise no_argument(function, misnamed)
    if unnamed:
        raise too_many(function, len(function.__defaults__) + len(unnamed))
    declaration: Declaration = function.declaration
    keeps_gradients = not as_switch("stop_gradients", stop_gradients)
    if not (keeps_gradients or is_tensor(given[0]) or isinstance(given[0], OnDevice)):
        return None
    if not keeps_gradients and backend != "triton":
        library, arrays = in_numpy(given, declaration)
        if library is not None:
            results = run(function, arrays, backend, num_threads, True, (), {})
            returned: GAEResult[Any] = library.from_numpy(results, given[0])
            return returned
    _check_given(function, given)
    if isinstance(given[0], OnDevice):
        return _on_device(function, given, num_threads)
    arguments = _arguments(function, given, stop_gradients, num_threads, backend)
    if not is_tensor(given[0]):
        check_no_tensors(arguments)
        return None
    results = with_tensors(function, arguments)
    return GAEResult(results, results) if declaration.result else results  # the estimator takes its own


def _check_given(function: Any, given: tuple[Any, ...]) -> None:
    """Check that each argument without a default is given."""
    declaration: Declaration = function.declaration
    if absent := [name for name, place in declaration.needed.items() if given[place] is MISSING]:
        raise missing(function, absent)
    for name, place in declaration.needed.items():
        if given[place] is None and Call._fields[place] in declaration.required:
            raise missing(function, [name], may_be_none=False)


def _arguments(
    function: Any, given: tuple[Any, ...], stop_gradients: bool, num_threads: int | None, backend: str | None
) -> dict[str, Any]:
    """Return the arguments of a call by the names that the function has for them."""
    declaration: Declaration = function.declaration
    call = Call(*given)
    arguments = {name: call[place] for name, place in declaration.fields.items()}
    if declaration.result:
        out = getattr(GAEResult(*call.out), declaration.result)
        arguments["out"] = None if out is NEW else out
    how = {"stop_gradients": stop_gradients, "num_threads": num_threads, "backend": backend}
    return arguments | {name: each for name, each in how.items() if name in function.__kwdefaults__}


def _on_device(function: Any, given: tuple[Any, ...], num_threads: int | None) -> GAEResult[Any]:
    """Compute an unchecked call whose arrays are ``OnDevice``."""
    declaration: Declaration = function.declaration
    name = declaration.word("rewards")
    module = dispatch.on_devices(name, given[0], num_threads)
    if Call(*given).recursion not in module.RECURSIONS:
        raise TypeError(f"{name} is {given[0]!r}, and {function.__name__} computes on the CPU: pass {name}.cpu()")
    return module.gae(given_only(checked(declaration, Call(*given))))


def without_short_cut(call: Call, chosen: dispatch.Chosen) -> GAEResult[Any]:
    """Compute a checked call."""
    module, how = chosen.module, (chosen.threads or threads.usable_cpus(), chosen.target)
    matrices, layout, results = in_one_layout(call)
    if not matrices.rewards.size:
        return results
    normalize = matrices.normalize
    if normalize is not None:
        # Advantages are normalized in place, and an error on the way must not leave the caller's arrays half done.
        own = tuple(None if array is None else memory.empty_like(array) for array in matrices.out)
        matrices = matrices._replace(out=own, normalize=None)
    if matrices.recursion not in module.RECURSIONS:
        module, _ = dispatch.resolve_backend("numpy")  # which knows every recursion
    module.gae(matrices, *how)
    if normalize is not None:
        moments = center_and_scale(matrices.out[0], matrices.mask, normalize, layout, module, *how)
        module.rescale(matrices.out[0], matrices.mask, *moments, *how)
    return layout.restored(matrices.out, results)
