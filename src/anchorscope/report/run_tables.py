"""The tables of a run's page, as plain text in cells: both templates (HTML and Markdown) draw the same ones."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from anchorscope.report.assignment_rules import RULES, rules_of
from anchorscope.report.charts.delta_p import shift_title
from anchorscope.report.charts.line_chart import drawable
from anchorscope.report.findings import Findings, auc_of, nested_auc, summary_of
from anchorscope.report.looks import BASELINES
from anchorscope.report.palette import GROUPS, Q_ANCHORED, display_name
from anchorscope.report.wording import MISSING, Table, count, estimate, number, percent, points

_COUNTS = {
    "read": "read",
    "repeated": "repeated",
    "few_shot": "in the prompt",
    "yes_no": "yes/no",
    "asked": "asked",
    "empty": "empty",
    "truncated": "cut off",
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
    """ΔP at l* of both groups under every rule."""
    measures = [(assignment, "delta_p_reference", rule) for assignment, rule in rules_of(findings).items()]
    if "retained" in rules_of(findings):
        measures.append(("retained", "delta_p_refit", "retained rule, measured by the probe trained again"))
    rows = []
    for dataset in findings.datasets:
        for assignment, quantity, rule in measures:
            found = [
                summary_of(findings, dataset, quantity, assignment=assignment, intervention="knockout", group=group)
                for group in GROUPS
            ]
            cells = [cell for value in found for cell in (points(value), count(value.n) if value else MISSING)]
            rows.append((display_name(dataset), rule, *cells))
    return Table(("dataset", "rule", "Q-Anchored ΔP", "items", "A-Anchored ΔP", "items"), tuple(rows), 2)


def trust_table(findings: Findings) -> Table:
    """The numbers that say how far the groups can be trusted, plain beside corrected."""
    rows = []
    for dataset in findings.datasets:
        for assignment in [name for name in rules_of(findings) if name != "cross-fitted"]:

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
        if "retained" in rules_of(findings):
            floor = summary_of(findings, dataset, "group_share", assignment="retained", intervention="random",
                               group=Q_ANCHORED)  # fmt: skip
            words = "random: Q-Anchored by the retained rule, its noise floor"
            rows.append((name, words, percent(floor), count(floor.n if floor else None)))
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


PER_GROUP = 5
_LONGEST_CELL = 240


def examples_table(findings: Findings) -> Table:
    """Five items of each group under the plain rule, with what the corrected rule calls them."""
    rows = [row for group in GROUPS for row in _example_rows(findings, group)]
    head = ("pathway", "corrected", "dataset", "question", "model's answer", "accepted", "truth")
    return Table(head, tuple(rows), len(head))


def _example_rows(findings: Findings, group: str) -> list[tuple[str, ...]]:
    order = {name: place for place, name in enumerate(findings.datasets)}
    items = findings.items.filter(pl.col("pathway") == group).with_row_index("place")
    # First the first item of every relation, then the second ones: a block of one relation would show little.
    turn = pl.col("place").rank("ordinal").over("dataset", "relation")
    chosen = items.with_columns(
        turn=turn, order=pl.col("dataset").replace_strict(order, default=len(order), return_dtype=pl.Int64)
    ).sort("turn", "place")
    # One dataset after the other within a turn, so that no dataset takes all five places.
    chosen = (
        chosen.with_columns(round=pl.col("turn").cum_count().over("dataset")).sort("round", "order").head(PER_GROUP)
    )
    return [_example_cells(row, group) for row in chosen.to_dicts()]


def _example_cells(row: dict[str, object], group: str) -> tuple[str, ...]:
    answers = row.get("answers")
    accepted = (
        "; ".join(map(str, answers)) if isinstance(answers, Sequence) and not isinstance(answers, str) else answers
    )
    truth = {True: "true", False: "false"}.get(bool(row["truthful"])) if row.get("truthful") is not None else "unknown"
    texts = (row["question"], row["model_answer"], accepted)
    dataset = display_name(str(row["dataset"]))
    return (group, str(row.get("pathway_corrected") or "–"), dataset, *map(_short_text, texts), str(truth))


def _short_text(value: object) -> str:
    text = " ".join(str(value if value is not None else "").split())
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"
