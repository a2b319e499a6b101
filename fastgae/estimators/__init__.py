"""One file per estimator, its equation first."""
