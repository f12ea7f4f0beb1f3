"""Other wordings: every relation has its sentences, and each says the subject and marks the property."""

from dataclasses import replace

import pytest

from anchorscope.datasets import atlas
from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import RELATIONS, reworded, sentences
from anchorscope.spans.question_spans import locate_question_words

BY_RELATION = {question.relation: question for question in atlas.load()}


def popqa(name: str) -> Question:
    (relation,) = [one for one in RELATIONS if one.name == name]
    text = f"{relation.before}Zorana Belk{relation.after}"
    return Question("popqa", name, text, ("x",), subject="Zorana Belk", relation=name, property_words=relation.words)


ALL = [*BY_RELATION.values(), *(popqa(one.name) for one in RELATIONS)]


def test_every_relation_of_both_sets_has_sentences_and_no_other() -> None:
    assert set(sentences()) == {"atlas", "popqa"}
    assert set(sentences()["atlas"]) == set(BY_RELATION)
    assert set(sentences()["popqa"]) == {one.name for one in RELATIONS}


@pytest.mark.parametrize("question", ALL, ids=lambda one: f"{one.dataset} {one.relation}")
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
        assert any(question.subject.lower() in part.lower() for part in said), one.question
        assert all(any(word in part for part in said) for word in one.property_words), one.question
        assert one.property_words


def test_the_article_of_a_name_goes_with_it() -> None:
    (dutch,) = [one for one in atlas.load() if one.item_id == "capital-netherlands"]
    texts = [one.question for one in reworded(dutch)]
    assert "What is the capital of the Netherlands?" in texts
    assert "The Netherlands has which city as its capital?" in texts


def test_what_has_no_sentences_of_ours_stays_as_it_is() -> None:
    question = BY_RELATION["capital"]
    for other in (
        replace(question, dataset="mine"),
        replace(question, relation=None),
        replace(question, relation="height"),
        replace(question, subject=None),
        replace(question, subject="Nowhere"),
        replace(question, exact_spans=((0, 5),)),
    ):
        assert reworded(other) == []
