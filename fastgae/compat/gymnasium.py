"""Gymnasium: collect rollouts of vectorised environments for ``fastgae.gae``, in every autoreset mode.

``collect`` replaces a loop around ``envs.step`` that stores observations, rewards, both flags, the final observations
where the mode hides them, and whether the previous rollout stopped at the end of an episode::

    from fastgae.compat.gymnasium import collect

    for rollout in collect(envs, policy, num_steps=128, seed=0):
        advantages, returns = fastgae.gae(**rollout.arguments(critic), gamma=0.99, gae_lambda=0.95)
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from fastgae._call import Array
from fastgae._canonical.arguments import autoreset_mode, shown
from fastgae._canonical.frame import as_flags
from fastgae._interop.libraries import as_floats, on_the_cpu
from fastgae.compat._anywhere import Copied, Having, in_numpy
from fastgae.estimators.valid_steps import valid_steps

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

# A batch of observations or actions: an array, or a dict or tuple of arrays if the space has several parts.
Batch = Any


@dataclass(frozen=True, eq=False)
class Acted:
    """Actions of a policy, and its other results for each environment. ``collect`` stacks both.

    It is a separate class because a tuple or a dict from a policy may be actions of several parts.

    Attributes
    ----------
    actions : (N, ...)
    extras : dict of (N, ...), optional
        Such as "log_probs" or "values".

    Examples
    --------
    >>> import numpy as np
    >>> from fastgae.compat.gymnasium import Acted
    >>> Acted(np.zeros(2, int), {"log_probs": np.full(2, -0.7)}).extras
    {'log_probs': array([-0.7, -0.7])}
    """

    actions: Batch
    extras: Mapping[str, Batch] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Rollout:
    """T steps of N environments, as ``collect`` gathers them.

    Row t of the flags is what ``env.step`` returned with row t of the rewards.

    Attributes
    ----------
    observations : (T, N, ...)
        The policy acted on these.
    actions : (T, N, ...)
    extras : dict of (T, N, ...)
        The ``extras`` that the policy returned in an ``Acted``. It is empty if the policy returned only actions.
    rewards : (T, N), float64
    terminated, truncated : (T, N), bool
    prev_done : (N,), bool
        The step before row 0 ended an episode.
    last_observations : (N, ...)
        The policy acts on these next.
    final_observations : (F, ...)
        The observation after each truncated step, before any reset, in C order of ``truncated``.
    episode_returns : (E,), float64
        Undiscounted sums of the rewards of the episodes that ended in this rollout, in the order of time. They count
        from the first step of an episode, even if it is in an earlier rollout.
    episode_lengths : (E,), integers
        The numbers of steps of the same episodes.
    autoreset : "next_step", "same_step" or "disabled"
    """

    observations: Batch
    actions: Batch
    extras: dict[str, Batch]
    rewards: Array
    terminated: Array
    truncated: Array
    prev_done: Array
    last_observations: Batch
    final_observations: Batch
    episode_returns: Array
    episode_lengths: Array
    autoreset: str

    @property
    def valid(self) -> Array:
        """Return which rows are real steps, (T, N) bool. Do not train on the others, the reset rows of NEXT_STEP."""
        if self.autoreset == "next_step":
            return valid_steps(self.terminated, self.truncated, self.prev_done)
        return np.ones_like(self.terminated)

    @in_numpy()
    def arguments(self, value_function: Callable[[Batch], Any], values: Copied | None = None) -> dict[str, Any]:
        """Evaluate the observations, and return the arguments for ``fastgae.gae``, ``td_lambda`` or ``diagnose``.

        Parameters
        ----------
        value_function : callable
            Takes a batch of B observations, without a time axis, and returns B numbers of any shape, as an array or a
            tensor. It is called with ``observations``, with ``last_observations`` and, if the mode needs it, with
            ``final_observations``, and must not write to them.
        values : array of shape (T, N), optional
            V of ``observations`` if the policy computed it, such as ``extras["values"]``. They are not evaluated again.

        Returns
        -------
        dict
            ``rewards`` in the dtype of the values, ``values``, ``terminated``, ``truncated``, ``last_values``,
            ``autoreset``, and ``prev_done`` ("next_step") or ``final_values``.

        Raises
        ------
        ValueError
            ``value_function`` does not return one number for each observation, or ``values`` does not have one.
        """
        shape = self.rewards.shape

        def evaluated(observations: Batch, shape: tuple[int, ...]) -> Array:
            return _shaped("value_function must return", value_function(observations), shape, any_shape=True)

        if values is None:
            flat = _map(lambda array: array.reshape(self.rewards.size, *array.shape[2:]), self.observations)
            values = evaluated(flat, shape)
        else:
            values = _shaped("values must have", values, shape)
        arguments = {
            "rewards": self.rewards.astype(values.dtype),
            "values": values,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "last_values": evaluated(self.last_observations, shape[1:]),
            "autoreset": self.autoreset,
        }
        if self.autoreset == "next_step":
            return arguments | {"prev_done": self.prev_done}
        count = int(np.count_nonzero(self.truncated))
        finals = evaluated(self.final_observations, (count,)) if count else np.empty(0, values.dtype)
        return arguments | {"final_values": finals}


@in_numpy()
def collect(
    envs: Annotated[
        "VectorEnv[Any, Any, Any]",
        Having(
            "metadata num_envs single_action_space single_observation_space reset step",
            "; make several by gymnasium.make_vec, or one, num_envs=1",
        ),
    ],
    policy: Callable[[Batch], Batch | Acted],
    num_steps: int,
    *,
    seed: int | None = None,
) -> Iterator[Rollout]:
    """Yield rollouts of ``num_steps`` steps without end; each continues where the previous one stopped.

    ``collect`` handles every mode as Gymnasium defines it. The final observation of a truncated step is the one that
    ``step`` returned (NEXT_STEP, DISABLED) or ``info["final_obs"]`` (SAME_STEP). Under DISABLED, environments whose
    episode ended are reset by mask. Under NEXT_STEP, the row after the end of an episode is not a real step.

    Parameters
    ----------
    envs : gymnasium.vector.VectorEnv
        They are reset before the first step, and nothing else may reset or step them until the last rollout. Make new
        ones for another ``collect``: some of Gymnasium's keep a reset that is due, also over ``reset``. Their
        ``metadata["autoreset_mode"]`` names the mode. Under SAME_STEP, a wrapper that changes observations must change
        ``info["final_obs"]`` as well, and an environment must return a new array at every step, because Gymnasium does
        not copy the last one before the reset.
    policy : callable
        Takes a batch of N observations, and returns N actions for ``envs.step``, as arrays or tensors. To keep other
        results, such as log-probabilities and values, it returns ``Acted(actions, {"log_probs": ...})``, with the same
        names at every step; ``Rollout.extras`` has them with the shape (T, N, ...).
    num_steps : int
        T, the number of steps of each environment.
    seed : int, optional
        Seed of the reset.

    Yields
    ------
    Rollout
        Train on its rows where ``valid`` is True.

    Raises
    ------
    ValueError
        ``num_steps`` is less than 1, the environments do not name their mode, or their observations or actions have no
        fixed shape. While steps are collected: the actions or the extras of a policy do not have one row for each
        environment, the extras have other names than at the step before, an environment has no reward or flag of its
        own, a flag is not 0 or 1, or SAME_STEP gives no final observations.
    """
    if num_steps < 1:
        raise ValueError(f"num_steps must be 1 or more, got {num_steps!r}")
    base, metadata = getattr(envs, "unwrapped", envs), {} if envs.metadata is None else envs.metadata
    # Until Gymnasium 1.4, these metadata are those of the class, where the envs that were made last write their mode.
    made_with = getattr(base, "autoreset_mode", None) if metadata is getattr(base, "metadata", None) else None
    try:
        mode = autoreset_mode(made_with or metadata.get("autoreset_mode"))
    except (TypeError, ValueError):
        mode = None
    if mode is None:
        raise ValueError('envs must say how they reset, in envs.metadata["autoreset_mode"]: a member of AutoresetMode')
    for name in ("single_observation_space", "single_action_space"):
        if not _has_fixed_shapes(getattr(envs, name)):
            raise ValueError(f"{name} must have arrays of fixed shapes, got {getattr(envs, name)}")
    return _rollouts(envs, policy, num_steps, seed, mode)


def _rollouts(
    envs: "VectorEnv[Any, Any, Any]",
    policy: Callable[[Batch], Batch | Acted],
    num_steps: int,
    seed: int | None,
    autoreset: str,
) -> Iterator[Rollout]:
    observations, _ = envs.reset(seed=seed)
    done = np.zeros(envs.num_envs, np.bool_)
    returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)  # of the unfinished episodes
    while True:
        prev_done = done
        rewards = np.empty((num_steps, envs.num_envs))
        terminated, truncated = np.empty((2, num_steps, envs.num_envs), np.bool_)
        seen, taken, ended = [], [], [(returns[:0], lengths[:0])]
        extras: list[dict[str, Batch]] = []
        finals = [_copied(_map(lambda array: array[:0], observations))]
        for t in range(num_steps):
            seen.append(_copied(observations))
            acted = policy(observations)
            if not isinstance(acted, Acted):
                acted = Acted(acted)
            taken.append(_checked_actions(_copied(acted.actions, "actions of policy"), envs))
            extras.append(_checked(_copied(acted.extras, "extras of policy"), envs.num_envs, extras))
            # Environments and wrappers may write to the actions that they get.
            observations, earned, ends, cuts, info = envs.step(_copied(taken[-1]))
            rewards[t] = _shaped("rewards of envs must have", earned, done.shape)
            terminated[t] = _shaped("terminated of envs must have", ends, done.shape, as_flags)
            truncated[t] = _shaped("truncated of envs must have", cuts, done.shape, as_flags)
            is_step = ~done if autoreset == "next_step" else True  # a wrapper may give a reset row a reward or a flag
            returns += np.where(is_step, rewards[t], 0.0)
            lengths += is_step
            done = terminated[t] | truncated[t]
            if truncated[t].any():
                finals.append(_final(envs, observations, info, truncated[t], autoreset))
            if done.any():
                over = done & is_step
                ended.append((returns[over], lengths[over]))
                returns[done] = lengths[done] = 0
                if autoreset == "disabled":
                    observations, _ = envs.reset(options={"reset_mask": done})
        episode_returns, episode_lengths = (np.concatenate(parts) for parts in zip(*ended, strict=True))
        yield Rollout(
            _stacked("observations of envs", seen),
            _stacked("actions of policy", taken),
            {name: _stacked(f"extras[{name!r}] of policy", [each[name] for each in extras]) for name in extras[0]},
            rewards,
            terminated,
            truncated,
            prev_done,
            _copied(observations),
            _map(lambda *parts: np.concatenate(parts), *finals),
            episode_returns,
            episode_lengths,
            autoreset,
        )


def _has_fixed_shapes(space: Any) -> bool:
    """Return whether a space has arrays of fixed shapes, or dicts or tuples of them, and no text."""
    parts = getattr(space, "spaces", ())
    inner = parts.values() if isinstance(parts, Mapping) else parts
    others = {"OneOf", "Text"} & {each.__name__ for each in type(space).__mro__}
    with suppress(NotImplementedError):  # a space of the user's own
        return space.is_np_flattenable and not others and all(map(_has_fixed_shapes, inner))
    return False


def _final(envs: Any, observations: Batch, info: Mapping[str, Any], truncated: Array, autoreset: str) -> Batch:
    """Return the final observations of the environments that this step truncated, as one batch."""
    if autoreset != "same_step":
        return _map(lambda array: on_the_cpu(array)[truncated], observations)
    from gymnasium.vector.utils import concatenate

    given: Any = info.get("final_obs") if isinstance(info, Mapping) else None
    finals: Any = on_the_cpu(given)[truncated] if getattr(given, "shape", ())[:1] == truncated.shape else [None]
    if any(final is None for final in finals):
        raise ValueError(
            f'with SAME_STEP, info["final_obs"] of a step must be an array of {len(truncated)} observations, those '
            f"before the reset where an episode was truncated; got {shown(given)}"
        )
    # As a vector does it: the space says what a part is, because environments may return lists, tuples, other dtypes.
    into = _map(lambda array: np.empty((len(finals), *array.shape[1:]), on_the_cpu(array).dtype), observations)
    try:
        return concatenate(envs.single_observation_space, finals, into)
    except (LookupError, TypeError, ValueError) as error:
        space = envs.single_observation_space
        raise ValueError(
            f'info["final_obs"] does not fit into {space} ({error}): a wrapper of observations must change it, too'
        ) from error


def _shaped(
    what: str, given: Any, shape: tuple[int, ...], read: Callable[..., Array] = as_floats, any_shape: bool = False
) -> Array:
    """Return numbers in this shape; they may have axes of length 1, or one axis for all, or ``any_shape``."""
    name = what.partition(" must")[0]
    values = read(name, on_the_cpu(given, name))
    if values.shape == shape:  # as at nearly every step of environments
        return values
    count = math.prod(shape)
    lengths = [length for length in values.shape if length != 1]
    if values.size != count or not (any_shape or lengths in ([length for length in shape if length != 1], [count])):
        expected = (count,) if any_shape else shape
        raise ValueError(f"{what} a number for each of {count} observations, got shape {values.shape}, not {expected}")
    return values.reshape(shape)


def _checked_actions(actions: Batch, envs: Any) -> Batch:
    """Return the actions of one step, if they have the parts of the action space and a row for each environment."""
    parts = getattr(envs.single_action_space, "spaces", None)
    if isinstance(actions, Mapping | tuple) != (parts is not None):
        raise ValueError(
            f"policy returned a {type(actions).__name__} as actions for {envs.single_action_space}: to keep other "
            'results, return Acted(actions, {"log_probs": log_probs})'
        )
    _map(partial(_check_rows, "actions", envs.num_envs), actions)
    return actions


def _checked(extras: Any, envs: int, before: list[dict[str, Batch]]) -> dict[str, Batch]:
    """Return the extras of one step, if they can be stacked on the extras of earlier steps."""
    if not isinstance(extras, dict):
        raise ValueError(f'the extras of Acted must be a dict, such as {{"log_probs": log_probs}}, got {shown(extras)}')
    if before and extras.keys() != before[0].keys():
        raise ValueError(
            f"policy returned the extras {[*extras]}, and {[*before[0]]} at the step before: return the same names at "
            "every step"
        )
    for name, batch in extras.items():
        _map(partial(_check_rows, f"extras[{name!r}]", envs), batch)
    return extras


def _check_rows(what: str, envs: int, array: Array) -> None:
    if array.shape[:1] != (envs,):
        raise ValueError(f"policy returned {what} of shape {array.shape}; expected ({envs}, ...), a row per env")


def _copied(batch: Batch, name: str = "observations of envs") -> Batch:
    """Return copies as NumPy arrays, because a policy and environments may reuse their memory."""
    return _map(lambda array: on_the_cpu(array, name).copy(), batch)


def _stacked(what: str, batches: list[Batch]) -> Batch:
    """Return the batches of all steps as one."""
    try:
        return _map(lambda *arrays: np.stack(arrays), *batches)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{what} must have the same shapes and parts at every step: {error}") from error


def _map(function: Callable[..., Any], *batches: Batch) -> Batch:
    """Call ``function`` with the arrays at the same place of every batch, and return its results as a batch."""
    if isinstance(batches[0], Mapping):
        return {name: _map(function, *(batch[name] for batch in batches)) for name in batches[0]}
    if isinstance(batches[0], tuple):
        return tuple(_map(function, *parts) for parts in zip(*batches, strict=True))
    return function(*batches)
