"""A plugin of pytest: ``-p suites.in_place --in-place NAME`` puts fastgae in place in the library of this name.

It writes into the report of each test (``--junitxml``) how many calls of fastgae the test made.
"""

import functools
import importlib

import pytest

import fastgae

from .libraries import LIBRARIES

CALLS = "calls of fastgae"

made: list[str] = []  # the functions of fastgae that were called


def pytest_addoption(parser):
    parser.addoption("--in-place", choices=LIBRARIES, help="the library in which fastgae computes")


def pytest_configure(config):
    name = config.getoption("--in-place")
    count_calls_from(importlib.import_module(f"fastgae.compat.{name}"))
    LIBRARIES[name].put_in_place()


def count_calls_from(compat):
    """Count the calls that this module of fastgae.compat makes of fastgae's public functions."""
    for name, function in list(vars(compat).items()):
        if name in fastgae.__all__ and function is getattr(fastgae, name):
            setattr(compat, name, counted(name, function))


def counted(name, function):
    @functools.wraps(function)
    def call(*arguments, **named):
        made.append(name)
        return function(*arguments, **named)

    return call


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = len(made)
    try:
        return (yield)
    finally:
        item.user_properties.append((CALLS, len(made) - before))
