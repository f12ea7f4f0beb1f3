"""What the model sees: solved examples, then the question; as plain text, or as a conversation; or the question alone.

A dataset's own questions about the examples' subjects are left out: their answers stand in the prompt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from anchorscope.answers.template import FEW_SHOT_TEMPLATE, ZERO_SHOT_TEMPLATE, Offsets, Template, chat_template
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import shared_prefix_length
from anchorscope.errors import unknown

_TOGETHER = 2**20  # characters that are tokenised in one call
PROMPTS = ("few-shot", "zero-shot", "chat")
"""How a question can be put: as plain text after solved examples or without any, or through a chat template."""


@dataclass(frozen=True)
class Prompt:
    """One question as the model sees it."""

    text: str
    ids: tuple[int, ...]
    offsets: Offsets
    """Characters of `text` that each token covers."""
    question_start: int
    """Where the question's own text begins in `text`."""
    left_out: int = 0
    """How many tokens it would have; for one with more than the model reads, of which nothing else is kept."""

    @cached_property
    def own_start(self) -> int:
        """The first token with a character that is not in the head."""
        return next((index for index, (_, end) in enumerate(self.offsets) if end > self.question_start), len(self.ids))


def make_template(kind: str, tokenizer: Any, needs_bos: int | None = None) -> Template:
    """The template of one kind for one model; `needs_bos` is the token that its prompts must begin with."""
    if kind not in PROMPTS:
        raise unknown("prompt", kind, PROMPTS)
    if kind == "chat":
        return chat_template(tokenizer, needs_bos)
    return replace(ZERO_SHOT_TEMPLATE if kind == "zero-shot" else FEW_SHOT_TEMPLATE, first_token=needs_bos)


def build_prompts(
    tokenizer: Any, questions: Sequence[Question], template: Template = FEW_SHOT_TEMPLATE, context: int | None = None
) -> list[Prompt]:
    """The prompt of each question, up to where its answer begins; empty where it alone exceeds the context."""
    start, found = len(template.head), []
    for some in some_at_a_time([template.text(question.question) for question in questions]):
        for text, (ids, offsets) in zip(some, template.encode(tokenizer, some), strict=True):
            fits = context is None or len(ids) <= context
            found.append(Prompt(text, ids, offsets, start) if fits else Prompt("", (), (), 0, left_out=len(ids)))
    return found


def some_at_a_time(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts in parts, so that the tokens of long ones that are not kept are not in memory together."""
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size >= _TOGETHER:
            yield some
            some, size = [], 0
    if some:
        yield some


def prefix_length(prompts: Sequence[Prompt]) -> int:
    """How many leading tokens all prompts share, none of which touches the question's own text."""
    return shared_prefix_length([prompt.ids for prompt in prompts], [prompt.own_start for prompt in prompts])
