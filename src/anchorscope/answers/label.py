"""The label of every answered question, its group, and whether probes are trained on it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.generate import Answer
from anchorscope.catalogue import GRADERS
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import normalise, question_key
from anchorscope.errors import TooFewAnswers
from anchorscope.plugins import load_at
from anchorscope.stats.streams import draw_balanced, priorities


def balanced_by(questions: Sequence[Question], balance: str) -> str:
    """The balance in effect: without relations, only the whole dataset can be balanced."""
    return (
        "dataset"
        if balance == "relation"
        and not any(question.relation for question in questions)
        else balance
    )


def grouped_by(questions: Sequence[Question], group_by: str) -> str:
    """The grouping in effect: without subjects, every question is its own group."""
    return (
        "question"
        if group_by == "subject" and not any(question.subject for question in questions)
        else group_by
    )


def group_items(
    questions: Sequence[Question], answers: Sequence[str], group_by: str
) -> NDArray[np.int64]:
    if group_by == "answer":
        return joined_groups([[normalise(answer)] for answer in answers])
    return joined_groups(
        [group_keys(question.question, question.subject) for question in questions]
    )


def group_keys(question: str, subject: str | None) -> list[str]:
    """What ties a question to others."""
    keys = [f"question {question_key(question)}"]
    return (
        [*keys, f"subject {normalise(subject)}"]
        if subject and normalise(subject)
        else keys
    )


def joined_groups(keys: Sequence[Collection[str]]) -> NDArray[np.int64]:
    """A number per item; items that share a key, or are tied by others that do, have the same."""
    names: dict[str, int] = {}
    pairs = [
        (item, names.setdefault(key, len(names)))
        for item, own in enumerate(keys)
        for key in own
    ]
    if not pairs:
        return np.zeros(0, dtype=np.int64)
    items, key_numbers = np.array(pairs).T
    from scipy.sparse import (
        coo_matrix,
    )  # only here: the recipe reads this file's options, and help has to come at once
    from scipy.sparse.csgraph import connected_components

    size = len(keys) + len(names)
    graph = coo_matrix(
        (np.ones(len(items)), (items, key_numbers + len(keys))), shape=(size, size)
    )
    labels = connected_components(graph, directed=False)[1][: len(keys)]
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class Label:
    truthful: bool | None
    """None if there is no answer to use."""
    group: int
    """Items of one group never stand on both sides of a split."""
    status: str
    """`used`, `unbalanced` (not drawn), `empty`, `truncated` or `too_long`."""
    weight: float
    """Inverse probability of being drawn; 0 for items that aren't used."""


def label_answers(
    questions: Sequence[Question],
    answers: Sequence[Answer],
    balance: str,
    group_by: str,
    max_per_class: int,
    seed: int,
    grader: str = "rules",
) -> list[Label]:
    grade = load_at("graders", grader, GRADERS[grader]).grade
    groups = group_items(questions, [answer.text for answer in answers], group_by)
    graded = [
        index for index, answer in enumerate(answers) if answer.status == "answered"
    ]
    truthful: dict[int, bool] = {}
    for index in graded:
        asked = questions[index]
        given = asked.truthful
        truthful[index] = (
            grade(answers[index].text, asked.answers, asked.question)
            if given is None
            else given
        )
    labels = np.array([truthful[index] for index in graded], dtype=bool)
    relations = [questions[index].relation for index in graded]
    order = priorities(seed, "balance", [questions[index].item_id for index in graded])
    chosen, weights = draw_balanced(labels, relations, balance, max_per_class, order)
    used = {
        index: (bool(chosen[row]), float(weights[row]))
        for row, index in enumerate(graded)
    }
    result = []
    for index, answer in enumerate(answers):
        is_used, weight = used.get(index, (False, 0.0))
        status = (
            answer.status if index not in used else "used" if is_used else "unbalanced"
        )
        result.append(Label(truthful.get(index), int(groups[index]), status, weight))
    return result


def require_enough(
    dataset: str, labels: Sequence[Label], needed: int, balance: str, too_long: str = ""
) -> None:
    """Refuses to train on too few answers of either kind; `too_long` says how many questions didn't fit."""
    used = [label for label in labels if label.status == "used"]
    true, false = (
        sum(label.truthful is True for label in used),
        sum(label.truthful is False for label in used),
    )
    if min(true, false) >= needed:
        return
    all_true = sum(label.truthful is True for label in labels)
    all_false = sum(label.truthful is False for label in labels)
    before = f" ({all_true} true and {all_false} false before balancing), {needed} of each are needed"
    wider = (
        ", --balance dataset"
        if balance == "relation" and min(all_true, all_false) >= needed
        else ""
    )
    then = f"; ask more questions (a higher --limit){wider}, or use a model that answers more of them right."
    if too_long:
        before = f", {needed} of each are needed, and {too_long}"
        then = "; ask shorter or more questions, take the shorter --prompt zero-shot, or a model that reads more."
    raise TooFewAnswers(
        f"Dataset {dataset!r} has too few answers to train probes on: {true} true and {false} false are usable"
        f"{before}{then}"
    )
