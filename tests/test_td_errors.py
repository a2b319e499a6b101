"""fastgae.td_errors against its definition."""

import numpy as np

import fastgae
from support.cases import assert_same_bits, make_case


def test_definition(backend):
    case = make_case((9, 4), np.float32, bootstrap="next_values")
    given = {name: each for name, each in case.arguments().items() if name != "gae_lambda"}
    assert_same_bits(
        fastgae.td_errors(**given, backend=backend), fastgae.gae(**given, gae_lambda=0.0, backend="numpy").advantages
    )
