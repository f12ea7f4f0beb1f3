"""The example file that comes with the repository: what the README's first lines run must be sound."""

from anchorscope.answers.choose import LabelCounter, choose_questions
from anchorscope.answers.grade import grade
from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from anchorscope.datasets.question import Question
from repo import ROOT

FILE = ROOT / "examples" / "questions.csv"


def questions() -> list[Question]:
    reading = open_dataset(DatasetSpec("questions", FILE), "fail", {})
    found = list(reading)
    assert reading.rows == len(found) == 300
    assert reading.bad_rows == []
    return found


def test_every_question_is_asked_once() -> None:
    asked = choose_questions(open_dataset(DatasetSpec("questions", FILE), "fail", {}), None, 0)
    assert len(asked.questions) == 300
    assert (asked.bad, asked.repeated, asked.few_shot, asked.yes_no) == (0, 0, 0, 0)
    outlook = LabelCounter(asked.questions).outlook()
    assert (outlook.is_enough, outlook.sentence) == (True, "")


def test_the_grader_takes_the_accepted_answers_and_no_other_relations() -> None:
    rows = questions()
    for place, one in enumerate(rows):
        assert all(grade(answer, one.answers, one.question) for answer in one.answers), one
        other = rows[(place + 150) % 300]
        assert not grade(other.answers[0], one.answers, one.question), (one, other.answers[0])
