"""The order of the rows of recorded data."""

from itertools import product

import numpy as np

from fastgae.data.steps import Following, RecordedSteps, disorder, last_rows

ORDERS = [  # steps, rows with a flag, whether steps may begin again, the row that is followed by a wrong step
    ([0, 1, 2, 3, 4, 5], [5], False, None),
    ([0, 1, 2, 4, 5, 6], [], False, 2),
    ([0, 1, 2, 3, 4, 5], [2], False, None),
    ([0, 1, 2, 2, 3, 4], [], False, 2),
    ([0, 1, 2, 2, 3, 4], [], True, 2),
    ([0, 1, 2, 2, 3, 4], [2], False, 2),
    ([0, 1, 2, 1, 2, 3], [2], False, 2),
    ([0, 1, 2, 2, 3, 4], [2], True, None),
    ([0, 1, 2, 0, 1, 2], [2], True, None),
    ([0, 1, 2, 0, 1, 2], [], True, 2),
]


def test_steps_of_an_episode_rise_by_one(monkeypatch):
    """In one run of rows, where another run begins at any row, and in blocks of any size.

    A step that comes again after a flag is an error.
    """
    for (numbers, ends, restarts, wrong), block in product(ORDERS, (1, 2, 3, 65_536)):
        monkeypatch.setattr("fastgae.data.steps.BLOCK", block)
        for end in range(1, 7):
            ended, none = np.isin(np.arange(end), ends), np.zeros(end, bool)
            same, following = none[1:], None if end == 6 else Following((0,), numbers[end], {})
            steps = RecordedSteps(lambda _: (0,), same, np.array(numbers[:end]), none, none, ended, none)
            steps = steps._replace(restarts=restarts)
            fault = disorder(steps, last_rows(steps, following), following)
            if wrong is not None and wrong < end:
                assert f"step {numbers[wrong]} is followed by step {numbers[wrong + 1]}" in fault.fault
            else:
                assert fault is None, (numbers, end, block)
