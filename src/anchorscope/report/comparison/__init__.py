"""Several runs on one page: a panel per model, what changes with size, and the readings across models."""
