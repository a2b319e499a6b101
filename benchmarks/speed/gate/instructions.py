"""Instructions per call, which no noise can change.

Callgrind counts the instructions of the compiled module, with those of the C and C++ libraries that it calls, and the
calls from it into Python, NumPy and the heap; Python itself counts the bytecodes of fastgae's own code. So a count is
the same in every run, and with every version of NumPy; it depends on the compiler, the C library and Python's minor
version. Each combination has its own accepted counts. What the heap takes for a block depends on all blocks before,
such as the text of paths. Valgrind does not know AVX-512 and counts the AVX2 kernels instead.
"""

import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fastgae
from speed import places

from . import accepted
from .accepted import Line, left_out

ALLOWED = 1.02
MODULE, C_LIBRARIES = "/fastgae/_core.", re.compile(r"/lib(c|m|stdc\+\+|gcc_s)[-.]|/ld-")
NAMED = re.compile(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?")
HEAP = re.compile(r"(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|operator (new|delete)\b.*)$")
Counts = dict[str, dict[str, dict[str, int]]]  # target -> row -> what -> number


def check() -> Iterator[Line]:
    if why := why_not():
        yield left_out("instructions", why)
        return
    known = accepted.read("instructions").get(key())
    if known is None:
        yield Line(
            f"instructions for {key()}", "no accepted counts: python benchmarks gate instructions --accept", True
        )
    yield from compared(known or {}, count())


def accept() -> Iterator[str]:
    """Write the present counts beside those for other compilers, libraries and Pythons."""
    if why := why_not():
        sys.exit(f"nothing to accept: {why}")
    return accepted.write("instructions", accepted.read("instructions") | {key(): count()})


def why_not() -> str | None:
    missing = [name for name in ("valgrind", "setarch", "cc") if not shutil.which(name)]
    if missing:
        return f"{' and '.join(missing)} not installed (Debian and Ubuntu: apt-get install valgrind gcc)"
    if subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL).returncode:
        return "addresses cannot be fixed: allow personality(2), in Docker by --security-opt seccomp=unconfined"
    return None if fastgae.backends()[0].available else "the compiled backend cannot run here"


def key() -> str:
    """Return everything outside this repository that a count depends on."""
    compiler, library = fastgae.backends()[0].version, "".join(platform.libc_ver())
    return f"{compiler} for {platform.machine()}, {library}, Python {'.'.join(platform.python_version_tuple()[:2])}"


def count(place: Path = Path(fastgae.__file__).parents[1]) -> Counts:
    """Return the counts of the fastgae in that place."""
    with tempfile.TemporaryDirectory() as folder:
        marks = Path(folder, "marks.so")
        source = Path(__file__).with_name("counted.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(marks), str(source)], check=True)
        command = [
            *("setarch", "-R", "valgrind", "--tool=callgrind", "--instr-atstart=no"),
            *(f"--callgrind-out-file={folder}/counts", f"--log-file={folder}/log"),
            *(sys.executable, "-m", "speed.gate.counted", str(marks)),
        ]
        # The working directory is empty, so that nothing in it is imported instead.
        settings = {"PATH": os.defpath, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        variables = places.importing(place, environment=settings)
        run = subprocess.run(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)
        if run.returncode:
            sys.exit("counted.py failed under valgrind")
        counts: Counts = {}
        files = itertools.count(1)
        for entry in map(json.loads, run.stdout.splitlines()):
            found = counts.setdefault(entry["target"], {}).setdefault(entry["row"], {})
            if "calls" in entry:
                instructions, calls = of_module(Path(f"{folder}/counts.{next(files)}"))
                found |= {"instructions": round(instructions / entry["calls"]), "calls": round(calls / entry["calls"])}
                found["bytecodes"] = entry["bytecodes"]
        return counts


def of_module(file: Path) -> tuple[int, int]:
    """Return the instructions of the compiled module and of what it calls in C libraries, and its calls of the rest.

    In callgrind's format, "ob=" and "fn=" name the object and the function of the lines below, "cob=" and "cfn=" those
    of the next call. The line after "calls=" has the instructions in that call, every other one those of its function.
    """
    names: dict[tuple[str, str], str] = {}
    own = other = called = ""
    calls = instructions = outside = 0
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if found := NAMED.match(line):
            callee, kind, number, name = found.groups()
            named = names.setdefault((kind, number), name)
            if kind == "fn":
                called = named
            elif callee:
                other = named
            else:
                own = other = named
        elif line.startswith("calls="):
            calls = int(line[6:].split()[0])
        elif line[:1].isdigit() or line[:1] in ("+", "-", "*"):
            if MODULE in own and (not calls or (C_LIBRARIES.search(other) and not HEAP.match(called))):
                instructions += int(line.split()[1])
            elif MODULE in own and other != own:
                outside += calls
            calls, other = 0, own
    return instructions, outside


def compared(before: Counts, now: Counts) -> Iterator[Line]:
    for target, rows in now.items():
        for row, counts in rows.items():
            known = before.get(target, {}).get(row)
            more = {what: number / known[what] for what, number in counts.items() if known and known.get(what)}
            said = [f"{number:,} {what}{change(more.get(what))}" for what, number in counts.items()]
            red = any(ratio > ALLOWED for ratio in more.values()) or (bool(before) and known is None) or not counts
            unknown = [
                f"{what} does not know an argument of the row"
                for what, of in (("BASE", known), ("HEAD", counts))
                if of == {}
            ]
            yield Line(f"{row}, {target}", ", ".join(said + unknown), red)


def change(ratio: float | None) -> str:
    return "" if ratio in (None, 1) else f" ({ratio - 1:+.2%})"
