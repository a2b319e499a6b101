"""Where fastgae is: its name on the package index, its repository, its site, and the commands that install it.

Files that cannot import these, such as pyproject.toml, repeat them; a test finds every one that says something else.
"""

DISTRIBUTION = "fastgae-rl"
REPOSITORY = "https://github.com/fastgae/fastgae"
SITE = "https://fastgae.github.io/fastgae/"
RELEASED = False  # all three exist; until then, fastgae is installed from a clone


def pip_install(extra: str = "", options: str = "") -> str:
    """Return the command that installs fastgae, with the libraries of an extra."""
    what = (DISTRIBUTION if RELEASED else ".") + (f"[{extra}]" if extra else "")
    return " ".join(filter(None, ("python -m pip install", options, f"'{what}'" if extra else what)))


def how_to_install(extra: str = "", options: str = "") -> str:
    """Return the command and, until there is a release, where to run it."""
    return pip_install(extra, options) + ("" if RELEASED else " in a clone of fastgae")
