"""Numbers: areas under curves with ties, the bootstrap over groups, agreement, densities, modes. NumPy only."""
