"""Which questions are asked: each once, never those of the prompt's own examples, and a seeded sample in order."""

import random
from collections import Counter

import pytest

from anchorscope.answers.choose import choose_questions, is_yes_no
from anchorscope.datasets.catalog import BadRow, Reading
from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import load_atlas
from anchorscope.datasets.text import question_key


def asked(text: str, subject: str | None = None, *answers: str, truthful: bool | None = None) -> Question:
    return Question("d", text, text, answers or ("x",), subject, truthful=truthful)


def reading(*questions: Question | BadRow) -> Reading:
    return Reading("made up", iter(questions))


MANY = [asked(f"Question {index}?") for index in range(50)]


@pytest.mark.parametrize("subject", ["Japan", "japan", "ROMEO AND JULIET", "the Gold"])
def test_questions_about_the_examples_subjects_are_left_out(subject: str) -> None:
    chosen = choose_questions(reading(asked("On which continent is it?", subject), asked("Other?", "Peru")), None, 0)
    assert [question.subject for question in chosen.questions] == ["Peru"]
    assert chosen.few_shot == 1


def test_repeats_are_what_the_question_key_says() -> None:
    texts = [question.question for question in load_atlas()[:200]]
    again = [*texts, *(text.upper() for text in texts[::2]), *(f"  {text} " for text in texts[::3])]
    chosen = choose_questions(reading(*map(asked, again)), None, 0)
    assert len(chosen.questions) + chosen.few_shot == len({question_key(text) for text in again})
    assert chosen.repeated == len(again) - len({question_key(text) for text in again})


def test_a_question_without_any_word_is_bad_because_nothing_in_it_can_be_cut() -> None:
    chosen = choose_questions(reading(BadRow(1, "x"), asked("???"), asked("Who?"), asked("…!"), asked("???")), None, 0)
    assert [question.question for question in chosen.questions] == ["Who?"]
    assert (chosen.bad, chosen.repeated, chosen.few_shot) == (1 + 2, 1, 0)


YES_NO = [
    (("yes",), True),
    (("Yes", "no"), True),
    (("yes", "yeah"), False),
    (("no one",), False),
    (("yes", "Yes!"), True),
    (("Yes and no",), False),
]


@pytest.mark.parametrize(("answers", "expected"), YES_NO)
def test_yes_no_questions_are_left_out_and_counted(answers: tuple[str, ...], expected: bool) -> None:
    question = asked("Is it?", None, *answers)
    assert is_yes_no(question) == expected
    chosen = choose_questions(reading(question, asked("Who?")), None, 0)
    assert (chosen.yes_no, len(chosen.questions)) == (int(expected), 2 - expected)
    kept = choose_questions(reading(question, asked("Who?")), None, 0, "keep")
    assert (kept.yes_no, len(kept.questions)) == (0, 2)


@pytest.mark.parametrize("text", ["What is the symbol of nobelium?", "which is it", "Who's that?", "How so?"])
def test_a_question_word_asks_for_more_than_yes_or_no(text: str) -> None:
    assert not is_yes_no(asked(text, None, "No"))
    assert is_yes_no(asked(f"Is it known {text}", None, "No"))


def test_a_yes_no_question_with_a_label_of_its_own_stays() -> None:
    for label in (True, False):
        judged = asked("Is it?", None, "yes", truthful=label)
        assert choose_questions(reading(judged), None, 0).questions == [judged]


def test_a_limit_draws_so_many_in_the_files_order() -> None:
    chosen = choose_questions(reading(*MANY), 12, 0).questions
    places = [MANY.index(question) for question in chosen]
    assert len(set(places)) == 12
    assert places == sorted(places)
    assert places != list(range(12))


def test_every_question_is_as_likely_to_be_drawn() -> None:
    drawn = Counter(q.item_id for seed in range(400) for q in choose_questions(reading(*MANY), 10, seed).questions)
    # 400 draws of 10 of 50: 80 each, with a standard deviation of 8.
    assert len(drawn) == 50
    assert all(45 < count < 120 for count in drawn.values())
    assert sum((count - 80) ** 2 / 64 for count in drawn.values()) < 90


def test_the_draw_depends_on_neither_the_order_nor_the_other_rows() -> None:
    shuffled = random.Random(0).sample([*MANY, *MANY[::2], BadRow(1, "x")], len(MANY) + 26)
    drawn = {question.item_id for question in choose_questions(reading(*MANY), 12, 3).questions}
    assert {question.item_id for question in choose_questions(reading(*shuffled), 12, 3).questions} == drawn
    fewer = {question.item_id for question in choose_questions(reading(*MANY), 5, 3).questions}
    assert fewer < drawn
