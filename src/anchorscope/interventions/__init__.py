"""What to change in a run: the attention knockout and its controls."""
