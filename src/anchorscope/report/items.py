"""Single items: what every intervention did to each, for the page's table and for `anchorscope show`.

ΔP of an item is what the curves average: 100 · (probability of the true label after − before), by the probe of the
item's fold. An item that was run several times (with several donors) is shown by the mean over its runs; weighted by
`runs`, the mean over a group's items is the curve of curves.csv.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.catalogue import CONTROLS, INTERVENTIONS, intervention_label
from anchorscope.evidence.delta_p import delta_p, probability
from anchorscope.report.findings import Findings, band_numbers, select, summary_of
from anchorscope.report.palette import display_name
from anchorscope.report.reading import finite

Floats = NDArray[np.floating]
MOST_ITEMS = 20_000
"""In a page, about ten megabytes; used ones come first."""
_LONGEST_TEXT, _LONGEST_ANSWER, _MOST_ACCEPTED = 3000, 200, 12


def item_effects(findings: Findings) -> pl.DataFrame:
    """A row per item and intervention: ways to take the question away, then controls.

    `row` is that of `findings.items`; `score` is what the probe at l* gives "truthful" in the untouched model; `n_cut`
    counts the tokens that were cut, replaced or dropped; `flips` is in how many of the `runs` the probe's call at l*
    changed by more than noise; `delta_p` and the log-odds of "truthful" before and after are lists over the layers.
    """
    items = _numbered(findings)
    table = findings.effects.join(
        items, on=["dataset", "item_id"], how="inner", nulls_equal=True
    )
    table = table.with_columns(
        variant=pl.col("variant").str.replace(r" \d+$", "")
    ).sort("row", maintain_order=True)
    parts = table.partition_by(*_NAMES, as_dict=True, maintain_order=True)
    order = list(INTERVENTIONS)
    names = sorted(
        parts,
        key=lambda name: (
            order.index(name[0]) if name[0] in order else len(order),
            name,
        ),
    )
    noise = {name: _noise(findings, name) for name in findings.datasets}
    frames = []
    for intervention, variant in names:
        named = (
            pl.lit(str(intervention)).alias("intervention"),
            pl.lit(str(variant)).alias("variant"),
        )
        frames.append(
            _effects(parts[intervention, variant], noise).select(*named, pl.all())
        )
    return (
        pl.concat(frames)
        if frames
        else pl.DataFrame(schema=dict.fromkeys((*_NAMES, "row", "score"), pl.Null))
    )


_NAMES = ("intervention", "variant")


def _numbered(findings: Findings) -> pl.DataFrame:
    """Every item with its row, its label, its reference layer and its group under the paper's rule."""
    keys = ["dataset", "item_id"]
    assigned = findings.at_headline(findings.pathways).select(
        *keys, "reference_layer", "pathway"
    )
    items = findings.items.select(*keys, "truthful").with_row_index("row")
    return items.join(assigned, on=keys, how="left", maintain_order="left")


def _noise(findings: Findings, dataset: str) -> float:
    """The change in log-odds that cutting nothing stays below in 99 of 100 items."""
    noise = summary_of(findings, dataset, "noise_log_odds_p99", intervention="none")
    return 0.0 if noise is None else noise.value


def _effects(table: pl.DataFrame, noise: dict[str, float]) -> pl.DataFrame:
    """What one intervention did; an item that was run several times has the mean over its runs."""
    before, after = (_matrix(table[name]) for name in ("logit_clean", "logit_after"))
    label = table["truthful"].fill_null(False).to_numpy()
    delta = delta_p(before.T, after.T, label).T
    layer = table["reference_layer"].cast(pl.Int64).fill_null(-1).to_numpy()
    has_layer, at_layer = layer >= 0, (np.arange(len(layer)), np.maximum(layer, 0))
    floor = (
        table["dataset"]
        .replace_strict(noise, default=0.0, return_dtype=pl.Float64)
        .to_numpy()
    )
    moved = after[at_layer] - before[at_layer]
    flipped = (
        ((after[at_layer] > 0) != (before[at_layer] > 0))
        & (np.abs(moved) > floor)
        & has_layer
    )
    rows, starts, runs = np.unique(
        table["row"].to_numpy(), return_index=True, return_counts=True
    )

    def mean(values: Floats) -> Floats:
        """Over the runs of each item; rows are sorted by item."""
        sums = np.add.reduceat(values, starts, axis=0)
        return sums / (runs[:, None] if values.ndim > 1 else runs)

    numbers = {
        "row": rows.astype(np.int64),
        "score": np.where(has_layer, probability(before[at_layer]), np.nan)[starts],
        "n_cut": mean(table["n_cut"].to_numpy().astype(np.float64)),
        "runs": runs.astype(np.int64),
        "flips": np.add.reduceat(flipped.astype(np.int64), starts),
        "delta_p_reference": mean(np.where(has_layer, delta[at_layer], np.nan)),
        "delta_p": mean(delta),
        "log_odds_before": before[starts],
        "log_odds_after": mean(after),
    }
    return pl.DataFrame(numbers).with_columns(
        pl.col("score", "delta_p_reference").fill_nan(None)
    )


def _matrix(column: pl.Series) -> Floats:
    """[row, layer] of a column of lists, all as long as the model is deep."""
    return column.explode().to_numpy().astype(np.float64).reshape(len(column), -1)


# One item, for the terminal


def record(findings: Findings, dataset: str, item_id: str) -> dict[str, Any] | None:
    """All that is known of one item; None where there is no such item.

    `marks` are the key words as [start, end) characters of the question, `confidence_mean` is the mean log-probability
    of the answer's tokens, `reference_layer` is l* of the item's fold, `probability_before` is what the probe there
    gives "truthful" before anything is cut, and `pathway` is the group under the paper's rule. `effects` are those of
    every intervention as `item_effects` has them, `further` the numbers of the further experiments.
    """
    this = (pl.col("dataset") == dataset) & (pl.col("item_id") == item_id)
    alone = replace(
        findings,
        items=findings.items.filter(this),
        effects=findings.effects.filter(this),
        pathways=findings.pathways.filter(this),
    )
    if not alone.items.height:
        return None
    item, effects = alone.items.row(0, named=True), item_effects(alone)
    assigned = _numbered(alone).row(0, named=True)
    further = findings.experiment_items.filter(this & pl.col("value").is_not_null())
    return {
        "dataset": dataset,
        "item_id": item_id,
        "question": item["question"],
        "marks": [[start, end] for start, end in item.get("question_words") or ()],
        "answer": item["model_answer"],
        "accepted": list(item["answers"] or ()),
        **{name: item[name] for name in ("truthful", "status")},
        **{
            name: item.get(name)
            for name in ("subject", "relation", "confidence_mean", "fold")
        },
        "reference_layer": assigned["reference_layer"],
        "pathway": assigned["pathway"],
        "probability_before": effects["score"][0] if effects.height else None,
        "effects": effects.drop("row", "score").to_dicts(),
        "further": further.select(
            "experiment", "variant", "quantity", "value"
        ).to_dicts(),
    }


# All items, for the page


def item_table(findings: Findings, most: int = MOST_ITEMS) -> dict[str, Any]:
    """Everything that the page's table of items shows."""
    every = findings.items.with_row_index("row")
    chosen = every.sort(pl.col("status") != "used", maintain_order=True).head(most)
    rows = chosen["row"].to_list()
    assigned = _numbered(findings)
    layers = assigned["reference_layer"]
    pathways = assigned["pathway"]
    effects = item_effects(findings)
    terms = _evidence_terms(findings)
    items = list(chosen.iter_rows(named=True))
    texts = [_clip(item["question"], _LONGEST_TEXT) for item in items]
    accepted = [list(item["answers"] or ()) for item in items]
    # A mean of log-probabilities is a geometric mean of probabilities.
    confidence = [
        math.nan if item.get("confidence_mean") is None else item["confidence_mean"]
        for item in items
    ]
    measured = [
        terms.get((item["dataset"], item["item_id"]), (None, None)) for item in items
    ]
    first = effects.drop_nulls("score").unique("row", keep="first", maintain_order=True)
    scores = dict(first.select("row", pl.col("score").cast(pl.Float64)).iter_rows())
    return {
        "total": every.height,
        "datasets": {
            name: display_name(name)
            for name in chosen["dataset"].unique(maintain_order=True)
        },
        "id": [item["item_id"] for item in items],
        "dataset": [item["dataset"] for item in items],
        "question": texts,
        "marks": [
            _marks(text, item.get("question_words") or ())
            for text, item in zip(texts, items, strict=True)
        ],
        "answer": [_clip(item["model_answer"], _LONGEST_TEXT) for item in items],
        "accepted": [
            [_clip(text, _LONGEST_ANSWER) for text in some[:_MOST_ACCEPTED]]
            for some in accepted
        ],
        "more": [max(0, len(some) - _MOST_ACCEPTED) for some in accepted],
        "subject": [_clip(item.get("subject"), _LONGEST_ANSWER) for item in items],
        "relation": [item.get("relation") or "" for item in items],
        "status": [item["status"] for item in items],
        "truth": [item["truthful"] for item in items],
        "confidence": [finite(100 * math.exp(mean), 1) for mean in confidence],
        "pathway": [pathways[row] for row in rows],
        "layer": [layers[row] for row in rows],
        "score": [
            finite(scores[row] * 100, 1) if row in scores else None for row in rows
        ],
        "lost": [lost for lost, _ in measured],
        "had": [had for _, had in measured],
        "effects": [
            _effect_columns(part, rows)
            for part in effects.partition_by(_NAMES, maintain_order=True)
        ],
    }


def _evidence_terms(
    findings: Findings,
) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """Per item, the evidence that it lost with the key words hidden and that it had, as means over the band."""
    cut = select(
        findings.at_headline(findings.evidence_items),
        intervention="knockout",
        view="cut",
    )
    terms = {}
    for dataset in findings.datasets:
        rows = select(cut, dataset=dataset)
        if band := band_numbers(findings, dataset):
            means = (
                pl.col(name).list.gather(band).list.mean() for name in ("lost", "had")
            )
            for item, lost, had in rows.select("item_id", *means).iter_rows():
                terms[dataset, item] = finite(lost, 3), finite(had, 3)
    return terms


def _effect_columns(effects: pl.DataFrame, rows: Sequence[int]) -> Mapping[str, Any]:
    """What an intervention did to the items at l*: ΔP, runs that flip, and runs."""
    name, by_row = (
        effects["intervention"][0],
        effects.rows_by_key("row", named=True, unique=True),
    )
    shown = [by_row.get(row, {}) for row in rows]
    return {
        "name": name,
        "title": intervention_label(name),
        "control": name in CONTROLS,
        "delta": [finite(effect.get("delta_p_reference"), 1) for effect in shown],
        "flips": [effect.get("flips") for effect in shown],
        "runs": effects["runs"].max() or 0,
    }


def _marks(text: str, words: Sequence[Sequence[int]]) -> list[int]:
    """Start and end of every key word as the browser counts: a character beyond the basic plane is two."""

    def utf16(end: int) -> int:
        return len(text[:end].encode("utf-16-le", "surrogatepass")) // 2

    inside = [(start, min(stop, len(text))) for start, stop in words]
    return [
        utf16(end) for start, stop in inside if start < stop for end in (start, stop)
    ]


def _clip(text: str | None, longest: int) -> str:
    text = text or ""
    return text if len(text) <= longest else text[: longest - 1] + "…"
