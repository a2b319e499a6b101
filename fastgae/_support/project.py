"""The name of fastgae on the package index, and the commands that install it.

pyproject.toml has this name, the repository and the site. A test finds every file that names another one.
"""

DISTRIBUTION = "fastgae-rl"
RELEASED = False  # these exist; until then, fastgae is installed from a clone, and README.md names no address


def pip_install(extra: str = "", options: str = "") -> str:
    """Return the command that installs fastgae, with the libraries of an extra."""
    what = (DISTRIBUTION if RELEASED else ".") + (f"[{extra}]" if extra else "")
    return " ".join(filter(None, ("python -m pip install", options, f"'{what}'" if extra else what)))


def how_to_install(extra: str = "", options: str = "") -> str:
    """Return the command and, until there is a release, where to run it."""
    return pip_install(extra, options) + ("" if RELEASED else " in a clone of fastgae")
