"""What is known of single items: what every intervention did to each, as arrays, and one item with everything about it.

ΔP of an item is what the curves average: 100 · (probability of the true label after − before), by the probe of the
item's fold. An item that was run several times (with several donors) is shown by the mean over its runs; weighted by
`runs`, the mean over a group's items is the curve of curves.csv. `anchorscope show` prints a `record`; the page's table
(`item_table.py`) reads the same arrays.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.catalogue import INTERVENTIONS
from anchorscope.evidence.measured import probability, true_label_probability
from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings, summary_of

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_ROW = "__row"  # no column of a table is called so


@dataclass(frozen=True)
class ItemEffects:
    """One intervention, on all the items that it was made on."""

    intervention: str
    variant: str
    """The edges that were cut or what was put in, without the number of the donor."""
    rows: Whole
    """Which rows of `findings.items` these are, ascending."""
    runs: Whole
    """How often each item was run."""
    n_cut: Floats
    """Tokens that were cut, replaced or dropped; the mean over the runs."""
    before: Floats
    """Log-odds of "truthful" in the untouched model, [item, layer]."""
    after: Floats
    """Log-odds under the intervention, mean over the runs, [item, layer]."""
    delta_p: Floats
    """Points of probability that the true label gains, mean over the runs, [item, layer]."""
    at_reference: Floats
    """`delta_p` at the reference layer of the item's fold; NaN where the item has none."""
    flips: Whole
    """In how many runs the probe's call at the reference layer changes by more than noise."""


def item_effects(findings: Findings) -> list[ItemEffects]:
    """All interventions, in the order in which the page shows them: ways to take the question away, then controls."""
    known = _numbered(findings)
    table = findings.effects.join(known, on=["dataset", "item_id"], how="inner", nulls_equal=True)
    table = table.with_columns(variant=pl.col("variant").str.replace(r" \d+$", "")).sort(_ROW, maintain_order=True)
    parts = table.partition_by("intervention", "variant", as_dict=True, maintain_order=True)
    order = {name: place for place, name in enumerate(INTERVENTIONS)}
    names = sorted(parts, key=lambda name: (order.get(str(name[0]), len(order)), name))
    noise = {name: _noise(findings, name) for name in findings.datasets}
    return [_effects(str(name), str(variant), parts[name, variant], noise) for name, variant in names]


def reference_layers(findings: Findings) -> list[int | None]:
    """The reference layer of every row of `findings.items`, as pathways.parquet has it; None where it is not used."""
    return _numbered(findings)["reference_layer"].to_list()


def headline_pathways(findings: Findings) -> pl.DataFrame:
    """pathways.parquet at the place of the chart."""
    here = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    return findings.pathways.filter(here)


def _numbered(findings: Findings) -> pl.DataFrame:
    """Every item with its row, its label and its reference layer."""
    assigned = headline_pathways(findings).filter(pl.col("assignment") == "plain")
    layers = assigned.select("dataset", "item_id", "reference_layer").unique(["dataset", "item_id"])
    items = findings.items.select("dataset", "item_id", "truthful").with_row_index(_ROW)
    return items.join(layers, on=["dataset", "item_id"], how="left", maintain_order="left")


def _noise(findings: Findings, dataset: str) -> float:
    """The change in log-odds that cutting nothing stays below in 99 of 100 items."""
    found = summary_of(findings, dataset, "noise_log_odds_p99", intervention="none")
    return 0.0 if found is None else found.value


def _effects(intervention: str, variant: str, table: pl.DataFrame, noise: dict[str, float]) -> ItemEffects:
    before, after = (_matrix(table[name]) for name in ("logit_clean", "logit_after"))
    label = table["truthful"].fill_null(False).to_numpy()
    delta = 100 * (true_label_probability(after.T, label) - true_label_probability(before.T, label)).T
    layer = table["reference_layer"].cast(pl.Int64).fill_null(-1).to_numpy()
    known, at_layer = layer >= 0, (np.arange(len(layer)), np.maximum(layer, 0))
    floor = table["dataset"].replace_strict(noise, default=0.0, return_dtype=pl.Float64).to_numpy()
    flipped = (
        ((after[at_layer] > 0) != (before[at_layer] > 0)) & (np.abs(after[at_layer] - before[at_layer]) > floor) & known
    )
    rows, starts, runs = np.unique(table[_ROW].to_numpy(), return_index=True, return_counts=True)

    def mean(values: Floats) -> Floats:
        """Over the runs of each item; rows are sorted by item."""
        sums = np.add.reduceat(values, starts, axis=0)
        return sums / (runs[:, None] if values.ndim > 1 else runs)

    return ItemEffects(
        intervention=intervention,
        variant=variant,
        rows=rows.astype(np.int64),
        runs=runs.astype(np.int64),
        n_cut=mean(table["n_cut"].to_numpy().astype(np.float64)),
        before=before[starts],
        after=mean(after),
        delta_p=mean(delta),
        at_reference=mean(np.where(known, delta[at_layer], np.nan)),
        flips=np.add.reduceat(flipped.astype(np.int64), starts),
    )


def _matrix(column: pl.Series) -> Floats:
    """[row, layer] of a column of lists, all as long as the model is deep."""
    return column.explode().to_numpy().astype(np.float64).reshape(len(column), -1)


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
