"""A user's code with torch. Type checkers must accept it, and what it says of types must hold when it runs."""

from typing import assert_type

import torch

import fastgae

rewards, values, last_values = torch.ones(3, 2), torch.ones(3, 2), torch.ones(2)
flags = torch.zeros(3, 2, dtype=torch.bool)

advantages, returns = fastgae.gae(rewards, values, flags, last_values=last_values)
assert_type(advantages, torch.Tensor)
assert_type(returns, torch.Tensor)
assert_type(fastgae.td_lambda(rewards, values, last_values=0.0), torch.Tensor)
assert_type(fastgae.gae_packed(rewards[:, 0], values[:, 0], [0, 3]), fastgae.GAEResult[torch.Tensor])
assert_type(fastgae.normalize(advantages, out=advantages), torch.Tensor)
assert_type(fastgae.valid_steps(flags), torch.Tensor)
loss = -(advantages * values.log()).mean()
