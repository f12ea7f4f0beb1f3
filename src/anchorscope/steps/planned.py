"""Which steps a run will make, and how much work each usually is: what a listener needs to tell the time left.

A step that the folder holds is read, and then nothing before it is needed; one that it lacks is made, and asks for
those before it. Costs are those of the demo (600 questions, 360 items used, 30 layers, a CPU), in passes over the used
items: only their ratios count, as a run finds out itself how fast the machine is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from anchorscope.artefacts.publish import REPORT
from anchorscope.artefacts.step import Step
from anchorscope.catalogue import EXPERIMENTS, INTERVENTIONS
from anchorscope.progress import PlannedStep
from anchorscope.recipe import Recipe
from anchorscope.steps.dataset_steps import DatasetSteps

ANSWERS, ITEMS = "answers", "items"
"""Kinds: work on every question, and work on the items that are used, whose number is known after the labels only."""
_OF_ANSWERS = ("questions", "answers", "labels", "tokens")
_COSTS: dict[str, float] = {
    "questions": 0, "answers": 2.5, "labels": 0, "tokens": 0.01, "attention-mass": 1, "clean-states": 1,
    "log-probs": 0, "probes": 0.5, "clean-scores": 0, "principal-states": 0, "cut-states": 0, "lost-evidence": 1.5,
    "null-scores": 1.6, "question-share": 0.1, "refits": 0.25, "permuted-refits": 0.05, "tables": 0.2,
    "final-probes": 0.12, "detection-samples": 5.4, "detection-columns": 3, "detection-states": 2.7,
    "experiment-matched": 0.4, "experiment-wordings": 2.9, REPORT: 0.25,
}  # fmt: skip
_PER_CUT = 0.86  # a pass under a cut, at all places
_OTHER_CUTS = 3  # beside the random ones: the knockout, as much attention elsewhere, and none


def first_plan(datasets: Sequence[DatasetSteps]) -> list[PlannedStep]:
    """The plan of a run that begins: what its steps are made from is known after the labels only, their names are."""
    if any(one.answers.is_kept for one in datasets):
        return []  # more may be there already: the plan waits
    found = [_planned(f"{one.name}/{name}", one) for one in datasets for name in _usual_names(one)]
    return [*found, _report(datasets)]


def planned_steps(datasets: Sequence[DatasetSteps]) -> list[PlannedStep]:
    """Every step that the results of these datasets need, made or not, and the report."""
    found: list[PlannedStep] = []
    for one in datasets:
        asked = _asked_for(one)
        to_make = {step.name for step in _missing(asked, set())}
        for step in _all(asked, set()):
            if step.is_kept:
                found.append(replace(_planned(step.name, one), seconds=step.seconds))
            elif step.name in to_make:
                found.append(_planned(step.name, one))
    return [*found, _report(datasets)]


def _planned(name: str, one: DatasetSteps) -> PlannedStep:
    short = name.partition("/")[2]
    cost = _cost(short, one)
    size = len(one.questions.value.questions)
    return PlannedStep(name, ANSWERS if short in _OF_ANSWERS else ITEMS, None if cost is None else cost * size)


def _report(datasets: Sequence[DatasetSteps]) -> PlannedStep:
    return PlannedStep(REPORT, ITEMS, _COSTS[REPORT] * sum(len(one.questions.value.questions) for one in datasets))


def _usual_names(one: DatasetSteps) -> list[str]:
    """The names of all steps of a dataset of which nothing is there but the questions."""
    recipe: Recipe = one.job.recipe
    detection = [] if one.is_for_detection else ["detection-samples", "detection-columns", "detection-states"]
    names = [name for name in _COSTS if not name.startswith("experiment-") and name not in ("questions", REPORT)]
    names = [name for name in names if name not in detection]
    names += ["lost-random-weights"] if recipe.random_weights else []
    of_cuts = {entry.experiment for entry in INTERVENTIONS.values()}
    names += [f"effects-{name}" for name in recipe.evidence if name in of_cuts]
    return [*names, *(f"experiment-{name}" for name in recipe.evidence if EXPERIMENTS[name].home is not None)]


def _cost(name: str, one: DatasetSteps) -> float | None:
    recipe: Recipe = one.job.recipe
    if name == "effects-knockout":
        return _PER_CUT * (_OTHER_CUTS + recipe.random_cuts)
    if name == "answers":
        questions = one.questions.value.questions
        return _COSTS[name] * sum(question.model_answer is None for question in questions) / max(len(questions), 1)
    return _COSTS.get(name)


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
