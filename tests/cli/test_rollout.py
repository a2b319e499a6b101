"""The rollout and the value function of the demo, from environments stepped one by one."""

import gymnasium
import numpy as np
import pytest

import fastgae
from fastgae.cli import rollout


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Acrobot-v1", "Taxi-v3", "Blackjack-v1"])
def test_every_kind_of_space_can_be_collected_and_fitted(env_id, collected):
    if env_id == "Taxi-v3":
        env_id = max(name for name in gymnasium.registry if name.startswith("Taxi-"))
    data = collected(env_id, 3, 20)
    values = rollout.ValueFunction(data.observations, 0)
    values.fit(data, 0.9)
    assert values(data.observations).shape == (20, 3)
    assert np.isfinite(values(data.observations)).all()
    assert data.arguments(values)["rewards"].dtype == values(data.observations).dtype == np.float32


def test_value_function_is_really_fitted(collected):
    data = collected("Pendulum-v1", 8, 128)
    values = rollout.ValueFunction(data.observations, 0)
    assert values.fit(data, 0.99) > 0.8
    # And it is not only memory: it also explains a rollout that it has not seen.
    unseen = collected("Pendulum-v1", 8, 128, seed=100)
    returns = fastgae.gae(**unseen.arguments(values), gamma=0.99, gae_lambda=1.0).returns
    assert np.var(returns - values(unseen.observations)) < 0.3 * np.var(returns)


def test_value_function_finds_the_value_of_an_endless_constant_reward(collected):
    # Acrobot pays -1 at every step, and no random policy ends an episode so soon: V = -1 / (1 - gamma).
    data = collected("Acrobot-v1", 2, 64)
    values = rollout.ValueFunction(data.observations, 0)
    assert values.fit(data, 0.9) is None
    np.testing.assert_allclose(values(data.observations), -10.0, rtol=1e-3)
    data = collected("CartPole-v1", 8, 5)  # where few steps are fitted, V does not grow without end
    for gamma, most in ((0.99, 200), (1.0, 2000)):
        values = rollout.ValueFunction(data.observations, 0)
        values.fit(data, gamma)
        assert np.abs(values(data.observations)).max() <= most
