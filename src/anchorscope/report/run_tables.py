"""The tables of a run's page, as plain text in cells: both templates (HTML and Markdown) draw the same ones."""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.card_tiles import MARKS
from anchorscope.report.charts.delta_p import shift_title
from anchorscope.report.charts.line_chart import drawable
from anchorscope.report.findings import Findings, auc_of, nested_auc, summary_of
from anchorscope.report.looks import BASELINES
from anchorscope.report.page_words import drawn_at
from anchorscope.report.palette import GROUPS, Q_ANCHORED, display_name
from anchorscope.report.shares import share_layer
from anchorscope.report.statements.statement import Reading, short_number
from anchorscope.report.wording import MISSING, NOTHING, Table, count, estimate, number, percent, points
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


def counts_table(findings: Findings) -> Table:
    """What became of the questions."""
    known = [key for key in _COUNTS if key in findings.counts.columns]
    rows = tuple(
        (display_name(row["dataset"]), *(count(row[key]) for key in known)) for row in findings.counts.to_dicts()
    )
    return Table(("dataset", *(_COUNTS[key] for key in known)), rows)


def reference_table(findings: Findings) -> Table:
    """ΔP of both groups under every rule: on the drawn line at one layer, and with every fold at its own l*."""
    rows = []
    for dataset in findings.datasets:
        layer = share_layer(findings, dataset)
        for assignment, rule in RULES.items():
            cells = []
            for group in GROUPS:
                own = summary_of(
                    findings, dataset, "delta_p_reference", assignment=assignment, intervention="knockout", group=group
                )
                drawn = drawn_at(findings, dataset, assignment, group, layer)
                cells += [points(drawn), points(own), count(own.n) if own else MISSING]
            rows.append((display_name(dataset), rule, MISSING if layer is None else str(layer), *cells))
    head = (
        "dataset",
        "rule",
        "layer",
        *(cell for group in ("Q", "A") for cell in (f"{group} on the line", f"{group} at each fold's l*", "items")),
    )
    return Table(head, tuple(rows), 2)


def trust_table(findings: Findings) -> Table:
    """The numbers that say how far the groups can be trusted, plain beside corrected."""
    rows = []
    for dataset in findings.datasets:
        for assignment in [name for name in RULES if name != "cross-fitted"]:

            def of(quantity: str, group: str | None = None, rule: str = assignment, name: str = dataset) -> Any:
                return summary_of(findings, name, quantity, assignment=rule, intervention="knockout", group=group)

            true = [percent(of("true_share", group)) for group in GROUPS]
            shares = [percent(of(quantity, Q_ANCHORED)) for quantity in ("group_share", "null_share")]
            rows.append((display_name(dataset), RULES[assignment], *true, *shares, estimate(of("kappa"))))
    head = ("dataset", "rule", "true among Q", "true among A", "Q share", "Q share if shuffled", "kappa")
    return Table(head, tuple(rows), 2)


def probe_table(findings: Findings) -> Table:
    """AUC of the probes, every fold at its own l*, and of everything simpler."""
    sites = sorted(findings.probe_scores.filter(pl.col("kind") == "transfer")["site"].drop_nulls().unique().to_list())

    def row(label: str, kind: str, site: str | None) -> tuple[str, ...]:
        found = [
            nested_auc(findings, dataset, kind=kind, site=site) if site else auc_of(findings, dataset, kind, None)
            for dataset in findings.datasets
        ]
        return (label, *(estimate(one, 3) for one in found))

    rows = [row(f"probe at {site}", "nested", site) for site in sites]
    rows.append(row(f"probe at {findings.site}, within relations", "nested-within-relation", findings.site))
    rows += [row(f"baseline: {label}", kind, None) for kind, label in BASELINES.items()]
    return Table(("AUC", *map(display_name, findings.datasets)), tuple(rows))


def surviving_table(findings: Findings) -> Table:
    """AUC under the interventions, every fold at its own l*, headline site; and what permuted labels would give."""
    plan = {
        "untouched": ("nested", "clean"),
        "random tokens cut, same probe": ("nested", "random"),
        "question cut, same probe": ("nested", "knockout"),
        "question cut, probe trained again": ("nested-refit", "knockout"),
    }
    rows = []
    for label, (kind, intervention) in plan.items():
        found = [nested_auc(findings, dataset, intervention, kind=kind) for dataset in findings.datasets]
        rows.append((label, *(estimate(one, 3) for one in found)))
    chance = [summary_of(findings, dataset, "auc_permuted", group="refit") for dataset in findings.datasets]
    rows.append(("the same with permuted labels: chance", *(estimate(one, 3) for one in chance)))
    return Table(("AUC", *map(display_name, findings.datasets)), tuple(rows))


def controls_table(findings: Findings) -> Table:
    """What the controls did at l*."""
    rows = []
    for dataset in findings.datasets:
        name = display_name(dataset)

        def of(quantity: str, what: str, group: str | None = None, of_set: str = dataset) -> Any:
            return summary_of(findings, of_set, quantity, assignment="plain", intervention=what, group=group)

        for group in GROUPS:
            for label, quantity in (("", "delta_p_reference"), (", as many tokens as E_Q", "delta_p_matched")):
                found = of(quantity, "random", group)
                rows.append((name, f"random: ΔP of {group}{label}", points(found), count(found.n if found else None)))
        for what, words in (
            ("random", "random: flips"),
            ("none", "nothing cut: flips"),
            ("knockout", "knockout: flips"),
        ):
            found = of("flip_rate", what)
            rows.append((name, words, percent(found), count(found.n if found else None)))
        noise = of("noise_log_odds_p99", "none")
        shown = MISSING if noise is None else f"{noise.value:.2g}"
        rows.append((name, "nothing cut: 99 % of log-odds move by less than", shown, count(noise.n if noise else None)))
    return Table(("dataset", "control", "value", "items"), tuple(rows), 2)


def moved_table(findings: Findings) -> Table:
    """Where the Q-Anchored curve is lowest when the sorting layer is moved."""
    curves = drawable(findings.reference_curves, findings.site, findings.position)
    curves = curves.filter(pl.col("group") == Q_ANCHORED)
    shifts = sorted(curves["shift"].unique().to_list())
    rows = []
    for dataset in findings.datasets:
        cells = []
        for shift in shifts:
            rows_here = curves.filter((pl.col("dataset") == dataset) & (pl.col("shift") == shift)).sort("delta_p")
            cells.append(_lowest_cell(rows_here))
        rows.append((display_name(dataset), *cells))
    return Table(("lowest Q-Anchored ΔP", *(shift_title(shift) for shift in shifts)), tuple(rows))


def steps_table(findings: Findings) -> Table:
    """Seconds and memory of every step."""
    rows = []
    for row in findings.steps.to_dicts():
        memory = row.get("peak_memory_mb")
        rows.append((row["step"], number(row["seconds"], 1), MISSING if memory is None else number(memory, 0)))
    return Table(("step", "seconds", "peak memory, MB"), tuple(rows))


def _lowest_cell(rows: pl.DataFrame) -> str:
    if not rows.height:
        return "no items"
    row = rows.row(0, named=True)
    return f"{number(row['delta_p'], 1)} at layer {row['layer']}"


def detectors_table(findings: Findings) -> Table:
    """What the run's own numbers say of detecting wrong answers: confidence, probe, and both together."""
    rows = []
    for label, measure in _DETECTORS.items():
        rows.append((label, *(estimate(measure(findings, dataset), 3) for dataset in findings.datasets)))
    return Table(("AUC", *map(display_name, findings.datasets)), tuple(rows))


_DETECTORS: dict[str, Callable[[Findings, str], Estimate | None]] = {
    "the model's own confidence": lambda findings, dataset: auc_of(findings, dataset, "confidence-mean", None),
    "probe": lambda findings, dataset: nested_auc(findings, dataset),
    "probe and confidence": lambda findings, dataset: nested_auc(findings, dataset, kind="nested+confidence"),
}


def statements_table(findings: Findings, readings: Sequence[Reading]) -> Table:
    """Of several datasets: a line per statement, with each dataset's verdict and number."""
    rows: dict[tuple[str | None, str], dict[str, Reading]] = {}
    for one in readings:
        if one["dataset"] is not None:
            rows.setdefault((one["assignment"], one["claim"]), {})[one["dataset"]] = one
    told = []
    for (rule, _), found in rows.items():
        first = next(iter(found.values()))
        what = first["statement"] + (f" ({RULES[rule]})" if rule else "")
        cells = (
            f"{MARKS[found[name]['verdict']]} {short_number(found[name])}" if name in found else NOTHING
            for name in findings.datasets
        )
        told.append((what[:1].upper() + what[1:], *cells))
    return Table(("", *map(display_name, findings.datasets)), tuple(told))
