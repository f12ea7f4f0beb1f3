"""Where a text that the model writes ends: known by name, so that a planned pass can say it."""

from collections.abc import Sequence

from anchorscope.answers.template import CLOSE, OPEN, after_thinking
from anchorscope.models.language_model import LanguageModel, decode_exactly

LINE, CHAT, LIST, TEXT = "line", "chat", "list", "text"
"""An answer of one line; one in a conversation; a list of key words, ended by a line break or a special token only; any
text, however many lines it has, up to an end token."""


class Ending:
    """Which tokens end a text: line breaks, the model's end tokens, and special tokens, which no answer holds.

    A chat answer may begin with line breaks: one ends it only after a visible character, and none inside a thinking
    block.
    """

    def __init__(self, lm: LanguageModel, kind: str) -> None:
        self.tokenizer, self.chat, self.breaks = lm.tokenizer, kind == CHAT, kind != TEXT
        self.certain = {int(end) for end in lm.tokenizer.all_special_ids}
        if kind != LIST:
            known = lm.model.generation_config.eos_token_id if lm.model.generation_config is not None else None
            ends = [*(known if isinstance(known, list) else [known]), lm.tokenizer.eos_token_id]
            special = [token for token, added in lm.tokenizer.added_tokens_decoder.items() if added.special]
            self.certain |= {int(end) for end in [*ends, *special] if end is not None}
        if self.chat or not self.breaks:
            self.certain = {end for end in self.certain if decode_exactly(lm.tokenizer, [end]) not in (OPEN, CLOSE)}
        self.texts: dict[int, str] = {}

    def is_end(self, token: int, so_far: Sequence[int] = ()) -> bool:
        """Whether a token ends the text, given those before it."""
        if token in self.certain:
            return True
        if not self.breaks:
            return False
        if token not in self.texts:
            self.texts[token] = decode_exactly(self.tokenizer, [token])
        line, has_break, _ = self.texts[token].partition("\n")
        if not has_break or not self.chat:
            return bool(has_break)
        visible = after_thinking(decode_exactly(self.tokenizer, so_far))
        return visible is not None and bool((visible + line).strip())
