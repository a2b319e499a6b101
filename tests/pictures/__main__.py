"""Draw the pictures, and write the reports of the page about mistakes. It needs the extra "demo"."""

import os
import tempfile
from pathlib import Path

import numpy as np

import fastgae.data
from support.real_rollouts import fitted_value, record

from . import ends, mistakes

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "why-does-my-ppo-not-learn.md"
ENDS = DOCS / "pictures" / "episode_ends.svg"
RECORDED = DOCS / "pictures" / "plot.png"
MISTAKES = DOCS / "mistakes"


def draw_recorded_data(picture: Path) -> None:
    cartpole, value = record("CartPole-v1", "same_step", 64, 1024, 0), fitted_value("CartPole-v1")
    with tempfile.TemporaryDirectory() as folder:
        arrays = cartpole.arguments_with_next_values(value)
        del arrays["autoreset"]
        np.savez(source := Path(folder, "cartpole.npz"), **arrays)
        fastgae.data.compute(source, plot=picture, overwrite=True)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"  # reports fit the terminal
    ENDS.write_bytes(ends.draw())
    draw_recorded_data(RECORDED)
    MISTAKES.mkdir(exist_ok=True)
    for name in mistakes.PICTURES:
        (MISTAKES / f"{name}.svg").write_bytes(mistakes.draw(name))
    PAGE.write_text(mistakes.filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
