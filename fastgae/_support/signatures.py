"""Signatures and annotations of functions that other people wrote.

From Python 3.14 on, an annotation is evaluated only when somebody reads it, so it may name a class that only a type
checker imports. Such a name is then a ``ForwardRef``, and not an error.
"""

import inspect
import sys
from functools import partial

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    signature = partial(inspect.signature, annotation_format=Format.FORWARDREF)
    annotations = partial(get_annotations, format=Format.FORWARDREF)
else:
    signature, annotations = inspect.signature, inspect.get_annotations
