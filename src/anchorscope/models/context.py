"""How many tokens a model reads at once: its longest context, as its configuration states it.

A learned table of positions ends there. A rotary embedding goes on for ever, but what it gives beyond the lengths that
a model was trained for means little. Sliding windows are no limit: they hide tokens, and position goes on. What the
tokenizer says (`model_max_length`) is often a placeholder or another model's, so that it is not asked.
"""

import math
from typing import Any

NAMES = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "seq_length")
"""What configurations call it; the first that says something counts."""
NO_LIMIT = 10**9
"""Who states so many tokens, or more, states no limit."""


def context_length(config: Any) -> int | None:
    """The longest context in tokens; None where the configuration states none that means anything."""
    text = config.get_text_config()
    stated = next((count for name in NAMES if (count := _count(getattr(text, name, None)))), None)
    return None if stated is None else max(stated, _scaled(text, stated))


def _scaled(text: Any, stated: int) -> int:
    """What a scaled rotary embedding makes of it; Llama 3, LongRoPE and linear scaling state the scaled length."""
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None)
    if not isinstance(rope, dict):
        return stated
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if kind not in ("yarn", "dynamic") or not isinstance(factor, int | float) or not math.isfinite(factor):
        return stated
    return _count(factor * (_count(rope.get("original_max_position_embeddings")) or stated)) or stated


def _count(value: Any) -> int | None:
    """A number of tokens, if it is one."""
    return int(value) if isinstance(value, int | float) and 1 <= value < NO_LIMIT else None
