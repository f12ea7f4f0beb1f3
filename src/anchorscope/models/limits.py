"""How large anything may be that a stranger's model files say, before a library is let near them.

The bounds are far above every model that exists; what is beyond them is a mistake or an attack, and would cost hours or
all memory to find out otherwise.
"""

CONFIG_BYTES = 8 << 20
"""config.json and other small settings."""
TOKENIZER_BYTES = 200 << 20
"""tokenizer.json, vocabularies and lists of merges."""
INDEX_BYTES = 100 << 20
"""The list of weight files, and the header of each: the format's own limit for a header."""
JSON_VALUES = 8_000_000
"""Values in one JSON file; a vocabulary of 262,000 tokens with its merges has two million."""
JSON_DEPTH = 32
"""Objects and lists inside each other, in a configuration."""
DIGITS = 40
"""Digits of a whole number; "no limit" is often written with 31."""

LAYERS = 1_000
"""Blocks of a model."""
PARTS = 1_000_000
"""Heads, experts, labels and other numbers of parts."""
WIDTH = 1_000_000
"""Width of the residual stream, or of a head."""
VOCABULARY = 10_000_000
"""Rows of the embedding."""
POSITIONS = 1_000_000_000
"""Tokens that a model says it reads."""
MODULES = 300_000
"""Modules that a model class makes while only shapes are computed."""
STOPS = 1_000
"""Tokens that end an answer."""

TOKENIZER_STEPS = 64
"""Steps that a text goes through before and after it is cut into tokens."""
TEXT_GROWTH = 256
"""How many times longer a tokenizer may make a text before cutting it."""
