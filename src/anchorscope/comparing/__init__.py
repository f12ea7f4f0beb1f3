"""Several finished runs side by side: are they comparable, and what changes from model to model."""
