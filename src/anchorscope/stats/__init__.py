"""Numbers: AUC with ties, detection metrics, calibration and risk control, the bootstrap over groups, shapes of sampled
curves, agreement, densities, modes, and a logistic regression on sparse data.

NumPy and SciPy only."""
