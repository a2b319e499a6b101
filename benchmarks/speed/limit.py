"""The limit of memory, with which large rollouts are compared: ``limit.c``, compiled here for this CPU."""

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@functools.cache
def streaming_add() -> Callable[[Floats, Floats, Floats], None]:
    """Return a function of a, b and out that sets out = a + b; raise FileNotFoundError without a C compiler."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "limit.so")
        flags = ("-O2", "-march=native", "-shared", "-fPIC")
        subprocess.run(["cc", *flags, "-o", str(library), str(Path(__file__).with_suffix(".c"))], check=True)
        add = ctypes.CDLL(str(library)).streaming_add
    array = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    add.argtypes, add.restype = (array, array, array, ctypes.c_ssize_t), None
    return lambda a, b, out: add(a, b, out, out.size)
