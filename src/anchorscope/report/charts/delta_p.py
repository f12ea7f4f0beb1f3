"""The ΔP chart on paper, under the paper's rule and corrected for the shift.

Cutting the question moves a probe's verdict towards "false" for every item, so the plain chart mixes that shift and the
loss of signal. The corrected panel removes one shift per layer and fold, without using the labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import polars as pl

from anchorscope.report.assignment_rules import PANEL_TITLES
from anchorscope.report.charts.layer_chart import LayerChart
from anchorscope.report.charts.line_chart import CURVE_COLUMNS, POINTS_NOTE, drawable, missing_groups
from anchorscope.report.charts.live_chart import spanned
from anchorscope.report.findings import Findings
from anchorscope.report.looks import Look, group_line, group_looks
from anchorscope.report.shares import share_layer


def delta_p_span(*curves: pl.DataFrame) -> tuple[float, float]:
    """One y axis for everything that can be drawn of these curves."""
    tables = [table.select("delta_p", "ci_low", "ci_high", "n", "n_groups", "truth") for table in curves]
    there = pl.col("delta_p").is_finite() & (pl.col("n") > 0)
    low, high = spanned(pl.concat(tables).filter(there), "delta_p", 10.0, (-10.0, 10.0), pl.col("truth") == "all")
    return max(-100.0, low), min(100.0, high)


@dataclass(frozen=True)
class GroupChart(LayerChart):
    """ΔP of both groups."""

    value: ClassVar[str] = "delta_p"
    label: ClassVar[str] = "ΔP"

    def looks(self) -> Mapping[str, Look]:
        """Both groups of every dataset, with the random control."""
        return group_looks(self.datasets)


@final
@dataclass(frozen=True)
class DeltaPChart(GroupChart):
    """The ΔP chart of one run, a panel per rule."""

    name: ClassVar[str] = "delta_p"

    @classmethod
    def from_findings(cls, findings: Findings) -> "DeltaPChart":
        """Choose the rows to draw: all items, knockout and random control, at the headline site and position."""
        rules = pl.col("assignment").is_in(list(PANEL_TITLES))
        wanted = rules & (pl.col("truth") == "all") & pl.col("intervention").is_in(["knockout", "random"])
        drawn = _drawn(findings).filter(wanted).select(CURVE_COLUMNS)
        drawn = drawn.sort("assignment", "intervention", "dataset", "group", "layer", descending=[True] + [False] * 4)
        layers = {name: findings.reference_layers.get(name, ()) for name in findings.datasets}
        folds = [layers[dataset].count(layer) for dataset, layer in drawn.select("dataset", "layer").iter_rows()]
        data = drawn.with_columns(pl.Series("reference_folds", folds, dtype=pl.Int64))
        knockout = drawn.filter(pl.col("intervention") == "knockout")
        empty = missing_groups(knockout, findings.datasets, PANEL_TITLES, "assignment")
        points = {name: share_layer(findings, name) for name in findings.datasets}
        return cls(
            data,
            (POINTS_NOTE, *empty),
            findings.model,
            findings.n_layers,
            findings.datasets,
            delta_p_span(findings.curves),
            layers,
            {name: at for name, at in points.items() if at is not None},
        )

    @classmethod
    def preliminary(
        cls, curves: pl.DataFrame, layers: Mapping[str, tuple[int, ...]], n_layers: int, note: str
    ) -> "DeltaPChart":
        """The chart of a run that is not finished: the curves of its place, plain and corrected, as far as they go."""
        drawn = (pl.col("truth") == "all") & pl.col("intervention").is_in(["knockout", "random"]) & (pl.col("n") > 0)
        data = curves.filter(drawn).select(CURVE_COLUMNS)
        data = data.with_columns(pl.lit(0, dtype=pl.Int64).alias("reference_folds"))
        title = f"{curves['model'][0]} (preliminary)"
        return cls(data, (note,), title, n_layers, tuple(layers), delta_p_span(curves), dict(layers), {})

    def panels(self) -> Mapping[str, str]:
        """The plain rule beside the corrected one."""
        return PANEL_TITLES

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """A panel per rule."""
        return pl.col("assignment"), group_line(self.datasets)


def _drawn(findings: Findings, curves: pl.DataFrame | None = None) -> pl.DataFrame:
    table = findings.curves if curves is None else curves
    return drawable(table, findings.site, findings.position).filter(pl.col("dataset").is_in(findings.datasets))
