"""Errors say what was given, what is expected, and what to write; test_bad_arguments.py has every bad argument."""

import inspect
import re
from functools import partial
from typing import get_args, get_type_hints

import numpy as np
import pytest

import fastgae
from fastgae._support.misnamed import ABSENT_HERE, NAMES_ELSEWHERE, NOTES
from fastgae._typing import Misnamed
from fastgae.compat import verl
from support import natural
from support.backends import ONE_TARGET
from support.functions import FUNCTIONS, parameters, required

ERRORS = (TypeError, ValueError, AttributeError, ImportError)


def test_the_message_of_a_natural_mistake_says_what_to_write():
    wrong_values = [(*row, ValueError) for row in natural.WRONG_VALUES]
    for mistake, advice, errors in [*((*row, ERRORS) for row in natural.CALLS), *wrong_values]:
        of_any_backend = isinstance(mistake, partial) and "backend" not in mistake.keywords
        for how in [{"backend": each} for each in ONE_TARGET] if of_any_backend else [{}]:
            with pytest.raises(errors, match=re.escape(advice)):
                mistake(**how)
    with pytest.raises(AttributeError, match=r"^module 'fastgae' has no attribute 'zzz'$"):
        natural.get("zzz")()


@pytest.mark.parametrize(
    ("boundaries", "advice"),
    [
        ([0, 0, 4], "; the end of the last sequence is missing: pass np.append(cu_seqlens, 9)"),
        ([4, 4, 9], "; the start of the first sequence is missing: pass np.append(0, cu_seqlens)"),
        ([4, 0, 5], "; these are lengths: pass np.cumsum([0, *lengths])"),
        *((wrong, "") for wrong in ([0, 5, 3, 9], [0, 5, 12], [-1, 10], [-1, 9], [1, 5])),
    ],
)
def test_boundaries_get_only_the_advice_that_mends_them(boundaries, advice):
    with pytest.raises(ValueError, match="cu_seqlens must rise from 0") as raised:
        natural.packed(boundaries)()
    assert str(raised.value).endswith(f"got {boundaries}{advice}")


def test_another_time_axis_is_advised_only_where_it_would_fit():
    """Values of shape (4, 3) fit rewards of shape (4, 3, 2) in no order of their axes."""
    with pytest.raises(ValueError, match=r"or \(5, 3, 2\) with V after the last step$"):
        fastgae.gae(np.ones((4, 3, 2)), np.ones((4, 3)), None, last_values=0.0)
    with pytest.raises(ValueError, match=r"expected rewards' shape, \(4, 3\); axes other than time may have length 1"):
        fastgae.gae(natural.ONES, natural.ONES, np.zeros((4, 4)), last_values=0.0)


def test_numbers_above_1_are_no_discounts():
    with pytest.raises(ValueError, match=r"terminated must hold 0 or 1, got 3\.0 at index \(0, 0\)$"):
        fastgae.gae(natural.ONES, natural.ONES, 3 * natural.ONES, last_values=0.0)


def test_only_functions_of_time_ask_for_a_time_axis():
    for scalar in (partial(fastgae.moments, 1.0), partial(fastgae.group_advantages, 1.0, 0)):
        with pytest.raises(ValueError, match=r"is a scalar; expected an array$"):
            scalar()


def test_what_was_given_is_shown_in_one_line():
    with pytest.raises(ValueError, match=r"got array\(\[\[0\., 0\.\], \[0\., 0\.\]\]\)$"):
        fastgae.gae(natural.ONES, natural.LONGER, natural.FLAGS, normalize=np.zeros((2, 2)))


def test_the_command_says_what_to_write(failure):
    for line, advice in natural.COMMANDS:
        assert advice in failure(*line.split()), line
    assert "do you mean" not in failure("zzz")


def test_the_command_says_what_is_wrong_with_a_file(failure, tmp_path, monkeypatch):
    for library in ("duckdb", "pyarrow", "tqdm"):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    rollout = {"rewards": natural.ONES, "values": natural.LONGER, "terminated": natural.FLAGS}
    np.savez("rollout.npz", **rollout)
    np.savez("swapped.npz", **rollout | {"values": natural.LONGER.T})
    (tmp_path / "table.csv").write_text("reward,values,done\n1.0,1.0,0\n")
    (tmp_path / "text.parquet").write_text("no table")
    for line, advice in natural.ON_FILES:
        assert advice in failure(*line.split()), line


def called_with(function, **named):
    """Return the message of a call with what must be given, and with these arguments."""
    given = {name: np.zeros((2, 2)) for name, each in parameters(function).items() if required(each)}
    with pytest.raises(TypeError) as error:
        getattr(fastgae, function)(**given, **named)
    return str(error.value)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_shows_its_source_and_refuses_names_that_it_does_not_have(function):
    signature = inspect.signature(getattr(fastgae, function))
    shown = [each.annotation for each in signature.parameters.values()] + [signature.return_annotation]
    assert not re.search(r"['\"~]|numpy|typing|fastgae", " ".join(map(inspect.formatannotation, shown)))
    assert not any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    expected = f"{function}() got an unexpected keyword argument 'use_gae': there is no such switch"
    assert called_with(function, use_gae=True).startswith(expected)
    source = inspect.unwrap(getattr(fastgae, function)).__annotations__
    assert ("Unpack[Misnamed]" in source.values()) == ("terminated" in signature.parameters)


def test_the_error_names_the_first():
    for function in (fastgae.gae, fastgae.td_lambda, fastgae.normalize, verl.compute_rloo_outcome_advantage):
        for names in (("lams", "done"), ("done", "lams")):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{names[0]}'"):
                function(*[np.ones((2, 2))] * 2, **dict.fromkeys(names, 0.5))


def test_type_checkers_say_the_same():
    for name, advice in get_type_hints(Misnamed).items():
        assert get_args(advice)[0] in called_with("gae", **{name: np.ones(2)})


def test_the_table_of_names():
    known = {name for function in FUNCTIONS for name in parameters(function)}
    elsewhere = {name for names in NAMES_ELSEWHERE.values() for name in names.split()}
    assert set(NAMES_ELSEWHERE) <= known
    assert set(NOTES) <= elsewhere
    for right, names in NAMES_ELSEWHERE.items():
        for function in FUNCTIONS:
            assert right not in parameters(function) or not set(names.split()) & set(parameters(function)), function
    for name, advice in ABSENT_HERE.items():  # some function has no argument of that meaning
        others = [function for function in FUNCTIONS if name not in parameters(function)]
        assert any(advice in called_with(function, **{name: 1}) for function in others), name


def test_no_error_advises_what_the_function_does_not_have():
    with pytest.raises(ValueError, match=r"or next_values \(V of every next observation before any reset\)$"):
        fastgae.discounted_returns(natural.ONES, natural.FLAGS, natural.FLAGS, last_values=natural.ROW)
    with pytest.raises(ValueError, match=r"and their gamma$"):  # values of 0 alone are no flags
        fastgae.gae(natural.ONES, 0 * natural.ONES, natural.ONES / 2, last_values=0.0)
    with pytest.raises(ValueError, match=r"^mask must hold 0 or 1, got 0.5 at index \(0, 0\)$"):  # nothing is swapped
        fastgae.gae(natural.ONES, np.eye(4, 3), natural.FLAGS, last_values=0.0, mask=natural.ONES / 2)
