"""The text around a question: a head and a tail that are the same for all items.

What comes before the question is the same for every item, so its keys and values are computed once. A template is
plain text, made once per model; how the text becomes tokens (and never with two first tokens) is told here as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anchorscope.answers.template_examples import FEW_SHOT

Offsets = tuple[tuple[int, int], ...]
"""Characters [start, end) that each token covers; empty for a token that stands for no character."""


@dataclass(frozen=True)
class Template:
    """How a question is put to a model."""

    kind: str
    """`few-shot`, `zero-shot` or `chat`."""
    head: str
    """Everything before the question."""
    tail: str
    """Everything after it, up to where the answer begins."""
    answer_lead: str
    """What stands between the tail and an answer that was given elsewhere: the model itself writes it."""
    tokenizer_adds: bool
    """Whether the tokenizer puts its own special tokens around the text."""
    first_token: int | None = None
    """The token that every prompt begins with, put in front where it is not there yet."""

    def text(self, question: str) -> str:
        """The whole prompt; the question goes on one line."""
        return f"{self.head}{' '.join(question.split())}{self.tail}"

    def encode(self, tokenizer: Any, texts: Sequence[str]) -> list[tuple[tuple[int, ...], Offsets]]:
        """Tokens of each text, all of which begin as this template does, and the characters of every token."""
        if not texts:
            return []
        encoded = tokenizer(
            list(texts), add_special_tokens=self.tokenizer_adds, return_offsets_mapping=True,
            return_attention_mask=False, return_token_type_ids=False,
        )  # fmt: skip
        found = []
        for tokens, places in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            ids, offsets = tuple(tokens), tuple(places)
            if self.first_token is not None and ids[:1] != (self.first_token,):
                ids, offsets = (self.first_token, *ids), ((0, 0), *offsets)
            found.append((ids, offsets))
        return found

    def answer_ids(self, tokenizer: Any, text: str, ids: Sequence[int], answer: str) -> tuple[int, ...]:
        """Tokens of an answer that was given elsewhere, as they follow a prompt with this text and these tokens."""
        spoken = self.answer_lead + answer.strip()
        ((whole, _),) = self.encode(tokenizer, [text + spoken])
        if whole[: len(ids)] == tuple(ids):
            return whole[len(ids) :]
        # The prompt's last characters and the answer's first made one token: the model never sees it so.
        return tuple(int(token) for token in tokenizer(spoken, add_special_tokens=False)["input_ids"])


FEW_SHOT_TEMPLATE = Template(
    kind="few-shot",
    head="".join(f"Question: {one.question}\nAnswer: {one.answer}\n" for one in FEW_SHOT) + "Question: ",
    tail="\nAnswer:",
    answer_lead=" ",
    tokenizer_adds=True,
)
"""Solved examples, then the question: works for every model, trained to chat or not."""
ZERO_SHOT_TEMPLATE = replace(FEW_SHOT_TEMPLATE, kind="zero-shot", head="Question: ")
"""The question alone: for models that know this form and nothing of the examples."""
