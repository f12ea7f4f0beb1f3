"""What the model sees: three solved examples, then the question.

The examples are the same for every item, so their keys and values are computed once. A dataset's own questions about
the examples' subjects are left out: their answers stand in the prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.datasets.question import Question
from anchorscope.datasets.text import normalise, question_key
from anchorscope.engine.sequences import shared_prefix_length


@dataclass(frozen=True)
class Example:
    """A solved question of the prompt."""

    question: str
    answer: str
    subject: str


FEW_SHOT = (
    Example("What is the capital of Japan?", "Tokyo", "Japan"),
    Example("Who wrote Romeo and Juliet?", "William Shakespeare", "Romeo and Juliet"),
    Example("What is the chemical symbol of gold?", "Au", "gold"),
)
"""The examples of every prompt: a place, a person and a symbol, so that no kind of answer is favoured."""


@dataclass(frozen=True)
class Prompt:
    """One question as the model sees it."""

    text: str
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    """Characters of `text` that each token covers."""
    question_start: int
    """Where the question's own text begins in `text`."""


def in_few_shot(question: Question) -> bool:
    """Whether the prompt's examples already speak of the question or its subject."""
    keys = {question_key(example.question) for example in FEW_SHOT}
    subjects = {normalise(example.subject) for example in FEW_SHOT}
    return question_key(question.question) in keys or (
        question.subject is not None and normalise(question.subject) in subjects
    )


def build_prompts(tokenizer: Any, questions: Sequence[Question]) -> list[Prompt]:
    """The few-shot prompt of each question, up to and with "Answer:"."""
    shots = "".join(f"Question: {example.question}\nAnswer: {example.answer}\n" for example in FEW_SHOT)
    head = f"{shots}Question: "
    prompts = []
    for question in questions:
        text = f"{head}{' '.join(question.question.split())}\nAnswer:"
        encoded = tokenizer(text, return_offsets_mapping=True)
        offsets = tuple((int(start), int(end)) for start, end in encoded["offset_mapping"])
        prompts.append(Prompt(text, tuple(encoded["input_ids"]), offsets, len(head)))
    return prompts


def prefix_length(prompts: Sequence[Prompt]) -> int:
    """How many leading tokens all prompts share, none of which touches the question's own text."""
    limits = [
        next((i for i, (_, end) in enumerate(prompt.offsets) if end > prompt.question_start), len(prompt.ids))
        for prompt in prompts
    ]
    return shared_prefix_length([prompt.ids for prompt in prompts], limits)
