"""The sentences of the run page that depend on the numbers, beside the card and the readings."""

import polars as pl

from anchorscope.report.findings import Findings, nested_auc, summary_of
from anchorscope.report.palette import GROUPS, Q_ANCHORED, display_name
from anchorscope.report.shares import share_layer
from anchorscope.report.verdicts import LABEL_SORTING
from anchorscope.report.wording import MISSING, count, listing, number, points, short_percent, spanned
from anchorscope.stats.estimate import Estimate

WRONG_LABELS = 0.04
"""Share of wrong labels: precision 0.956 and recall 0.965 of the grading rules on answers that they had not seen
(docs/grading.md)."""


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
    place = f"A linear probe reads the {findings.site} output of every layer at the position “{findings.position}”"
    return f"{opening}; {count(used)} are used, {count(true)} of them true. {place}."


def chart_words(findings: Findings) -> str:
    """What the drawn ΔP lines say at the tested layer, and what the paper's rule is worth here."""
    told, true = [], {}
    for dataset in findings.datasets:
        layer = share_layer(findings, dataset)
        q, a = (drawn_at(findings, dataset, "plain", group, layer) for group in GROUPS)
        name = f"{display_name(dataset)} " if len(findings.datasets) > 1 else ""
        told.append(f"{name}{points(q)} and {points(a)} (layer {layer})")
        shares = [_summary(findings, dataset, "true_share", group=group) for group in GROUPS]
        if shares[0] and shares[1]:
            true[dataset] = (shares[0], shares[1])
    lines = f"The lines of Q- and A-Anchored answers lie at {'; '.join(told)}."
    return " ".join(filter(None, (lines, _confounded(findings, true))))


def _confounded(findings: Findings, true: dict[str, tuple[Estimate, Estimate]]) -> str:
    """How far the plain groups are the true and the false answers under another name."""
    sorted_by_label = [name for name, (q, a) in true.items() if q.value - a.value > LABEL_SORTING]
    if not true:
        return ""
    named = sorted_by_label or list(true)
    spans = [spanned((true[name][place].value for name in named), lambda value: f"{number(100 * value, 0)}\u00a0%")
             for place in (0, 1)]  # fmt: skip
    where = f" on {listing([display_name(name) for name in named])}" if len(findings.datasets) > 1 else ""
    opening = f"The original rule is confounded{where}:" if sorted_by_label else f"Under the original rule{where}"
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
        & (pl.col("variant").fill_null("") != "refit")
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
    found = [nested_auc(findings, dataset) for dataset in findings.datasets]
    known = [one.value for one in found if one is not None]
    best = max(known, default=None)
    start = (
        f"Labels are graded by rules; on answers checked by hand about {number(100 * WRONG_LABELS, 0)} % of such "
        "labels were wrong. Wrong labels pull an AUC towards 0.5"
    )
    if best is not None:
        clean = 0.5 + (best - 0.5) / (1 - 2 * WRONG_LABELS)
        start += f" (with that many, {number(best, 2)} stands for {number(clean, 2)})"
    return f"{start}; Λ is a ratio and hardly moves."


def shift_words(findings: Findings) -> str:
    """How far the cut moves all verdicts one way, and what is left without that."""
    told = []
    for dataset in findings.datasets:
        before, after = (_summary(findings, dataset, f"mean_probability_{when}") for when in ("before", "after"))
        flips, shuffled = (_summary(findings, dataset, name, "corrected", Q_ANCHORED)
                           for name in ("group_share", "null_share"))  # fmt: skip
        name = f"{display_name(dataset)} " if len(findings.datasets) > 1 else ""
        told.append((f"{name}{_number(before)} to {_number(after)}",
                     f"{name}{short_percent(flips)} ({short_percent(shuffled)})"))  # fmt: skip
    moved, left = (", ".join(part) for part in zip(*told, strict=True))
    return (f'The cut takes the mean probability of "true" from {moved}. With that shift taken out, so many items flip '
            f"(and would with shuffled scores): {left}.")  # fmt: skip


def _summary(
    findings: Findings, dataset: str, quantity: str, rule: str = "plain", group: str | None = None
) -> Estimate | None:
    return summary_of(findings, dataset, quantity, assignment=rule, intervention="knockout", group=group)


def _number(found: Estimate | None) -> str:
    return MISSING if found is None else number(found.value, 2)


def _total(findings: Findings, column: str) -> int | None:
    return int(findings.counts[column].sum()) if column in findings.counts.columns else None
