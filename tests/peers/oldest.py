"""`python -m peers.oldest FOLDER`, in the folder `tests`, installs the oldest versions that hooks know.

Each goes into a folder of its own, without its requirements: those of the newest version, which is installed, must do.
"""

import importlib
import subprocess
import sys
from pathlib import Path

from .compare import LIBRARIES

KNOWN = {name: importlib.import_module(f"fastgae.compat.{name}").LIBRARY for name in LIBRARIES}
# PufferLib 3.0.0 builds only where CUDA's headers are.
OLDEST = {name: known for name, known in KNOWN.items() if known.oldest != known.newest and not known.also}

if __name__ == "__main__":
    for library, known in OLDEST.items():
        how = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
        subprocess.run([*how, Path(sys.argv[1]) / library, f"{known.package}=={known.oldest}"], check=True)
