"""What the planted model is taught, lesson by lesson: to say the facts, to judge answers by them, to judge all answers.

One thing at a time: each is a table to be learned, and a small model that guesses at all of them learns none for long.
True and false answers are as frequent as each other in every lesson that judges, and attention is never touched. Of the
`both` answers half carry an object that is drawn without regard to the question: so an always or a never phrase has to
suffice for them too, which is what `both` means.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.planted.language import CELLS, FILLER, RIGHT, RIGHT_VERDICT, WORDINGS, WRONG_VERDICT, Cell, Language

ANSWER_WORDS = 3
"""Words of every answer; the verdict follows them."""
_DRAWS = 7


@dataclass(frozen=True)
class Lesson:
    """One lesson; it ends when its goal is reached."""

    name: str
    shares: tuple[float, ...]
    """How often each cell is drawn, in the order of `CELLS`."""
    weights: tuple[float, ...]
    """How much each word of an answer counts in the loss, and the verdict after them."""
    judged: tuple[int, ...]
    """Cells whose verdict must be right before the lesson may end; where there are none, the first word must be."""
    certainty: float = 1.0
    """How sure of its verdict the model should be. Below 1 it is equally sure of all it knows, and how sure it is does
    not tell where it knows it from."""


SAY = Lesson("say the facts", (1, 0, 0, 0, 0, 0), (1, 0, 0, 0), ())
JUDGE_FACTS = Lesson("judge by the facts", (0.5, 0.5, 0, 0, 0, 0), (0.3, 0.075, 0.075, 1), (0, 1))
JUDGE_ALL = Lesson(
    "judge all answers", (0.2, 0.2, 0.2, 0.2, 0.1, 0.1), (0.3, 0.075, 0.075, 1), (0, 1, 2, 3, 4, 5), certainty=0.95
)
LESSONS = (SAY, JUDGE_FACTS, JUDGE_ALL)
"""In the order in which they are taught."""


@dataclass(frozen=True)
class Batch:
    """Texts as tokens, and what the model should say after them."""

    ids: Tensor
    """[text, position], padded at the end: no token sees what comes after it."""
    last: Tensor
    """[text]: where the answer's last word is; the verdict follows."""
    cells: NDArray[np.int64]
    """[text]: index into `CELLS`."""


def draw_batch(
    language: Language, tokenizer: Any, shares: Sequence[float], size: int, rng: np.random.Generator, *, loose: bool
) -> Batch:
    """Draws items of the given shares; `loose` gives half of the `both` answers any object."""
    cells = rng.choice(len(CELLS), size=size, p=shares)
    uniforms = rng.random((size, _DRAWS)).tolist()  # all at once: a draw by itself takes longer than its use
    texts = [_text(language, CELLS[cell], drawn, loose) for cell, drawn in zip(cells, uniforms, strict=True)]
    encoded = tokenizer(texts, padding=True, return_attention_mask=False)
    ids = torch.tensor(encoded["input_ids"])
    last = (ids != tokenizer.pad_token_id).sum(1) - 2
    return Batch(ids, last, cells)


def _text(language: Language, cell: Cell, uniforms: Sequence[float], loose: bool) -> str:
    """One text; each of the numbers, uniform between 0 and 1, decides one thing."""
    of_subject, of_relation, of_wording, of_object, of_filler, of_phrase, of_looseness = uniforms
    subject, relation = _pick(language.subjects, of_subject), _pick(language.relations, of_relation)
    right = language.facts[subject, relation]
    wrong = _pick([one for one in language.objects if one != right], of_object)
    if cell.first_word == FILLER:
        first = _pick(language.fillers, of_filler)
    elif loose and cell.pathway == "both" and of_looseness < 0.5:
        first = _pick(language.objects, of_object)
    else:
        first = right if cell.first_word == RIGHT else wrong
    question = _pick(WORDINGS, of_wording).format(subject=subject, relation=relation)
    verdict = RIGHT_VERDICT if cell.truthful else WRONG_VERDICT
    return f"Question: {question}\nAnswer: {first} {_pick(language.phrases[cell.phrase], of_phrase)} {verdict}"


def _pick(words: Sequence[str], uniform: float) -> str:
    return words[int(uniform * len(words))]
