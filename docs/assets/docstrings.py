"""Adapt docstrings and signatures to Markdown; mkdocs.yml names this extension of griffe, which reads them."""

import re
from typing import Any

import griffe

# A docstring marks an indented block by "::", as reStructuredText does. Markdown knows it by its indentation.
MARK = re.compile(r"^ *::\n|(?<=\S):(?=:$)", re.MULTILINE)
# The type of a parameter or result is shown as it is written, so it needs no backticks around names, and a space of no
# width behind it: Python cannot parse that, so griffe does not take "str, path or callable" for a tuple.
TYPE = re.compile(r"^\w.* : .*$|(?<=--\n).+$", re.MULTILINE)


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = MARK.sub("", obj.docstring.value)
            obj.docstring.value = TYPE.sub(lambda line: line[0].replace("``", "") + "\u200b", text)

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Hide annotations, because docstrings say more, and ``*unnamed`` and ``**misnamed``, which only refuse."""
        for refused in ("unnamed", "misnamed"):
            if refused in func.parameters:
                del func.parameters[refused]
        for parameter in func.parameters:
            parameter.annotation = None
