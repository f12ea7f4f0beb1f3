"""Lessons: what the model is trained on is the same language, balanced, and judged as the items are."""

from collections import Counter

import numpy as np
import pytest

from anchorscope.planted.language import ALWAYS, CELLS, NEUTRAL, NEVER, the_language
from train_planted_model import JUDGE_ALL, LESSONS, SAY, draw_batch, make_tokenizer

LANGUAGE = the_language()
TOKENIZER = make_tokenizer(LANGUAGE)
KIND_OF = {phrase: kind for kind, phrases in LANGUAGE.phrases.items() for phrase in phrases}


def drawn(shares, size: int = 600, seed: int = 0, loose: bool = False) -> list[tuple[int, str, str, str, str]]:
    """Cell, question, first word, phrase and verdict of each text."""
    batch = draw_batch(LANGUAGE, TOKENIZER, shares, size, np.random.default_rng(seed), loose=loose)
    found = []
    for ids, last, cell in zip(batch.ids, batch.last.tolist(), batch.cells.tolist(), strict=True):
        text = TOKENIZER.decode(ids[1 : last + 2])
        question, answer = text.removeprefix("Question: ").split("\nAnswer: ")
        first, *phrase, verdict = answer.split()
        found.append((cell, question, first, " ".join(phrase), verdict))
        assert (ids[last + 2 :] == TOKENIZER.pad_token_id).all()
    return found


def right_object(question: str) -> str:
    (subject,) = [one for one in LANGUAGE.subjects if one in question]
    (relation,) = [one for one in LANGUAGE.relations if one in question]
    return LANGUAGE.facts[subject, relation]


def test_every_text_is_what_its_cell_says() -> None:
    for cell, question, first, phrase, verdict in drawn(JUDGE_ALL.shares):
        kind = CELLS[cell]
        assert verdict == ("right" if kind.truthful else "wrong")
        assert KIND_OF[phrase] == kind.phrase
        if kind.pathway == "answer":
            assert first in LANGUAGE.fillers
        else:
            assert first in LANGUAGE.objects
            assert (first == right_object(question)) == kind.truthful


def test_half_of_the_loose_both_answers_have_an_object_that_says_nothing() -> None:
    texts = drawn((0, 0, 0, 0, 0.5, 0.5), size=2000, loose=True)
    agree = Counter(
        (CELLS[cell].truthful, (first == right_object(question)) == CELLS[cell].truthful)
        for cell, question, first, _, _ in texts
    )
    # Half of them are loose; of 20 objects one is right.
    assert agree[True, False] / (agree[True, False] + agree[True, True]) == pytest.approx(0.5 * 19 / 20, abs=0.05)
    assert agree[False, False] / (agree[False, False] + agree[False, True]) == pytest.approx(0.5 / 20, abs=0.02)
    assert {KIND_OF[phrase] for *_, phrase, _ in texts} == {ALWAYS, NEVER}


def test_true_and_false_are_as_frequent_wherever_verdicts_count() -> None:
    for lesson in LESSONS:
        assert sum(lesson.shares) == pytest.approx(1)
        if lesson.weights[-1]:
            assert lesson.shares[::2] == lesson.shares[1::2]
    assert SAY.weights[-1] == 0


def test_objects_are_as_often_right_as_wrong_in_training() -> None:
    texts = drawn((0.5, 0.5, 0, 0, 0, 0), size=2000)
    right = Counter(first for *_, first, _, verdict in texts if verdict == "right")
    wrong = Counter(first for *_, first, _, verdict in texts if verdict == "wrong")
    for one in LANGUAGE.objects:  # about 50 of each; four standard deviations
        assert right[one] / (right[one] + wrong[one]) == pytest.approx(0.5, abs=0.2)
    assert {KIND_OF[phrase] for *_, phrase, _ in texts} == {NEUTRAL}
