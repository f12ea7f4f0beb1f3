"""The text of an answer while its tokens come: whole letters only, and nothing that may yet turn out not to be of it.

An answer to a question is told without the white space around it, without blank lines and thinking before it, and never
longer than it may be: put together, the pieces are the text that is scored.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from anchorscope.answers.generate import tokens_before
from anchorscope.answers.template import OPEN, decode_exactly
from anchorscope.spans.locate import UNFINISHED, prefix_texts


class AnswerText:
    """What is told of one answer, piece by piece."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], strips: bool, chat: bool, most: int) -> None:
        """`strips` leaves out white space around the text, `chat` also what may stand before it; `most` tokens."""
        self.tokenizer, self.stop, self.strips, self.most = tokenizer, stop, strips, most
        self.before: int | None = None if chat else 0
        """Tokens that stand before the answer; None while that is not known."""
        self.ids: list[int] = []
        """The answer's own tokens."""
        self.text = ""
        """The text of these."""
        self.stopped = False
        """Whether a stop text was found: the text ends before it."""
        self._told = 0
        self._texts = prefix_texts(partial(decode_exactly, tokenizer), self.ids)

    def take(self, written: Sequence[int], over: bool) -> str:
        """New characters, given all tokens that the model wrote; all that are left where the answer is over."""
        if self.before is None:
            self.before = self._begins_at(written, over)
        if self.before is not None:
            for token in written[self.before + len(self.ids) : self.before + self.most]:
                if self.stopped:
                    break
                self.ids.append(token)
                self._cut(next(self._texts))
        shown = self.text.strip() if self.strips else self.text
        if not over and not self.stopped:
            shown = self._certain(shown)
        new, self._told = shown[self._told :], max(self._told, len(shown))
        return new

    def _begins_at(self, written: Sequence[int], over: bool) -> int | None:
        """How many tokens stand before the answer; None where that is not known yet."""
        start = tokens_before(self.tokenizer, tuple(written))
        said = decode_exactly(self.tokenizer, written).strip()
        return start if over or (start < len(written) and not OPEN.startswith(said)) else None

    def _cut(self, text: str) -> None:
        """The text so far, up to the first stop text in it."""
        longest = max(map(len, self.stop), default=0)
        known = len(self.text.rstrip(UNFINISHED))  # half letters are several signs, and become one
        found = [place for one in self.stop if (place := text.find(one, max(0, known - longest))) >= 0]
        self.stopped = bool(found)
        self.text = text[: min(found)] if found else text

    def _certain(self, text: str) -> str:
        """What no later token can change: no half letters, no beginning of a stop text."""
        text = text.rstrip(UNFINISHED)
        begun = max((_overlap(text, one) for one in self.stop), default=0)
        text = text[: len(text) - begun]
        return text.rstrip() if self.strips else text


def _overlap(text: str, stop: str) -> int:
    """How many characters at a text's end a stop text may begin with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
