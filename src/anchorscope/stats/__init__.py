"""Numbers: AUC with ties, the bootstrap over groups, shapes of sampled curves, agreement, densities, modes, and a
logistic regression on sparse data.

NumPy and SciPy only."""
