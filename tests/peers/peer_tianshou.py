"""The compiled loop, and the static method on a ReplayBuffer."""

import numpy as np

from fastgae.compat.tianshou import _gae, compute_episodic_return

from .compare import called

PACKAGE = "tianshou==2.0.1"


def comparisons(rng):
    from tianshou.algorithm import algorithm_base
    from tianshou.data import Batch, ReplayBuffer

    length, coefficients = 200, (0.99, 0.95)
    values, following, rewards = rng.normal(size=(3, length))
    ends, limit = rng.random(length) < 0.1, rng.random(length) < 0.5
    for dtype in (np.float32, np.float64):
        given = values.astype(dtype), following.astype(dtype), rewards, ends, *coefficients
        yield called(f"_gae, {dtype.__name__} values", algorithm_base._gae, _gae, *given)

    buffer = ReplayBuffer(150)  # the first steps are overwritten, and the last one ends no episode
    ends[-1] = False
    for t in range(length):
        flags = {"terminated": ends[t] and not limit[t], "truncated": ends[t] and limit[t]}
        buffer.add(Batch(obs=0, act=0, rew=rewards[t], obs_next=0, info={}, **flags))
    indices = np.roll(buffer.sample_indices(0), 70)  # the unfinished episode ends amidst them
    batch = buffer[indices]
    v_s_, v_s = (each[: len(indices)].astype(np.float32) for each in (following, values))
    theirs = algorithm_base.Algorithm.compute_episodic_return
    for form, *given in [
        ("", v_s_, v_s, 0.99, 0.95),
        (", V' alone", v_s_, None, 0.99, 0.95),
        (", rewards alone", None, None, 0.9, 1.0),
    ]:
        name = f"Algorithm.compute_episodic_return{form}"
        yield called(name, theirs, compute_episodic_return, batch, buffer, indices, *given)
