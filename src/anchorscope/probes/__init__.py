"""Batched logistic probes over layers, sites, positions, folds and strengths, always scored out of fold."""
