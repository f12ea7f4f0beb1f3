"""The experiment on sources: answers by kind of passage, who tells which of them went by it, which ignored it."""

from dataclasses import replace

import numpy as np
import pytest

from anchorscope.datasets.relations import CHANGED, STATED, UNRELATED
from anchorscope.experiments.experiment import ExperimentInputs, Found
from anchorscope.experiments.sources import (
    EXPERIMENT,
    FOLLOWED,
    IGNORED,
    MEMORY,
    OTHER,
    behaviour,
)
from anchorscope.items import Item
from experiments_synthetic import make_inputs, only, rows

N = 240
TEXTS = {FOLLOWED: "Lima", MEMORY: "Quito", OTHER: "Oslo"}


def asked(item: Item, number: int, kind: str, what: str) -> Item:
    """The item after a passage that says Lima, where Quito is true; a stated passage says Quito."""
    says = "Quito" if kind == STATED else "Lima"
    text = says if kind == STATED and what == FOLLOWED else TEXTS[what]
    truthful = text == "Quito"
    question = replace(
        item.question,
        item_id=f"{number}-{kind}",
        answers=("Quito",),
        context=(f"It is {says}.",),
        metadata={"kind": kind, "passage_says": says},
    )
    return replace(
        item,
        question=question,
        answer=replace(item.answer, text=text),
        label=replace(item.label, truthful=truthful),
    )


@pytest.fixture(scope="module")
def inputs() -> ExperimentInputs:
    """Half changed passages, followed or not as the label is; half stated ones, a third of them known without."""
    made = make_inputs(n=N)
    labels = made.measured.labels
    items = list(made.items)
    for place in range(N):
        kind = CHANGED if place < N // 2 else STATED
        what = (
            (MEMORY if labels[place] else FOLLOWED)
            if kind == CHANGED
            else FOLLOWED
            if labels[place]
            else OTHER
        )
        items[place] = asked(items[place], place, kind, what)
    for place in range(N // 2, N):
        items.append(
            asked(items[place], place, UNRELATED, MEMORY if place % 3 == 0 else OTHER)
        )
    followed = np.array([behaviour(item) == FOLLOWED for item in items[:N]])
    known = np.arange(N) % 3 == 0
    rng = np.random.default_rng(0)
    noise = 0.02 * rng.random(N)
    used = np.where(np.arange(N) < N // 2, followed, ~known) * 0.5 + noise
    numbers = {
        "evidence-moved/context": rng.random(N),
        "state-moved/context": used + rng.normal(0, 0.3, N),
        "context-used/context": used,
        "attention/context": rng.random(N),
        "overlap/context": followed.astype(float),
    }
    return replace(made, items=items, sources=lambda: numbers, band=[1, 2])


def test_nothing_is_said_without_sources() -> None:
    assert EXPERIMENT.run(make_inputs(n=60)) == Found()


def test_what_an_answer_goes_by(inputs: ExperimentInputs) -> None:
    item = inputs.items[0]
    for what in (FOLLOWED, MEMORY, OTHER):
        assert behaviour(asked(item, 0, CHANGED, what)) == what
    assert (
        behaviour(replace(item, question=replace(item.question, metadata={}))) is None
    )


def test_answers_by_kind_and_those_that_ignored_the_passage(
    inputs: ExperimentInputs,
) -> None:
    found = EXPERIMENT.run(inputs)
    labels = inputs.measured.labels
    for what, share in (
        (FOLLOWED, (~labels[: N // 2]).mean()),
        (MEMORY, labels[: N // 2].mean()),
        (OTHER, 0.0),
    ):
        row = only(found, "answers", variant=what, group=CHANGED)
        assert row.estimate.value == pytest.approx(share)
        assert row.estimate.ci_low <= share <= row.estimate.ci_high
    used = inputs.sources()["context-used/context"]
    assert only(found, "ignored", variant="context").estimate.value == pytest.approx(
        (used < IGNORED).mean()
    )
    values = next(one for one in found.values if one.quantity == "context_used")
    assert values.values == pytest.approx(used)


def test_who_tells_which_answers_went_by_the_passage(inputs: ExperimentInputs) -> None:
    found = EXPERIMENT.run(inputs)
    areas = {row.variant: row.estimate for row in rows(found, "auc_followed")}
    assert areas["context-used"].value == areas["overlap"].value == 1.0
    assert 0.7 < areas["state-moved"].value < 1.0
    assert areas["attention"].ci_low < 0.5 < areas["attention"].ci_high
    needed = {row.variant: row.estimate for row in rows(found, "auc_needed")}
    assert needed["context-used"].value == 1.0
    assert needed["overlap"].value == 0.5  # every stated answer stands in its passage
