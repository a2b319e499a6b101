"""The equations, for arrays of every library: estimators, trees, groups, exact sums."""
