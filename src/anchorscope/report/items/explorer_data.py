"""The items of a run as the page's explorer reads them: columns instead of objects, curves as packed bytes.

Thousands of items have to fit into a page that can be mailed. Texts stand once, names of pathways, relations and
statuses are small numbers, the curve of the chart's intervention is kept to a hundredth of a point (two bytes per
layer), as is the probe's verdict on the untouched item, and every other curve to a whole point (one byte); effects at
the reference layer are always kept to a hundredth.
What does not fit is left out in a fixed order, and the page says so: first what the further experiments found, then the
curves of the further interventions, then items that are not used, then used ones, evenly over the datasets.
"""

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.catalogue import CONTROLS, intervention_label, interventions_in
from anchorscope.evidence.measured import probability, true_label_probability
from anchorscope.report.findings import Findings
from anchorscope.report.items.item_effects import ItemEffects, item_effects, reference_layers
from anchorscope.report.items.item_records import ordered_rules, pathways_of_items
from anchorscope.report.palette import display_name

LIMIT = 13_000_000
"""Bytes that the items may take in the page."""
CHART = "knockout"
FINE = 0.01
"""Points per step of the chart's curve, and of every effect at the reference layer."""
WHOLE = 1.0
"""Points per step of the other curves."""
_ALWAYS_DRAWN = interventions_in("knockout")
_LONGEST_TEXT, _LONGEST_ACCEPTED, _MOST_ACCEPTED = 3000, 200, 12
_NUMBERS = 120  # bytes that an item's small numbers and separators take at most, beside its texts
_BASE64 = 4 / 3

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class _Chosen:
    """What goes into the page."""

    rows: Rows
    """Rows of the items table, used ones first."""
    all_curves: bool
    experiments: bool


def item_data(findings: Findings, limit_bytes: int = LIMIT) -> dict[str, Any]:
    """Everything that the explorer shows, in at most about `limit_bytes` of JSON."""
    effects = item_effects(findings)
    texts = _texts(findings.items)
    chosen = _choose(findings, effects, texts, limit_bytes)
    place = np.full(findings.items.height, -1, dtype=np.int64)
    place[chosen.rows] = np.arange(len(chosen.rows))
    items = findings.items[chosen.rows.tolist()]
    used = findings.items["status"] == "used"
    datasets = _datasets(findings)
    return {
        "layers": findings.n_layers,
        "site": findings.site,
        "position": findings.position,
        "datasets": datasets,
        "titles": [display_name(name) for name in datasets],
        "total": findings.items.height,
        "total_used": int(used.sum()),
        "shown_used": int((items["status"] == "used").sum()),
        "all_curves": chosen.all_curves,
        "all_further": chosen.experiments,
        "items": _columns(findings, items, chosen.rows, [texts[row] for row in chosen.rows.tolist()], effects),
        "clean": _clean(findings, effects, place, len(chosen.rows)),
        "interventions": [_packed(one, place, chosen.all_curves) for one in effects],
        "further": _experiment_numbers(findings, chosen.rows) if chosen.experiments else [],
    }


def _datasets(findings: Findings) -> list[str]:
    """Those of the chart, then those that had too few answers to be in it."""
    return list(dict.fromkeys([*findings.datasets, *findings.items["dataset"].unique(maintain_order=True)]))


def _texts(items: pl.DataFrame) -> list[dict[str, Any]]:
    """The texts of every item, cut where one is far longer than anybody reads."""
    found = []
    for item in items.iter_rows(named=True):
        accepted = list(item["answers"] or ())
        question = _clipped(item["question"], _LONGEST_TEXT)
        words = [(start, min(end, len(question))) for start, end in item.get("question_words") or ()]
        found.append(
            {
                "id": item["item_id"],
                "question": question,
                "marks": [_utf16(question, end) for word in words if word[0] < word[1] for end in word],
                "answer": _clipped(item["model_answer"], _LONGEST_TEXT),
                "accepted": [_clipped(text, _LONGEST_ACCEPTED) for text in accepted[:_MOST_ACCEPTED]],
                "more": max(0, len(accepted) - _MOST_ACCEPTED),
                "subject": _clipped(item.get("subject"), _LONGEST_ACCEPTED),
            }
        )
    return found


def _clipped(text: str | None, longest: int) -> str:
    text = text or ""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _utf16(text: str, end: int) -> int:
    """A place in the text as the browser counts: a character beyond the basic plane is two."""
    return len(text[:end].encode("utf-16-le", "surrogatepass")) // 2


def _choose(findings: Findings, effects: Sequence[ItemEffects], texts: Sequence[dict[str, Any]], limit: int) -> _Chosen:
    """As much as fits. Every cost is an upper bound, as if every letter beyond ASCII were written as an escape."""
    n, used = len(texts), (findings.items["status"] == "used").to_numpy()
    written = np.array([len(json.dumps(list(text.values()))) for text in texts], dtype=np.float64).reshape(n)
    marked = np.array([sum(map(_escaped, (text["question"], text["answer"], *text["accepted"]))) for text in texts])
    plain = written + 5 * marked.reshape(n) + _NUMBERS
    measured = np.isin(np.arange(n), np.concatenate([np.empty(0, np.int64), *(one.rows for one in effects)]))
    plain += _BASE64 * 2 * findings.n_layers * measured
    drawn = {flag: np.zeros(n) for flag in (True, False)}
    for one in effects:
        for flag, cost in drawn.items():
            cost[one.rows] += 16 + _BASE64 * (2 + _bytes_per_curve(one, findings.n_layers, flag))
    counted = findings.experiment_items.group_by("dataset", "item_id").len()
    numbers = findings.items.select("dataset", "item_id").join(
        counted, on=["dataset", "item_id"], how="left", maintain_order="left"
    )
    more = 12.0 * numbers["len"].fill_null(0).to_numpy()
    for all_curves, with_experiments in ((True, True), (True, False), (False, False)):
        cost = plain + drawn[all_curves] + (more if with_experiments else 0)
        if cost[used].sum() <= limit:
            break
    order = _evenly(findings.items, used)
    fitting = order[np.cumsum(cost[order]) <= limit]
    # Back in file order, used items first, so that whoever pages through them meets what belongs together.
    return _Chosen(fitting[np.lexsort((fitting, ~used[fitting]))], all_curves, with_experiments)


def _escaped(text: str) -> int:
    """Characters that the page writes as a longer escape."""
    return sum(map(text.count, "<>&"))


def _bytes_per_curve(one: ItemEffects, layers: int, all_curves: bool) -> int:
    if not (all_curves or one.intervention in _ALWAYS_DRAWN):
        return 0
    return 2 * layers if one.intervention == CHART else layers


def _evenly(items: pl.DataFrame, used: NDArray[np.bool_]) -> Rows:
    """Rows in the order in which they are let in: used ones first, one of each dataset at a time."""
    turns = items.select(row=pl.int_range(pl.len()), unused=~pl.Series(used), dataset="dataset").with_columns(
        turn=pl.int_range(pl.len()).over("dataset", "unused")
    )
    return turns.sort("unused", "turn", "row")["row"].to_numpy().astype(np.int64)


def _columns(
    findings: Findings, items: pl.DataFrame, rows: Rows, texts: Sequence[dict[str, Any]], effects: Sequence[ItemEffects]
) -> dict[str, Any]:
    """One list per column."""
    pathways, rules = pathways_of_items(findings), ordered_rules(findings)
    keys = list(items.select("dataset", "item_id").iter_rows())
    layers, before = reference_layers(findings), _before(findings, effects)
    truth = {True: 1, False: 0, None: -1}
    datasets = {name: number for number, name in enumerate(_datasets(findings))}
    return {
        **{name: [text[name] for text in texts] for name in ("id", "question", "marks", "answer", "accepted", "more")},
        "subject": [text["subject"] for text in texts],
        "dataset": [datasets[name] for name, _ in keys],
        "truth": [truth[value] for value in items["truthful"]],
        "status": _coded(items["status"].to_list()),
        "relation": _coded(_column(items, "relation")),
        "confidence": [_rounded(value) for value in _column(items, "confidence_mean")],
        "fold": _column(items, "fold"),
        "layer": [layers[row] for row in rows.tolist()],
        "before": [before.get(row) for row in rows.tolist()],
        "pathways": {rule: _coded([pathways.get(key, {}).get(rule) for key in keys]) for rule in rules},
    }


def _column(items: pl.DataFrame, name: str) -> list[Any]:
    """A column that a table made elsewhere may not have."""
    return items[name].to_list() if name in items.columns else [None] * items.height


def _rounded(value: float | None) -> float | None:
    """To a thousandth; JSON has no NaN."""
    return None if value is None or not math.isfinite(value) else round(value, 3)


def _coded(values: Sequence[str | None]) -> dict[str, Any]:
    """Names once, and a number per item; −1 where there is none."""
    names = list(dict.fromkeys(value for value in values if value is not None))
    number = {name: place for place, name in enumerate(names)}
    return {"names": names, "of": [number.get(value, -1) if value is not None else -1 for value in values]}


def _before(findings: Findings, effects: Sequence[ItemEffects]) -> dict[int, float]:
    """Per row of the items table, what the probe at l* gave "truthful" before, in percent."""
    layers = np.array([-1 if layer is None else layer for layer in reference_layers(findings)], dtype=np.int64)
    found: dict[int, float] = {}
    for one in effects:
        known = np.flatnonzero(layers[one.rows] >= 0)
        rows = one.rows[known]
        percent = np.round(100 * probability(one.before[known, layers[rows]]), 1)
        found = dict(zip(rows.tolist(), percent.tolist(), strict=True)) | found
    return found


def _clean(findings: Findings, effects: Sequence[ItemEffects], place: Rows, count: int) -> dict[str, Any]:
    """What the probes gave the true label of the untouched items, in percent; items that were not run come last."""
    labels = findings.items["truthful"].fill_null(False).to_numpy()
    found = np.full((count, findings.n_layers), np.nan)
    for one in effects:
        here = place[one.rows] >= 0
        sure = 100 * true_label_probability(one.before[here].T, labels[one.rows[here]]).T
        found[place[one.rows[here]]] = sure
    known = np.flatnonzero(np.isfinite(found).any(axis=1))
    kept = int(known[-1]) + 1 if len(known) else 0
    return {"count": kept, "curves": _in_steps(found[:kept], FINE)}


def _packed(one: ItemEffects, place: Rows, all_curves: bool) -> dict[str, Any]:
    """One intervention; `rows` are places in the page's lists, left out where they are simply the first ones."""
    where = place[one.rows]
    # The page's lists may be in another order than the table, and some items may have been left out.
    keep = np.argsort(where, kind="stable")[(where < 0).sum() :]
    there = where[keep]
    step = FINE if one.intervention == CHART else WHOLE
    drawn = all_curves or one.intervention in _ALWAYS_DRAWN
    return {
        "name": one.intervention,
        "title": intervention_label(one.intervention),
        "variant": one.variant,
        "control": one.intervention in CONTROLS,
        "rows": None if np.array_equal(there, np.arange(len(there))) else _base64(there, "<u4"),
        "count": len(there),
        "n_cut": _repeated([round(value, 1) for value in one.n_cut[keep].tolist()]),
        "runs": _repeated(one.runs[keep].tolist()),
        "flips": _repeated(one.flips[keep].tolist()),
        "at": _in_steps(one.at_reference[keep], FINE),
        "step": step,
        "curves": _in_steps(one.delta_p[keep], step) if drawn else None,
    }


def _in_steps(values: NDArray[np.float64], step: float) -> str:
    """Numbers in whole steps; the lowest number that two bytes (or one) can hold stands for what is missing."""
    kind = "<i2" if step == FINE else "i1"
    steps = np.where(np.isfinite(values), np.rint(np.nan_to_num(values) / step), np.iinfo(kind).min)
    return _base64(steps, kind)


def _base64(values: NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode("ascii")


def _repeated(values: list[float]) -> float | list[float]:
    """One number where all are the same; whole numbers without a point."""
    short = [int(value) if value == int(value) else value for value in values]
    return short[0] if short and len(set(short)) == 1 else short


def _experiment_numbers(findings: Findings, rows: Rows) -> list[dict[str, Any]]:
    """What the further experiments found of the items: one entry per experiment, variant and quantity."""
    places = findings.items[rows.tolist()].select("dataset", "item_id").with_row_index("place")
    table = findings.experiment_items.drop_nulls("value").join(
        places, on=["dataset", "item_id"], how="inner", maintain_order="left"
    )
    found = []
    for part in table.partition_by("experiment", "variant", "quantity", maintain_order=True):
        about, part = part.row(0, named=True), part.sort("place")
        found.append(
            {name: about[name] for name in ("experiment", "variant", "quantity")}
            | {"rows": _base64(part["place"].to_numpy(), "<u4"), "values": _base64(part["value"].to_numpy(), "<f4")}
        )
    return found
