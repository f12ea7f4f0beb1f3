"""What the model sees: solved examples, then the question; as plain text, or as a conversation.

A dataset's own questions about the examples' subjects are left out: their answers stand in the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anchorscope.answers.template import FEW_SHOT_TEMPLATE, Offsets, Template
from anchorscope.answers.template_chat import chat_template
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import shared_prefix_length
from anchorscope.errors import unknown

PROMPTS = ("few-shot", "chat")
"""How a question can be put: after solved examples as plain text, or through the model's own chat template."""


@dataclass(frozen=True)
class Prompt:
    """One question as the model sees it."""

    text: str
    ids: tuple[int, ...]
    offsets: Offsets
    """Characters of `text` that each token covers."""
    question_start: int
    """Where the question's own text begins in `text`."""


def make_template(kind: str, tokenizer: Any, needs_bos: int | None = None) -> Template:
    """The template of one kind for one model; `needs_bos` is the token that its prompts must begin with."""
    if kind not in PROMPTS:
        raise unknown("prompt", kind, PROMPTS)
    return chat_template(tokenizer, needs_bos) if kind == "chat" else replace(FEW_SHOT_TEMPLATE, first_token=needs_bos)


def build_prompts(
    tokenizer: Any, questions: Sequence[Question], template: Template = FEW_SHOT_TEMPLATE
) -> list[Prompt]:
    """The prompt of each question, up to where its answer begins."""
    texts = [template.text(question.question) for question in questions]
    encoded = template.encode(tokenizer, texts)
    start = len(template.head)
    return [Prompt(text, ids, offsets, start) for text, (ids, offsets) in zip(texts, encoded, strict=True)]


def prefix_length(prompts: Sequence[Prompt]) -> int:
    """How many leading tokens all prompts share, none of which touches the question's own text."""
    limits = [
        next((i for i, (_, end) in enumerate(prompt.offsets) if end > prompt.question_start), len(prompt.ids))
        for prompt in prompts
    ]
    return shared_prefix_length([prompt.ids for prompt in prompts], limits)
