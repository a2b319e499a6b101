"""Pictures: where one can be written, and how all of them look."""

import io
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Every picture has its own background, because no text has a contrast of 4.5 on white and on GitHub's dark page alike.
PAPER = "#FFFFFF"
# Each of these has a contrast of 4.5 on the paper and on both tints, so it is for lines and for text. Readers who
# cannot tell red from green, or blue from yellow, can tell them apart. Blue is from the palette of Okabe and Ito, and
# vermilion is theirs, darkened; their purple is too close to the blue for a reader without red.
INK, BLUE, VERMILION, PURPLE = "#333333", "#0072B2", "#B84A00", "#8A2EE6"
NOTE = "#6B6B6B"  # for text and lines of less weight
BLUE_TINT, VERMILION_TINT = "#EAF3F9", "#FBEEE3"
GRID = "#E6E6E6"
SHADES = ("#CFE3F2", BLUE, "#001D33")  # from few to many

# Text stays text: the file is small, and a reader can search it. One font is named, and any other one without serifs.
SVG: Any = {"svg.hashsalt": "fastgae", "svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}

# The time of writing, which would make every file of the same picture different.
TIMES: dict[str, dict[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
SUFFIXES = tuple(TIMES)


def picture_path(given: str | os.PathLike[str]) -> Path:
    """Return the path of a picture, after a check that it can be written, so that a typing error loses no work."""
    path = Path(given)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"expected a file name that ends in {', '.join(SUFFIXES)}, got {str(path)!r}")
    try:
        if not path.parent.is_dir():
            raise ValueError(f"there is no directory {str(path.parent)!r}")
        if path.is_symlink() or path.is_fifo():
            raise ValueError(f"{str(path)!r} is a link or a pipe")  # the picture would take its place
        with suppress(FileNotFoundError):
            path.lstat()  # raises if the name is too long, for which exists() of Python 3.14 returns False
        with path.open("ab") if path.exists() else tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{str(path)!r} is not writable ({error.strerror})") from error
    return path


def new_figure(width: float, height: float, title: str = "") -> "Figure":
    """Return an empty figure of this size in inches."""
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_svg_(self) -> str:
            """Show the figure in a notebook, which otherwise shows only figures of pyplot."""
            return svg(self).decode()

    # A Figure without pyplot needs no display and leaves no global state.
    figure = Shown(figsize=(width, height), dpi=150, facecolor=PAPER)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
    if title:
        title = title.encode(errors="backslashreplace").decode()  # names of files may have bytes that are no text
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", parse_math=False, color=INK)
    return figure


def style(panel: "Axes", grid: Literal["x", "y", "both"] = "y") -> None:
    """Give a panel the common style: no frame, and a grid behind the data."""
    panel.set_facecolor(PAPER)
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(NOTE)
    panel.tick_params(which="both", color=NOTE, labelcolor=INK)
    for label in (panel.xaxis.label, panel.yaxis.label, panel.title):
        label.set_color(INK)
    panel.grid(axis=grid, color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def save(figure: "Figure", path: Path) -> None:
    """Write a figure to a temporary file, and rename that when it is complete. Equal figures give equal bytes."""
    import matplotlib

    suffix = path.suffix.lower()
    partial = path.with_name(f"fastgae-{secrets.token_hex(8)}.partial")  # a name that nobody else has
    try:
        with matplotlib.rc_context(SVG), partial.open("xb") as file:
            figure.savefig(file, format=suffix.removeprefix("."), metadata=TIMES[suffix])
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def svg(figure: "Figure", description: str = "") -> bytes:
    """Return a figure as SVG for the documentation, without the time of writing."""
    import matplotlib

    written = io.BytesIO()
    about = {"Date": None, "Creator": None, "Description": description or None}
    with matplotlib.rc_context(SVG):
        figure.savefig(written, format="svg", metadata=about)
    return b"\n".join(line.rstrip() for line in written.getvalue().splitlines()) + b"\n"
