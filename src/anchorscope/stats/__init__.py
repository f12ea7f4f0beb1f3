"""Numbers: areas under curves with ties, the bootstrap over groups, agreement. NumPy only."""
