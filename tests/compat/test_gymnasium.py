"""collect beside single environments, stepped one by one without any vectorisation or autoreset."""

import contextlib
import itertools
from functools import partial

import numpy as np
import pytest

import fastgae

gymnasium = pytest.importorskip("gymnasium")
from gymnasium import spaces  # noqa: E402
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv  # noqa: E402
from gymnasium.wrappers.vector import TransformReward  # noqa: E402

from fastgae.compat.gymnasium import Acted, collect  # noqa: E402

GAMMA, GAE_LAMBDA = 0.97, 0.9
NUM_ENVS, ROWS = 3, 60
MODES = list(AutoresetMode)
# Windows of one row, windows that cut episodes, their last step and the reset after it off, and the whole.
WINDOWS = [1, 7, 20, ROWS]
NUMBERS = ("rewards", "terminated", "truncated")
ROWS_OF = ("observations", "actions", "rewards", "terminated", "truncated", "valid")


class Walk(gymnasium.Env):
    """Its observations say which env, episode and step they are of; actions and rewards are told by them.

    Episodes 0, 2, ... terminate, the others are truncated; env n's have n + 2, n + 3, n + 4, n + 2, ... steps, one of
    them ends by both.
    """

    action_space = spaces.Discrete(50)
    observation_space = spaces.Box(-1, 1000, (3,), np.float32)

    def __init__(self, number):
        self.number, self.episode = number, -1

    def observation(self):
        return np.array([self.number, self.episode, self.step_], np.float32)

    def reset(self, *, seed=None, options=None):
        self.episode, self.step_ = self.episode + 1, 0
        return self.observation(), {}

    def step(self, action):
        assert action == action_of(self.observation())
        self.step_ += 1
        ends = self.step_ == self.number + 2 + self.episode % 3
        flags = self.episode % 2 == 0, self.episode % 2 == 1 or self.episode == 4
        return self.observation(), 1.5 * float(action), *(bool(ends and flag) for flag in flags), {}


class InParts(Walk):
    """The same observations and actions, as a Dict and a Tuple. It writes to the actions that it gets."""

    action_space = spaces.Tuple((spaces.Discrete(50), spaces.Box(-1, 1, (2,))))
    observation_space = spaces.Dict(
        {"who": spaces.Discrete(10), "when": spaces.Tuple((spaces.Box(0, 100, (1,)), spaces.Discrete(100)))}
    )

    def step(self, action):
        assert np.array_equal(action[1], np.full(2, 0.5))
        action[1][...] = 0.0
        observation, *rest = super().step(int(action[0]))
        return self.in_parts(observation), *rest

    def reset(self, **keywords):
        observation, info = super().reset(**keywords)
        return self.in_parts(observation), info

    def in_parts(self, observation):
        return {"who": int(observation[0]), "when": (observation[1:2], int(observation[2]))}


def action_of(observation):
    return int(observation @ np.array([7, 3, 1])) % 50


def policy(observations):
    return np.array([action_of(each) for each in observations])


def policy_in_parts(observations):
    actions = policy(joined(observations)), np.full((NUM_ENVS, 2), 0.5, np.float32)
    return Acted(actions, {"values": np.zeros(NUM_ENVS)})


def joined(parts):
    """(..., 3), as Walk has them."""
    return np.concatenate([parts["who"][..., None], parts["when"][0], parts["when"][1][..., None]], -1)


def value_of(observations):
    assert len(observations)  # no critic is called on nothing, such as the final observations of a row without an end
    return 3.0 + np.sin(observations @ np.array([1.0, 2.0, 3.0]))


def make(mode, env=Walk, vector=SyncVectorEnv):
    return vector([lambda n=n: env(n) for n in range(NUM_ENVS)], autoreset_mode=mode)


def changing(change):
    """Return a wrapper with other results of ``step``: those that a function of all results returns by name."""

    class Changing(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            results = dict(zip(("seen", *NUMBERS, "info"), self.env.step(actions), strict=True))
            return tuple((results | change(results)).values())

    return Changing


def rollouts(mode, length=ROWS, env=Walk, policy=policy, vector=SyncVectorEnv, wrapper=lambda envs: envs):
    with contextlib.closing(wrapper(make(mode, env, vector))) as envs:
        return list(itertools.islice(collect(envs, policy, length, seed=0), ROWS // length))


def episodes_of(number):
    """Observations (one more than rewards), rewards and ending of an env's episodes, without end."""
    env = Walk(number)
    while True:
        observation, _ = env.reset()
        observations, rewards, ending = [observation], [], None
        while ending is None:
            observation, reward, terminated, truncated, _ = env.step(action_of(observation))
            observations.append(observation)
            rewards.append(reward)
            ending = "terminated" if terminated else "truncated" if truncated else None
        yield np.array(observations), np.array(rewards), ending


def expected(number, count):
    """An env's first steps: observations, rewards, advantages from the definition; and the episodes that ended."""
    observations, rewards, advantages, ended = [], [], [], []
    episodes = episodes_of(number)
    while len(rewards) < count:
        seen, earned, ending = next(episodes)
        length = min(len(earned), count - len(rewards))
        following = value_of(seen[1:])
        if ending == "terminated":
            following[-1] = 0.0
        deltas = earned + GAMMA * following - value_of(seen[:-1])
        for t in range(length):
            advantages.append(np.sum((GAMMA * GAE_LAMBDA) ** np.arange(length - t) * deltas[t:length]))
        observations.extend(seen[:length])
        rewards.extend(earned[:length])
        if length == len(earned):
            ended.append((earned.sum(), length, ending, seen[-1]))
    return np.array(observations), np.array(rewards), np.array(advantages), ended


@pytest.fixture(params=MODES, ids=lambda mode: mode.name)
def mode(request):
    return request.param


def test_the_steps_are_those_of_each_env_by_itself(mode):
    (rollout,) = rollouts(mode)
    assert rollout.autoreset == mode.name.lower()
    assert rollout.valid.all() == (mode != AutoresetMode.NEXT_STEP)
    assert not rollout.prev_done.any()
    everything_ended = []
    for n in range(NUM_ENVS):
        real = rollout.valid[:, n]
        observations, rewards, _, ended = expected(n, real.sum())
        np.testing.assert_array_equal(rollout.observations[real, n], observations)
        np.testing.assert_array_equal(rollout.actions[real, n], policy(observations))
        np.testing.assert_array_equal(rollout.rewards[real, n], rewards)
        lengths = np.cumsum([length for _, length, *_ in ended])
        rows = np.flatnonzero(real)[lengths - 1]
        endings = [ending for *_, ending, _ in ended]
        assert rollout.terminated[rows, n].tolist() == [ending == "terminated" for ending in endings]
        assert (rollout.terminated | rollout.truncated)[rows, n].all()
        everything_ended += [(row, n, *end) for row, end in zip(rows, ended, strict=True)]

    everything_ended.sort(key=lambda end: end[:2])
    assert rollout.episode_returns.tolist() == [end[2] for end in everything_ended]
    assert rollout.episode_lengths.tolist() == [end[3] for end in everything_ended]
    finals = [end[5] for end in everything_ended if rollout.truncated[end[:2]]]
    np.testing.assert_array_equal(rollout.final_observations, finals)
    assert (rollout.terminated & rollout.truncated).any()  # whose final observation has its place among them


def test_reset_rows_count_for_no_episode(mode):
    """A wrapper may give them a reward."""
    (moved,) = rollouts(mode, wrapper=lambda envs: TransformReward(envs, lambda rewards: rewards - 0.5))
    (plain,) = rollouts(mode)
    assert moved.episode_lengths.tolist() == plain.episode_lengths.tolist()
    np.testing.assert_allclose(moved.episode_returns, plain.episode_returns - 0.5 * plain.episode_lengths)


def test_flags_of_reset_rows_end_no_episode():
    flagged = changing(lambda given: {"truncated": np.ones_like(given["truncated"])})
    (rollout,) = rollouts(AutoresetMode.NEXT_STEP, wrapper=flagged)
    assert rollout.valid.sum() == NUM_ENVS  # a flag of a reset row makes the next row one, too
    assert rollout.episode_lengths.tolist() == [1] * NUM_ENVS


@pytest.mark.parametrize("length", WINDOWS)
def test_windows(mode, length):
    """Windows begin and end in an episode, with its end, or with the reset row after it; the next one goes on there.

    In a window of one row, often no episode ends.
    """
    (whole,) = rollouts(mode)
    pieces, begin = rollouts(mode, length), np.zeros(NUM_ENVS, int)
    for name in (*ROWS_OF, "final_observations", "episode_returns", "episode_lengths"):
        together = np.concatenate([getattr(piece, name) for piece in pieces])
        np.testing.assert_array_equal(together, getattr(whole, name)[: len(together)], strict=True)
    for piece, following in itertools.pairwise(pieces):
        np.testing.assert_array_equal(piece.last_observations, following.observations[0], strict=True)
        np.testing.assert_array_equal((piece.terminated | piece.truncated)[-1], following.prev_done, strict=True)
    for piece in pieces:
        result = fastgae.gae(**piece.arguments(value_of), gamma=GAMMA, gae_lambda=GAE_LAMBDA)
        for n in range(NUM_ENVS):
            real = piece.valid[:, n]
            end = begin[n] + real.sum()
            *_, advantages, _ = expected(n, end)
            np.testing.assert_allclose(result.advantages[real, n], advantages[begin[n] :], rtol=1e-12, atol=1e-12)
            assert (result.advantages[~real, n] == 0).all()
            begin[n] = end


def test_spaces_of_several_parts(mode):
    (plain,), (parts,) = rollouts(mode), rollouts(mode, env=InParts, policy=policy_in_parts)
    for name in ("observations", "last_observations", "final_observations"):
        np.testing.assert_array_equal(joined(getattr(parts, name)), getattr(plain, name))
    assert parts.observations["who"].dtype == np.int64
    real = plain.valid
    np.testing.assert_array_equal(parts.actions[0][real], plain.actions[real])
    np.testing.assert_array_equal(parts.actions[1], np.full((ROWS, NUM_ENVS, 2), 0.5, np.float32), strict=True)
    assert parts.extras["values"].shape == (ROWS, NUM_ENVS)
    expected_call = plain.arguments(value_of)
    for name, array in parts.arguments(lambda batch: value_of(joined(batch))).items():
        np.testing.assert_array_equal(array, expected_call[name])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Gymnasium forks, and BLAS has threads
@pytest.mark.parametrize("vector", [AsyncVectorEnv, partial(SyncVectorEnv, copy=False)], ids=["async", "no copy"])
def test_environments_in_processes_and_in_memory_that_they_use_again(mode, vector):
    for one, other in zip(rollouts(mode, 20), rollouts(mode, 20, vector=vector), strict=True):
        for name in vars(one).keys() - {"autoreset"}:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


def test_what_the_arguments_are(mode):
    (rollout,) = rollouts(mode)
    shapes = []

    def critic(observations):
        shapes.append(observations.shape)
        return value_of(observations).astype(np.float32)[:, np.newaxis]

    call = rollout.arguments(critic)
    truncated = int(rollout.truncated.sum())
    assert shapes[:2] == [(ROWS * NUM_ENVS, 3), (NUM_ENVS, 3)]
    assert shapes[2:] == ([] if mode == AutoresetMode.NEXT_STEP else [(truncated, 3)])
    assert call["rewards"].dtype == call["values"].dtype == np.float32
    assert call["values"].shape == (ROWS, NUM_ENVS)
    assert call["last_values"].shape == (NUM_ENVS,)
    assert ("prev_done" in call) == (mode == AutoresetMode.NEXT_STEP)
    assert ("final_values" in call) == (mode != AutoresetMode.NEXT_STEP)
    assert not fastgae.diagnose(**call)


def test_tensors(mode):
    torch = pytest.importorskip("torch")

    def tensor_policy(observations):
        return torch.from_numpy(policy(observations))

    def critic(observations):
        return torch.from_numpy(value_of(observations)).requires_grad_()

    def simulator(envs):
        return TransformReward(envs, lambda rewards: torch.from_numpy(rewards).requires_grad_())

    (plain,), (tensors,) = rollouts(mode), rollouts(mode, policy=tensor_policy, wrapper=simulator)
    np.testing.assert_array_equal(tensors.actions, plain.actions, strict=True)
    theirs = fastgae.gae(**tensors.arguments(critic)).advantages
    assert theirs.tobytes() == fastgae.gae(**plain.arguments(value_of)).advantages.tobytes()


def acts(observations):
    """Act and say what else there is, in memory that the next call uses again."""
    MEMORY[...] = value_of(observations)
    return Acted(policy(observations), {"values": MEMORY, "state": {"who": observations[:, 0], "both": observations}})


MEMORY = np.empty(NUM_ENVS)


@pytest.mark.parametrize("length", [7, ROWS])
def test_what_else_the_policy_returns_is_stacked(mode, length):
    for plain, rollout in zip(rollouts(mode, length), rollouts(mode, length, policy=acts), strict=True):
        assert plain.extras == {}
        np.testing.assert_array_equal(rollout.actions, plain.actions, strict=True)
        np.testing.assert_array_equal(rollout.extras["values"], value_of(rollout.observations))
        np.testing.assert_array_equal(rollout.extras["state"]["who"], rollout.observations[..., 0])
        np.testing.assert_array_equal(rollout.extras["state"]["both"], rollout.observations)
        given, evaluated = [], []

        def critic(observations, evaluated=evaluated):
            evaluated.append(len(observations))
            return value_of(observations)

        for values in (None, rollout.extras["values"]):
            evaluated.clear()
            given.append(rollout.arguments(critic, values))
            assert (length * NUM_ENVS in evaluated) == (values is None)
        for name, array in given[0].items():
            np.testing.assert_array_equal(given[1][name], array)


class AsTuple(Walk):
    """Its observations are tuples of other numbers than those of its space; a vector casts them."""

    def observation(self):
        return tuple(super().observation().astype(np.float64))

    def step(self, action):
        observation, *rest = super().step(int(action))
        return observation, *rest


def test_final_observations_are_those_of_the_space(mode):
    class Square(AsTuple):
        """Three environments, three numbers and one time limit: the final observations are a square matrix."""

        def step(self, action):
            observation, reward, *_, info = super().step(action)
            return observation, reward, False, self.step_ % 2 == 0, info

    def told(seen):
        return np.array([int(np.asarray(each) @ [7, 3, 1]) % 50 for each in seen])

    for env in (AsTuple, Square):
        (rollout,) = rollouts(mode, 12, env, told)[:1]
        assert rollout.final_observations.dtype == rollout.observations.dtype == np.float32
        numbers = np.nonzero(rollout.truncated)[1]
        np.testing.assert_array_equal(rollout.final_observations[:, 0], numbers)


def test_final_observations_have_the_dtype_of_the_others():
    """Also where a wrapper changes it and does not say so in its space."""

    shift = np.full(1, 2.0**-30)  # which float32 cannot add

    class Wide(gymnasium.vector.VectorWrapper):
        def reset(self, **keywords):
            observations, info = self.env.reset(**keywords)
            return observations + shift, info

        def step(self, actions):
            observations, *rest, info = self.env.step(actions)
            finals = info.get("final_obs", [])
            for n in np.flatnonzero([final is not None for final in finals]):
                finals[n] = finals[n] + shift
            return observations + shift, *rest, info

    (rollout,) = rollouts(AutoresetMode.SAME_STEP, policy=lambda seen: policy(seen - shift), wrapper=Wide)
    assert rollout.final_observations.dtype == rollout.observations.dtype == np.float64
    (plain,) = rollouts(AutoresetMode.SAME_STEP)
    np.testing.assert_array_equal(rollout.final_observations, plain.final_observations + shift)


def test_the_mode_is_that_of_the_envs_and_not_of_their_class(mode):
    """Until Gymnasium 1.4, the next envs write their mode to the metadata of these."""
    for other in MODES:
        with contextlib.closing(make(mode)) as envs:
            envs.metadata["autoreset_mode"] = other
            assert next(collect(TransformReward(envs, lambda reward: reward), policy, 4)).autoreset == mode.name.lower()


@pytest.mark.parametrize(
    "change",
    [
        lambda info: {},
        lambda info: info | {"final_obs": [*info.get("final_obs", [])]},
        lambda info: info | {"final_obs": np.full(NUM_ENVS, None)},
        lambda info: info | {"final_obs": {"who": np.zeros(NUM_ENVS)}},
        lambda info: [info] * NUM_ENVS,  # as DictInfoToList has it
    ],
)
def test_final_observations_that_are_missing(change):
    with pytest.raises(ValueError, match=r'info\["final_obs"\] of a step must be an array of 3 observations'):
        rollouts(AutoresetMode.SAME_STEP, wrapper=changing(lambda given: {"info": change(given["info"])}))


OF_EACH = "of envs must have a number for each of 3 .*, got shape"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda given: {"info": dict.fromkeys(given["info"], np.ones((NUM_ENVS, 99)))},
            r'info\["final_obs"\] does not fit into Box.*: a wrapper of obs',
        ),
        (lambda given: {name: given[name] * 0.5 for name in NUMBERS[1:]}, "terminated of envs must hold 0 or 1, got"),
        (lambda given: {"rewards": given["rewards"].sum()}, rf"rewards {OF_EACH} \(\), not \(3,\)"),
        (lambda given: {"truncated": given["truncated"][:1]}, rf"truncated {OF_EACH} \(1,\), not \(3,\)"),
    ],
)
def test_what_environments_must_return(change, message):
    with pytest.raises(ValueError, match=message):
        rollouts(AutoresetMode.SAME_STEP, wrapper=changing(change))


def test_columns_of_environments(mode):
    columns = changing(lambda given: {name: given[name][:, np.newaxis] for name in NUMBERS})
    (plain,), (rollout,) = rollouts(mode), rollouts(mode, wrapper=columns)
    for name in NUMBERS:
        np.testing.assert_array_equal(getattr(rollout, name), getattr(plain, name), strict=True)


NAMES_IN_TURN, PARTS_IN_TURN = iter([["values"], []]), itertools.count(1)


@pytest.mark.parametrize(
    ("acted", "message"),
    [
        (lambda actions: actions[:2], r"policy returned actions of shape \(2,\); expected \(3, ...\), a row per env"),
        (lambda actions: None, r"policy returned actions of shape \(\); expected \(3, ...\)"),
        (
            lambda actions: (actions, actions),
            r"returned a tuple as actions for Discrete\(50\): .* return Acted\(actions,",
        ),
        (lambda actions: Acted(actions, actions), "extras of Acted must be a dict"),
        (lambda actions: Acted(actions, None), "extras of Acted must be a dict"),
        (lambda actions: Acted(actions, {"t": [[1], [1, 2], [1]]}), "^extras of policy has rows of different lengths"),
        (lambda actions: Acted(actions, {"t": np.ones(1)}), r"extras\['t'\] of shape \(1,\); expected \(3, ...\)"),
        (
            lambda actions: Acted(actions, dict.fromkeys(next(NAMES_IN_TURN), np.ones(3))),
            r"policy returned the extras \[\], and \['values'\] at the step before",
        ),
        (
            lambda actions: Acted(actions, {"t": (np.ones(3),) * next(PARTS_IN_TURN)}),
            r"extras\['t'\] of policy must have the same shapes and parts at every step: zip",
        ),
    ],
)
def test_what_a_policy_must_return(acted, message):
    with pytest.raises(ValueError, match=message):
        rollouts(MODES[0], 4, policy=lambda seen: acted(policy(seen)))


def test_parts_without_numbers():
    class Empty(Walk):
        observation_space = spaces.Dict({"none": spaces.Box(0, 1, (0, 3)), "all": Walk.observation_space})

        def observation(self):
            return {"none": np.zeros((0, 3), np.float32), "all": super().observation()}

        def step(self, action):
            self.step_ += 1
            return self.observation(), 1.0, False, False, {}

    (rollout,) = rollouts(MODES[0], env=Empty, policy=lambda seen: policy(seen["all"]))
    arguments = rollout.arguments(lambda seen: value_of(seen["all"]) + seen["none"].sum((1, 2)))
    np.testing.assert_array_equal(arguments["values"], value_of(rollout.observations["all"]))


def test_refusals():
    with contextlib.closing(make(AutoresetMode.SAME_STEP)) as envs:
        with pytest.raises(ValueError, match="num_steps must be 1 or more, got 0"):
            collect(envs, policy, 0)
        with pytest.raises(TypeError, match=r"envs must have .*, got .*; make several by gymnasium.make_vec"):
            collect(gymnasium.make("CartPole-v1"), policy, 4)
        rollout = next(collect(envs, policy, 4))
        with pytest.raises(ValueError, match=r"value_function must .* of 12 .* \(12, 3\), not \(12,\)$"):
            rollout.arguments(lambda observations: observations)
        for shape, got in ((3, r"\(3,\)"), ((NUM_ENVS, 4), rf"\({NUM_ENVS}, 4\), not \(4, {NUM_ENVS}\)")):
            with pytest.raises(ValueError, match=f"values must have a number for each of 12 .*, got shape {got}"):
                rollout.arguments(value_of, np.zeros(shape))
        for shape in ((4, NUM_ENVS, 1), (4 * NUM_ENVS,)):
            assert rollout.arguments(value_of, np.zeros(shape))["values"].shape == (4, NUM_ENVS)
        envs.metadata = {}
        assert next(collect(envs, policy, 4)).autoreset == "same_step"  # they know it themselves
        for metadata in (None, {}, {"autoreset_mode": None}, {"autoreset_mode": "NextStep"}):
            envs.metadata, envs.autoreset_mode = metadata, None
            with pytest.raises(ValueError, match=r'envs must say how they reset, in envs.metadata\["autoreset_mode"\]'):
                collect(envs, policy, 4)

    for space in (
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Dict({"said": spaces.Text(3)}),
        spaces.Tuple([spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)])]),
        spaces.Space((2,), np.float32),
    ):
        words = type("Words", (Walk,), {"observation_space": space})
        refused = pytest.raises(ValueError, match=r"single_observation_space must have arrays of fixed shapes")
        with contextlib.closing(make(AutoresetMode.SAME_STEP, words)) as envs, refused:
            collect(envs, policy, 4)
