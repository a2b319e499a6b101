"""The pictures of docs/ that show real rollouts: ``python -m pictures``, in the folder ``tests``, draws all of them."""
