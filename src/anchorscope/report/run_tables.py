"""The tables of a run's page: parts of the evidence, probes and what survives the cut, groups, counts and times."""

from typing import Any

import polars as pl

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.charts.line_chart import drawable
from anchorscope.report.findings import Findings, auc_of, nested_auc, summary_of
from anchorscope.report.palette import BASELINES, GROUPS, Q_ANCHORED, display_name
from anchorscope.report.shares import (
    CONTROLS,
    NEEDS,
    PARTS,
    band_layers,
    results_of,
    share_at,
    share_layer,
    share_rows,
    truth_readers,
)
from anchorscope.report.wording import MISSING, NOTHING, Table, count, estimate, number, p_value_cell, percent, points
from anchorscope.stats.estimate import Estimate

_COUNTS = {
    "read": "read",
    "repeated": "repeated",
    "few_shot": "in the prompt",
    "yes_no": "yes/no",
    "asked": "asked",
    "empty": "empty",
    "truncated": "cut off",
    "too_long": "too long",
    "true": "true",
    "false": "false",
    "used": "used",
    "used_true": "used, true",
    "groups": "groups",
    "relations": "relations",
}
_CUTS = {"knockout": "key words hidden"} | CONTROLS
_QUANTITIES = {
    "above_random": "{}: more than under random words",
    "floor": "not in the clean state of another site",
    "displacement": "how far the cut moves states: {}",
    "directions": "principal directions of every view",
}


def counts_table(findings: Findings) -> Table:
    """What became of the questions."""
    columns = [key for key in _COUNTS if key in findings.counts.columns]
    rows = tuple(
        (display_name(row["dataset"]), *(count(row[key]) for key in columns)) for row in findings.counts.to_dicts()
    )
    return Table(("dataset", *(_COUNTS[key] for key in columns)), rows)


def share_table(findings: Findings) -> Table:
    """The parts over the band, under the knockout and every control."""
    rows = []
    for cut, cut_words in _CUTS.items():
        for part, part_words in (PARTS | NEEDS).items():
            shares = [share_at(findings, name, cut, part) for name in findings.datasets]
            if any(shares):
                cells = (NOTHING if share is None else estimate(share) for share in shares)
                rows.append((cut_words, part_words, *cells))
    heads = [f"{display_name(name)}, layers {band_layers(findings, name)}" for name in findings.datasets]
    return Table(("", "share of the evidence", *heads), tuple(rows), 2)


def share_tests_table(findings: Findings) -> Table:
    """The numbers beside the parts, one per row."""
    rows = []
    for dataset in findings.datasets:
        for quantity, words in _QUANTITIES.items():
            for result in results_of(findings, dataset, quantity):
                value = count(round(result.estimate.value)) if quantity == "directions" else estimate(result.estimate)
                p = p_value_cell(result.p_value) if quantity in ("above_random", "floor") else NOTHING
                what = words.format((PARTS | NEEDS).get(result.group, result.intervention))
                rows.append((display_name(dataset), what, value, p, count(result.estimate.n)))
    return Table(("dataset", "quantity", "value", "p", "items"), tuple(rows), 2)


def share_layers_table(findings: Findings) -> Table:
    """The parts layer by layer: the numbers behind the chart."""
    columns = {words: ("knockout", part) for part, words in PARTS.items()}
    columns |= {f"{words}, {CONTROLS['random']}": ("random", part) for part, words in NEEDS.items()}
    lines = []
    for dataset in findings.datasets:
        cells = [
            {row["layer"]: _with_interval(row) for row in share_rows(findings, dataset, *key).iter_rows(named=True)}
            for key in columns.values()
        ]
        lines += [
            (display_name(dataset), str(layer), *(column.get(layer, NOTHING) for column in cells))
            for layer in sorted(set().union(*cells))
        ]
    return Table(("dataset", "layer", *columns), tuple(lines))


def _with_interval(row: dict[str, float | None]) -> str:
    share, *ends = (row[name] for name in ("share", "ci_low", "ci_high"))
    shown = [number(end, 2) for end in ends if end is not None]
    return number(share or 0.0, 2) + (f" [{', '.join(shown)}]" if len(shown) == 2 else "")


def truth_readers_table(findings: Findings) -> Table:
    """AUC of the probe beside probes that see less."""
    readers = {dataset: truth_readers(findings, dataset) for dataset in findings.datasets}
    names = dict.fromkeys(name for by_name in readers.values() for name in by_name)
    rows = [
        (name, *(estimate(by_name[name], 3) if name in by_name else NOTHING for by_name in readers.values()))
        for name in names
    ]
    return Table(("AUC", *(display_name(name) for name in readers)), tuple(rows))


def drawn_at(findings: Findings, dataset: str, rule: str, group: str, layer: int | None) -> Estimate | None:
    """ΔP of the drawn line at one layer."""
    rows = findings.drawn_curves(dataset, rule, group).filter(pl.col("layer") == (-1 if layer is None else layer))
    if not rows.height:
        return None
    row = rows.row(0, named=True)
    low, high = (float("nan") if row[end] is None else row[end] for end in ("ci_low", "ci_high"))
    return Estimate(row["delta_p"], low, high, row["n"], "bootstrap over groups")


def reference_table(findings: Findings) -> Table:
    """ΔP of both groups under every rule: on the drawn line at one layer, and with every fold at its own l*."""
    rows = []
    for dataset in findings.datasets:
        layer = share_layer(findings, dataset)
        for assignment, rule in RULES.items():
            cells = []
            for group in GROUPS:
                own = _summary(findings, dataset, "delta_p_reference", assignment, group)
                line = drawn_at(findings, dataset, assignment, group, layer)
                cells += [points(line), points(own), count(own.n) if own else MISSING]
            rows.append((display_name(dataset), rule, MISSING if layer is None else str(layer), *cells))
    groups = (f"{group} {column}" for group in ("Q", "A") for column in ("on the line", "at each fold's l*", "items"))
    return Table(("dataset", "rule", "layer", *groups), tuple(rows), 2)


def groups_table(findings: Findings) -> Table:
    """Who is in the groups, under the plain and the corrected rule."""
    rows = []
    for dataset in findings.datasets:
        for rule in ("plain", "corrected"):
            true = [percent(_summary(findings, dataset, "true_share", rule, group)) for group in GROUPS]
            shares = [
                percent(_summary(findings, dataset, quantity, rule, Q_ANCHORED))
                for quantity in ("group_share", "null_share")
            ]
            kappa = estimate(_summary(findings, dataset, "kappa", rule))
            rows.append((display_name(dataset), RULES[rule], *true, *shares, kappa))
    head = ("dataset", "rule", "true among Q", "true among A", "Q share", "Q share if shuffled", "kappa")
    return Table(head, tuple(rows), 2)


def _summary(
    findings: Findings, dataset: str, quantity: str, rule: str = "plain", group: str | None = None
) -> Estimate | None:
    return summary_of(findings, dataset, quantity, assignment=rule, intervention="knockout", group=group)


def probe_table(findings: Findings) -> Table:
    """AUC of the probes, every fold at its own l*, and of everything simpler."""
    sites = sorted(findings.probe_scores.filter(pl.col("kind") == "transfer")["site"].drop_nulls().unique().to_list())

    def row(label: str, kind: str, site: str | None) -> tuple[str, ...]:
        aucs = (
            nested_auc(findings, dataset, kind=kind, site=site) if site else auc_of(findings, dataset, kind, None)
            for dataset in findings.datasets
        )
        return (label, *(estimate(auc, 3) for auc in aucs))

    rows = [row(f"probe at {site}", "nested", site) for site in sites]
    rows.append(row(f"probe at {findings.site} and confidence", "nested+confidence", findings.site))
    rows.append(row(f"probe at {findings.site}, within relations", "nested-within-relation", findings.site))
    rows += [row(f"baseline: {label}", kind, None) for kind, label in BASELINES.items()]
    return Table(("AUC", *map(display_name, findings.datasets)), tuple(rows))


def surviving_table(findings: Findings) -> Table:
    """AUC under the interventions, every fold at its own l*, headline site; and what permuted labels would give."""
    kinds = {
        "untouched": ("nested", "clean"),
        "random words hidden, same probe": ("nested", "random"),
        "key words hidden, same probe": ("nested", "knockout"),
        "key words hidden, probe trained again": ("nested-refit", "knockout"),
    }
    rows = []
    for label, (kind, intervention) in kinds.items():
        aucs = (nested_auc(findings, dataset, intervention, kind=kind) for dataset in findings.datasets)
        rows.append((label, *(estimate(auc, 3) for auc in aucs)))
    chance = (summary_of(findings, dataset, "auc_permuted", group="refit") for dataset in findings.datasets)
    rows.append(("the same with permuted labels: chance", *(estimate(auc, 3) for auc in chance)))
    return Table(("AUC", *map(display_name, findings.datasets)), tuple(rows))


def moved_table(findings: Findings) -> Table:
    """Where the Q-Anchored curve is lowest when the sorting layer is moved."""
    curves = drawable(findings.reference_curves, findings.site, findings.position)
    curves = curves.filter(pl.col("group") == Q_ANCHORED)
    shifts = sorted(curves["shift"].unique().to_list())
    rows = []
    for dataset in findings.datasets:
        own = curves.filter(pl.col("dataset") == dataset)
        lowest = [own.filter(pl.col("shift") == shift).sort("delta_p").head(1).to_dicts() for shift in shifts]
        cells = [f"{number(row['delta_p'], 1)} at layer {row['layer']}" for found in lowest for row in found]
        rows.append((display_name(dataset), *(cells if len(cells) == len(shifts) else [NOTHING] * len(shifts))))
    heads = (f"sorted at l* {'+' if shift > 0 else '−'} {abs(shift)}" if shift else "sorted at l*" for shift in shifts)
    return Table(("lowest Q-Anchored ΔP", *heads), tuple(rows))


def steps_table(findings: Findings) -> Table:
    """Seconds and memory of every step."""

    def cells(row: dict[str, Any]) -> tuple[str, str, str]:
        memory = row.get("peak_memory_mb")
        return row["step"], number(row["seconds"], 1), MISSING if memory is None else number(memory, 0)

    return Table(("step", "seconds", "peak memory, MB"), tuple(cells(row) for row in findings.steps.to_dicts()))
