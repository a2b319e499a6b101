"""Every line of docs/my-library.md computes what the library does, and the page's table of hooks is up to date."""

import ast
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pytest

import fastgae

from .compare import Comparison
from .lines import COEFFICIENTS, PAGE_TABLES, TABLES_OF_LINES, rows_of
from .table import TABLES

LINES = [
    pytest.param(row, theirs.get((row.library, row.replaced)), rollout, id=row.library)
    for table, (rollout, theirs) in TABLES_OF_LINES.items()
    for row in rows_of(table)
]


def run(line, names):
    """Execute the statements of a line, and return the value of the last one as a tuple."""
    tree = ast.parse(line)
    exec(compile(ast.Module(tree.body[:-1], []), line, "exec"), names)
    results = eval(compile(ast.Expression(tree.body[-1].value), line, "eval"), names)
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize(("row", "theirs", "rollout"), LINES)
def test_line(row, theirs, rollout):
    assert row.is_function == bool(theirs.package)
    try:
        assert not theirs.package or version(theirs.package) == row.version
    except PackageNotFoundError as missing:
        pytest.skip(str(missing))
    for seed, coefficients in enumerate(COEFFICIENTS):
        of = rollout(np.random.default_rng(seed), *coefficients)
        steps = getattr(of, theirs.where, slice(None))
        pairs = zip(theirs.compute(of), run(row.line, {"fastgae": fastgae, "np": np, **vars(of)}), strict=True)
        expected, ours = zip(*((np.asarray(a)[steps], np.asarray(b)[steps]) for a, b in pairs), strict=True)
        compared = Comparison(row.library, expected, ours, row.tolerance)
        assert compared.holds(), f"{coefficients}: differs by {compared.largest_difference()}"


def test_the_page_has_every_line_and_hook():
    for table, (_, theirs) in TABLES_OF_LINES.items():
        assert [(row.library, row.replaced) for row in rows_of(table)] == [*theirs]
    assert PAGE_TABLES.keys() == {*TABLES_OF_LINES, *TABLES}
    assert PAGE_TABLES["hooks"] == TABLES["hooks"](), "run python -m peers.table"  # test_peers compares the functions
