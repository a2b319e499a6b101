"""Compute the functions of other libraries with fastgae: one module per library, with its signatures and exact results.

A function takes and returns tensors if the library's own function does. Most modules also have a hook that makes the
library call fastgae: a function ``install()``, or a subclass with the name of the library's class. Only the hook
imports the library. Results have the dtype to which torch, JAX or NumPy promotes the given numbers, or its default
float dtype if all of them are integers.

Where a docstring says "the same bits", two things may still differ, because a gate of fastgae selects and most
libraries multiply by 0: NaN and infinity behind a closed gate have no effect, and a zero may have the other sign.
"""
