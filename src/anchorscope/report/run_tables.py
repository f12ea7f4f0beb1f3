"""The tables of a run's page: parts of the evidence, probes and what survives the cut, groups, counts and times."""

from collections.abc import Callable
from functools import partial

import polars as pl

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.charts.line_chart import drawable
from anchorscope.report.findings import Findings, auc_of, first_estimate, nested_auc, summary_of
from anchorscope.report.palette import BASELINES, GROUPS, Q_ANCHORED, display_name
from anchorscope.report.shares import CONTROLS, NEEDS, PARTS, band_layers, share_at, share_layer, truth_readers
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
_CUTS = {"knockout": "key words hidden"} | CONTROLS


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
    for dataset in findings.datasets:
        for cut, words in _CUTS.items():
            shares = [share_at(findings, dataset, cut, part) for part in PARTS | NEEDS]
            if any(shares):
                name = f"{display_name(dataset)}, layers {band_layers(findings, dataset)}"
                rows.append((name, words, *(NOTHING if share is None else estimate(share) for share in shares)))
    return Table(("dataset", "cut", *(PARTS | NEEDS).values()), tuple(rows), 2)


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
    return first_estimate(rows, "delta_p")


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
    """AUC of the probes, every fold at its own l*, of everything simpler, and under the cuts at the headline site."""
    sites, own = findings.probe_scores.filter(pl.col("kind") == "transfer")["site"], findings.site
    rows: dict[str, Callable[[str], Estimate | None]] = {
        f"probe at {site}": partial(nested_auc, findings, site=site) for site in sorted(sites.drop_nulls().unique())
    }
    kinds = {"and confidence": "nested+confidence", "within relations": "nested-within-relation"}
    rows |= {f"probe at {own}, {words}": partial(nested_auc, findings, kind=kind) for words, kind in kinds.items()}
    rows |= {f"baseline: {words}": partial(auc_of, findings, kind=kind) for kind, words in BASELINES.items()}
    cuts = {
        "random words hidden, same probe": ("random", "nested"),
        "key words hidden, same probe": ("knockout", "nested"),
        "key words hidden, probe trained again": ("knockout", "nested-refit"),
    }
    rows |= {words: partial(nested_auc, findings, intervention=cut, kind=kind) for words, (cut, kind) in cuts.items()}
    rows["the same with permuted labels: chance"] = partial(
        summary_of, findings, quantity="auc_permuted", group="refit"
    )
    lines = tuple((words, *(estimate(area(name), 3) for name in findings.datasets)) for words, area in rows.items())
    return Table(("AUC", *map(display_name, findings.datasets)), lines)


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
    rows = findings.steps.select("step", "seconds", "peak_memory_mb").iter_rows()
    cells = ((step, number(time, 1), MISSING if memory is None else number(memory, 0)) for step, time, memory in rows)
    return Table(("step", "seconds", "peak memory, MB"), tuple(cells))
