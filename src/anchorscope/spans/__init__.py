"""Characters and tokens: which tokens of a prompt carry the question's core, which the answer's entity."""
