"""A user's mistakes. Type checkers must find each: a comment on a line without a mistake is an error of its own."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import numpy as np

import fastgae
from fastgae.compat import cleanrl, trl

rewards, values = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)

fastgae.gea(rewards, values, last_values=0.0)  # type: ignore[attr-defined]
fastgae.gae(rewards, values, None, last_values=0.0, autoreset="nextstep")  # type: ignore[arg-type]
fastgae.gae(rewards, values, None, last_values=0.0, normalize="per-env")  # type: ignore[arg-type]
fastgae.gae(rewards, values, None, last_values=0.0, backend="cuda")  # type: ignore[arg-type]
fastgae.normalize(rewards, by="env")  # type: ignore[arg-type]
fastgae.gae(rewards, values, None, dones=rewards)  # type: ignore[arg-type]
fastgae.gae(rewards, values, None, last_values=0.0, lambda_=0.9)  # type: ignore[call-arg]
fastgae.td_lambda(rewards, values, None, done=rewards)  # type: ignore[arg-type]
fastgae.gae(1.0, values, None)  # type: ignore[arg-type]
fastgae.gae(rewards)  # type: ignore[call-arg]
targets = fastgae.td_lambda(rewards, values, None, last_values=0.0).advantages  # type: ignore[attr-defined]
fastgae.gae(rewards, values, None, last_values=0.0).returns.backward()  # type: ignore[attr-defined]
advantages, returns, moments = fastgae.gae(rewards, values, None, last_values=0.0)  # type: ignore[misc]
cleanrl.compute_gae(rewards, values, rewards, values, values, lam=0.9)  # type: ignore[call-arg]
cleanrl.compute_gae(rewards, values, rewards, values, values)[0].backward()  # type: ignore[attr-defined]
trl.grpo_advantages(rewards, 2, "std")  # type: ignore[arg-type]
