"""Other wordings: what belongs to an item is reliable, what belongs to a wording is not; answers stay as they are."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from anchorscope.answers.template import EXAMPLE_SETS, FEW_SHOT_TEMPLATE, Template
from anchorscope.evidence_parts.half_splits import make_halves
from anchorscope.experiments import wordings
from anchorscope.experiments.experiment import ExperimentInputs, Found
from anchorscope.experiments.supplied import SuppliedStates
from anchorscope.experiments.wordings import EVEN, EXPERIMENT, ODD, spread
from anchorscope.interventions.cuts import KNOCKOUT
from anchorscope.interventions.intervention import Intervention, Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.stats.streams import stream
from experiments_synthetic import directions_taken, make_inputs, only, planted, rows

N, LAYERS, WIDTH, SIGNAL = 160, 4, 12, 3.0
LABELS, ASKS = planted(N)


def with_template(
    inputs: ExperimentInputs, lm: LanguageModel, template: Template
) -> ExperimentInputs:
    writer = Writer(lm.tokenizer, template)
    return replace(inputs, setting=replace(inputs.setting, writer=lambda: writer))


@pytest.fixture(scope="module")
def inputs(tiny_llama: LanguageModel) -> ExperimentInputs:
    made = make_inputs(
        n=N,
        n_layers=LAYERS,
        width=WIDTH,
        resamples=60,
        truth_signal=SIGNAL,
        after_cut=0.0,
    )
    items = []
    for index, item in enumerate(made.items):
        subject = f"Land{index}"
        text = f"Which city is the capital of {subject}?"
        question = replace(
            item.question,
            dataset="atlas",
            relation="capital",
            subject=subject,
            question=text,
            property_words=("capital",),
        )
        ids = tuple(
            tiny_llama.tokenizer(f" City{index}", add_special_tokens=False)["input_ids"]
        )
        items.append(
            replace(
                item,
                question=question,
                answer=replace(item.answer, text=f"City{index}", ids=ids),
            )
        )
    return with_template(replace(made, items=items), tiny_llama, FEW_SHOT_TEMPLATE)


class Model:
    """Stands for the model: every wording has noise of its own; who needs the question stays, or is drawn anew."""

    def __init__(self, stays: bool) -> None:
        self.stays, self.ran = stays, []

    def __call__(
        self,
        inputs: ExperimentInputs,
        items: Sequence[Item],
        title: str,
        cuts: Sequence[Intervention],
    ) -> SuppliedStates:
        assert tuple(cuts) == (KNOCKOUT,)
        self.ran.append(list(items))
        rng = stream(0, "test", title)
        at = np.array([int(item.item_id.rpartition("-")[2]) for item in items])
        asks = ASKS[at] if self.stays else rng.random(len(at)) < 0.5
        states = rng.normal(size=(LAYERS, len(at), WIDTH))
        cut = states + rng.normal(0, 0.05, states.shape)
        truth = SIGNAL * np.where(LABELS[at], 1.0, -1.0)
        states[:, :, 0] += truth
        cut[:, :, 0] += np.where(asks, 0.0, truth)
        clean, without = (
            torch.as_tensor(one, dtype=torch.float32) for one in (states, cut)
        )
        return SuppliedStates(clean, clean, {"knockout": without}, ((),) * len(at))


def run(inputs: ExperimentInputs, model: Model) -> Found:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wordings, "run_supplied", model)
        return EXPERIMENT.run(inputs)


@pytest.fixture(scope="module")
def steady(inputs: ExperimentInputs) -> tuple[Found, Model]:
    model = Model(stays=True)
    return run(inputs, model), model


def test_what_belongs_to_the_items_is_reliable_and_found(
    steady: tuple[Found, Model],
) -> None:
    found, _ = steady
    assert [row.truth for row in rows(found, "reliability")] == ["all", "true", "false"]
    for row in rows(found, "reliability"):
        assert row.estimate.value > 0.5, row.truth
        assert row.estimate.ci_low <= row.estimate.value <= row.estimate.ci_high
    (share,) = [
        values
        for values in found.values
        if values.quantity == "lost" and values.variant is None
    ]
    assert (
        share.values[ASKS[share.items]].mean()
        > share.values[~ASKS[share.items]].mean() + 0.2
    )
    assert {values.variant for values in found.values if values.quantity == "lost"} == {
        None,
        EVEN,
        ODD,
    }


def test_what_every_wording_draws_anew_is_not(inputs: ExperimentInputs) -> None:
    found = run(inputs, Model(stays=False))
    for truth in ("true", "false"):
        # a correlation below a third
        assert only(found, "reliability", truth=truth).estimate.value < 0.5, truth


def test_words_and_examples_change_and_answers_do_not(
    inputs: ExperimentInputs, steady: tuple[Found, Model]
) -> None:
    _, model = steady
    tokenizer = inputs.setting.writer().tokenizer
    assert len(model.ran) == 7
    texts = [tokenizer.decode(items[3].located.input_ids) for items in model.ran]
    assert len({text.rpartition("Question: ")[2] for text in texts}) == 7
    for number, (items, text) in enumerate(zip(model.ran, texts, strict=True), 1):
        examples = EXAMPLE_SETS[number % len(EXAMPLE_SETS)]
        assert text.startswith(
            f"Question: {examples[0].question}\nAnswer: {examples[0].answer}\n"
        )
        for item in items[:5]:
            (own,) = [one for one in inputs.used_items if one.item_id == item.item_id]
            assert item.located.input_ids[item.located.answer_start :] == own.answer.ids
            assert item.label == own.label
            words = "".join(
                tokenizer.decode([item.located.input_ids[at]])
                for at in item.located.question_tokens
            )
            assert (
                sorted(
                    (
                        words.find("capital"),
                        words.lower().find(own.question.subject.lower()),
                    )
                )[0]
                == 0
            )
            assert len(words) == len("capital") + len(own.question.subject)


def test_without_our_sentences_only_the_examples_differ_and_it_is_told(
    inputs: ExperimentInputs,
) -> None:
    items = [
        replace(one, question=replace(one.question, dataset="mine"))
        for one in inputs.items
    ]
    model = Model(stays=True)
    found = run(replace(inputs, items=items), model)
    assert (
        only(found, "wordings").estimate.value
        == len(EXAMPLE_SETS)
        == 1 + len(model.ran)
    )
    assert any(
        "the 4 wordings differ in the prompt's examples only" in one
        for one in found.missing
    )


def test_items_about_an_examples_subject_are_left_out(inputs: ExperimentInputs) -> None:
    first = inputs.items[0]
    text = "Which city is the capital of Portugal?"
    about = replace(
        first, question=replace(first.question, subject="Portugal", question=text)
    )
    model = Model(stays=True)
    run(replace(inputs, items=[about, *inputs.items[1:]]), model)
    assert first.item_id not in {item.item_id for item in model.ran[0]}
    assert len(model.ran[0]) == N - 1


def test_rows_of_an_item_stay_on_its_side_and_only_originals_are_learned_from() -> None:
    groups = np.arange(40) // 2
    halves = make_halves(groups, np.arange(40) % 2, 0, [str(one) for one in range(40)])
    item = np.concatenate([np.arange(40), np.arange(10), np.arange(10)])
    found = spread(halves, item, np.arange(60) < 40)
    assert np.array_equal(found.first, halves.first[:, item])
    assert np.array_equal(found.folds[:, 50:], halves.folds[:, :10])
    assert np.array_equal(found.inner[:, :, :40], halves.inner)
    assert (found.inner[:, :, 40:] == -1).all()


def test_states_are_reduced_to_as_many_directions_as_are_asked_for(
    inputs: ExperimentInputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(inputs, directions=lambda n_items: 5)
    taken = directions_taken(monkeypatch)
    run(asked, Model(stays=True))
    assert set(taken) == {5}
