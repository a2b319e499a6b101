"""Pictures: where one can be written, and how all of them look."""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".pdf", ".svg")

# Colours from the palette of Okabe and Ito, which readers can tell apart without telling red from green.
INK, BLUE, VERMILION, PURPLE = "#333333", "#0072B2", "#D55E00", "#AA4499"
GRID, NOTE = "#E6E6E6", "#6B6B6B"

# The time of writing, which would make every file of the same picture another one.
TIMES: dict[str, dict[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


def picture_path(given: str | os.PathLike[str]) -> Path:
    """Return the path of a picture, after a check that it can be written, so that a typing error loses no work."""
    path = Path(given)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"expected a file name that ends in {', '.join(SUFFIXES)}, got {str(path)!r}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no directory {str(path.parent)!r}")
    try:
        with path.open("ab") if path.exists() else tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{str(path)!r} is not writable ({error.strerror})") from error
    return path


def new_figure(width: float, height: float, title: str) -> "Figure":
    """Return an empty figure of so many inches."""
    from matplotlib.figure import Figure

    # A Figure without pyplot needs no display and leaves no global state.
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", parse_math=False)
    return figure


def style(panel: "Axes") -> None:
    """Give a panel the look of the house: no frame, and a grid behind what is drawn."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def save(figure: "Figure", path: Path) -> None:
    """Write a figure under another name, and give the file its own when it is whole. One figure is always one file."""
    import matplotlib

    suffix = path.suffix.lower()
    partial = path.with_name(f"{path.name}.partial")
    try:
        with matplotlib.rc_context({"svg.hashsalt": "fastgae"}):
            figure.savefig(partial, format=suffix.removeprefix("."), metadata=TIMES[suffix])
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
