"""The items of a run as the page's table reads them: one list per column, the same order in all."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from anchorscope.catalogue import CONTROLS, intervention_label
from anchorscope.evidence.measured import probability
from anchorscope.report.findings import Findings
from anchorscope.report.items.item_records import ItemEffects, item_effects, reference_layers
from anchorscope.report.palette import display_name
from anchorscope.report.shares import band_numbers

MOST_ITEMS = 20_000
"""In a page, about ten megabytes; used ones come first."""
_LONGEST_TEXT, _LONGEST_ANSWER, _MOST_ACCEPTED = 3000, 200, 12


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
        "effects": [_effects(one, rows) for one in effects],
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
    for one in effects:
        for place, row in enumerate(one.rows.tolist()):
            layer = layers[row]
            if layer is not None and row not in scores:
                scores[row] = _round(100 * float(probability(one.before[place, layer])), 1)
    return scores


def _effects(one: ItemEffects, rows: Sequence[int]) -> Mapping[str, Any]:
    """What an intervention did to the items at l*: ΔP, runs that flip, and runs."""
    places = {row: place for place, row in enumerate(one.rows.tolist())}
    at = [places.get(row) for row in rows]
    return {
        "name": one.intervention,
        "title": intervention_label(one.intervention),
        "control": one.intervention in CONTROLS,
        "delta": [None if place is None else _round(float(one.at_reference[place]), 1) for place in at],
        "flips": [None if place is None else int(one.flips[place]) for place in at],
        "runs": int(np.max(one.runs, initial=0)),
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
