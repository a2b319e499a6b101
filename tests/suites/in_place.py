"""A plugin of pytest: ``-p suites.in_place --library NAME --in-place`` puts fastgae in place in this library.

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
    parser.addoption("--library", choices=LIBRARIES, help="whose tests they are")
    parser.addoption("--in-place", action="store_true", help="compute with fastgae in this library")


def pytest_configure(config):
    name = config.getoption("library")
    if config.getoption("in_place"):
        count_calls_from(importlib.import_module(f"fastgae.compat.{name}"))
        LIBRARIES[name].put_in_place()


def pytest_collection_finish(session):
    option = session.config.getoption
    LIBRARIES[option("library")].collected(option("in_place"))


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
