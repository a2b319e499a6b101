"""What knows nothing of advantages: memory, threads, archives, pictures, and the names that people write."""
