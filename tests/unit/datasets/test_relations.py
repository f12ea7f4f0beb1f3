"""Other wordings: every relation has its sentences, and each says the subject and marks the property."""

import pytest

from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import (
    load_atlas,
    reworded,
    sentences,
    with_property_words,
)
from anchorscope.spans.question_spans import locate_question_words

BY_RELATION = {question.relation: question for question in load_atlas()}


ORIGINAL = sentences()["popqa_original"]


def popqa(name: str) -> Question:
    text = (
        ORIGINAL[name].replace("[", "").replace("]", "").format(subject="Zorana Belk")
    )
    words = with_property_words({"relation": name, "question": text})["property_words"]
    return Question(
        "popqa",
        name,
        text,
        ("x",),
        subject="Zorana Belk",
        relation=name,
        property_words=tuple(words),
    )


ALL = [*BY_RELATION.values(), *map(popqa, ORIGINAL)]


def test_every_relation_of_both_sets_has_sentences_and_no_other() -> None:
    assert set(sentences()) == {"atlas", "popqa", "popqa_original"}
    assert set(sentences()["atlas"]) == set(BY_RELATION)
    assert set(sentences()["popqa"]) == set(ORIGINAL)


@pytest.mark.parametrize(
    "question", ALL, ids=lambda one: f"{one.dataset} {one.relation}"
)
def test_a_wording_asks_the_same_in_other_words(question: Question) -> None:
    found = reworded(question)
    texts = [one.question for one in found]
    assert len({question.question, *texts}) == 1 + 7
    for one in found:
        assert (one.item_id, one.answers, one.subject, one.relation) == (
            question.item_id,
            question.answers,
            question.subject,
            question.relation,
        )
        assert one.question.endswith("?")
        assert not set("[]{}") & set(one.question)
        assert one.question[0].isupper()
        words = locate_question_words(one)
        assert words.rule == "metadata", one.question
        said = {one.question[start:end] for start, end in words.spans}
        assert any(question.subject.lower() in part.lower() for part in said), (
            one.question
        )
        assert all(any(word in part for part in said) for word in one.property_words), (
            one.question
        )
        assert one.property_words


@pytest.mark.parametrize("name", ORIGINAL)
def test_the_words_of_a_relation_are_those_of_its_own_sentence(name: str) -> None:
    question = popqa(name)
    assert all(word in question.question for word in question.property_words)
    assert len(question.property_words) == ORIGINAL[name].count("[") > 0
    for row in (
        {"question": "Who?"},
        {"question": question.question, "property_words": ["Belk"]},
    ):
        assert with_property_words(row | {"relation": name}) == row | {"relation": name}
