"""Mistakes that people make with rollouts: what detectors look at (steps), the detectors (flags, rows, bootstrap,
numbers), and what they say (report)."""
