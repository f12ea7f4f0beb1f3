"""The label of every answered question, its group, and whether it is used: the ground that probes are trained on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anchorscope.answers.generate import Answer
from anchorscope.answers.grade import grade
from anchorscope.answers.training_items import draw, group_items
from anchorscope.datasets.question import Question
from anchorscope.errors import TooFewAnswers
from anchorscope.stats.streams import priorities


@dataclass(frozen=True)
class Label:
    """What is known of an item before any probe."""

    truthful: bool | None
    """Whether the answer is right; None for empty and truncated answers."""
    group: int
    """Items of one group never stand on both sides of a split."""
    status: str
    """`used`, `unbalanced` (not drawn), `empty` or `truncated`."""
    weight: float
    """Inverse of the chance to be drawn; 0 for items that are not used."""


def label_answers(
    questions: Sequence[Question], answers: Sequence[Answer], balance: str, group_by: str, max_per_class: int, seed: int
) -> list[Label]:
    """Grades, groups and draws."""
    groups = group_items(questions, [answer.text for answer in answers], group_by)
    graded = [index for index, answer in enumerate(answers) if answer.status == "answered"]
    truthful: dict[int, bool] = {}
    for index in graded:
        given = questions[index].truthful
        truthful[index] = _graded(questions[index], answers[index]) if given is None else given
    labels = np.array([truthful[index] for index in graded], dtype=bool)
    relations = [questions[index].relation for index in graded]
    order = priorities(seed, "balance", [questions[index].item_id for index in graded])
    drawn = draw(labels, relations, balance, max_per_class, order)
    used = {index: (bool(drawn.used[place]), float(drawn.weight[place])) for place, index in enumerate(graded)}
    result = []
    for index, answer in enumerate(answers):
        is_used, weight = used.get(index, (False, 0.0))
        status = answer.status if index not in used else "used" if is_used else "unbalanced"
        result.append(Label(truthful.get(index), int(groups[index]), status, weight))
    return result


def _graded(question: Question, answer: Answer) -> bool:
    return grade(answer.text, question.answers, question.question)


def require_enough(dataset: str, labels: Sequence[Label], needed: int, balance: str) -> None:
    """Refuses to train on too few answers of either kind."""
    used = [label for label in labels if label.status == "used"]
    true, false = sum(label.truthful is True for label in used), sum(label.truthful is False for label in used)
    if min(true, false) >= needed:
        return
    all_true = sum(label.truthful is True for label in labels)
    all_false = sum(label.truthful is False for label in labels)
    wider = ", --balance dataset" if balance == "relation" and min(all_true, all_false) >= needed else ""
    raise TooFewAnswers(
        f"Dataset {dataset!r} has too few answers to train probes on: {true} true and {false} false are usable "
        f"({all_true} true and {all_false} false before balancing), {needed} of each are needed; "
        f"ask more questions (a higher --limit){wider}, "
        f"or use a model that answers more of them right."
    )
