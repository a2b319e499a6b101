"""Run the snippets of a page as a reader does who pastes it from top to bottom: in one namespace, in a new process.

``python pages.py`` reads paths of pages, one a line, and prints what became of each snippet of each, as JSON.
"""

import ast
import contextlib
import importlib
import json
import multiprocessing
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What takes longest to import. A forked process, which is safe on Linux alone, has these at once; it imports fastgae.
LIBRARIES = ("duckdb", "gymnasium", "h5py", "matplotlib", "numba", "numpy", "pyarrow")
CONTEXT = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def snippets(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the line at which each snippet begins, and its code; of a notebook, the number of each cell."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = enumerate(json.loads(text)["cells"], 1)
        yield from ((number, "".join(cell["source"])) for number, cell in cells if cell["cell_type"] == "code")
        return
    for block in SNIPPET.finditer(text):
        yield text.count("\n", 0, block.start(1)) + 1, block[1]


def outcomes(page: Path) -> dict[int, dict[str, str]]:
    """Run the snippets in their order. Return by line why one was skipped or how it failed; nothing where it passed.

    A snippet is skipped if it needs a library that is not installed, or a name that only a skipped snippet defines.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    missing: set[str] = set()
    found = {}
    for line, code in snippets(page):
        found[line] = outcome = {}
        try:
            exec(compile("\n" * (line - 1) + code, page, "exec"), names)  # errors name the line of the page
        except (ImportError, NameError) as error:
            # Snippets import fastgae first, so its names are checked where the library is not installed, too.
            ours = isinstance(error, ImportError) and (error.name or "").startswith("fastgae")
            if ours or (isinstance(error, NameError) and error.name not in missing):
                outcome["failed"] = traceback.format_exc()
                continue
            what = "a snippet that was skipped" if isinstance(error, NameError) else "a package to be installed"
            outcome["skipped"] = f"needs {what}: {error.name}"
            missing |= bound(code)
            for name in assigned(code) & names.keys():  # or a later snippet would go on with another snippet's numbers
                del names[name]
        except Exception:
            outcome["failed"] = traceback.format_exc()
    return found


def assigned(code: str) -> set[str]:
    """Return the names that a snippet assigns or defines, those of functions inside included."""
    nodes = list(ast.walk(ast.parse(code)))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return defined | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def bound(code: str) -> set[str]:
    """Return the names that a snippet assigns, defines or imports."""
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {(name.asname or name.name).partition(".")[0] for node in imports for name in node.names}
    return assigned(code) | imported


def send_outcomes(page: Path, connection: Any) -> None:
    with contextlib.redirect_stdout(sys.stderr):  # what snippets and their libraries print
        connection.send(outcomes(page))


def main() -> None:
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    for line in sys.stdin:
        receiving, sending = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=send_outcomes, args=(Path(line.removesuffix("\n")), sending))
        process.start()
        sending.close()  # so that a process that dies ends the wait for what it sends
        assert receiving.poll(600), f"{line} takes more than ten minutes"
        print(json.dumps(receiving.recv()), flush=True)
        process.join()


if __name__ == "__main__":
    main()
