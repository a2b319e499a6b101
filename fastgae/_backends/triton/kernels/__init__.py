"""What runs on the GPU. A matrix that is missing is an empty tuple when a kernel is compiled: its code is left out."""
