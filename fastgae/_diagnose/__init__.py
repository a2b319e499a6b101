"""Mistakes that people make with rollouts: what detectors look at (steps), the detectors (flags, rows, bootstrap,
numerics), and what they say (report)."""
