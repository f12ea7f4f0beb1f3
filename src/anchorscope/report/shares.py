"""The question share Λ of a run, looked up: along the layers, at one layer, and what was tested of it.

Λ is the part of the probe's evidence that the states no longer explain once the question's key words are cut. Every
number of it is read at the headline site and position; `share_layer` is the one layer per dataset at which it is
tested. Runs that were made before it was measured have none, and everything here then answers None or with no rows.
"""

import math
from dataclasses import dataclass

import polars as pl

from anchorscope.report.findings import Findings, auc_of, headline_layer, nested_auc
from anchorscope.report.verdicts import p_from_interval
from anchorscope.stats.estimate import Estimate

CONTROLS = {
    "random": "random words cut",
    "none": "nothing cut (floor of estimation)",
    "permuted": "labels permuted within relations",
    "random-weights": "random weights of the same shape",
}
"""What stands beside the knockout's share, in words."""
PROBE, WORDS = "probe", "words + confidence"
"""Two that read truth, as question_share_tests.csv names them."""
LOWER, MIDDLE, UPPER = "lower third", "middle third", "upper third"
"""Items sorted by the share that the cut state predicts for them, out of fold."""


@dataclass(frozen=True)
class ShareResult:
    """One row of question_share_tests.csv."""

    estimate: Estimate
    """The number with its interval."""
    p_value: float
    """As the run tested it, or from the interval; NaN where neither is known."""
    p_from_interval: bool
    """Whether the run gave none."""
    layer: int | None
    """Where it was read."""
    group: str
    """What it is about, where the quantity alone does not say."""


def has_shares(findings: Findings) -> bool:
    """Whether the run measured the question share at the headline place."""
    return bool(share_rows(findings).height)


def share_rows(
    findings: Findings,
    dataset: str | None = None,
    intervention: str | None = None,
    group: str | None = None,
    truth: str | None = None,
) -> pl.DataFrame:
    """Rows of the headline place that have a value, by layer; None asks for all."""
    fits = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    fits &= pl.col("share").is_finite() & pl.col("dataset").is_in(list(findings.datasets))
    asked = {"dataset": dataset, "intervention": intervention, "group": group, "truth": truth}
    for column, value in asked.items():
        if value is not None:
            fits &= pl.col(column) == value
    return findings.question_share.filter(fits).sort("layer", maintain_order=True)


def share_at(
    findings: Findings,
    dataset: str,
    layer: int | None,
    intervention: str = "knockout",
    group: str = "all",
    truth: str = "all",
) -> Estimate | None:
    """The share of one set of items at one layer."""
    if layer is None:
        return None
    rows = share_rows(findings, dataset, intervention, group, truth).filter(pl.col("layer") == layer)
    return _estimate(rows.row(0, named=True), "share") if rows.height else None


def share_layer(findings: Findings, dataset: str) -> int | None:
    """The layer at which the share is tested; where no test names one, the middle one of the reference layers."""
    layers = _tests(findings, dataset).filter(pl.col("layer").is_not_null())["layer"]
    return int(layers[0]) if len(layers) else headline_layer(findings, dataset)


def results_of(findings: Findings, dataset: str, quantity: str) -> list[ShareResult]:
    """All rows of a quantity, in file order."""
    rows = _tests(findings, dataset).filter((pl.col("quantity") == quantity) & pl.col("value").is_finite())
    return [_tested(row) for row in rows.iter_rows(named=True)]


def result_of(findings: Findings, dataset: str, quantity: str, *groups: str) -> ShareResult | None:
    """The row of a quantity: of the first of these groups that has one, or its first."""
    found = results_of(findings, dataset, quantity)
    named = [one for group in groups for one in found if one.group == group]
    return next(iter(named or ([] if groups else found)), None)


def truth_readers(findings: Findings, dataset: str) -> dict[str, Estimate]:
    """AUC of the probe, then of what may read truth without the model's understanding, by name.

    The run's own null experiments where they were made. The nested probe, and words with confidence, every run has.
    """
    found = {one.group: one.estimate for one in results_of(findings, dataset, "auc")}
    known = {PROBE: nested_auc(findings, dataset), WORDS: auc_of(findings, dataset, "words+confidence", None)}
    for name, one in known.items():
        if one is not None and (name not in found or math.isnan(found[name].ci_low)):
            found[name] = one
    return {name: found[name] for name in sorted(found, key=lambda name: name != PROBE)}


def _tests(findings: Findings, dataset: str) -> pl.DataFrame:
    here = pl.lit(True)
    for column, value in (("site", findings.site), ("position", findings.position)):
        here &= pl.col(column).is_null() | (pl.col(column) == value)
    return findings.question_share_tests.filter(here & (pl.col("dataset") == dataset))


def _tested(row: dict[str, object]) -> ShareResult:
    found = _estimate(row, "value")
    told = row["p_value"]
    given = isinstance(told, float) and not math.isnan(told)
    p = float(told) if isinstance(told, float) and given else p_from_interval(found)
    layer = row["layer"]
    return ShareResult(found, p, not given, layer if isinstance(layer, int) else None, str(row["group"] or ""))


def _estimate(row: dict[str, object], column: str) -> Estimate:
    value, low, high = (
        float(found) if isinstance(found := row[name], int | float) else math.nan
        for name in (column, "ci_low", "ci_high")
    )
    n = row["n"]
    return Estimate(value, low, high, n if isinstance(n, int) else 0, str(row["method"] or ""))
