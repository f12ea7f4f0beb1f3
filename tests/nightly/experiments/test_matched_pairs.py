"""Matched strings: closed groups, no word that tells, no false answer that is accepted; what is left out is told."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.grade import grade
from anchorscope.datasets import atlas
from anchorscope.datasets.question import Question
from anchorscope.evidence.probe_scores import relation_only, words_only
from anchorscope.experiments.matched import (
    SIZE,
    imbalances,
    kind_of,
    match_questions,
    matched_questions,
    some_pairs,
    true_answer,
)
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.stats.auc import auc
from anchorscope.stats.streams import unnamed


def asked(
    place: int, answer: str, relation: str | None = "colour", text: str = "What is the {} of stone {}?"
) -> Question:
    question = text.format(relation or "hue", f"s{place}")
    return Question("made", f"q{place}", question, (answer,), subject=f"stone s{place}", relation=relation)


def groups_of(n_items: int) -> np.ndarray:
    return np.repeat(np.arange(n_items // SIZE), SIZE)


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return atlas.load()


def test_words_answers_and_relations_of_a_real_set_tell_nothing(questions: list[Question]) -> None:
    matching = match_questions(questions, seed=0)
    found = matched_questions(questions, matching.pairs)
    assert len(found) == SIZE * len(matching.pairs) > 0.95 * 2 * len(questions)
    groups = groups_of(len(found))
    assert not imbalances(found, groups)
    labels = np.array([bool(one.truthful) for one in found])
    assert labels.mean() == 0.5
    folds = grouped_folds(groups, truth_strata(labels), 5, unnamed(0, "test", len(found)))
    answers = [str(one.model_answer) for one in found]
    words = words_only([one.question for one in found], answers, labels, folds)
    relation = relation_only([one.relation for one in found], labels, folds)
    assert np.ptp(words) == 0, "every word is as often in true as in false items, so that none gets a weight"
    assert auc(words, labels, folds) == auc(relation, labels, folds) == 0.5


def test_without_the_groups_the_words_would_mislead(questions: list[Question]) -> None:
    """The reason for closed groups: split by question, the other copy of an answer predicts the opposite."""
    found = matched_questions(questions, match_questions(questions, seed=0).pairs)
    labels = np.array([bool(one.truthful) for one in found])
    by_question = np.arange(len(found)) // 2
    folds = grouped_folds(by_question, truth_strata(labels), 5, unnamed(0, "test", len(found)))
    words = words_only([one.question for one in found], [str(one.model_answer) for one in found], labels, folds)
    assert auc(words, labels, folds) < 0.45


def test_true_is_right_false_is_wrong_and_both_are_of_one_relation(questions: list[Question]) -> None:
    matching = match_questions(questions, seed=1)
    by_id = {one.item_id: one for one in questions}
    given_by = {}
    for one in questions:
        given_by.setdefault((one.relation, true_answer(one)), one)
    for one in matched_questions(questions, matching.pairs):
        source = by_id[one.item_id.rpartition(":")[0]]
        assert grade(str(one.model_answer), source.answers, source.question) == one.truthful
        assert (source.relation, one.model_answer) in given_by
    assert {questions[pair.first].relation for pair in matching.pairs} == {one.relation for one in questions}
    assert all(questions[pair.first].relation == questions[pair.second].relation for pair in matching.pairs)
    used = Counter(index for pair in matching.pairs for index in (pair.first, pair.second))
    assert set(used.values()) == {1}


def test_an_alias_of_the_partner_is_no_false_answer() -> None:
    first = Question("made", "a", "Where is Alpha?", ("UK", "United Kingdom"), relation="country")
    second = Question("made", "b", "Where is Beta?", ("Britain", "United Kingdom"), relation="country")
    matching = match_questions([first, second], seed=0)
    assert not matching.pairs
    assert matching.alone == 2
    assert "of 2 questions 2 to which no other question of the same kind has a clearly false answer" in str(
        matching.told()
    )


def test_an_answer_that_stands_in_a_question_is_left_out() -> None:
    own = Question("made", "a", "What is the capital of Mexico?", ("Mexico City",), relation="capital")
    others = [
        Question("made", "b", "What is the capital of Peru?", ("Lima",), relation="capital"),
        Question("made", "c", "What is the capital of the Lima region?", ("Huacho",), relation="capital"),
        Question("made", "d", "What is the capital of Fiji?", ("Suva",), relation="capital"),
    ]
    matching = match_questions([own, *others], seed=0)
    assert matching.repeated == 1
    assert matching.alone == 1
    (pair,) = matching.pairs
    assert 3 in (pair.first, pair.second), "Lima stands in the question of Huacho, so that these two may not exchange"


def test_a_frequent_answer_leaves_only_what_must_be_left() -> None:
    """Seven of ten have one answer: three can be paired with the others, four have nobody."""
    questions = [asked(place, "red") for place in range(7)] + [asked(7, "blue"), asked(8, "green"), asked(9, "grey")]
    matching = match_questions(questions, seed=0)
    assert len(matching.pairs) == 3
    assert matching.alone == 4
    assert not imbalances(matched_questions(questions, matching.pairs), groups_of(12))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 3))
def test_as_many_find_a_partner_as_can(answers: list[int], seed: int) -> None:
    names = ("red", "blue", "green", "white", "black", "grey")
    questions = [asked(place, names[answer]) for place, answer in enumerate(answers)]
    matching = match_questions(questions, seed)
    most = max(Counter(answers).values())
    assert len(matching.pairs) == min(len(answers) // 2, len(answers) - most)
    assert 2 * len(matching.pairs) + matching.alone == len(answers)


def test_without_relations_questions_that_ask_alike_are_paired() -> None:
    questions = [
        Question("made", "a", "Who painted the ceiling?", ("Ann Moss",)),
        Question("made", "b", "When was the tower built?", ("1887",)),
        Question("made", "c", "Who sang the aria?", ("Bob Fern",)),
        Question("made", "d", "When did the war end?", ("1648",)),
        Question("made", "e", "When did it rain?", ("yesterday",)),
    ]
    assert [kind_of(one) for one in questions] == [
        "who, several words",
        "when, number",
        "who, several words",
        "when, number",
        "when, one word",
    ]
    matching = match_questions(questions, seed=0)
    assert {(pair.first, pair.second) for pair in matching.pairs} == {(0, 2), (1, 3)}
    assert matching.without_relation == 5


def test_the_form_of_an_answer_is_the_datasets_first_or_the_one_closest_to_the_others() -> None:
    aliases = ("Colonel Briggs", "Sarah", "Sarah, wife of Abraham", "SARAH")
    assert true_answer(Question("made", "a", "Who?", aliases)) == "Sarah"
    assert true_answer(Question("made", "a", "Who?", aliases, relation="spouse")) == "Colonel Briggs"


def test_a_smaller_number_is_drawn_from_a_larger_one(questions: list[Question]) -> None:
    matching = match_questions(questions, seed=0)
    few, more = (some_pairs(matching, questions, most, seed=0) for most in (20, 60))
    assert len(few) == 20
    assert set(few) < set(more) < set(matching.pairs)
    assert some_pairs(matching, questions, None, seed=0) == list(matching.pairs)
    assert match_questions(questions, seed=0) == matching
    assert match_questions(questions, seed=3).pairs != matching.pairs


def test_an_imbalance_would_be_seen(questions: list[Question]) -> None:
    found = matched_questions(questions, match_questions(questions, seed=0).pairs[:3])
    assert imbalances(found[1:], groups_of(12)[1:])
