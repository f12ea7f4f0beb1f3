"""Single items: what every intervention did to each, for the page's table and for `anchorscope show`.

ΔP of an item is what the curves average: 100 · (probability of the true label after − before), by the probe of the
item's fold. An item that was run several times (with several donors) is shown by the mean over its runs; weighted by
`runs`, the mean over a group's items is the curve of curves.csv.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.catalogue import CONTROLS, INTERVENTIONS, intervention_label
from anchorscope.evidence.measured import probability, true_label_probability
from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings, summary_of
from anchorscope.report.palette import display_name
from anchorscope.report.shares import band_numbers

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
MOST_ITEMS = 20_000
"""In a page, about ten megabytes; used ones come first."""
_LONGEST_TEXT, _LONGEST_ANSWER, _MOST_ACCEPTED = 3000, 200, 12
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


def _numbered(findings: Findings) -> pl.DataFrame:
    """Every item with its row, its label and its reference layer."""
    assigned = _headline_pathways(findings).filter(pl.col("assignment") == "plain")
    layers = assigned.select("dataset", "item_id", "reference_layer").unique(["dataset", "item_id"])
    items = findings.items.select("dataset", "item_id", "truthful").with_row_index(_ROW)
    return items.join(layers, on=["dataset", "item_id"], how="left", maintain_order="left")


def _headline_pathways(findings: Findings) -> pl.DataFrame:
    """pathways.parquet at the place of the chart."""
    return findings.pathways.filter(pl.col("site") == findings.site, pl.col("position") == findings.position)


def _noise(findings: Findings, dataset: str) -> float:
    """The change in log-odds that cutting nothing stays below in 99 of 100 items."""
    noise = summary_of(findings, dataset, "noise_log_odds_p99", intervention="none")
    return 0.0 if noise is None else noise.value


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


# One item, for the terminal


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
    )
    if not alone.items.height:
        return None
    item, layer, effects = alone.items.row(0, named=True), reference_layers(alone)[0], item_effects(alone)
    before = float(probability(effects[0].before[0, layer])) if layer is not None and effects else None
    further = findings.experiment_items.filter(this & pl.col("value").is_not_null())
    return ItemRecord(
        dataset=dataset,
        item_id=item_id,
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
        pathways=_pathways(alone),
        probability_before=before,
        effects=tuple(map(_only_effect, effects)),
        further=tuple(
            ExperimentNumber(*row) for row in further.select("experiment", "variant", "quantity", "value").iter_rows()
        ),
    )


def _pathways(findings: Findings) -> dict[str, str]:
    """The pathway of the only item under every rule, in the order of the page."""
    assigned = _headline_pathways(findings).drop_nulls("pathway").sort("probe", maintain_order=True)
    names: dict[str, dict[str, None]] = {rule: {} for rule in RULES}
    for rule, pathway in assigned.select("assignment", "pathway").iter_rows():
        names.setdefault(rule, {})[pathway] = None
    return {rule: " / ".join(pathways) for rule, pathways in names.items() if pathways}


def _only_effect(effects: ItemEffects) -> Effect:
    """What an intervention did to the only item."""
    at_reference = float(effects.at_reference[0])
    return Effect(
        intervention=effects.intervention,
        variant=effects.variant,
        n_cut=float(effects.n_cut[0]),
        runs=int(effects.runs[0]),
        flips=int(effects.flips[0]),
        delta_p_reference=None if math.isnan(at_reference) else at_reference,
        delta_p=tuple(effects.delta_p[0].tolist()),
        log_odds_before=tuple(effects.before[0].tolist()),
        log_odds_after=tuple(effects.after[0].tolist()),
    )


# All items, for the page


def item_table(findings: Findings, most: int = MOST_ITEMS) -> dict[str, Any]:
    """Everything that the page's table of items shows."""
    every = findings.items.with_row_index("row")
    chosen = every.sort(pl.col("status") != "used", maintain_order=True).head(most)
    rows = chosen["row"].to_list()
    layers, effects, terms = reference_layers(findings), item_effects(findings), _evidence_terms(findings)
    items = list(chosen.iter_rows(named=True))
    texts = [_clip(item["question"], _LONGEST_TEXT) for item in items]
    accepted = [list(item["answers"] or ()) for item in items]
    measured = [terms.get((item["dataset"], item["item_id"]), (None, None)) for item in items]
    scores = _scores(effects, layers)
    return {
        "total": every.height,
        "datasets": {name: display_name(name) for name in chosen["dataset"].unique(maintain_order=True)},
        "id": [item["item_id"] for item in items],
        "dataset": [item["dataset"] for item in items],
        "question": texts,
        "marks": [_marks(text, item.get("question_words") or ()) for text, item in zip(texts, items, strict=True)],
        "answer": [_clip(item["model_answer"], _LONGEST_TEXT) for item in items],
        "accepted": [[_clip(text, _LONGEST_ANSWER) for text in some[:_MOST_ACCEPTED]] for some in accepted],
        "more": [max(0, len(some) - _MOST_ACCEPTED) for some in accepted],
        "subject": [_clip(item.get("subject"), _LONGEST_ANSWER) for item in items],
        "relation": [item.get("relation") or "" for item in items],
        "status": [item["status"] for item in items],
        "truth": [item["truthful"] for item in items],
        "confidence": [_percent_of_log(item.get("confidence_mean")) for item in items],
        "layer": [layers[row] for row in rows],
        "score": [scores.get(row) for row in rows],
        "lost": [lost for lost, _ in measured],
        "had": [had for _, had in measured],
        "effects": [_effect_columns(effect, rows) for effect in effects],
    }


def _evidence_terms(findings: Findings) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """Per item, the evidence that it lost with the key words hidden and that it had, as means over the band."""
    at_headline = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    cut = (pl.col("intervention") == "knockout") & (pl.col("view") == "cut")
    terms = {}
    for dataset in findings.datasets:
        band = band_numbers(findings, dataset)
        rows = findings.evidence_items.filter(at_headline & cut & (pl.col("dataset") == dataset))
        if band:
            means = (pl.col(name).list.gather(band).list.mean() for name in ("lost", "had"))
            for item, lost, had in rows.select("item_id", *means).iter_rows():
                terms[dataset, item] = _round(lost, 3), _round(had, 3)
    return terms


def _scores(effects: Sequence[ItemEffects], layers: Sequence[int | None]) -> dict[int, float | None]:
    """Per row of the items table, the probability of "true" that the probe at l* gives the untouched item, in %."""
    scores: dict[int, float | None] = {}
    for effect in effects:
        for place, row in enumerate(effect.rows.tolist()):
            layer = layers[row]
            if layer is not None and row not in scores:
                scores[row] = _round(100 * float(probability(effect.before[place, layer])), 1)
    return scores


def _effect_columns(effect: ItemEffects, rows: Sequence[int]) -> Mapping[str, Any]:
    """What an intervention did to the items at l*: ΔP, runs that flip, and runs."""
    places = {row: place for place, row in enumerate(effect.rows.tolist())}
    at = [places.get(row) for row in rows]
    return {
        "name": effect.intervention,
        "title": intervention_label(effect.intervention),
        "control": effect.intervention in CONTROLS,
        "delta": [None if place is None else _round(float(effect.at_reference[place]), 1) for place in at],
        "flips": [None if place is None else int(effect.flips[place]) for place in at],
        "runs": int(np.max(effect.runs, initial=0)),
    }


def _marks(text: str, words: Sequence[Sequence[int]]) -> list[int]:
    """Start and end of every key word as the browser counts: a character beyond the basic plane is two."""

    def utf16(place: int) -> int:
        return len(text[:place].encode("utf-16-le", "surrogatepass")) // 2

    inside = [(start, min(stop, len(text))) for start, stop in words]
    return [utf16(end) for start, stop in inside if start < stop for end in (start, stop)]


def _clip(text: str | None, longest: int) -> str:
    text = text or ""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _percent_of_log(value: float | None) -> float | None:
    """A mean of log-probabilities is a geometric mean of probabilities."""
    return None if value is None or not math.isfinite(value) else _round(100 * math.exp(value), 1)


def _round(value: float | None, digits: int) -> float | None:
    """JSON has no NaN."""
    return None if value is None or not math.isfinite(value) else round(value, digits)
