"""One item of a run with all that is known of it: for `anchorscope show`, for tests, for anybody with one question.

The explorer in the page shows the same from `item_data`, which packs thousands of items; both read `item_effects`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from anchorscope.evidence.measured import probability
from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings
from anchorscope.report.items.item_effects import ItemEffects, headline_pathways, item_effects, reference_layers


@dataclass(frozen=True)
class Effect:
    """What one intervention did to the item; of several runs (donors) the mean."""

    intervention: str
    variant: str
    n_cut: float
    """Tokens that were cut, replaced or dropped."""
    runs: int
    flips: int
    """In how many of the runs the probe's call at l* changed by more than noise."""
    delta_p_reference: float | None
    """ΔP at l*."""
    delta_p: tuple[float, ...]
    """ΔP per layer: points of probability that the true label gains."""
    log_odds_before: tuple[float, ...]
    """Log-odds of "truthful" per layer in the untouched model."""
    log_odds_after: tuple[float, ...]


@dataclass(frozen=True)
class ExperimentNumber:
    """A number that a further experiment found of the item."""

    experiment: str
    variant: str | None
    quantity: str
    value: float


@dataclass(frozen=True)
class ItemRecord:
    """One item."""

    dataset: str
    item_id: str
    question: str
    marks: tuple[tuple[int, int], ...]
    """The exact words E_Q, as [start, end) characters of the question."""
    answer: str | None
    """What the model said."""
    accepted: tuple[str, ...]
    truthful: bool | None
    status: str
    """`used`, or why it is not."""
    subject: str | None
    relation: str | None
    confidence_mean: float | None
    """Mean log-probability of the answer's tokens."""
    fold: int | None
    reference_layer: int | None
    """l* of the item's fold."""
    pathways: Mapping[str, str]
    """Its pathway under every rule; where the two halves of the cross-fitted rule disagree, both are named."""
    probability_before: float | None
    """What the probe at l* gives "truthful" before anything is cut."""
    effects: tuple[Effect, ...]
    further: tuple[ExperimentNumber, ...]


def record(findings: Findings, dataset: str, item_id: str) -> ItemRecord | None:
    """One item; None where there is no such item."""
    this = (pl.col("dataset") == dataset) & (pl.col("item_id") == item_id)
    alone = replace(
        findings,
        items=findings.items.filter(this),
        effects=findings.effects.filter(this),
        pathways=findings.pathways.filter(this),
        experiment_items=findings.experiment_items.filter(this),
    )
    return next(records(alone), None)


def records(findings: Findings) -> Iterator[ItemRecord]:
    """All items, used or not, in file order."""
    effects: dict[int, list[tuple[ItemEffects, int]]] = defaultdict(list)
    for one in item_effects(findings):
        for place, row in enumerate(one.rows.tolist()):
            effects[row].append((one, place))
    layers, pathways, further = reference_layers(findings), pathways_of_items(findings), _experiment_numbers(findings)
    for row, item in enumerate(findings.items.iter_rows(named=True)):
        key = (item["dataset"], item["item_id"])
        yield _record(item, layers[row], pathways.get(key, {}), effects[row], further.get(key, ()))


def ordered_rules(findings: Findings) -> list[str]:
    """The rules that pathways were assigned by, in the order of the page."""
    there = headline_pathways(findings)["assignment"].unique(maintain_order=True).to_list()
    order = tuple(RULES)
    return sorted(there, key=lambda rule: (order.index(rule) if rule in order else len(order), rule))


def pathways_of_items(findings: Findings) -> dict[tuple[str, str], dict[str, str]]:
    """Per (dataset, item) its pathway under every rule, at the place of the chart."""
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    table = headline_pathways(findings).select("dataset", "item_id", "assignment", "probe", "pathway")
    assigned = table.drop_nulls("pathway").sort("probe", maintain_order=True).drop("probe")
    for dataset, item_id, rule, pathway in assigned.iter_rows():
        known = found[dataset, item_id]
        same = known.get(rule) in (None, pathway)
        known[rule] = pathway if same else f"{known[rule]} / {pathway}"
    rules = ordered_rules(findings)
    return {key: {rule: known[rule] for rule in rules if rule in known} for key, known in found.items()}


def _record(
    item: Mapping[str, Any],
    layer: int | None,
    pathways: Mapping[str, str],
    effects: list[tuple[ItemEffects, int]],
    further: tuple[ExperimentNumber, ...],
) -> ItemRecord:
    before = None
    if layer is not None and effects:
        first, place = effects[0]
        before = float(probability(first.before[place, layer]))
    return ItemRecord(
        dataset=item["dataset"],
        item_id=item["item_id"],
        question=item["question"],
        marks=tuple((start, end) for start, end in item.get("question_words") or ()),
        answer=item["model_answer"],
        accepted=tuple(item["answers"] or ()),
        truthful=item["truthful"],
        status=item["status"],
        subject=item.get("subject"),
        relation=item.get("relation"),
        confidence_mean=item.get("confidence_mean"),
        fold=item.get("fold"),
        reference_layer=layer,
        pathways=dict(pathways),
        probability_before=before,
        effects=tuple(_effect(one, place) for one, place in effects),
        further=further,
    )


def _effect(one: ItemEffects, place: int) -> Effect:
    at_reference = float(one.at_reference[place])
    return Effect(
        intervention=one.intervention,
        variant=one.variant,
        n_cut=float(one.n_cut[place]),
        runs=int(one.runs[place]),
        flips=int(one.flips[place]),
        delta_p_reference=None if np.isnan(at_reference) else at_reference,
        delta_p=tuple(one.delta_p[place].tolist()),
        log_odds_before=tuple(one.before[place].tolist()),
        log_odds_after=tuple(one.after[place].tolist()),
    )


def _experiment_numbers(findings: Findings) -> dict[tuple[str, str], tuple[ExperimentNumber, ...]]:
    found: dict[tuple[str, str], list[ExperimentNumber]] = defaultdict(list)
    for row in findings.experiment_items.iter_rows(named=True):
        if row["value"] is not None:
            number = ExperimentNumber(row["experiment"], row["variant"], row["quantity"], row["value"])
            found[row["dataset"], row["item_id"]].append(number)
    return {key: tuple(numbers) for key, numbers in found.items()}
