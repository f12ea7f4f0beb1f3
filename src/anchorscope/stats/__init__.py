"""Numbers: AUC with ties, the bootstrap over groups, shapes of sampled curves, agreement, densities, modes.

NumPy only."""
