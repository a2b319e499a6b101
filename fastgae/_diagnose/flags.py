"""Detect flags that are in the wrong row, of the wrong kind, missing or inverted, and swapped axes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastgae._call import Array
from fastgae._diagnose.report import Finding, Places
from fastgae._diagnose.rows import reset_rows_with_rewards, reset_rows_without_rewards
from fastgae._diagnose.steps import Steps, by_chance, episode_lengths, jump, median, number_of, shifted


def inverted(steps: Steps) -> Iterator[Finding]:
    """Find flags that mean the opposite: 1 where the episode goes on."""
    flagged = steps.done[steps.unmasked]
    if steps.shape[0] > 1 and flagged.size >= 16 and np.mean(flagged) > 0.9:
        yield Finding(
            f"{number_of(flagged):,} of {flagged.size:,} steps are flagged as the end of an episode",
            steps.places(steps.done),
            "no advantage is carried from step to step; the flags seem to mean the opposite (1 where the episode goes "
            "on), unless episodes really last one step",
            "pass 1 where the step ended the episode: 1 - flag, if the flag says that the episode goes on",
        )


def axes(steps: Steps) -> Iterator[Finding]:
    """Find an axis of environments that was passed as the axis of time."""
    seen = _axes_look_swapped(steps)
    if seen:
        yield Finding(
            f"looks like the axes of time and {'sequences' if steps.sequences else 'environments'} are swapped: {seen}",
            Places(),
            "the recursion runs across environments, and every advantage is wrong",
            f"pass time_axis={1 - steps.given.time_axis}"
            if steps.given.rewards.ndim == 2
            else "pass another time_axis",
        )


def _axes_look_swapped(steps: Steps) -> str:
    """Return the evidence for swapped axes, or "": values fit their neighbours along the axis that really is time.

    So does the mask of sequences: each begins and ends once or a few times along time, and by chance across.
    """
    if min(steps.shape) < 2 or steps.rewards.size < 64:
        return ""
    if not steps.unmasked.all():
        return _mask_of_other_axis(steps.unmasked) if steps.sequences else ""
    across, far = (_values_of_env(steps, by) for by in (1, steps.shape[1] // 2))
    along, inside = steps.next_row, ~steps.done
    if steps.next_values is not None:
        same = []
        for row in (along, across):
            here = inside & np.isfinite(row)
            same.append((np.abs(steps.next_values - row)[here] <= steps.tolerance).sum() / max(1, here.sum()))
        if same[0] < 0.1 and same[1] > 0.8:
            return (
                f"next_values equal the values of the next env at {same[1]:.0%} of the steps, and the values of the "
                f"next row at {same[0]:.0%}"
            )
    near, far = np.abs(across - steps.values), np.abs(far - steps.values)
    differs = near > steps.tolerance  # because envs that do the same are no evidence
    by_row, by_env = median(steps.errors[inside]), median(steps.errors_along(across)[inside & differs])
    # Nor are envs that do nearly the same: each is as near to all others, but along time to its neighbours.
    in_order = median(far[inside & differs]) > 1.5 * median(near[inside & differs])
    if in_order and by_row > 3.0 * by_env and by_row > 10.0 * steps.tolerance:
        return (
            f"the median TD error from row to row is {by_row:.3g}, but {by_env:.3g} from env to env, over "
            f"{number_of(inside):,} steps"
        )
    return ""


def _values_of_env(steps: Steps, by: int) -> Array:
    """Return the values of the env ``by`` columns later; NaN where there is none."""
    values = np.full(steps.shape, np.nan)
    values[:, :-by] = steps.values[:, by:]
    return values


def _mask_of_other_axis(exists: Array) -> str:
    """Return the evidence that a mask has spans from env to env, and none from row to row, or ""."""
    exists = exists[exists.any(1)][:, exists.any(0)]  # a gap at the same tokens of all sequences tells nothing
    (here, by_chance_here), (there, by_chance_there) = _gaps(exists), _gaps(exists.T)
    if here < 0.5 * by_chance_here or there > 0.2 * by_chance_there or min(here, by_chance_there) < 8:
        return ""
    return (
        f"from row to row the mask has {here:,} gaps, and {by_chance_here:,.0f} if its order were random; from one "
        f"sequence to the next it has {there:,}, instead of {by_chance_there:,.0f}"
    )


def _gaps(exists: Array) -> tuple[int, float]:
    """Return how many gaps a mask has between the steps of each column, and how many in random order on average."""
    counts, length = np.count_nonzero(exists, 0), len(exists)
    spans = number_of(exists[0]) + number_of(exists[1:] & ~exists[:-1])
    return spans - number_of(counts), float((np.maximum(counts - 1, 0) * (length - counts)).sum()) / length


class Shift(NamedTuple):
    """Evidence (``seen``) that episodes end ``by`` rows after these flags, or before them if ``by`` is negative."""

    by: int
    seen: str
    flags: Array
    may_be_values: bool = False  # or V, and not the flag, is in another row


def shift(steps: Steps) -> Iterator[Finding]:
    """Find flags, or values, that are one step late or early."""
    found = flags_look_shifted(steps)
    if found is None:
        return
    late = found.by < 0
    word, other = ("late", "early") if late else ("early", "late")
    if found.may_be_values and (proof := _values_are_shifted(steps, found)):
        yield Finding(
            f"values look one step {other}: {found.seen}, and {proof}",
            steps.places(found.flags),
            f"V of the observation {'after' if late else 'before'} counts as V of each",
            "pass V of the observation on which the policy acted: here, values[t] is V of observation "
            f"t {'+' if late else '-'} 1",
            "values_shifted",
        )
        return
    yield Finding(
        f"flags look one step {word}{f', unless values are one step {other}' * found.may_be_values}: {found.seen}",
        steps.places(found.flags),
        "each episode runs on for one step, into the first step of the next episode"
        if late
        else "each episode ends one step too early, and its last step runs on into the next episode",
        "pass the flag of step t as env.step returned it with the reward of step t: here, terminated[t] is the flag of "
        + ("step t - 1, as in buffers that store episode starts" if late else "step t + 1")
        + ". If the flags are right, the rewards or the values may be in the wrong row"
        + ", or no row is a reset row: then leave autoreset out" * steps.next_step,
    )


def _values_are_shifted(steps: Steps, found: Shift) -> str:
    """Return the proof that values are in the wrong row, and flags are in the right one, or ""."""
    base = 1 if steps.next_step else 0
    here = shifted(found.flags, base)
    if _marks(steps, here, base, number_of(here)):
        return f"a reward of {steps.rewards[here][0]:g}, which is rare elsewhere, marks the rows of all flags"
    going_on = steps.exists[-1] & ~steps.done[-1]
    if found.by < 0 and going_on.any() and (steps.last_values == steps.values[-1])[going_on].all():
        return "V after the last row equals values[-1]"
    return ""


def flags_look_shifted(steps: Steps) -> Shift | None:
    """Return the first evidence for shifted flags, from next_values, rewards or TD errors, or None."""
    if _crowded(steps):
        return None
    by_rewards = _shift_by_rewards(steps)
    if by_rewards is not None and any(_jump_at_flags(steps, by_rewards, of) for of in (steps.changes, steps.errors)):
        by_rewards = None
    return _shift_by_next_values(steps) or by_rewards or _shift_by_errors(steps)


def rewards_look_shifted(steps: Steps) -> Shift | None:
    """Return where rewards mark other rows than the flags do, if the values jump at the flags, or None."""
    found = None if _crowded(steps) else _shift_by_rewards(steps)
    return found if found is not None and _jump_at_flags(steps, found, steps.changes) else None


def _crowded(steps: Steps) -> bool:
    """Return whether nearly every row has a flag next to it, so that no row can serve for comparison."""
    return bool(np.mean(steps.done[steps.unmasked]) > 0.4)


def _jump_at_flags(steps: Steps, found: Shift, numbers: Array) -> bool:
    """Return whether numbers are far larger at the flags than in the rows where the rewards say that episodes end."""
    base = 1 if steps.next_step else 0
    return jump(numbers, *(shifted(found.flags, base + by) for by in (0, found.by)))


def _surprises(steps: Steps) -> Array:
    """Return how far each reward is from the usual one."""
    return np.abs(steps.rewards - median(steps.rewards[steps.unmasked]))


def _shift_by_next_values(steps: Steps) -> Shift | None:
    """Return a shift if next_values differ from values[t + 1], as they do where episodes end, next to the flags."""
    parts = parting(steps)
    if parts is None:
        return None
    for by in (-1, 1):
        usable = _usable(steps, by)
        count, hits = number_of(usable), number_of(usable & shifted(parts, -by))
        if hits >= 3 and hits >= 0.8 * count and number_of(usable & parts) <= 0.2 * count:
            return Shift(
                by,
                f"next_values differ from values[t + 1] {_beside(by)} at {hits} of {count} flags, and at "
                f"{number_of(usable & parts)} in their own row",
                usable,
            )
    return None


def parting(steps: Steps) -> Array | None:
    """Return where next_values differ from values[t + 1], or None unless they agree at 70 % of the steps or more."""
    if steps.next_values is None or steps.next_step:
        return None
    parts: Array = np.abs(steps.next_values - steps.next_row) > steps.tolerance
    return None if np.mean(parts[steps.unmasked]) > 0.3 else parts


def _shift_by_rewards(steps: Steps) -> Shift | None:
    """Return a shift if a reward that marks the ends of episodes, or the reset rows, occurs next to the flags."""
    base = 1 if steps.next_step else 0
    for by in (-1, 1):
        usable = _usable(steps, by) & _inside(steps, base + by)
        count = number_of(usable)
        there, here = shifted(usable, base + by), shifted(usable, base)
        # Of flags in one row, one counts: envs may share a scale of rewards, as VecNormalize's, that drifts from row to
        # row. It does not change the 0 of a reset row.
        pieces = count if steps.next_step else int(there.any(1).sum())
        if pieces < 3 or not _marks(steps, there, base + by, pieces):
            continue
        reward = steps.rewards[there][0]
        # Reset rows have reward 0; if they are passed as steps, they look as if flags were early.
        if (reward != 0.0) if steps.next_step else (by == 1 and reward == 0.0):
            continue
        if by == 1 and _are_starts(steps, there):
            continue  # episodes that begin in one state may begin with one reward
        same = steps.rewards == reward
        if np.mean(same[here]) <= 0.2:
            elsewhere = same[_elsewhere(steps, there, base + by)]
            return Shift(
                by,
                f"the reward is {reward:g} {_beside(base + by)} at all {count} flags, "
                f"{number_of(same[here])} times {_beside(base)}, and at "
                f"{number_of(elsewhere)} of {elsewhere.size:,} other steps" + _or_reset_rows(steps, by),
                usable,
            )
    return _shift_by_only_rewards(steps)


def _shift_by_only_rewards(steps: Steps) -> Shift | None:
    """Return a shift if all rewards occur next to the flags: in many games and puzzles, only the end pays."""
    paid = (steps.rewards != 0.0) & steps.unmasked
    for by in (-1, 1):
        known = paid & _inside(steps, -by)  # whether there is a flag
        beside = shifted(steps.done, by)
        count, here = number_of(known), number_of(known & steps.done)
        pieces = int(known.any(1).sum())  # of envs that end together, one counts
        if (known & ~beside).any() or here > 0.2 * count or by_chance(beside[steps.unmasked], pieces) > 1e-6:
            continue
        if by == -1 or not _are_starts(steps, known):
            seen = f"all {count:,} rewards but 0 are {_beside(by)}, and {here:,} of them {_beside(0)}"
            return Shift(by, seen, _usable(steps, by))
    return None


def _marks(steps: Steps, rows: Array, by: int, pieces: int) -> bool:
    """Return whether these rows, ``by`` rows after the flags, have one reward that is too rare elsewhere for chance."""
    rewards = steps.rewards[rows]
    elsewhere = steps.rewards[_elsewhere(steps, rows, by)] == rewards[0]
    # A usual reward marks nothing: two ends are never neighbours where episodes have two steps or more.
    return bool((rewards == rewards[0]).all() and by_chance(elsewhere, pieces) < 1e-6 and np.mean(elsewhere) < 0.5)


def _elsewhere(steps: Steps, rows: Array, by: int) -> Array:
    """Return the steps to compare these rows with: not masked, and not as far from a flag."""
    return steps.unmasked & ~rows & ~shifted(steps.done, by)


def _are_starts(steps: Steps, rows: Array) -> bool:
    """Return whether rows look like first steps from one state: V is the same there, and fits worse before."""
    alike = np.ptp(steps.values[rows]) <= steps.tolerance
    return bool(alike and median(steps.errors[shifted(rows, -1)]) > median(steps.errors[rows]))


def _shift_by_errors(steps: Steps) -> Shift | None:
    """Return a shift if V jumps next to the flags, because it jumps where the next row is of another episode."""
    if reset_rows_without_rewards(steps) is not None or reset_rows_with_rewards(steps) is not None:
        return None  # reset rows passed as steps, or steps passed as reset rows, explain the jumps as well
    base = 1 if steps.next_step else 0
    near = steps.done | shifted(steps.done, 1) | shifted(steps.done, -1) | shifted(steps.done, 2)
    # A surprising reward, such as a bonus for the last step, makes a large TD error too, but V does not jump there.
    moved = steps.changes > _surprises(steps)
    floor = max(median(steps.errors[~near]), 10.0 * steps.tolerance)
    for by in (-1, 1):
        usable = _usable(steps, by) & _inside(steps, base + 1) & _inside(steps, base + by)
        here, there = (steps.errors[shifted(usable, base)], steps.errors[shifted(usable, base + by)])
        comparable = np.isfinite(here) & np.isfinite(there)
        count = number_of(comparable)
        larger = there[comparable] > 4.0 * np.maximum(here[comparable], floor)
        jumps = number_of(larger & moved[shifted(usable, base + by)][comparable])
        if jumps >= 5 and jumps >= 0.6 * count:
            return Shift(
                by,
                f"at {jumps} of {count} flags the TD error {_beside(base + by)} is more than 4 times as large as "
                f"{_beside(base)} (medians {median(there):.3g} and {median(here):.3g}, and {floor:.3g} elsewhere)"
                + _or_reset_rows(steps, by),
                usable,
                may_be_values=True,
            )
    return None


def _usable(steps: Steps, by: int) -> Array:
    """Return the flags whose next row, and whose row ``by`` later, exist and are not masked."""
    return steps.done & steps.exists & _inside(steps, 1) & _inside(steps, by)


def _inside(steps: Steps, by: int) -> Array:
    """Return the rows for which the row ``by`` later exists and is not masked."""
    return shifted(steps.unmasked, -by)


def _or_reset_rows(steps: Steps, by: int) -> str:
    found = by == 1 and not steps.next_step
    return ", or the rows after the flags are reset rows and autoreset does not say so" * found


def _beside(by: int) -> str:
    return {-1: "in the row before", 0: "in the flag's row", 1: "in the row after", 2: "two rows after"}[by]


def merged(steps: Steps) -> Iterator[Finding]:
    """Find time limits that are flagged as terminated."""
    both = steps.terminated & steps.truncated & steps.exists
    count = number_of(both)
    elsewhere = steps.terminated[steps.exists & ~steps.truncated]
    if count == number_of(steps.truncated & steps.exists) and by_chance(elsewhere, count) < 1e-3:
        yield Finding(
            f"all {count:,} truncated steps are flagged as terminated too, and terminated wins",
            steps.places(both),
            "a time limit is treated as the end of the task: the value of the state it cut off is taken as 0",
            "pass terminated as env.step returned it, not terminated | truncated",
        )
    elif not steps.truncated.any():
        limit, ends, count = _common_length(steps)
        if limit and not _hold_bootstraps(steps, ends):
            yield Finding(
                f"looks like a time limit flagged as terminated: {number_of(ends):,} of {count:,} episodes last "
                f"{limit:,} steps, and none is longer",
                steps.places(ends),
                "if a limit cut them off, the value of their next state is not 0, and advantages are too low or too "
                "high by gamma times that value",
                f"pass those flags as truncated{', with final_values or next_values' * (not steps.next_step)}; ignore "
                "this if the task itself ends there, or if the reward there holds gamma V' already",
            )


def _hold_bootstraps(steps: Steps, ends: Array) -> bool:
    """Return whether the rewards of these steps hold gamma V', as in buffers of Stable-Baselines3. V' is about V_t."""
    usual = median(steps.rewards[steps.unmasked])
    bootstraps = (steps.discounts * steps.values)[ends]
    rest = steps.rewards[ends] - usual - bootstraps
    are_large = median(np.abs(bootstraps)) > 4.0 * median(_surprises(steps)[steps.unmasked & ~ends])
    return bool(are_large and np.mean(np.abs(rest) < 0.5 * np.abs(bootstraps)) > 0.8)


def _common_length(steps: Steps) -> tuple[int, Array, int]:
    """Return the length that most whole episodes have and none exceeds (or 0), their last steps, and their number."""
    ends = steps.terminated & steps.exists
    lengths = episode_lengths(ends, steps.exists)
    unfinished = np.count_nonzero(steps.exists, 0) - lengths.sum(0)
    limit = int(max(lengths[ends].max(initial=0), unfinished.max(initial=0)))
    # The first episode of an env may have begun before the rollout, but not in a batch of padded ones.
    began_before = ends & (np.cumsum(ends, 0) == 1) & (lengths < limit) & (steps.mask is None)
    found = lengths[ends & ~began_before]
    counts = np.bincount(found, minlength=limit + 1)
    shared = int(counts[limit])
    others = int(counts[:limit].max(initial=0))
    clear = limit >= 16 and shared >= 4 and (shared >= 0.8 * len(found) or shared > 3 * others + 4)
    return (limit if clear else 0), (lengths == limit) & ends, len(found)


def missing(steps: Steps) -> Iterator[Finding]:
    """Find episodes that end without a flag."""
    if flags_look_shifted(steps):
        return
    parts = parting(steps)
    if parts is not None:
        parts = parts & ~steps.done & steps.exists
        if parts.any():
            yield _missing(
                steps, parts, "next_values differ from values[t + 1] there, and not at the other steps without a flag"
            )
    elif not steps.done.any() and steps.mask is None:
        jumps = _jumps(steps)
        # In one sequence V may jump once, for example at the token that gives the answer.
        if number_of(jumps) > (1.5 * steps.shape[1] if steps.sequences else 0):
            yield _missing(
                steps,
                jumps,
                f"the TD error is {median(steps.errors[jumps]):.3g} there and {median(steps.errors[~jumps]):.3g} at "
                "the other steps, and no step of the rollout is flagged",
            )


def _missing(steps: Steps, where: Array, seen: str) -> Finding:
    return Finding(
        f"looks like {number_of(where):,} episode ends without a flag: {seen}",
        steps.places(where),
        "where an env was reset without a flag, the value and the advantage of another episode flow in",
        "flag the last step of each episode: terminated, or truncated where a limit cut it off",
    )


def _jumps(steps: Steps) -> Array:
    """Return the large TD errors that look like episode ends.

    They occur in most environments at once, or lead to states with the same V, as starts do.
    A surprising reward makes a large TD error too, so the values must change far more than the reward.
    """
    errors, none = steps.errors, np.zeros(steps.shape, bool)
    usual = max(median(errors), 10.0 * steps.tolerance)
    moved = steps.changes > 4.0 * _surprises(steps)
    of_rows = np.median(np.nan_to_num(errors[:-1]), 1)
    at_once = of_rows > 6.0 * max(median(of_rows), 10.0 * steps.tolerance)
    apart = np.diff(np.flatnonzero(at_once))
    smallest = of_rows[at_once].min(initial=np.inf)
    clear = len(apart) and apart.min() >= 16 and of_rows[~at_once].max() < 0.4 * smallest
    # Where errors as large are common, some rows have many of them by chance.
    if steps.shape[1] >= 4 and clear and np.mean(errors[:-1][~at_once] > 0.5 * smallest) < 0.1:
        return np.append(at_once, False)[:, np.newaxis] & (errors > 2.0 * usual) & moved
    for factor in (8.0, 16.0, 32.0, 64.0):
        large = (errors > factor * usual) & moved
        starts, lengths = steps.next_row[large], episode_lengths(large, ~none)[large]
        # An agent that walks to and fro between two states crosses the same jump every few steps.
        if len(starts) >= 8 and starts.std() < 0.3 * steps.values.std() and np.median(lengths) >= 8:
            return large
    return none
