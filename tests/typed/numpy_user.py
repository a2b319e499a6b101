"""A user's code with NumPy. Type checkers must accept it, and what it says of types must hold when it runs."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import fastgae
from fastgae.compat import rsl_rl, trl

Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]


def singles(*shape: int) -> Singles:
    return np.ones(shape, np.float32)


def doubles(*shape: int) -> Doubles:
    return np.ones(shape)


def integers(*shape: int) -> NDArray[np.int64]:
    return np.ones(shape, np.int64)


def no_flags(*shape: int) -> NDArray[np.bool_]:
    return np.zeros(shape, np.bool_)


def of_any_dtype(*shape: int) -> NDArray[Any]:
    return np.ones(shape, np.float32)


class Column:
    """A column of a table, as libraries for tables have it."""

    def to_numpy(self) -> Doubles:
        return np.ones(3)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Doubles:
        return self.to_numpy()


rewards, values, last_values = singles(3, 2), singles(3, 2), singles(2)
flags = no_flags(3, 2)

# The dtype of the first argument stays.
advantages, returns = fastgae.gae(rewards, values, flags, last_values=last_values)
assert_type(advantages, Singles)
assert_type(returns, Singles)
assert_type(
    fastgae.gae(rewards=doubles(3, 2), values=values, terminated=None, last_values=0.0), fastgae.GAEResult[Doubles]
)
assert_type(fastgae.gae(of_any_dtype(3, 2), values, None, last_values=0.0), fastgae.GAEResult[NDArray[Any]])

# Other first arguments give arrays of NumPy.
assert_type(fastgae.gae([1.0, 1.0], [0.5, 0.5], None, last_values=0.0).advantages, NDArray[Any])
assert_type(fastgae.gae(integers(3, 2), values, None, last_values=0.0).advantages, NDArray[Any])
assert_type(fastgae.gae(Column(), [0.5, 0.5, 0.5], None, last_values=0.0).advantages, NDArray[Any])

# Every function.
assert_type(fastgae.gae_packed(singles(5), singles(5), [0, 2, 5], gamma=1.0), fastgae.GAEResult[Singles])
assert_type(
    fastgae.vtrace(rewards, values, flags, ratios=singles(3, 2), last_values=last_values), fastgae.GAEResult[Singles]
)
assert_type(fastgae.upgo(rewards, values, flags, last_values=last_values), fastgae.GAEResult[Singles])
assert_type(fastgae.td_lambda(rewards, values, flags, last_values=last_values), Singles)
assert_type(fastgae.n_step_returns(rewards, values, flags, n=2, last_values=last_values), Singles)
assert_type(fastgae.discounted_returns(rewards, flags, last_values=last_values), Singles)
assert_type(fastgae.retrace(rewards, values, flags, next_values=values, ratios=singles(3, 2)), Singles)
assert_type(fastgae.reverse_scan(doubles(3), 0.9), Doubles)
assert_type(fastgae.normalize(advantages, by="per_env"), Singles)
assert_type(fastgae.valid_steps(flags), NDArray[np.bool_])
assert_type(fastgae.valid_steps([0, 1, 0]), NDArray[np.bool_])
assert_type(fastgae.moments(advantages).std, float)
assert_type(fastgae.diagnose(rewards, values, flags, last_values=last_values), fastgae.Diagnosis)

# The functions of other libraries.
assert_type(rsl_rl.compute_returns(rewards, values, flags, last_values, 0.9, 0.9), tuple[Singles, Singles])
assert_type(trl.grpo_advantages(integers(4), 2, "batch"), NDArray[Any])

# Options.
result: fastgae.GAEResult[Singles] = fastgae.gae(
    rewards,
    values,
    flags,
    last_values=last_values,
    autoreset="next_step",
    normalize="global",
    out=(singles(3, 2), singles(3, 2)),
    backend="numpy",
)
