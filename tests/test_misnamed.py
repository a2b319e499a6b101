"""Arguments by the names of other libraries: an error that gives the right name."""

import inspect
import re

import numpy as np
import pytest

import fastgae
from fastgae._misnamed import ABSENT_HERE, NAMES_ELSEWHERE, NOTES
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


def test_the_table():
    known = {name for function in FUNCTIONS for name in parameters(function)}
    elsewhere = {name for names in NAMES_ELSEWHERE.values() for name in names.split()}
    assert set(NAMES_ELSEWHERE) <= known
    assert set(NOTES) <= elsewhere
    assert elsewhere & set(ABSENT_HERE) == set(NAMES_ELSEWHERE["cu_seqlens"].split())
    for right, names in NAMES_ELSEWHERE.items():
        for function in FUNCTIONS:
            assert right not in parameters(function) or not set(names.split()) & set(parameters(function)), function
