"""Detect reset rows, the rows after a done that are not steps in Gymnasium's NEXT_STEP mode, and their absence."""

from collections.abc import Iterator

import numpy as np

from fastgae._call import Array
from fastgae._diagnose.report import Finding
from fastgae._diagnose.steps import Steps, by_chance, jump, median, number_of, shifted


def reset_rows(steps: Steps) -> Iterator[Finding]:
    """Find reset rows that are passed as steps."""
    rows = reset_rows_without_rewards(steps)
    if rows is not None:
        zeros = number_of(steps.rewards[steps.unmasked & ~rows] == 0)
        yield Finding(
            f"looks like reset rows, unless flags are one step early: all {number_of(rows):,} rows after a done have "
            f"reward 0 and no flag, and "
            f"{zeros:,} of the {number_of(steps.unmasked & ~rows):,} other rows have reward 0",
            steps.places(rows),
            "in Gymnasium's NEXT_STEP mode (its default) the env ignores the action in the row after a done: that row "
            "is not a step, and trains the policy on noise",
            'pass autoreset="next_step", and keep these rows out of the loss: fastgae.valid_steps gives the mask',
        )


def reset_rows_without_rewards(steps: Steps) -> Array | None:
    """Return the rows after a done if all of them, and few others, have reward 0 and no flag, or None."""
    if steps.next_step:
        return None
    after = shifted(steps.done, 1) & steps.unmasked
    count = number_of(after)
    if count < 2 or (steps.rewards[after] != 0).any() or steps.done[after].any():
        return None
    elsewhere = steps.rewards[~after & steps.unmasked] == 0
    # A first step may have reward 0 too. If these are reset rows, the rows after them are first steps with rewards.
    second = shifted(after, 1) & steps.unmasked
    # Two steps look like a reset row and one step; and V jumps to a first step, but not to a final observation.
    if steps.done[second].all() or jump(steps.changes, steps.done, after):
        return None
    rewarded = number_of(steps.rewards[second])
    return after if by_chance(elsewhere, count) < 1e-3 and rewarded > 0.5 * number_of(second) else None


def padding(steps: Steps) -> Iterator[Finding]:
    """Find the padding of episodes that are filled up to one length, if no mask leaves it out."""
    if steps.mask is not None:
        return
    ended = np.cumsum(steps.done, 0)
    rows = np.greater(ended, steps.done)
    count, values = number_of(rows), steps.values[rows]
    if count < 8 or (ended[-1] > 1).any() or len(np.flatnonzero(rows.any(0))) < 2:
        return  # each env has one episode, and several are shorter than the longest
    if (steps.rewards[rows] == 0.0).all() and np.ptp(values) <= steps.tolerance and steps.values[~rows].std() > 0.0:
        yield Finding(
            f"looks like padding without a mask: all {count:,} rows after the one flag of each env have reward 0 and "
            f"V = {values[0]:.3g}, which are {count / rows.size:.0%} of all rows",
            steps.places(rows),
            "rows that do not exist count as steps in the loss, in the normaliser and in the value targets",
            "pass mask: True up to the flag of each episode, also to the loss",
        )


def rewards_masked(steps: Steps) -> Iterator[Finding]:
    """Find rewards after a step in the mask that ended no episode, where no sequence has more than one reward."""
    rewarded = np.isfinite(steps.rewards) & (steps.rewards != 0) & steps.unmasked.any(0)
    outside = rewarded & ~steps.unmasked
    if number_of(outside) < 2 or rewarded.sum(0).max() > 1:
        return
    rows = np.arange(len(outside))[:, np.newaxis]
    before = np.maximum.accumulate(np.where(steps.unmasked, rows, -1))  # the last step in the mask
    outside &= (before >= 0) & ~np.take_along_axis(steps.done, before, 0)
    if number_of(outside) >= 2:
        yield Finding(
            f"{number_of(outside):,} of {number_of(rewarded):,} rewards other than 0, at most one in each sequence, "
            "are outside of the mask",
            steps.places(outside),
            "a step outside of the mask does not exist, so its reward reaches no advantage",
            "pass the reward at the last step in the mask, such as the score of an answer at its last token",
        )


def not_next_step(steps: Steps) -> Iterator[Finding]:
    """Find steps that ``autoreset="next_step"`` skips as reset rows."""
    rows = reset_rows_with_rewards(steps)
    if rows is not None:
        count = number_of(steps.unmasked & ~steps.exists)
        yield Finding(
            f'autoreset="next_step" says that the row after a done is a reset row, but {number_of(rows):,} of '
            f"{count:,} such rows have a reward",
            steps.places(rows),
            "real steps are skipped: their advantages are 0, and values[t + 1] after a truncated step belongs to "
            "another episode",
            'pass the mode that the environments were made with: "same_step" or "disabled", and final_values where '
            "steps were truncated",
        )


def reset_rows_with_rewards(steps: Steps) -> Array | None:
    """Return the reset rows with a reward if they are many and the flags are not merely a step off, or None."""
    if not steps.next_step:
        return None
    after = steps.unmasked & ~steps.exists
    rewarded = after & (steps.rewards != 0)
    count = number_of(rewarded)
    # If the rows before or after these have no reward instead, the flags are a step early or late.
    beside = [steps.rewards[shifted(after, by) & steps.unmasked] == 0 for by in (-1, 1)]
    elsewhere = steps.rewards[steps.unmasked] == 0
    off = any(zero.all() and by_chance(elsewhere, len(zero)) < 1e-3 for zero in beside)
    many = count >= 2 and count >= 0.5 * number_of(after)
    # V changes where an episode begins: after a reset row, and not before it.
    begins_after = median(steps.changes[after]) > median(steps.changes[shifted(after, -1)])
    return rewarded if many and not off and not begins_after else None


def prev_done(steps: Steps) -> Iterator[Finding]:
    """Find reset rows at t=0 that a missing ``prev_done`` leaves in."""
    if not steps.next_step or steps.given.prev_done is not None:
        return
    first = (steps.rewards[0] == 0) & ~steps.done[0] & steps.exists[0]
    elsewhere = steps.rewards[1:][steps.exists[1:] & ~steps.done[1:]] == 0
    count = number_of(first)
    if elsewhere.size >= 32 and by_chance(elsewhere, count) < 1e-3:
        yield Finding(
            f"looks like {count:,} reset row{'s' * (count > 1)} at t=0: the reward is 0 there, and at "
            f"{number_of(elsewhere):,} of {elsewhere.size:,} other steps without a flag; prev_done is not given",
            steps.places(np.concatenate([first[np.newaxis], np.zeros_like(steps.done[1:])])),
            "where the previous rollout ended with a done, row 0 of this one is a reset row",
            "pass prev_done: terminated | truncated of the last row of the previous rollout",
        )
