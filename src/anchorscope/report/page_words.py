"""The sentences of the run page that depend on the numbers, beside the card and the readings."""

from collections.abc import Sequence

import polars as pl

from anchorscope.report.findings import Findings, nested_auc, summary_of
from anchorscope.report.palette import GROUPS, Q_ANCHORED, display_name
from anchorscope.report.shares import share_layer
from anchorscope.report.statements.statement import Reading
from anchorscope.report.wording import MISSING, as_percent, count, listing, number, points, short_percent, spanned
from anchorscope.stats.estimate import Estimate

WRONG_TRUE, WRONG_FALSE = 0.044, 0.014
"""Share of wrong labels among answers that the grading rules call true (5 of 114) and false (4 of 291), on answers that
they had not seen (docs/grading.md)."""


def run_line(findings: Findings) -> str:
    """What was run, in one line: whose answers, how many, how many are used."""
    names = listing([display_name(dataset) for dataset in findings.datasets])
    asked, used, true = (_total(findings, column) for column in ("asked", "used", "used_true"))
    supplied = sum(findings.supplied.values())
    if not supplied:
        opening = f"{findings.model} answered {count(asked)} questions ({names})"
    elif asked is not None and supplied >= asked:
        opening = f"{count(supplied)} answers were supplied, not written by {findings.model} ({names})"
    else:
        opening = f"{count(supplied)} of {count(asked)} answers were supplied, the model wrote the rest ({names})"
    return (
        f"{opening}; {count(used)} are used, {count(true)} of them true. Evidence is the log-odds of truth that a "
        f"linear probe reads from the model's states ({findings.site} output, position “{findings.position}”); key "
        "words are those of the question that say what is asked about; they are cut by taking attention to them away."
    )


def chart_words(findings: Findings, observations: Sequence[Reading]) -> str:
    """What the drawn ΔP lines say at the tested layer, and what the paper's rule is worth here."""
    told = []
    for dataset in findings.datasets:
        layer = share_layer(findings, dataset)
        q, a = (drawn_at(findings, dataset, "plain", group, layer) for group in GROUPS)
        name = f"{display_name(dataset)} " if len(findings.datasets) > 1 else ""
        told.append(f"{name}{points(q)} and {points(a)} (layer {layer})")
    lines = f"Under the plain rule the lines of Q- and A-Anchored answers lie at {'; '.join(told)}."
    return " ".join(filter(None, (lines, _confounded(findings, observations))))


def _confounded(findings: Findings, observations: Sequence[Reading]) -> str:
    """How far the plain groups are the true and the false answers under another name."""
    read = {
        one["dataset"]: one["verdict"]
        for one in observations
        if (one["assignment"], one["claim"]) == ("plain", "sorts_by_label")
    }
    found = {
        dataset: [_summary(findings, dataset, "true_share", group=group) for group in GROUPS]
        for dataset in findings.datasets
    }
    known = [name for name, shares in found.items() if all(shares)]
    by_label = [name for name in known if read.get(name) == "holds"]
    named = by_label or known
    if not named:
        return ""
    spans = [spanned((one.value for name in named if (one := found[name][place])), as_percent) for place in (0, 1)]
    where = f" on {listing([display_name(name) for name in named])}" if len(findings.datasets) > 1 else ""
    opening = f"The original rule is confounded{where}:" if by_label else f"Under the original rule{where}"
    return f"{opening} {spans[0]} of its Q-Anchored answers are true, {spans[1]} of its A-Anchored ones."


def drawn_at(findings: Findings, dataset: str, rule: str, group: str, layer: int | None) -> Estimate | None:
    """ΔP of the drawn line at one layer."""
    rows = findings.curves.filter(
        (pl.col("dataset") == dataset)
        & (pl.col("site") == findings.site)
        & (pl.col("position") == findings.position)
        & (pl.col("intervention") == "knockout")
        & (pl.col("assignment") == rule)
        & (pl.col("group") == group)
        & (pl.col("truth") == "all")
        & (pl.col("layer") == (-1 if layer is None else layer))
        & pl.col("delta_p").is_finite()
    )
    if not rows.height:
        return None
    row = rows.row(0, named=True)
    low, high = (float("nan") if row[end] is None else row[end] for end in ("ci_low", "ci_high"))
    return Estimate(row["delta_p"], low, high, row["n"], "bootstrap over groups")


def label_words(findings: Findings) -> str:
    """What wrong labels would do to the numbers."""
    known = {"supplied_labels", "asked"} <= set(findings.counts.columns)
    if known and 0 < int(findings.counts["asked"].sum()) <= int(findings.counts["supplied_labels"].sum()):
        return "All labels were supplied. Wrong ones pull an AUC towards 0.5; parts are ratios and hardly move."
    found = [nested_auc(findings, dataset) for dataset in findings.datasets]
    best = max((one.value for one in found if one is not None), default=None)
    told = (
        f"Labels are graded by rules; of answers checked by hand, {number(100 * WRONG_TRUE, 0)} % of those called true "
        f"and {number(100 * WRONG_FALSE, 0)} % of those called false were wrong. Random errors pull an AUC towards 0.5"
    )
    if best is not None:
        clean = min(1.0, 0.5 + (best - 0.5) / (1 - WRONG_TRUE - WRONG_FALSE))
        told += f" (so many would make {number(clean, 2)} look like {number(best, 2)})"
    return f"{told}; parts are ratios and hardly move."


def shift_words(findings: Findings) -> str:
    """How far the cut moves all verdicts one way, and what is left without that."""
    moved, left = [], []
    for dataset in findings.datasets:
        before, after = (_summary(findings, dataset, f"mean_probability_{when}") for when in ("before", "after"))
        flips, shuffled = (
            _summary(findings, dataset, name, "corrected", Q_ANCHORED) for name in ("group_share", "null_share")
        )
        name = f"{display_name(dataset)} " if len(findings.datasets) > 1 else ""
        moved.append(f"{name}{_number(before)} to {_number(after)}")
        left.append(f"{name}{short_percent(flips)} (with shuffled scores {short_percent(shuffled)})")
    return (
        f'The cut takes the mean probability of "true" from {", ".join(moved)}. With that shift taken out, these '
        f"shares of the items flip: {', '.join(left)}."
    )


def _summary(
    findings: Findings, dataset: str, quantity: str, rule: str = "plain", group: str | None = None
) -> Estimate | None:
    return summary_of(findings, dataset, quantity, assignment=rule, intervention="knockout", group=group)


def _number(found: Estimate | None) -> str:
    return MISSING if found is None else number(found.value, 2)


def _total(findings: Findings, column: str) -> int | None:
    return int(findings.counts[column].sum()) if column in findings.counts.columns else None
