"""The paper's chart: ΔP per layer in one panel, a colour per dataset, Q-Anchored solid, A-Anchored dashed, with bands.

Cutting the question moves a probe's verdict towards "false" for every item, so the plain rule mixes that shift and the
loss of signal. The corrected rule removes one shift per layer and fold, without using the labels.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, final

import polars as pl

from anchorscope.errors import UserError
from anchorscope.report.assignment_rules import CHART_TITLES
from anchorscope.report.charts.layer_chart import LayerChart
from anchorscope.report.charts.line_chart import CURVE_COLUMNS, POINTS_NOTE, drawable, missing_groups
from anchorscope.report.findings import Findings
from anchorscope.report.looks import Look, group_line, group_looks
from anchorscope.report.shares import share_layer
from anchorscope.stats.curves import FEWEST_GROUPS

LEAST_PANEL = 1.0  # inch
_DRAWN = (pl.col("truth") == "all") & pl.col("intervention").is_in(["knockout", "random"])


def delta_p_span(*curves: pl.DataFrame) -> tuple[float, float]:
    """One y axis for everything that can be drawn of these curves; lines of few items do not stretch it."""
    tables = [table.select("delta_p", "ci_low", "ci_high", "n", "n_groups", "truth") for table in curves]
    there = pl.concat(tables).filter(pl.col("delta_p").is_finite() & (pl.col("n") > 0) & (pl.col("truth") == "all"))
    enough = there.filter(pl.coalesce("n_groups", "n") >= FEWEST_GROUPS)
    rows = enough if enough.height else there
    numbers = pl.concat([rows[name].cast(pl.Float64) for name in ("delta_p", "ci_low", "ci_high")])
    numbers = numbers.drop_nulls().drop_nans()
    low, high = min([-10.0, *numbers]), max([10.0, *numbers])
    return max(-100.0, 10 * math.floor(low / 10)), min(100.0, 10 * math.ceil(high / 10))


@final
@dataclass(frozen=True)
class DeltaPChart(LayerChart):
    """ΔP of both groups of every dataset under one rule."""

    rule: str
    panel: tuple[float, float] = (5.4, 3.3)
    """Width and height of the panel in inches."""

    value: ClassVar[str] = "delta_p"
    label: ClassVar[str] = "ΔP"

    @property
    def name(self) -> str:  # type: ignore[override]  # each rule has its own file
        """Of its files in figures/."""
        return self.file_of(self.rule)

    @staticmethod
    def file_of(rule: str) -> str:
        """The name of a rule's chart: the paper's rule has the short one."""
        return "delta_p" if rule == "plain" else f"delta_p_{rule}"

    @classmethod
    def from_findings(cls, findings: Findings, rule: str = "plain") -> "DeltaPChart":
        """Choose the rows to draw: all items, knockout and random control, at the headline site and position."""
        wanted = _DRAWN & (pl.col("assignment") == rule) & pl.col("dataset").is_in(findings.datasets)
        curves = drawable(findings.curves, findings.site, findings.position)
        drawn = curves.filter(wanted).select(CURVE_COLUMNS).sort("intervention", "dataset", "group", "layer")
        layers = {name: findings.reference_layers.get(name, ()) for name in findings.datasets}
        folds = [layers[dataset].count(layer) for dataset, layer in drawn.select("dataset", "layer").iter_rows()]
        knockout = drawn.filter(pl.col("intervention") == "knockout")
        empty = missing_groups(knockout, findings.datasets, {rule: CHART_TITLES[rule]}, "assignment")
        points = {name: share_layer(findings, name) for name in findings.datasets}
        return cls(
            drawn.with_columns(pl.Series("reference_folds", folds, dtype=pl.Int64)),
            (POINTS_NOTE, *empty),
            findings.model,
            findings.n_layers,
            findings.datasets,
            delta_p_span(findings.curves),
            layers,
            {name: at for name, at in points.items() if at is not None},
            rule,
        )

    @classmethod
    def preliminary(
        cls, curves: pl.DataFrame, layers: Mapping[str, tuple[int, ...]], n_layers: int, note: str
    ) -> "DeltaPChart":
        """The chart of a run that is not finished: the plain curves of its place, as far as they go."""
        data = curves.filter(_DRAWN & (pl.col("n") > 0) & (pl.col("assignment") == "plain")).select(CURVE_COLUMNS)
        data = data.with_columns(pl.lit(0, dtype=pl.Int64).alias("reference_folds"))
        title = f"{curves['model'][0]} (preliminary)"
        return cls(data, (note,), title, n_layers, tuple(layers), delta_p_span(curves), dict(layers), {}, "plain")

    def looks(self) -> Mapping[str, Look]:
        """Both groups of every dataset, with the random control."""
        return group_looks(self.datasets)

    def panels(self) -> Mapping[str, str]:
        """One."""
        return {self.rule: CHART_TITLES[self.rule] if self.rule != "plain" else ""}

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """The rule is the panel."""
        return pl.col("assignment"), group_line(self.datasets)

    def panel_size(self) -> tuple[float, float]:
        """As wide and high as wanted."""
        return self.panel

    def with_size(self, width: float, height: float) -> "DeltaPChart":
        """The chart in a figure of this size in inches; the panel gets what legend and notes leave."""
        wide = replace(self, panel=(width - (self.plot().get_size_inches()[0] - self.panel[0]), self.panel[1]))
        rest = wide.plot().get_size_inches()[1] - wide.panel[1]
        least = min(wide.panel[0], height - rest)
        if least < LEAST_PANEL:
            raise UserError(f"A figure of {width:g} x {height:g} inches has no room for its panel; take a larger one.")
        return replace(wide, panel=(wide.panel[0], height - rest))
