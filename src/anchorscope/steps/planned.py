"""Which steps a run will make, and how much work each is (`anchorscope.cost`): what a listener tells the time left by.

A step that the folder holds is read, and then nothing before it is needed; one that it lacks is made, and asks for
those before it. Of the costs only their ratios count, as a run finds out itself how fast the machine is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anchorscope.artefacts.step import Step
from anchorscope.cost import REPORT, dataset_size, report_cost, step_costs, unknown_steps
from anchorscope.progress import PlannedStep
from anchorscope.steps.dataset_steps import DatasetSteps

ANSWERS, ITEMS = "answers", "items"
"""Kinds: work on every question, and work on the items that are used, whose number is known after the labels only."""
_OF_ANSWERS = ("questions", "answers", "labels", "tokens")


def first_plan(datasets: Sequence[DatasetSteps]) -> list[PlannedStep]:
    """The plan of a run that begins: what its steps are made from is known after the labels only, their names are."""
    if any(one.answers.is_kept for one in datasets):
        return []  # more may be there already: the plan waits
    found = []
    for one in datasets:
        costs = _costs(one)
        names = [*(name for name in costs if name != "questions"), *unknown_steps(one.job.recipe)]
        found += [_planned(f"{one.name}/{name}", costs) for name in names]
    return [*found, _report(datasets)]


def planned_steps(datasets: Sequence[DatasetSteps]) -> list[PlannedStep]:
    """Every step that the results of these datasets need, made or not, and the report."""
    found: list[PlannedStep] = []
    for one in datasets:
        asked, costs = _asked_for(one), _costs(one)
        to_make = {step.name for step in _missing(asked, set())}
        for step in _all(asked, set()):
            if step.is_kept:
                found.append(replace(_planned(step.name, costs), seconds=step.seconds))
            elif step.name in to_make:
                found.append(_planned(step.name, costs))
    return [*found, _report(datasets)]


def _costs(one: DatasetSteps) -> dict[str, float]:
    size = dataset_size(one.questions.value.questions, one.job.recipe)
    return {"questions": 0.0} | step_costs(one.job.recipe, one.job.model_size, size)


def _planned(name: str, costs: Mapping[str, float]) -> PlannedStep:
    short = name.partition("/")[2]
    return PlannedStep(name, ANSWERS if short in _OF_ANSWERS else ITEMS, costs.get(short))


def _report(datasets: Sequence[DatasetSteps]) -> PlannedStep:
    return PlannedStep(REPORT, ITEMS, report_cost(datasets[0].job.recipe))


def _asked_for(one: DatasetSteps) -> list[Step[Any]]:
    """What `DatasetSteps.result` asks for."""
    keep = one.job.recipe.keep
    steps: list[Step[Any]] = [one.questions, one.answers, one.labels, one.tokens, *one.effects.values()]
    steps += [one.clean] if "states" in keep else []
    steps += [one.cut_states] if "states-cut" in keep else []
    steps += [one.detection_columns, one.detection_states] if one.is_for_detection else []
    steps += [one.share_tables, one.tables, *one.experiments.values(), one.log_probs, one.probes, one.clean_scores]
    return [*steps, one.final_probes]


def _missing(steps: Sequence[Step[Any]], seen: set[str]) -> Iterator[Step[Any]]:
    """Steps that have to be made, those before others first."""
    for step in steps:
        if step.name not in seen and not step.is_kept:
            seen.add(step.name)
            yield from _missing(step.parents, seen)
            yield step


def _all(steps: Sequence[Step[Any]], seen: set[str]) -> Iterator[Step[Any]]:
    """Steps with all that lie before them."""
    for step in steps:
        if step.name not in seen:
            seen.add(step.name)
            yield from _all(step.parents, seen)
            yield step
