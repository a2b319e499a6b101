"""Detect a next value V' that is missing or belongs to another state."""

from collections.abc import Iterator

import numpy as np

from fastgae._diagnose.flags import flags_look_shifted
from fastgae._diagnose.report import Finding
from fastgae._diagnose.rows import reset_rows_without_rewards
from fastgae._diagnose.steps import Steps, by_chance, median, number_of, shifted


def last_row(steps: Steps) -> Iterator[Finding]:
    """Find a missing bootstrap of episodes that go on after the last row."""
    going_on = steps.exists[-1] & ~steps.done[-1] & (steps.discounts[-1] > 0.0)
    count = number_of(going_on)
    last, values = steps.last_values[going_on], steps.values[steps.exists]
    if not count or values.size < 16:
        return
    if (last == 0.0).all() and np.mean(values == 0.0) < 0.01 and not steps.sequences:  # 0: the sequences ended
        yield Finding(
            f"V after the last row is 0 in all {count:,} environments whose episode goes on, and in "
            f"{number_of(values == 0.0):,} of {values.size:,} steps",
            steps.places(going_on),
            "the rollout ends there, but not the episode: a bootstrap of 0 says that nothing follows, and biases the "
            "last 1 / (1 - gamma lambda) rows",
            "pass last_values = V of the observation after the last step",
        )
    elif last.any() and (last == steps.values[-1][going_on]).all() and np.ptp(values):
        unchanged = (steps.next_row == steps.values)[np.isfinite(steps.next_row)]
        if by_chance(unchanged, count) < 1e-6:
            yield Finding(
                f"V after the last row equals values[-1] in all {count:,} environments whose episode goes on, and "
                f"values[t + 1] equals values[t] at {number_of(unchanged):,} of {unchanged.size:,} steps",
                steps.places(going_on),
                "the last row then bootstraps from its own state, and not from the next, unless all values are early",
                "pass last_values = V of the observation after the last step, and V of observation t as values[t]",
            )


def at_truncation(steps: Steps) -> Iterator[Finding]:
    """Find truncated steps whose V' is 0 or belongs to another state than the final observation."""
    final = steps.final_values
    if final is None or steps.next_step or flags_look_shifted(steps):
        return
    given = np.isfinite(final) & (steps.discounts > 0.0)
    count = number_of(given)
    name = "final_values" if steps.next_values is None else "next_values"
    change = f"pass {name} = V of the observation that the step returned, before the reset"
    if count >= 2 and not final[given].any() and np.mean(steps.values[steps.exists] == 0.0) < 0.01:
        yield Finding(
            f"{name} are 0 at all {count:,} truncated steps",
            steps.places(given),
            "a limit cut the episode off, and a bootstrap of 0 treats it as the end of the task",
            change,
        )
        return
    unchanged = steps.changes[np.isfinite(steps.changes)] <= 10.0 * steps.tolerance
    if by_chance(unchanged, count) > 1e-3:
        return  # equal values prove nothing where neighbouring states have nearly the same V
    # An agent that stands still when the limit comes, as at a wall, proves nothing either.
    moved = shifted(steps.changes > 10.0 * steps.tolerance, 1)
    for seen, row, whose in (
        (steps.next_row, "values[t + 1]", "the first state of the next episode"),
        (steps.values, "values[t]", "the state before the final one"),
    ):
        comparable = given & np.isfinite(seen)
        same = comparable & (np.abs(final - seen) <= steps.tolerance)
        count, total = number_of(same), number_of(comparable)
        clear = count >= 0.9 * total and number_of(same & moved) >= max(2, 0.9 * number_of(comparable & moved))
        if not clear or (seen is steps.next_row and _goes_on(steps)):
            continue
        yield Finding(
            f"{name} equal {row} at {count:,} of {total:,} truncated steps",
            steps.places(same),
            f"if the flags are in the right row, that is V of {whose}, and the truncated step bootstraps from it",
            change + "; check that the flags are not one step late or early",
        )


def _goes_on(steps: Steps) -> bool:
    """Return whether the row after a truncated step belongs to the same episode, as in NEXT_STEP mode."""
    if reset_rows_without_rewards(steps) is not None:
        return True
    later = shifted(steps.truncated, 1)
    cut = shifted(later, -1)
    return median(steps.errors[later]) > 4.0 * median(steps.errors[cut])
