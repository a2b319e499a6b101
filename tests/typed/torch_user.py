"""A user's code with torch. Type checkers must accept it, and what it says of types must hold when it runs."""

from typing import assert_type

import torch

import fastgae
from fastgae.compat import cleanrl, paper2code, pufferlib, torchrl, trl, verl

rewards, values, last_values = torch.ones(3, 2), torch.ones(3, 2), torch.ones(2)
flags = torch.zeros(3, 2, dtype=torch.bool)

advantages, returns = fastgae.gae(rewards, values, flags, last_values=last_values)
assert_type(advantages, torch.Tensor)
assert_type(returns, torch.Tensor)
assert_type(fastgae.td_lambda(rewards, values, None, last_values=0.0), torch.Tensor)
assert_type(fastgae.gae_packed(rewards[:, 0], values[:, 0], [0, 3], gamma=1.0), fastgae.GAEResult[torch.Tensor])
assert_type(fastgae.normalize(advantages, out=advantages), torch.Tensor)
assert_type(fastgae.valid_steps(flags), torch.Tensor)

# The functions of other libraries, decorated in one way or another.
assert_type(
    cleanrl.compute_gae(rewards, values, flags, next_value=last_values, next_done=flags[0]),
    tuple[torch.Tensor, torch.Tensor],
)
targets = torchrl.td_lambda_return_estimate(0.9, 0.9, values, rewards, flags, time_dim=0)
assert_type(targets, torch.Tensor)
assert_type(trl.compute_advantages(values, rewards, ~flags)[2], torch.Tensor)
assert_type(verl.compute_rloo_outcome_advantage(rewards, ~flags, index=["a", "a", "b"])[0], torch.Tensor)
assert_type(paper2code.compute_gae(rewards, torch.ones(4, 2), flags)[0], torch.Tensor)
filled = pufferlib.compute_puff_advantage(values, rewards, flags, values, torch.zeros(3, 2), 0.9, 0.9, 1.0, 1.0)
assert_type(filled, torch.Tensor)
assert_type(torchrl.vec_generalized_advantage_estimate(0.9, 0.9, values, values, rewards, flags)[0], torch.Tensor)
loss = -(advantages * values.log()).mean()
