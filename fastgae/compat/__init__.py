"""One module for each library: its function, with its own signature and its exact results, computed by fastgae.

Tensors come in and go out where the library's function takes and gives them. Most have a hook as well, by which the
library uses that function: ``install()``, or a class of the library's name. The library is imported only by its hook.
Results have the dtype to which torch, JAX or NumPy promotes the numbers given, and its default float where all of them
are integers.

What a docstring calls the same bits leaves two things out, for a gate of fastgae selects where most libraries multiply
by 0: NaN and infinity behind a closed gate have no effect, and a zero may have another sign.
"""
