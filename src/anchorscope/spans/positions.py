"""Where probes can read, by name."""

POSITIONS = ("final", "answer_end", "answer_before")
"""The answer's last token; the last token of the entity in it; the token just before that entity."""
