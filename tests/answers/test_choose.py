"""Which questions are asked: never those of the prompt's own examples, and a seeded sample in the file's order."""

import pytest

from anchorscope.answers.choose import choose_questions
from anchorscope.answers.prompt import FEW_SHOT, in_few_shot
from anchorscope.datasets.catalog import Loaded
from anchorscope.datasets.question import Question
from anchorscope.datasets.tables import BadRow
from anchorscope.errors import UserError


def asked(text: str, subject: str | None = None) -> Question:
    return Question("d", text, text, ("x",), subject)


def loaded(*questions: Question) -> Loaded:
    return Loaded(list(questions), read=len(questions) + 5, repeated=2, bad_rows=[BadRow(1, "broken")] * 3)


MANY = loaded(*(asked(f"Question {index}?") for index in range(50)))


def test_questions_of_the_examples_are_left_out_and_counted() -> None:
    texts = [asked(example.question.upper().rstrip("?")) for example in FEW_SHOT]
    chosen = choose_questions(loaded(*texts, asked("Who wrote Emma?")), None, 0)
    assert [question.question for question in chosen.questions] == ["Who wrote Emma?"]
    assert (chosen.few_shot, chosen.read, chosen.bad, chosen.repeated) == (3, 9, 3, 2)


@pytest.mark.parametrize("subject", ["Japan", "japan", "ROMEO AND JULIET", "the Gold"])
def test_questions_about_the_examples_subjects_are_left_out(subject: str) -> None:
    assert in_few_shot(asked("On which continent is it?", subject))
    chosen = choose_questions(loaded(asked("On which continent is it?", subject), asked("Other?", "Peru")), None, 0)
    assert [question.subject for question in chosen.questions] == ["Peru"]
    assert chosen.few_shot == 1


def test_a_subject_that_only_contains_an_examples_subject_stays() -> None:
    assert not in_few_shot(asked("Where is it?", "Golden Gate"))
    assert not in_few_shot(asked("Who ruled it?", "Japanese Empire"))


def test_a_question_without_any_word_is_bad_because_nothing_in_it_can_be_cut() -> None:
    chosen = choose_questions(loaded(asked("???"), asked("Who?"), asked("…!")), None, 0)
    assert [question.question for question in chosen.questions] == ["Who?"]
    assert (chosen.bad, chosen.few_shot) == (3 + 2, 0)


def test_without_a_limit_every_question_is_asked_in_order() -> None:
    assert choose_questions(MANY, None, 7).questions == MANY.questions
    assert choose_questions(MANY, 50, 7).questions == MANY.questions
    assert choose_questions(MANY, 99, 7).questions == MANY.questions


def test_a_limit_draws_so_many_in_the_files_order() -> None:
    chosen = choose_questions(MANY, 12, 0).questions
    places = [MANY.questions.index(question) for question in chosen]
    assert len(set(places)) == 12
    assert places == sorted(places)
    assert places != list(range(12))


def test_the_seed_decides_the_draw() -> None:
    first, again, other = (choose_questions(MANY, 12, seed).questions for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_limit_counts_what_is_asked_not_what_was_left_out() -> None:
    mixed = loaded(*(asked(f"Question {index}?", "Japan" if index % 2 else None) for index in range(20)))
    chosen = choose_questions(mixed, 10, 0)
    assert len(chosen.questions) == 10
    assert chosen.few_shot == 10


def test_a_dataset_without_a_question_to_ask_is_refused() -> None:
    with pytest.raises(UserError, match="no question to ask"):
        choose_questions(loaded(asked(FEW_SHOT[0].question)), None, 0)
