"""The ways to do the work: each does all of it in its own manner, and all give the same states."""
