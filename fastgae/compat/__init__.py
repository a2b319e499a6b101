"""One module for each library: its function, with its own signature and its exact results, computed by fastgae.

The library itself is not imported. Tensors come in and go out where the library's function takes and gives them.
"""
