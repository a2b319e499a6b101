"""The name of fastgae on the package index, and the commands that install it. Tests compare every page with these."""

DISTRIBUTION = "fastgae-rl"
RELEASED = False  # on the index; until then, fastgae is installed from a clone


def pip_install(extra: str = "", options: str = "") -> str:
    """Return the command that installs fastgae, with the libraries of an extra."""
    what = (DISTRIBUTION if RELEASED else ".") + (f"[{extra}]" if extra else "")
    return " ".join(filter(None, ("python -m pip install", options, f"'{what}'" if extra else what)))


def how_to_install(extra: str = "", options: str = "") -> str:
    """Return the command and, until there is a release, where to run it."""
    return pip_install(extra, options) + ("" if RELEASED else " in a clone of fastgae")
