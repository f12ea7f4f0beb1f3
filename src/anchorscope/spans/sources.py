"""Who chooses the exact question words, by name."""

EXACT_TOKENS = ("auto", "rules", "model")
"""The user's spans, else the dataset's subject and property, else rules; the rules alone; the model itself."""
