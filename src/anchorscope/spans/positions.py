"""What a recipe can choose about exact tokens, by name: where probes read, and who chooses the question's words."""

POSITIONS = ("final", "answer_end", "answer_before")
"""The answer's last token; the last token of the entity in it; the token just before that entity."""
EXACT_TOKENS = ("auto", "rules", "model")
"""The user's spans, else the dataset's subject and property, else rules; the rules alone; the model itself."""
