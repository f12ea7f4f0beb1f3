"""Find a number in the tables of a run. A number that is not there is None, and the page says so."""

import math
from statistics import median_low

import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.stats.estimate import Estimate


def summary_of(
    findings: Findings,
    dataset: str,
    quantity: str,
    *,
    assignment: str | None = None,
    intervention: str | None = None,
    group: str | None = None,
) -> Estimate | None:
    """One quantity at the headline site; a column that is null in the table ("not applicable") fits every request."""
    fits = (pl.col("dataset") == dataset) & (pl.col("quantity") == quantity)
    asked = {
        "site": findings.site,
        "position": findings.position,
        "assignment": assignment,
        "intervention": intervention,
        "group": group,
    }
    for column, value in asked.items():
        if value is not None:
            fits &= pl.col(column).is_null() | (pl.col(column) == value)
    rows = findings.summary.filter(fits)
    if rows.height > 1:  # an exact row is better than one that fits because a column does not apply, or was not asked
        other = [pl.col(name).is_null() == (value is not None) for name, value in asked.items()]
        rows = rows.sort(pl.sum_horizontal(other), maintain_order=True)
    return _estimate(rows, "value")


def auc_of(
    findings: Findings,
    dataset: str,
    kind: str,
    layer: int | None,
    *,
    intervention: str = "clean",
    site: str | None = None,
) -> Estimate | None:
    """One AUC: of a probe at a layer and site, or of a baseline (no layer, no site)."""
    rows = findings.probe_scores.filter((pl.col("dataset") == dataset) & (pl.col("kind") == kind))
    if layer is None:
        return _estimate(rows.filter(pl.col("layer").is_null()), "auc")
    place = (pl.col("site") == (site or findings.site)) & (pl.col("position") == findings.position)
    return _estimate(rows.filter(place & (pl.col("layer") == layer) & (pl.col("intervention") == intervention)), "auc")


def headline_layer(findings: Findings, dataset: str) -> int | None:
    """The middle one of the folds' reference layers: where a single layer must stand for all folds."""
    layers = findings.reference_layers.get(dataset, ())
    return median_low(layers) if layers else None


def _estimate(rows: pl.DataFrame, column: str) -> Estimate | None:
    if not rows.height:
        return None
    row = rows.row(0, named=True)
    value = row[column]
    if value is None or not math.isfinite(value):
        return None
    low, high = (math.nan if row[name] is None else float(row[name]) for name in ("ci_low", "ci_high"))
    return Estimate(float(value), low, high, row["n"] or 0, row.get("method") or "")
