"""Knowledge boundary: planted differences are found, weights do what they say, and what is not known is told."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.evidence.delta_p import Q_ANCHORED
from anchorscope.execute.executor import LocalExecutor
from anchorscope.experiments import boundary
from anchorscope.experiments.boundary import EXPERIMENT, ask_again
from anchorscope.experiments.experiment import ExperimentInputs, Found
from anchorscope.interventions.intervention import Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from experiments_synthetic import make_inputs, only, planted, rows
from made_items import planner_of
from tiny_models import speaker

N = 160
SAID = {True: "I don't know", False: "Paris"}


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    """The pathways of `planted`, with a signal so strong that all are found."""
    return make_inputs(n=N, truth_signal=6.0)


def with_items(inputs: ExperimentInputs, change: Any) -> ExperimentInputs:
    """The same inputs with other used items: `change(index, item)` gives the new one."""
    changed = [
        change(index, one) if index < inputs.n else one
        for index, one in enumerate(inputs.items)
    ]
    return replace(inputs, items=changed)


def with_popularity(
    inputs: ExperimentInputs, log10: NDArray[np.floating]
) -> ExperimentInputs:
    def change(index: int, item: Item) -> Item:
        metadata = (
            {} if np.isnan(log10[index]) else {"s_pop": float(10 ** log10[index])}
        )
        return replace(item, question=replace(item.question, metadata=metadata))

    return with_items(inputs, change)


def run_saying(
    inputs: ExperimentInputs,
    refuses: NDArray[np.bool_],
    monkeypatch: pytest.MonkeyPatch,
) -> Found:
    """The experiment with a model that refuses the questions of some items."""
    who = {
        item.question.item_id: bool(refuses[index])
        for index, item in enumerate(inputs.used_items)
    }
    monkeypatch.setattr(
        boundary,
        "ask_again",
        lambda _, questions: [SAID[who[one.item_id]] for one in questions],
    )
    return EXPERIMENT.run(inputs)


def test_a_planted_difference_is_found(
    inputs: ExperimentInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, asks = planted(N)
    noise = np.random.default_rng(0).normal(0, 0.5, N)
    refuses = np.random.default_rng(1).random(N) < np.where(asks, 0.1, 0.6)
    found = run_saying(with_popularity(inputs, 3 + asks + noise), refuses, monkeypatch)
    popularity = only(found, "popularity_difference")
    assert 0 < popularity.estimate.ci_low < 1 < popularity.estimate.ci_high
    assert popularity.p_value < 1e-4
    rate = only(found, "dont_know_rate_difference")
    assert rate.estimate.ci_high < 0
    assert rate.p_value < 0.01
    members = inputs.calls.members(Q_ANCHORED)
    mean = only(found, "dont_know_rate", group=Q_ANCHORED)
    assert mean.estimate.value == pytest.approx(refuses[members].mean())
    assert mean.estimate.n == members.sum()


def test_no_difference_is_covered_by_the_interval(
    inputs: ExperimentInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    found = run_saying(
        with_popularity(inputs, 3 + rng.normal(size=N)),
        rng.random(N) < 0.3,
        monkeypatch,
    )
    for quantity in (
        "popularity_difference",
        "dont_know_rate_difference",
        "confidence_mean_difference",
    ):
        row = only(found, quantity)
        assert row.estimate.ci_low < 0 < row.estimate.ci_high, quantity
        assert row.p_value > 0.05


def test_weights_undo_the_balance(
    inputs: ExperimentInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, _ = planted(N)
    weights = np.where(labels, 1.0, 3.0)
    heavy = with_items(
        inputs,
        lambda index, item: replace(
            item, label=replace(item.label, weight=float(weights[index]))
        ),
    )
    found = run_saying(heavy, np.zeros(N, bool), monkeypatch)
    assert only(found, "accuracy", group=None).estimate.value == pytest.approx(0.25)
    members = inputs.calls.members(Q_ANCHORED)
    row = only(found, "accuracy", group=Q_ANCHORED)
    assert row.estimate.value == pytest.approx(
        np.average(labels[members], weights=weights[members])
    )
    assert row.estimate.method.endswith("weighted by inverse sampling probability")


def test_supplied_answers_are_not_asked_again(inputs: ExperimentInputs) -> None:
    def given(_: int, item: Item) -> Item:
        question = replace(item.question, model_answer=item.answer.text)
        return replace(
            item, question=question, answer=replace(item.answer, log_probs=None)
        )

    # this inputs has no model: asking would fail
    found = EXPERIMENT.run(with_items(inputs, given))
    assert not rows(found, "dont_know_rate")
    assert not rows(found, "confidence_mean")
    assert rows(found, "accuracy")
    told = " / ".join(found.missing)
    assert "dont_know_rate: the answers to 160 of 160 questions were supplied" in told
    assert "confidence_mean: 160 of 160 answers were supplied" in told


@pytest.mark.parametrize(("script", "rate"), [("Unclear", 1.0), ("Paris", 0.0)])
def test_the_model_is_asked_with_the_prompt_that_allows_it(
    inputs: ExperimentInputs, tiny_llama: LanguageModel, script: str, rate: float
) -> None:
    lm = speaker(deepcopy(tiny_llama.tokenizer), script, "\n", after=":")
    setting = replace(
        inputs.setting,
        most_items=30,
        writer=lambda: Writer(lm.tokenizer, FEW_SHOT_TEMPLATE),
    )
    asked = replace(
        inputs,
        setting=setting,
        max_new_tokens=10,
        executor=LocalExecutor(lambda: lm),
        planner=planner_of(lm, 4096),
    )
    assert (
        ask_again(asked, [item.question for item in inputs.used_items[:3]])
        == [script] * 3
    )
    found = EXPERIMENT.run(asked)
    (values,) = [one for one in found.values if one.quantity == "dont_know"]
    assert values.items.tolist() == asked.some_items().tolist()
    assert (values.values == rate).all()
    assert only(found, "dont_know_rate", group=None).estimate.n == 30
