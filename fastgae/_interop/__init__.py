"""Arrays of libraries other than NumPy: torch tensors and JAX arrays.

* ``arrays.py`` has arrays on a GPU and 16-bit floats.
* ``libraries.py`` is the table of the libraries, reads any array as a NumPy array, and lists the public functions.
* ``torch.py`` and ``jax.py`` convert the arrays of one library.
* ``calls.py`` passes a call to the function that makes it, in:
* ``torch_devices.py``: calls with tensors that hold numbers; those on a GPU stay there
* ``torch_ops.py``: the operations that stand for the functions in code that torch compiles; gradients
* ``jax_calls.py``, also for code that JAX traces: ``jax_xla.py`` lets XLA call the compiled module, in which its
  ``Batch`` turns the calls of ``jax.vmap`` into one call
* ``stored_programs.py`` lets programs that JAX has stored run in a process that only imports fastgae

Nothing here imports torch or JAX before the caller does: if the caller passes an array of a library, the library is
already imported.
"""
