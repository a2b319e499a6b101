"""A peer's own function from the file that is installed, without importing the package.

Importing would need all that the package needs, of which some contradict each other's versions or bring another torch.
"""

import __future__

import ast
from importlib.metadata import distribution
from pathlib import Path


def function(package, path, name, **names):
    """``name``, or ``Class.method``, as the package's file has it; ``names`` are what it refers to."""
    file = Path(distribution(package).locate_file(path))
    found = [ast.parse(file.read_text(encoding="utf-8"))]
    for part in name.split("."):
        inside = [node for each in found for node in ast.walk(each)]
        found = [node for node in inside if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part]
    if len(found) != 1:
        raise LookupError(f"{file} has {len(found)} functions {name}")
    found[0].decorator_list = []  # registries and torch.jit
    code = compile(ast.Module(found, []), file, "exec", __future__.annotations.compiler_flag, dont_inherit=True)
    namespace = dict(names)
    exec(code, namespace)
    return namespace[found[0].name]
