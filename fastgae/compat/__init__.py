"""Compute the functions of other libraries with fastgae: one module per library, with its signatures and exact results.

A function takes and returns tensors or JAX arrays if the library's own function does, also in code that
``torch.compile``, ``torch.func``, ``jax.jit``, ``jax.vmap`` or ``jax.grad`` traces. Tensors on a GPU stay there.
Results have no gradients. Their dtype is the one to which torch, JAX or NumPy promotes the given numbers, or its
default float dtype if all of them are integers. See docs/tensors.md and docs/gpu.md. A TypeError or ValueError names an
argument that is missing, or of a wrong type or shape. Most modules also have a hook that makes the library call
fastgae: a function ``install()``, or a subclass with the name of the library's class. Only the hook imports the
library.

Where a docstring says "the same bits", two things may still differ, because a gate of fastgae selects and most
libraries multiply by 0: NaN and infinity behind a closed gate have no effect, and a zero may have the other sign.
"""
