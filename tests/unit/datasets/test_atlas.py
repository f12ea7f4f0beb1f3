"""Laws of the built-in question set, and of the example file that the README's first lines run."""

import re
import tomllib
import unicodedata
from importlib.resources import files

import pytest

from anchorscope.answers.choose import LabelCounter, choose_questions
from anchorscope.answers.grade import grade
from anchorscope.datasets.catalog import DatasetSpec, open_dataset
from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import load_atlas
from anchorscope.datasets.text import question_key
from repo import ROOT


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return load_atlas()


def _words(text: str) -> str:
    """Text as space-separated plain words, with a space at both ends so that `in` compares whole words."""
    plain = "".join(
        c
        for c in unicodedata.normalize("NFKD", text.casefold())
        if not unicodedata.combining(c)
    )
    return " " + " ".join(re.findall(r"[^\W_]+", plain)) + " "


def _lines() -> list[tuple[str, str]]:
    folder = files("anchorscope.datasets") / "atlas"
    return [
        (path.name, line)
        for path in sorted(folder.iterdir(), key=lambda path: path.name)
        if path.name.endswith(".tsv")
        for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    ]


def test_every_file_belongs_to_a_relation_and_every_line_is_loaded(
    questions: list[Question],
) -> None:
    text = ((files("anchorscope.datasets") / "atlas") / "relations.toml").read_text(
        encoding="utf-8"
    )
    assert {name for name, _ in _lines()} == {
        f"{relation}.tsv" for relation in tomllib.loads(text)
    }
    assert len(_lines()) == len(questions)


def test_ids_and_questions_are_unique(questions: list[Question]) -> None:
    assert len({question.item_id for question in questions}) == len(questions)
    assert len({question_key(question.question) for question in questions}) == len(
        questions
    )


def test_every_question_has_its_subject_once_its_property_words_and_no_answer(
    questions: list[Question],
) -> None:
    for question in questions:
        text, subject = question.question, question.subject or ""
        assert not subject.startswith("the ")
        assert text.count(subject) == 1, (
            "a second occurrence would make the span of the subject ambiguous"
        )
        rest = text.replace(subject, "", 1)
        assert question.property_words
        assert all(
            re.search(rf"\b{re.escape(word)}\b", rest)
            for word in question.property_words
        ), text
        assert not any(_words(answer) in _words(text) for answer in question.answers), (
            text
        )


def test_answers_are_stripped_and_distinct(questions: list[Question]) -> None:
    for question in questions:
        assert question.answers
        assert all(
            answer == answer.strip() and _words(answer).strip()
            for answer in question.answers
        ), question.item_id
        plain = [
            unicodedata.normalize("NFC", answer).casefold()
            for answer in question.answers
        ]
        assert len(set(plain)) == len(plain), question.item_id


FILE = ROOT / "examples" / "questions.csv"


def test_every_question_is_asked_once() -> None:
    asked = choose_questions(open_dataset(DatasetSpec("questions", FILE)), None, 0)
    assert asked.read == len(asked.questions) == 300
    assert (asked.bad, asked.repeated, asked.few_shot, asked.yes_no) == (0, 0, 0, 0)
    outlook = LabelCounter(asked.questions).outlook()
    assert (outlook.is_enough, outlook.sentence) == (True, "")


def test_the_grader_takes_the_accepted_answers_and_no_other_relations() -> None:
    rows = list(open_dataset(DatasetSpec("questions", FILE)))
    for place, one in enumerate(rows):
        assert all(
            grade(answer, one.answers, one.question) for answer in one.answers
        ), one
        other = rows[(place + 150) % 300]
        assert not grade(other.answers[0], one.answers, one.question), (
            one,
            other.answers[0],
        )
