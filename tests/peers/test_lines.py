"""Every line of docs/my-library.md computes what the library does, and the page is up to date."""

import ast
from importlib.metadata import PackageNotFoundError, version
from itertools import product

import numpy as np
import pytest

import fastgae

from .compare import Comparison
from .lines import COEFFICIENTS, ENVIRONMENTS, TOKENS, environments, tokens
from .table import MARKED, PAGE, TABLES


def run(line, names):
    """Execute the statements of a line, and return the value of the last one as a tuple."""
    tree = ast.parse(line)
    exec(compile(ast.Module(tree.body[:-1], []), line, "exec"), names)
    results = eval(compile(ast.Expression(tree.body[-1].value), line, "eval"), names)
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize(
    ("row", "rollout"),
    [*product(ENVIRONMENTS, [environments]), *product(TOKENS, [tokens])],
    ids=lambda each: getattr(each, "library", ""),
)
def test_line(row, rollout):
    try:
        assert not row.package or version(row.package) == row.version
    except PackageNotFoundError as missing:
        pytest.skip(str(missing))
    for seed, coefficients in enumerate(COEFFICIENTS):
        of = rollout(np.random.default_rng(seed), *coefficients)
        steps = getattr(of, row.where, slice(None))
        pairs = zip(row.theirs(of), run(row.line, {"fastgae": fastgae, "np": np, **vars(of)}), strict=True)
        theirs, ours = zip(*((np.asarray(a)[steps], np.asarray(b)[steps]) for a, b in pairs), strict=True)
        compared = Comparison(row.library, theirs, ours, row.tolerance)
        assert compared.holds(), f"{coefficients}: differs by {compared.largest_difference()}"


def test_the_page_is_up_to_date():
    found = {name: rows for _, name, rows in MARKED.findall(PAGE.read_text(encoding="utf-8"))}
    assert found.keys() == TABLES.keys()
    for name in found.keys() - {"functions"}:  # test_peers compares these, which need their libraries
        assert found[name] == TABLES[name](), f"{name}: run python -m peers.table"
