"""The page to play with computes what fastgae computes."""

import json
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import fastgae

SCRIPT = Path(__file__).parents[1] / "docs" / "assets" / "play.js"
ASK = """
const { gae, rollout } = require(process.argv[1]);
const asked = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify(asked.map((each) => { const given = rollout(each); return [given, gae(given)]; })));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="needs node, which runs the script of the page")
def test_the_page_computes_the_numbers_of_gae():
    names = ("kind", "end", "last", "gamma", "lambda")
    choices = (("truncated", "terminated", "none"), (0, 7, 11), (0.0, 5.1), (0.0, 0.99, 1.0), (0.0, 0.95, 1.0))
    asked = [dict(zip(names, each, strict=True)) for each in product(*choices)]
    command = ["node", "-e", ASK, str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=60)
    flagged = 0
    for question, (given, shown) in zip(asked, json.loads(done.stdout), strict=True):
        rewards, values, following = (np.array(given[name]) for name in ("rewards", "values", "nextValues"))
        flags = [np.array(given[name]) for name in ("terminated", "truncated")]
        flagged += int(np.sum(flags))
        expected = fastgae.gae(
            rewards, values, *flags, next_values=following, gamma=question["gamma"], gae_lambda=question["lambda"]
        )
        for name in expected._fields:
            np.testing.assert_array_equal(shown[name], getattr(expected, name))
        assert following[-1] == question["last"] or flags[0][-1] or flags[1][-1]
    assert flagged == 2 / 3 * len(asked)
