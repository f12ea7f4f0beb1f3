"""Laws of the built-in question set."""

import re
import tomllib
import unicodedata
from collections import Counter
from importlib.resources import files

import pytest

from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import load_atlas
from anchorscope.datasets.text import question_key

# Shown in the few-shot prompt, so asking them again would only test copying.
SHOWN = {("Romeo and Juliet", "author"), ("gold", "symbol")}


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return load_atlas()


def _words(text: str) -> str:
    """Text as space-separated plain words, with a space at both ends so that `in` compares whole words."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    return " " + " ".join(re.findall(r"[^\W_]+", plain)) + " "


def _lines() -> list[tuple[str, str]]:
    folder = files("anchorscope.datasets") / "atlas"
    return [
        (path.name, line)
        for path in sorted(folder.iterdir(), key=lambda path: path.name)
        if path.name.endswith(".tsv")
        for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    ]


def test_is_large_and_broad(questions: list[Question]) -> None:
    sizes = Counter(question.relation for question in questions)
    assert len(questions) >= 1000
    assert len(sizes) >= 10
    # Truth is balanced within a relation, which needs several questions of each outcome.
    assert min(sizes.values()) >= 20


def test_every_file_belongs_to_a_relation_and_every_line_is_loaded(questions: list[Question]) -> None:
    text = ((files("anchorscope.datasets") / "atlas") / "relations.toml").read_text(encoding="utf-8")
    assert {name for name, _ in _lines()} == {f"{relation}.tsv" for relation in tomllib.loads(text)}
    assert len(_lines()) == len(questions)


def test_ids_and_question_texts_are_unique(questions: list[Question]) -> None:
    assert len({question.item_id for question in questions}) == len(questions)
    assert len({question.question.casefold() for question in questions}) == len(questions)


def test_ids_name_relation_and_subject_in_plain_characters(questions: list[Question]) -> None:
    for question in questions:
        assert re.fullmatch(rf"{question.relation}-[a-z0-9]+(-[a-z0-9]+)*", question.item_id)
    assert "capital-netherlands" in {question.item_id for question in questions}


def test_subject_occurs_exactly_once_in_the_question(questions: list[Question]) -> None:
    for question in questions:
        assert question.subject
        assert not question.subject.startswith("the ")
        # Once, because a second occurrence would make the span of the subject ambiguous.
        assert question.question.count(question.subject) == 1, question.question


def test_property_words_occur_in_the_question_outside_the_subject(questions: list[Question]) -> None:
    for question in questions:
        rest = question.question.replace(question.subject or "", "", 1)
        assert question.property_words
        for word in question.property_words:
            assert re.search(rf"\b{re.escape(word)}\b", rest), question.question


def test_no_answer_stands_in_its_question(questions: list[Question]) -> None:
    leaks = [
        (question.question, answer)
        for question in questions
        for answer in question.answers
        if _words(answer) in _words(question.question)
    ]
    assert leaks == []


def test_answers_are_stripped_and_distinct(questions: list[Question]) -> None:
    for question in questions:
        assert question.answers
        assert all(answer == answer.strip() and _words(answer).strip() for answer in question.answers), question.item_id
        plain = [unicodedata.normalize("NFC", answer).casefold() for answer in question.answers]
        assert len(set(plain)) == len(plain), question.item_id


def test_lines_have_no_stray_whitespace() -> None:
    for name, line in _lines():
        for cell in line.split("\t"):
            assert cell, (name, line)
            assert cell == " ".join(cell.split()), (name, line)


def test_leaves_out_what_the_few_shot_prompt_shows(questions: list[Question]) -> None:
    for question in questions:
        assert question.subject != "Japan"
        assert (question.subject, question.relation) not in SHOWN


def test_metadata_is_plain(questions: list[Question]) -> None:
    assert {question.dataset for question in questions} == {"atlas"}
    assert all(question.model_answer is None and question.truthful is None for question in questions)


def test_no_two_questions_are_the_same_words(questions: list[Question]) -> None:
    keys = [question_key(question.question) for question in questions]
    assert len(set(keys)) == len(keys)
