"""Matched strings: a planted share is found, baselines stand at one half, and what cannot be done is told."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.answers.grade import grade
from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import load_atlas
from anchorscope.evidence.scores import relation_only, words_only
from anchorscope.experiments import matched
from anchorscope.experiments.experiment import ExperimentInputs, Found
from anchorscope.experiments.matched import (
    EXPERIMENT,
    FREE,
    MATCHED,
    SIZE,
    match_questions,
    matched_questions,
    true_answer,
)
from anchorscope.experiments.supplied import SuppliedStates
from anchorscope.interventions.intervention import Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.stats.auc import auc
from anchorscope.stats.streams import stream, unnamed
from experiments_synthetic import directions_taken, make_inputs, only

N, LAYERS, WIDTH = 160, 6, 12
NAMES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti")


def name(index: int) -> str:
    """A name that no other index has, and no question says."""
    return "".join(NAMES[(index // 13**place) % 13] for place in range(3)).title()


def with_names(inputs: ExperimentInputs) -> ExperimentInputs:
    items = [
        replace(
            item,
            question=replace(item.question, answers=(name(place),), relation="colour"),
        )
        for place, item in enumerate(inputs.items)
    ]
    return replace(inputs, items=items)


@pytest.fixture(scope="module")
def inputs(tiny_llama: LanguageModel) -> ExperimentInputs:
    made = make_inputs(n=N, n_layers=LAYERS, width=WIDTH, resamples=60, after_cut=1.0)
    writer = Writer(tiny_llama.tokenizer, FEW_SHOT_TEMPLATE)
    return with_names(
        replace(made, setting=replace(made.setting, writer=lambda: writer))
    )


class Planted:
    """Stands for the model: states whose truth signal the knockout takes, of which it leaves a part."""

    def __init__(self, left: float, signal: float = 2.5) -> None:
        self.left, self.signal, self.items = left, signal, []

    def __call__(
        self, inputs: ExperimentInputs, items: Sequence[Item], title: str, cuts: object
    ) -> SuppliedStates:
        self.items = list(items)
        rng = stream(0, "test")
        sign = np.where([bool(item.label.truthful) for item in items], 1.0, -1.0)
        states = rng.normal(size=(LAYERS, len(items), WIDTH))
        kept = self.signal * sign * self.left  # does not need what is cut
        cut = states.copy()
        states[1:, :, 0] += self.signal * sign - kept
        states[1:, :, 1] += kept
        cut[1:, :, 1] += kept
        # two answers each
        question = rng.normal(size=(LAYERS, len(items) // 2, WIDTH)).repeat(2, axis=1)
        clean, without, before = (
            torch.as_tensor(one, dtype=torch.float32) for one in (states, cut, question)
        )
        return SuppliedStates(
            clean,
            before,
            {"knockout": without, "random": clean + 0.01},
            ((-1.0, -2.0),) * len(items),
        )


def run(inputs: ExperimentInputs, planted: Planted) -> Found:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anchorscope.evidence_parts.parts.FEWEST_ANSWERS", 100)
        patch.setattr(matched, "run_supplied", planted)
        return EXPERIMENT.run(inputs)


@pytest.fixture(scope="module")
def measured(inputs: ExperimentInputs) -> tuple[Found, list[Item]]:
    """What is found where the cut takes everything, and the items that were run."""
    planted = Planted(0.0)
    return run(inputs, planted), planted.items


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_planted_share_is_found_beside_that_of_the_models_own_answers(
    inputs: ExperimentInputs, measured: tuple[Found, list[Item]], share: float
) -> None:
    found, items = measured
    if share != 1:
        found = run(inputs, Planted(1 - share))
    assert {row.probe_layer for row in found.statistics} == {
        None,
        inputs.most_frequent_reference,
    }
    row = only(found, "needs-question", variant=MATCHED).estimate
    assert row.value == pytest.approx(share, abs=0.12)
    assert row.ci_low < row.value < row.ci_high
    assert row.n == len(items) == 4 * only(found, "pairs").estimate.value
    # No question tells before its answer which of the two it is.
    assert only(found, "question", variant=MATCHED).estimate.value == pytest.approx(
        0, abs=0.1
    )
    parts = [
        only(found, part, variant=MATCHED).estimate.value
        for part in ("together", "question", "answer", "either")
    ]
    assert sum(parts) == pytest.approx(1)
    # The free answers' cut leaves all of their signal.
    assert only(found, "needs-question", variant=FREE).estimate.value == pytest.approx(
        0, abs=0.12
    )
    assert (
        abs(only(found, "needs-question, random", variant=MATCHED).estimate.value)
        < 0.05
    )
    assert only(found, "auc", variant=MATCHED).estimate.value > 0.9


def test_what_words_know_is_exactly_nothing(measured: tuple[Found, list[Item]]) -> None:
    for quantity in ("auc_words", "auc_confidence_mean"):
        estimate = only(measured[0], quantity).estimate
        assert estimate.value == estimate.ci_low == estimate.ci_high == 0.5, quantity


def asked(place: int, answer: str) -> Question:
    question = f"What is the colour of stone s{place}?"
    return Question(
        "made",
        f"q{place}",
        question,
        (answer,),
        subject=f"stone s{place}",
        relation="colour",
    )


def imbalances(questions: Sequence[Question]) -> list[str]:
    """Questions and answers that are not in as many true as false items of a pair: by design there is none."""
    counts: Counter[tuple[int, str]] = Counter()
    for place, item in enumerate(questions):
        for text in (f"question {item.question}", f"answer {item.model_answer}"):
            counts[place // SIZE, text] += 1 if item.truthful else -1
    return [text for (_, text), count in counts.items() if count]


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return load_atlas()


def test_words_answers_and_relations_of_a_real_set_tell_nothing(
    questions: list[Question],
) -> None:
    pairs, _ = match_questions(questions, seed=0)
    found = matched_questions(questions, pairs)
    assert len(found) == SIZE * len(pairs) > 0.95 * 2 * len(questions)
    groups = np.repeat(np.arange(len(pairs)), SIZE)
    assert not imbalances(found)
    labels = np.array([bool(one.truthful) for one in found])
    assert labels.mean() == 0.5
    folds = grouped_folds(
        groups, truth_strata(labels), 5, unnamed(0, "test", len(found))
    )
    answers = [str(one.model_answer) for one in found]
    words = words_only([one.question for one in found], answers, labels, folds)
    relation = relation_only([one.relation for one in found], labels, folds)
    assert np.ptp(words) == 0, (
        "every word is as often in true as in false items, so that none gets a weight"
    )
    assert auc(words, labels, folds) == auc(relation, labels, folds) == 0.5


def test_true_is_right_false_is_wrong_and_both_are_of_one_relation(
    questions: list[Question],
) -> None:
    pairs, _ = match_questions(questions, seed=1)
    by_id = {one.item_id: one for one in questions}
    given_by = {}
    for one in questions:
        given_by.setdefault((one.relation, true_answer(one)), one)
    for one in matched_questions(questions, pairs):
        source = by_id[one.item_id.rpartition(":")[0]]
        assert (
            grade(str(one.model_answer), source.answers, source.question)
            == one.truthful
        )
        assert (source.relation, one.model_answer) in given_by
    assert {questions[first].relation for first, _ in pairs} == {
        one.relation for one in questions
    }
    assert all(
        questions[first].relation == questions[second].relation
        for first, second in pairs
    )
    assert len({place for pair in pairs for place in pair}) == 2 * len(pairs)


def test_an_alias_of_the_partner_is_no_false_answer() -> None:
    first = Question(
        "made", "a", "Where is Alpha?", ("UK", "United Kingdom"), relation="country"
    )
    second = Question(
        "made", "b", "Where is Beta?", ("Britain", "United Kingdom"), relation="country"
    )
    pairs, (reason,) = match_questions([first, second], seed=0)
    assert not pairs
    assert (
        "and 2 to which no other question of the same kind has a clearly false answer"
        in reason
    )


def test_an_answer_that_stands_in_a_question_is_left_out() -> None:
    own = Question(
        "made",
        "a",
        "What is the capital of Mexico?",
        ("Mexico City",),
        relation="capital",
    )
    others = [
        Question(
            "made", "b", "What is the capital of Peru?", ("Lima",), relation="capital"
        ),
        Question(
            "made",
            "c",
            "What is the capital of the Lima region?",
            ("Huacho",),
            relation="capital",
        ),
        Question(
            "made", "d", "What is the capital of Fiji?", ("Suva",), relation="capital"
        ),
    ]
    (pair,), (reason,) = match_questions([own, *others], seed=0)
    assert "1 whose answer shares a word with the question" in reason
    assert "and 1 to which" in reason
    assert 3 in pair, (
        "Lima stands in the question of Huacho, so that these two may not exchange"
    )


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 3))
def test_as_many_find_a_partner_as_can(answers: list[int], seed: int) -> None:
    names = ("red", "blue", "green", "white", "black", "grey")
    questions = [asked(place, names[answer]) for place, answer in enumerate(answers)]
    pairs, _ = match_questions(questions, seed)
    most = max(Counter(answers).values())
    assert len(pairs) == min(len(answers) // 2, len(answers) - most)


def test_states_are_reduced_to_as_many_directions_as_are_asked_for(
    inputs: ExperimentInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(inputs, directions=lambda n_items: 5)
    taken = directions_taken(monkeypatch)
    run(asked, Planted(0.0))
    assert set(taken) == {5}
