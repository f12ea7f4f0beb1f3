"""Interventions that change what the model reads: the question is written anew, the answer's tokens are kept.

Nothing is cut; the new text is tokenised as a whole and run afresh, so that a longer or shorter question is no
difficulty. States are read at the same places of the answer as before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anchorscope.answers.generate import Answer
from anchorscope.answers.prompt import Prompt
from anchorscope.answers.template import Template
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import TokenSequence
from anchorscope.interventions.intervention import ItemTokens
from anchorscope.spans.question_spans import QuestionSpans

NO_ITEM = "no item can be rewritten so"


@dataclass(frozen=True)
class Spoken:
    """What a rewriting may know of an item."""

    question: Question
    words: QuestionSpans
    """Its exact words, as places in the question's text."""
    prompt: Prompt
    answer: Answer
    tokens: ItemTokens


@dataclass(frozen=True)
class Rewritten:
    """One item, run once with another text."""

    item: int
    run: int
    """Which of the item's runs this is: 0, 1 …"""
    sequence: TokenSequence
    n_changed: int
    """How many of the item's own tokens were replaced or dropped."""


@dataclass(frozen=True)
class Writer:
    """How a question becomes the model's prompt."""

    tokenizer: Any
    template: Template

    def sequences(self, items: Sequence[Spoken], questions: Sequence[str]) -> list[TokenSequence]:
        """Each item's answer after the prompt of another question."""
        texts = [self.template.text(question) for question in questions]
        encoded = self.template.encode(self.tokenizer, texts)
        return [
            answered(ids + item.answer.before, item) for item, (ids, _) in zip(items, encoded, strict=True)
        ]


def answered(before: tuple[int, ...], item: Spoken) -> TokenSequence:
    """An item's answer after other tokens, read at the same places of the answer."""
    old = item.tokens.sequence
    moved = len(before) - old.answer_start
    return TokenSequence(before + item.answer.ids, len(before), tuple(place + moved for place in old.read_at))


@dataclass(frozen=True)
class Rewriting:
    """A registered rewriting."""

    name: str
    """As in the results' column `intervention`."""
    about: str
    """One line for help and report."""
    rewrite: Callable[[Sequence[Spoken], Sequence[int], Writer, np.random.Generator], list[Rewritten]]
    """New texts for some of the items, from all items, the indices of those to run, the writer and random numbers."""
    evidence: str
    """The experiment that it belongs to."""
    variant: str
    """What its runs are called in the results: `donor`, of which an item may have several."""
    changes: bool = True
    """False where the new text must be the old one."""
    max_items: int | None = None
    """How many items are enough; None for all."""
    control: bool = False
    """Whether it should do little."""
    needs: str = NO_ITEM
    """Why there may be too few items to run."""
