"""Draw the pictures, and write the reports of the page about mistakes. It needs the extra "demo"."""

from pathlib import Path

from . import ends, mistakes

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "why-does-my-ppo-not-learn.md"
ENDS = DOCS / "pictures" / "episode_ends.svg"
MISTAKES = DOCS / "mistakes"

if __name__ == "__main__":
    ENDS.write_bytes(ends.draw())
    MISTAKES.mkdir(exist_ok=True)
    for name in mistakes.PICTURES:
        (MISTAKES / f"{name}.svg").write_bytes(mistakes.draw(name))
    PAGE.write_text(mistakes.filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
