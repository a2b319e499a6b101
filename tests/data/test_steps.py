"""The order of the rows of recorded data."""

import numpy as np

from fastgae.data.steps import Following, RecordedSteps, disorder, last_rows


def steps_of(numbers, episodes, ends, restarts=False, seed=0):
    rewards, values = np.random.default_rng(seed).normal(size=(2, len(numbers)))
    ended, episodes = np.isin(np.arange(len(numbers)), ends), np.array(episodes)
    changes = episodes[1:] != episodes[:-1]
    none = np.zeros(len(numbers), bool)
    final = np.full(len(numbers), 0.5)
    name = episodes.__getitem__
    return RecordedSteps(name, changes, np.array(numbers), rewards, values, ended, none, None, final, restarts=restarts)


ORDERS = [
    ([0, 1, 2, 3, 4, 5], [5], False, None),
    ([0, 1, 2, 4, 5, 6], [], False, 2),
    ([0, 1, 2, 3, 4, 5], [2], False, None),
    ([0, 1, 2, 2, 3, 4], [2], False, 2),
    ([0, 1, 2, 1, 2, 3], [2], False, 2),
    ([0, 1, 2, 2, 3, 4], [2], True, None),
    ([0, 1, 2, 0, 1, 2], [2], True, None),
    ([0, 1, 2, 0, 1, 2], [], True, 2),
]


def test_steps_of_an_episode_rise_by_one():
    """In one run of rows, and where another run begins at any row. A step that comes again after a flag is an error."""
    for numbers, ends, restarts, wrong in ORDERS:
        steps = steps_of(numbers, [0] * 6, ends, restarts)
        for end in range(1, 7):
            following = None if end == 6 else Following(steps.name(end), numbers[end], {})
            part = rows_of(steps, 0, end)
            fault = disorder(part, last_rows(part, following), following)
            if wrong is not None and wrong < end:
                assert f"step {numbers[wrong]} is followed by step {numbers[wrong + 1]}" in fault.fault
            else:
                assert fault is None, (numbers, end)


def rows_of(steps, first, end):
    arrays = {name: each[first:end].copy() for name, each in steps._asdict().items() if isinstance(each, np.ndarray)}
    arrays["changes"] = steps.changes[first : end - 1]
    return steps._replace(**arrays, name=lambda row: steps.name(range(len(steps.rewards))[first:end][row]))
