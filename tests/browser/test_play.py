"""The page to play with, in a headless browser: it computes what fastgae computes, and shows it."""

import html
import json
import re
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import fastgae

DOCS = Path(__file__).parents[2] / "docs"
# The page with a script behind it, which moves the inputs and replaces the page by what it computed and showed.
PAGE = """<meta charset="utf-8"><script src="%s"></script>%s
<script>addEventListener("load", () => {
  const root = document.querySelector("#play"), text = (name) => root.querySelector(name).textContent;
  const answers = %s.map((asked) => {
    for (const [name, value] of Object.entries(asked)) root.querySelector(`[name=${name}]`).value = value;
    root.dispatchEvent(new Event("input"));
    const given = rollout(asked);
    const charts = [...root.querySelectorAll(".charts svg")];
    const lines = charts.map((each) => each.querySelectorAll("path:not(.zero)").length);
    const live = root.querySelector("[aria-live]").textContent, steps = root.querySelectorAll(".step").length;
    const legend = !root.querySelector(".legend").hidden;
    return [given, gae(given), { code: text(".code"), live, steps, lines, legend }];
  });
  document.body.textContent = JSON.stringify(answers);
});</script>"""


def test_the_page_computes_and_shows_the_numbers_of_gae(browser, tmp_path):
    names = ("kind", "end", "last", "gamma", "lambda")
    choices = (("truncated", "terminated", "none"), (0, 7, 11), (0.0, 5.1), (0.0, 0.99, 1.0), (0.0, 0.95, 1.0))
    asked = [dict(zip(names, each, strict=True), t=number % 12) for number, each in enumerate(product(*choices))]
    (markup,) = re.findall(r'<div id="play".*?</pre>\n</div>', (DOCS / "play.md").read_text("utf-8"), re.DOTALL)
    page = tmp_path / "page.html"
    page.write_text(PAGE % ((DOCS / "assets" / "play.js").as_uri(), markup, json.dumps(asked)), "utf-8")
    command = [*browser, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, timeout=120)
    (body,) = re.findall("<body>(.*)</body>", done.stdout, re.DOTALL)
    flagged = 0
    for question, (given, computed, shown) in zip(asked, json.loads(html.unescape(body)), strict=True):
        rewards, values, following = (np.array(given[name]) for name in ("rewards", "values", "nextValues"))
        flags = [np.array(given[name]) for name in ("terminated", "truncated")]
        flagged += int(np.sum(flags))
        expected = fastgae.gae(
            rewards, values, *flags, next_values=following, gamma=question["gamma"], gae_lambda=question["lambda"]
        )
        for name in expected._fields:
            np.testing.assert_array_equal(computed[name], getattr(expected, name))
        assert following[-1] == question["last"] or flags[0][-1] or flags[1][-1]
        numbers = [float(number) for number in re.findall(r"= (-?\d+\.\d{3})$", shown["code"], re.MULTILINE)]
        assert numbers[-2:] == pytest.approx([each[question["t"]] for each in expected], abs=6e-4), question
        wrong = question["kind"] == "truncated"
        assert (shown["live"], shown["steps"]) == (shown["code"], 3 * 12)
        assert (shown["legend"], shown["lines"]) == (wrong, [1 + wrong, 1 + wrong, 2 + wrong])
    assert flagged == 2 / 3 * len(asked)
