"""Supplied items: tokens as the run finds them, and states that are those of any other pass."""

from dataclasses import replace

import pytest
import torch

from anchorscope.answers.template import FEW_SHOT_TEMPLATE
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import SITES
from anchorscope.errors import InterventionNotApplied
from anchorscope.evidence.effects import run_clean
from anchorscope.execute.executor import LocalExecutor
from anchorscope.execute.run_passes import run_states
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.experiments.supplied import (
    refuse_unmoved,
    run_supplied,
    supplied_items,
)
from anchorscope.interventions.cuts import KNOCKOUT, RANDOM
from anchorscope.interventions.intervention import Writer
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import passes_of, plan_cut
from anchorscope.progress import Silent
from anchorscope.spans.question_spans import locate_question_words
from experiments_synthetic import make_inputs
from made_items import planner_of

QUESTIONS = [
    Question(
        "made",
        f"{place}:{truth}",
        f"What is the capital of {place}?",
        (city,),
        subject=place,
        property_words=("capital",),
        model_answer=city if truth else "Oz",
        truthful=truth,
    )
    for place, city in (("Peru", "Lima"), ("Fiji", "Suva"), ("Bhutan", "Thimphu"))
    for truth in (True, False)
]
HEADLINE = (1, SITES.index("mlp"))


@pytest.fixture(scope="module")
def inputs(tiny_llama: LanguageModel) -> ExperimentInputs:
    made = make_inputs(n=80, resamples=20)
    writer = Writer(tiny_llama.tokenizer, FEW_SHOT_TEMPLATE)
    setting = replace(
        made.setting,
        positions=("final", "answer_before"),
        writer=lambda: writer,
        most_items=2,
    )
    executor, planner = LocalExecutor(lambda: tiny_llama), planner_of(tiny_llama, 4096)
    return replace(
        made, setting=setting, executor=executor, planner=planner, headline=HEADLINE
    )


@pytest.fixture(scope="module")
def items(inputs: ExperimentInputs) -> list[Item]:
    spans = [locate_question_words(one) for one in QUESTIONS]
    return supplied_items(inputs.setting.writer(), QUESTIONS, spans, [0, 0, 1, 1, 2, 2])


def test_states_are_those_of_the_passes_of_a_run(
    inputs: ExperimentInputs, items: list[Item]
) -> None:
    found = run_supplied(inputs, items, "test", (KNOCKOUT, RANDOM))
    setting = replace(inputs.setting, most_items=None, masses=dict)
    positions = setting.positions
    passed = run_clean(
        inputs.executor,
        inputs.planner,
        items,
        positions,
        Silent(),
        compiled=False,
        edges="all",
        site=0,
    )
    torch.testing.assert_close(
        found.clean, passed.states[HEADLINE], atol=1e-5, rtol=1e-5
    )
    for own, theirs in zip(found.log_probs, passed.log_probs, strict=True):
        assert own == pytest.approx(theirs, abs=1e-4)
    assert [len(one) for one in found.log_probs] == [
        len(item.answer.ids) for item in items
    ]
    works = passes_of(
        [plan_cut(one, items, setting) for one in (KNOCKOUT, RANDOM)],
        items,
        setting,
        inputs.planner,
    )
    parts = [
        part
        for one in works
        for part in run_states(
            inputs.executor, replace(one.work, keep=((HEADLINE,),)), Silent()
        ).variants
    ]
    planned = [runs.intervention.name for one in works for runs in one.planned]
    assert list(found.cut) == planned == ["knockout", "random"]
    for cut, part in zip(found.cut.values(), parts, strict=True):
        torch.testing.assert_close(cut, part.states[0], atol=1e-5, rtol=1e-5)
        assert not torch.allclose(cut, found.clean, atol=1e-3)


def test_an_item_that_a_cut_did_not_change_is_refused(
    inputs: ExperimentInputs, items: list[Item]
) -> None:
    planned = plan_cut(KNOCKOUT, items, replace(inputs.setting, most_items=None))
    clean = torch.zeros(2, len(items), 4)
    after = clean + 1
    refuse_unmoved(planned, clean, after)
    after[:, 3] = 0
    with pytest.raises(
        InterventionNotApplied,
        match="knockout: 1 items lost attention edges and not one",
    ):
        refuse_unmoved(planned, clean, after)
