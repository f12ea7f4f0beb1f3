"""The ΔP charts on paper: under every rule, split by truth, and with the layer that sorts the items moved.

Cutting the question moves a probe's verdict towards "false" for every item, so the plain chart shows that shift and the
loss of signal mixed together. The corrected panel takes one shift per layer and fold out, with the labels unused.

If the plain rule only sorted items by label, its Q-Anchored group would hold hardly any false answers and its
A-Anchored group hardly any true ones: the second figure draws them apart. Sorting by flips at l* deepens the curve near
l*, whatever the model does: the third draws the plain chart with the sorting layer a quarter of the depth lower and
higher, where a trough that stays is not made by the choice, and one sorted by one probe and measured by another.
All three have the y axis of the page's chart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, final

import polars as pl

from anchorscope.report.assignment_rules import PANEL_TITLES
from anchorscope.report.charts.layer_chart import LayerChart
from anchorscope.report.charts.line_chart import CURVE_COLUMNS, POINTS_NOTE, drawable, missing_groups
from anchorscope.report.charts.live_chart import spanned
from anchorscope.report.findings import Findings
from anchorscope.report.looks import Look, group_line, group_looks
from anchorscope.report.palette import GROUPS, display_name
from anchorscope.report.shares import share_layer

CROSS_FITTED = "cross-fitted"
TRUTHS = {"true": "true answers", "false": "false answers"}


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


@final
@dataclass(frozen=True)
class TruthSplitChart(GroupChart):
    """ΔP of each group, its true and its false answers apart, plain and corrected; a row of panels per dataset."""

    name: ClassVar[str] = "truth_split"
    inches: ClassVar[tuple[float, float]] = (4.35, 2.9)

    @classmethod
    def from_findings(cls, findings: Findings) -> "TruthSplitChart":
        """Choose the knockout curves of true and of false answers."""
        wanted = pl.col("assignment").is_in(list(PANEL_TITLES)) & pl.col("truth").is_in(list(TRUTHS))
        data = _drawn(findings).filter(wanted & (pl.col("intervention") == "knockout")).select(CURVE_COLUMNS)
        data = data.sort("dataset", "assignment", "group", "truth", "layer")
        notes = (POINTS_NOTE, "Filled markers: true answers; open ones: false. At the foot: items behind each line.")
        title = f"{findings.model}: the groups split by truth"
        span = delta_p_span(findings.curves)
        return cls(data, notes, title, findings.n_layers, findings.datasets, span, {}, {})

    def looks(self) -> Mapping[str, Look]:
        """True answers filled and wide, false ones open and narrow."""
        groups = {name: look for name, look in group_looks(self.datasets).items() if not look.quiet}
        return {
            f"{name}{truth}": replace(
                look,
                entry=f"{look.about['group']}, {words}",
                marker="o",
                hollow=truth == "false",
                width=2.0 if truth == "true" else 1.4,
            )
            for name, look in groups.items()
            for truth, words in TRUTHS.items()
        }

    def panels(self) -> Mapping[str, str]:
        """A row per dataset, a column per rule."""
        return {
            f"{dataset}/{rule}": f"{display_name(dataset)}, {title}"
            for dataset in self.datasets
            for rule, title in PANEL_TITLES.items()
        }

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """A panel per dataset and rule."""
        return pl.concat_str("dataset", pl.lit("/"), "assignment"), group_line(self.datasets) + pl.col("truth")

    def grid(self, panels: int) -> tuple[int, int]:
        """A row per dataset."""
        return len(self.datasets), 2

    def notes_of(self, panel: str, rows: pl.DataFrame) -> str:
        """Items behind each line."""
        counted = {(group, truth): n for group, truth, n in rows.select("group", "truth", "n").iter_rows()}
        told = (f"{group[0]} {truth} {counted.get((group, truth), 0)}" for group in GROUPS for truth in TRUTHS)
        return f"items: {', '.join(told)}"


@final
@dataclass(frozen=True)
class ReferenceLayerChart(GroupChart):
    """The plain ΔP chart for three sorting layers, and the cross-fitted one."""

    name: ClassVar[str] = "delta_p_reference"
    inches: ClassVar[tuple[float, float]] = (2.75, 2.7)

    @classmethod
    def from_findings(cls, findings: Findings) -> "ReferenceLayerChart":
        """Join the moved plain curves and the cross-fitted ones, one panel each."""
        moved = _drawn(findings, findings.reference_curves)
        moved = moved.select(*CURVE_COLUMNS, pl.col("shift").cast(pl.Int64), panel=pl.format("shift {}", "shift"))
        wanted = (pl.col("assignment") == CROSS_FITTED) & (pl.col("truth") == "all")
        crossed = _drawn(findings).filter(wanted & (pl.col("intervention") == "knockout"))
        crossed = crossed.select(*CURVE_COLUMNS, pl.lit(0, dtype=pl.Int64).alias("shift"), panel=pl.lit(CROSS_FITTED))
        data = pl.concat([moved, crossed], how="vertical_relaxed").sort("shift", "panel", "dataset", "group", "layer")
        title = f"{findings.model}: which layer and which probe sorts"
        span = delta_p_span(findings.curves, findings.reference_curves)
        layers = dict(findings.reference_layers)
        chart = cls(data, (POINTS_NOTE,), title, findings.n_layers, findings.datasets, span, layers, {})
        return replace(chart, notes=(POINTS_NOTE, *missing_groups(data, findings.datasets, chart.panels(), "panel")))

    def panels(self) -> Mapping[str, str]:
        """From the lowest sorting layer to the highest, then the cross-fitted chart."""
        shifts = sorted(self.data.filter(pl.col("panel") != CROSS_FITTED)["shift"].unique())
        crossed = {CROSS_FITTED: CROSS_FITTED} if self.data["panel"].is_in([CROSS_FITTED]).any() else {}
        return {f"shift {shift}": shift_title(shift) for shift in shifts} | crossed

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """A panel per sorting layer."""
        return pl.col("panel"), group_line(self.datasets)

    def moved(self, panel: str) -> Mapping[str, tuple[int, ...]]:
        """A moved layer stays within the model; of the cross-fitted chart every half has an l* of its own."""
        if not panel.startswith("shift"):
            return {}
        shift, last = int(panel.split()[1]), self.n_layers - 1
        return {name: tuple(min(max(x + shift, 0), last) for x in layers) for name, layers in self.layers.items()}


def shift_title(shift: int) -> str:
    """The sorting layer in words."""
    return f"sorted at l* {'+' if shift > 0 else '−'} {abs(shift)} layers" if shift else "sorted at l*"


def _drawn(findings: Findings, curves: pl.DataFrame | None = None) -> pl.DataFrame:
    table = findings.curves if curves is None else curves
    return drawable(table, findings.site, findings.position).filter(pl.col("dataset").is_in(findings.datasets))
