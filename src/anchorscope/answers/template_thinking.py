"""Thinking is switched off: the answer is what is probed, not what a reasoning model writes before it.

Templates of reasoning models come in four kinds. Some take a switch and write an empty thinking block themselves
(Qwen3, SmolLM3), or only its end (DeepSeek-V3.1). Some end inside an open block, for the model to go on in (DeepSeek-R1
and its distills, QwQ): it is closed at once. Some leave it to the model to open one (the first DeepSeek-R1 templates):
an empty block is put there. The others do not speak of thinking: nothing is changed. That a tokenizer knows the tags
says nothing, since models that never think (Qwen3-Instruct-2507) share it with those that do.
"""

from typing import Any

OPEN, CLOSE = "<think>", "</think>"
"""Around what a reasoning model writes before its answer."""
SWITCHES: dict[str, Any] = {"enable_thinking": False, "thinking": False}
"""What templates call the switch; those that have none do not look at it."""

_EMPTY_BLOCK = f"{OPEN}\n\n{CLOSE}\n\n"


def without_thinking(tail: str, source: str) -> str:
    """What a template of this source writes after the question, with an empty thinking block before the answer."""
    _, opened, inside = tail.rpartition(OPEN)
    if opened and CLOSE not in inside:
        # Line breaks that are there already are not written twice.
        return tail + ("\n\n".removeprefix(inside) if not inside.strip("\n") else "\n") + f"{CLOSE}\n\n"
    thinks = OPEN in source or CLOSE in source
    return tail + _EMPTY_BLOCK if thinks and not tail.rstrip().endswith(CLOSE) else tail


def after_thinking(text: str) -> str | None:
    """What stands after the thinking block that a text begins with; the text itself if none; None if it is open."""
    if not text.lstrip().startswith(OPEN):
        return text
    _, closed, rest = text.partition(CLOSE)
    return rest if closed else None
