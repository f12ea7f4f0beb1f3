"""The sentences of the run page that depend on the numbers, beside the card and the readings."""

import polars as pl

from anchorscope.report.findings import Findings, nested_auc, summary_of
from anchorscope.report.palette import A_ANCHORED, GROUPS, Q_ANCHORED, display_name
from anchorscope.report.shares import share_layer
from anchorscope.report.wording import MISSING, count, listing, number, points, short_percent
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


def chart_words(findings: Findings) -> list[tuple[str, str]]:
    """Per dataset, its name and what the drawn ΔP lines say at one layer, with what that is worth."""
    return [(display_name(dataset), _of_chart(findings, dataset)) for dataset in findings.datasets]


def _of_chart(findings: Findings, dataset: str) -> str:
    layer = share_layer(findings, dataset)
    q, a = (drawn_at(findings, dataset, "plain", group, layer) for group in GROUPS)
    true = [summary_of(findings, dataset, "true_share", assignment="plain", intervention="knockout", group=group)
            for group in (Q_ANCHORED, A_ANCHORED)]  # fmt: skip
    told = f"at layer {layer} the lines lie at {points(q)} (Q-Anchored) and {points(a)} (A-Anchored)."
    if not all(true):
        return told
    q_true, a_true = (short_percent(one) for one in true)
    gap = (true[0].value if true[0] else 0.0) - (true[1].value if true[1] else 0.0)
    confounded = "The original rule is confounded: " if gap > 0.5 else ""
    answers = f"{q_true} of its Q-Anchored answers are true, {a_true} of its A-Anchored ones."
    return f"{told} {confounded}{answers if confounded else answers[:1].upper() + answers[1:]}"


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


def shift_words(findings: Findings) -> list[tuple[str, str]]:
    """Per dataset, how far the cut moves all verdicts one way."""
    told = []
    for dataset in findings.datasets:
        before, after = (_summary(findings, dataset, f"mean_probability_{when}") for when in ("before", "after"))
        flips, shuffled = (_summary(findings, dataset, name, "corrected", Q_ANCHORED)
                           for name in ("group_share", "null_share"))  # fmt: skip
        told.append((display_name(dataset), (
            f'the cut takes the mean probability of "true" from {_number(before)} to {_number(after)}. With that '
            f"shift taken out, {short_percent(flips)} of the items flip; with shuffled scores "
            f"{short_percent(shuffled)} would."
        )))  # fmt: skip
    return told


def _summary(
    findings: Findings, dataset: str, quantity: str, rule: str = "plain", group: str | None = None
) -> Estimate | None:
    return summary_of(findings, dataset, quantity, assignment=rule, intervention="knockout", group=group)


def _number(found: Estimate | None) -> str:
    return MISSING if found is None else number(found.value, 2)


def _total(findings: Findings, column: str) -> int | None:
    return int(findings.counts[column].sum()) if column in findings.counts.columns else None
