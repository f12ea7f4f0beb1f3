"""The tables of the question share: at the layer that is tested, what else was tested there, and layer by layer."""

import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.shares import (
    CONTROLS,
    LOWER,
    MIDDLE,
    UPPER,
    ShareResult,
    results_of,
    share_at,
    share_layer,
    share_rows,
    truth_readers,
)
from anchorscope.report.wording import NOTHING, Table, count, estimate, number, p_value_cell

_SETS = {
    "question's key words cut": ("knockout", "all", "all"),
    "of true answers": ("knockout", "all", "true"),
    "of false answers": ("knockout", "all", "false"),
    "of the lower third of the items, held out": ("knockout", LOWER, "all"),
    "of the middle third": ("knockout", MIDDLE, "all"),
    "of the upper third": ("knockout", UPPER, "all"),
    **{words: (intervention, "all", "all") for intervention, words in CONTROLS.items()},
    "random words cut: lower third": ("random", LOWER, "all"),
    "random words cut: upper third": ("random", UPPER, "all"),
}
_QUANTITIES = {
    "share_beyond_floor": "beyond the floor: (Λ − floor) / (1 − floor)",
    "share_above_random": "more than random words take",
    "true_minus_false": "true − false answers",
    "thirds_difference": "upper − lower third",
    "share_given": "with {} taken out",
    "share_by_feature": "Λ by {}, difference",
    "mixture_gain": "two groups over one regression, log-likelihood per held-out item",
    "minimum_n": "items for an interval of ±0.1 around Λ",
    "kept_slope": "log-odds that the state still explains under random cuts, per log-odds before",
    "directions": "principal directions of the states",
}
_LAYER_LINES = {
    "Λ": ("knockout", "all"),
    "lower third": ("knockout", LOWER),
    "upper third": ("knockout", UPPER),
    "random words": ("random", "all"),
    "nothing cut": ("none", "all"),
    "permuted": ("permuted", "all"),
    "random weights": ("random-weights", "all"),
}


def share_table(findings: Findings) -> Table:
    """Λ at the layer that is tested: of all items, of parts of them, and under every control."""
    rows = []
    for words, (intervention, group, truth) in _SETS.items():
        found = [
            share_at(findings, name, share_layer(findings, name), intervention, group, truth)
            for name in findings.datasets
        ]
        if any(found):
            rows.append((words, *(NOTHING if one is None else estimate(one) for one in found)))
    return Table(("Λ", *_heads(findings)), tuple(rows))


def ladder_table(findings: Findings) -> Table:
    """AUC of the probe, and of what reads truth without the model's understanding."""
    known = {dataset: truth_readers(findings, dataset) for dataset in findings.datasets}
    names = dict.fromkeys(name for found in known.values() for name in found)
    rows = [
        (name, *(estimate(found[name], 3) if name in found else NOTHING for found in known.values())) for name in names
    ]
    return Table(("AUC", *(display_name(name) for name in known)), tuple(rows))


def tests_table(findings: Findings) -> Table:
    """Everything else that was tested of the share, number by number."""
    rows = []
    for dataset in findings.datasets:
        for quantity, words in _QUANTITIES.items():
            for one in results_of(findings, dataset, quantity):
                what = words.format(one.group.replace("_", " ") or "it")
                p = NOTHING if one.p_from_interval else p_value_cell(one.p_value)
                rows.append((display_name(dataset), what, _value(quantity, one), p, count(one.estimate.n)))
    return Table(("dataset", "quantity", "value", "p", "items"), tuple(rows), 2)


def layers_table(findings: Findings) -> Table:
    """Λ layer by layer: the numbers behind the chart."""
    rows = share_rows(findings, truth="all")
    known = [(words, *key) for words, key in _LAYER_LINES.items() if _of(rows, *key).height]
    lines = []
    for dataset in findings.datasets:
        mine = rows.filter(pl.col("dataset") == dataset)
        columns = [
            {row["layer"]: _with_interval(row) for row in _of(mine, *key).iter_rows(named=True)} for _, *key in known
        ]
        lines += [
            (display_name(dataset), str(layer), *(column.get(layer, NOTHING) for column in columns))
            for layer in sorted(set().union(*columns))
        ]
    return Table(("dataset", "layer", *(words for words, *_ in known)), tuple(lines))


def _of(rows: pl.DataFrame, intervention: str, group: str) -> pl.DataFrame:
    return rows.filter((pl.col("intervention") == intervention) & (pl.col("group") == group))


def _with_interval(row: dict[str, float | None]) -> str:
    share, *ends = (row[name] for name in ("share", "ci_low", "ci_high"))
    known = [number(end, 2) for end in ends if end is not None]
    return number(share or 0.0, 2) + (f" [{', '.join(known)}]" if len(known) == 2 else "")


def _value(quantity: str, one: ShareResult) -> str:
    whole = quantity in ("minimum_n", "directions")
    return count(round(one.estimate.value)) if whole else estimate(one.estimate, 3 if quantity == "mixture_gain" else 2)


def _heads(findings: Findings) -> list[str]:
    named = {name: share_layer(findings, name) for name in findings.datasets}
    return [display_name(name) + (f", layer {layer}" if layer is not None else "") for name, layer in named.items()]
