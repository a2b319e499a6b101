"""Draw the pictures. It needs the extra "demo"."""

from pathlib import Path

from . import ends

DOCS = Path(__file__).parents[2] / "docs"
ENDS = DOCS / "pictures" / "episode_ends.svg"

if __name__ == "__main__":
    ENDS.write_bytes(ends.draw())
