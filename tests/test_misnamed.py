"""Arguments by the names of other libraries: an error that gives the right name."""

import inspect
import re
from typing import get_args, get_type_hints

import numpy as np
import pytest

import fastgae
from fastgae._support.misnamed import ABSENT_HERE, NAMES_ELSEWHERE, NOTES
from fastgae._typing import Misnamed
from fastgae.compat import verl
from support.functions import FUNCTIONS, parameters, required


@pytest.mark.parametrize(
    ("function", "misnamed", "advice"),
    [
        ("gae", "dones", "pass terminated, the flags that env.step returned"),
        ("gae", "next_value", "pass last_values, V after the last step"),
        ("gae", "lam", "pass gae_lambda"),
        ("gae", "lambda_", "pass gae_lambda"),
        ("td_lambda", "gae_lambda", "pass lambda_"),
        ("gae", "use_gae", "there is no such switch"),
        ("gae", "nonterminal", "pass terminated, which is 1 - nonterminal"),
        ("gae", "last_done", "the last row of terminated"),
        ("gae", "gae_gamma", "pass gamma"),
        ("gae", "time_limits", "pass truncated"),
        ("gae", "next_obs", "pass V of the next observations"),
        ("gae", "tim", "it takes rewards"),
        ("gae", "gama", "do you mean gamma?"),
        ("valid_steps", "done", "pass terminated"),
        ("valid_steps", "qqq", "it takes terminated, truncated, prev_done, time_axis"),
        ("upgo", "done", "pass terminated"),
        ("gae_packed", "lengths", "pass cu_seqlens, where each sequence begins"),
        ("diagnose", "discount", "pass gamma"),
        ("moments", "response_mask", "pass mask"),
    ],
)
def test_the_error_gives_the_right_name(function, misnamed, advice):
    given = {name: np.zeros((2, 2)) for name, each in parameters(function).items() if required(each)}
    with pytest.raises(TypeError) as error:
        getattr(fastgae, function)(**given, **{misnamed: 1.0})
    assert str(error.value).startswith(f"{function}() got an unexpected keyword argument '{misnamed}': {advice}")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_signatures_are_shown_as_the_source_has_them(function):
    signature = inspect.signature(getattr(fastgae, function))
    shown = [each.annotation for each in signature.parameters.values()] + [signature.return_annotation]
    assert not re.search(r"['\"~]|numpy|typing|fastgae", " ".join(map(inspect.formatannotation, shown)))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_says_so_and_shows_no_other_argument(function):
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters(function).values())
    given = {name: np.zeros((2, 2)) for name, each in parameters(function).items() if required(each)}
    with pytest.raises(TypeError, match=rf"^{function}\(\) got an unexpected keyword argument 'use_gae': there is no"):
        getattr(fastgae, function)(**given, use_gae=True)


def test_the_error_names_the_first():
    for function in (fastgae.gae, fastgae.td_lambda, fastgae.normalize, verl.compute_rloo_outcome_advantage):
        for names in (("lams", "done"), ("done", "lams")):
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{names[0]}'"):
                function(*[np.ones((2, 2))] * 2, **dict.fromkeys(names, 0.5))


def test_type_checkers_say_the_same():
    for name, advice in get_type_hints(Misnamed).items():
        with pytest.raises(TypeError) as error:
            fastgae.gae(np.ones(2), np.ones(2), **{name: np.ones(2)})
        assert get_args(advice)[0] in str(error.value)
    for function in FUNCTIONS:
        source = inspect.unwrap(getattr(fastgae, function)).__annotations__
        assert ("Unpack[Misnamed]" in source.values()) == ("terminated" in parameters(function)), function


def test_the_table():
    known = {name for function in FUNCTIONS for name in parameters(function)}
    elsewhere = {name for names in NAMES_ELSEWHERE.values() for name in names.split()}
    assert set(NAMES_ELSEWHERE) <= known
    assert set(NOTES) <= elsewhere
    assert elsewhere & set(ABSENT_HERE) == set(NAMES_ELSEWHERE["cu_seqlens"].split())
    for right, names in NAMES_ELSEWHERE.items():
        for function in FUNCTIONS:
            assert right not in parameters(function) or not set(names.split()) & set(parameters(function)), function
