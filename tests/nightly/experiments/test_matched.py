"""Matched strings: a planted share is found, baselines stand at one half, and what cannot be done is told."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.experiments import matched
from anchorscope.experiments.experiment import ExperimentInputs, Found, Statistic
from anchorscope.experiments.matched import EXPERIMENT, FEWEST_PAIRS, FREE, MATCHED, some_layers
from anchorscope.experiments.supplied import SuppliedStates
from anchorscope.interventions.intervention import Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.stats.streams import stream
from experiments_synthetic import make_inputs

N, LAYERS, WIDTH = 160, 6, 12
NAMES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti")


def name(index: int) -> str:
    """A name that no other index has, and no question says."""
    return "".join(NAMES[(index // 13**place) % 13] for place in range(3)).title()


def with_names(inputs: ExperimentInputs, relation: str | None = "colour") -> ExperimentInputs:
    items = [
        replace(item, question=replace(item.question, answers=(name(place),), relation=relation))
        for place, item in enumerate(inputs.items)
    ]
    return replace(inputs, items=items)


@pytest.fixture(scope="module")
def inputs(tiny_llama: LanguageModel) -> ExperimentInputs:
    made = make_inputs(n=N, n_layers=LAYERS, width=WIDTH, resamples=60, after_cut=1.0)
    writer = Writer(tiny_llama.tokenizer, FEW_SHOT_TEMPLATE)
    return with_names(replace(made, setting=replace(made.setting, writer=lambda: writer)))


class Planted:
    """Stands for the model: states whose truth signal the knockout takes, of which it leaves a part."""

    def __init__(self, left: float, signal: float = 2.5) -> None:
        self.left, self.signal, self.items = left, signal, []

    def __call__(self, inputs: ExperimentInputs, items: Sequence[Item], title: str, cuts: object) -> SuppliedStates:
        self.items = list(items)
        rng = stream(0, "test")
        sign = np.where([bool(item.label.truthful) for item in items], 1.0, -1.0)
        states = rng.normal(size=(LAYERS, len(items), WIDTH))
        kept = self.signal * sign * (rng.random(len(items)) < self.left)  # these do not need what is cut
        cut = states.copy()
        states[1:, :, 0] += self.signal * sign - kept
        states[1:, :, 1] += kept
        cut[1:, :, 1] += kept
        clean, without = (torch.as_tensor(one, dtype=torch.float32) for one in (states, cut))
        return SuppliedStates(clean, {"knockout": without, "random": clean + 0.01}, ((-1.0, -2.0),) * len(items))


def run(inputs: ExperimentInputs, planted: Planted) -> Found:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matched, "run_supplied", planted)
        return EXPERIMENT.run(inputs)


class Enough(Exception):
    """Raised by a model that was only asked what it would be given."""


def asked_for(inputs: ExperimentInputs) -> list[Item]:
    """The items that would be run."""
    given: list[Item] = []

    def stop(_: ExperimentInputs, items: Sequence[Item], title: str, cuts: object) -> SuppliedStates:
        given.extend(items)
        raise Enough(title)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matched, "run_supplied", stop)
        with pytest.raises(Enough):
            EXPERIMENT.run(inputs)
    return given


@pytest.fixture(scope="module")
def measured(inputs: ExperimentInputs) -> tuple[Found, list[Item]]:
    """What is found where the cut takes everything, and the items that were run."""
    planted = Planted(0.0)
    return run(inputs, planted), planted.items


def only(found: Found, quantity: str, **about: Any) -> Statistic:
    (row,) = [
        row
        for row in found.statistics
        if row.quantity == quantity and all(getattr(row, key) == value for key, value in about.items())
    ]
    return row


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_planted_share_is_found_beside_that_of_the_models_own_answers(
    inputs: ExperimentInputs, measured: tuple[Found, list[Item]], share: float
) -> None:
    found, items = measured
    if share != 1:
        found = run(inputs, Planted(1 - share))
    layer = only(found, "won", against="same answer").probe_layer
    assert layer in range(1, LAYERS)
    row = only(found, "question_share", variant=MATCHED, truth="all", probe_layer=layer).estimate
    assert row.value == pytest.approx(share, abs=0.12)
    assert row.ci_low < row.value < row.ci_high
    assert row.n == len(items) == 4 * only(found, "pairs").estimate.value
    # The free answers' cut leaves all of their signal.
    free = only(found, "question_share", variant=FREE, truth="all", probe_layer=layer).estimate
    assert free.value == pytest.approx(0, abs=0.12)
    difference = only(found, "question_share_difference").estimate
    assert difference.value == pytest.approx(row.value - free.value, abs=1e-6)
    assert difference.ci_low > 0
    for cut in ("random", "none"):
        value = only(found, f"question_share_{cut}", variant=MATCHED, truth="all", probe_layer=layer).estimate.value
        assert abs(value) < 0.05
    for truth in ("true", "false"):
        half = only(found, "question_share", variant=MATCHED, truth=truth).estimate
        assert half.value == pytest.approx(share, abs=0.25)
        assert half.n == len(items) / 2
    assert only(found, "auc", variant=MATCHED, probe_layer=layer).estimate.value > 0.9
    assert only(found, "won", against="same question").estimate.value > 0.85


def test_what_words_and_relations_know_is_exactly_nothing(measured: tuple[Found, list[Item]]) -> None:
    for quantity in ("auc_words", "auc_relation", "auc_confidence_mean", "auc_confidence_min"):
        estimate = only(measured[0], quantity).estimate
        assert estimate.value == estimate.ci_low == estimate.ci_high == 0.5, quantity


def test_a_layer_without_evidence_has_an_area_and_no_share(measured: tuple[Found, list[Item]]) -> None:
    found, _ = measured
    assert only(found, "auc", variant=MATCHED, probe_layer=0).estimate.value == pytest.approx(0.5, abs=0.1)
    shown = {row.probe_layer for row in found.statistics if row.quantity == "question_share" and row.variant == MATCHED}
    assert shown == set(range(1, LAYERS))
    assert "question_share of matched answers in layers 0: the probe has no evidence there" in found.missing


def test_every_asked_question_takes_part_and_each_item_keeps_its_exact_words(inputs: ExperimentInputs) -> None:
    items = asked_for(inputs)
    asked = {item.item_id.rpartition(":")[0] for item in items}
    assert asked == {item.item_id for item in inputs.items}, "used or not"
    tokenizer = inputs.setting.writer().tokenizer
    for item in items[:8]:
        words = tokenizer.decode([item.located.input_ids[index] for index in item.located.question_tokens])
        assert "stone" in words
        assert tokenizer.decode(item.located.input_ids).endswith(f"Answer: {item.question.model_answer}")


def test_a_small_machine_runs_some_of_the_pairs(inputs: ExperimentInputs) -> None:
    assert len(asked_for(replace(inputs, setting=replace(inputs.setting, most_items=40)))) == 4 * 40


def test_too_few_pairs_are_told_with_the_reason(inputs: ExperimentInputs) -> None:
    alike = [replace(one, question=replace(one.question, answers=("Never",))) for one in inputs.items]
    found = EXPERIMENT.run(replace(inputs, items=alike))  # these inputs have no model: a pass would fail
    assert not found.statistics
    (told,) = found.missing
    assert told.startswith(f"only 0 pairs of questions can exchange their answers, {FEWEST_PAIRS} needed; of")
    assert "no other question of the same kind has a clearly false answer" in told


def test_questions_without_relation_are_paired_by_how_they_ask_and_it_is_told(inputs: ExperimentInputs) -> None:
    alike = with_names(inputs, relation=None)
    assert len(asked_for(alike)) > 4 * FEWEST_PAIRS
    few = replace(alike, items=alike.items[:20], used=alike.used[:10])
    (told,) = EXPERIMENT.run(few).missing
    assert "20 of 20 questions have no relation: they exchange answers with questions that ask with the same" in told


def test_layers_are_spread_and_the_reference_is_among_them() -> None:
    assert some_layers(30, 17, 9) == [0, 4, 8, 12, 17, 21, 25, 29]
    assert some_layers(30, 18, 9) == [0, 4, 8, 12, 17, 18, 21, 25, 29]
    assert some_layers(4, 2, 9) == [0, 1, 2, 3]
