"""Is the trough made by the choice of the layer that sorts the items, or by the probe that both sorts and measures?

Sorting by flips at l* deepens the curve near l*, whatever the model does. Three panels draw the plain chart with the
sorting layer moved a quarter of the depth down, not at all, and a quarter up: a trough that stays where it was is not
made by the choice. The fourth panel sorts with one probe and measures with another that never saw the same items
(cross-fitted).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import polars as pl
from matplotlib.figure import Figure

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Legend
from anchorscope.report.charts.line_chart import (
    CURVE_COLUMNS,
    POINTS_NOTE,
    Panel,
    delta_p_axes,
    drawable,
    group_handles,
    group_lines,
    line_chart,
    missing_groups,
    reference_handle,
)
from anchorscope.report.findings import Findings
from anchorscope.report.palette import DatasetStyle, dataset_styles

CROSS_FITTED = "cross-fitted"
_PANEL_INCHES = (2.75, 2.7)


@final
@dataclass(frozen=True)
class ReferenceLayerChart(Display):
    """The plain ΔP chart for three sorting layers, and the cross-fitted one."""

    model: str
    """Title of the chart."""
    n_layers: int
    """Length of the x axis."""
    styles: Mapping[str, DatasetStyle]
    """Colours and marker of every dataset, in order."""
    reference_layers: Mapping[str, tuple[int, ...]]
    """Per dataset, l* of every fold, before it is moved."""
    panels: Mapping[str, str]
    """Panel key (`panel` in the data) → title."""
    shifts: Mapping[str, int]
    """Panel key → layers that l* was moved by."""

    name: ClassVar[str] = "delta_p_reference"

    @classmethod
    def from_findings(cls, findings: Findings) -> "ReferenceLayerChart":
        """Join the moved plain curves and the cross-fitted ones, one panel each."""
        known = pl.col("dataset").is_in(findings.datasets)
        moved = drawable(findings.reference_curves, findings.site, findings.position).filter(known)
        moved = moved.select(*CURVE_COLUMNS, pl.col("shift").cast(pl.Int64), panel=pl.format("shift {}", "shift"))
        wanted = known & (pl.col("assignment") == CROSS_FITTED) & (pl.col("truth") == "all")
        crossed = drawable(findings.curves, findings.site, findings.position).filter(
            wanted & (pl.col("intervention") == "knockout")
        )
        crossed = crossed.select(*CURVE_COLUMNS, pl.lit(0, dtype=pl.Int64).alias("shift"), panel=pl.lit(CROSS_FITTED))
        data = pl.concat([moved, crossed], how="vertical_relaxed").sort("shift", "panel", "dataset", "group", "layer")
        shifts = {f"shift {shift}": int(shift) for shift in sorted(moved["shift"].unique())}
        panels = {key: shift_title(shift) for key, shift in shifts.items()}
        if crossed.height:
            panels[CROSS_FITTED] = "cross-fitted"
            shifts[CROSS_FITTED] = 0
        notes = (POINTS_NOTE, *missing_groups(data, findings.datasets, panels, "panel"))
        colours, layers = dataset_styles(findings.datasets), findings.reference_layers
        return cls(data, notes, findings.model, findings.n_layers, colours, layers, panels, shifts)

    def draw(self) -> Figure:
        """One row of panels with a shared y axis."""
        handles = [*group_handles(self.styles, self.data), *([reference_handle()] if self.reference_layers else [])]
        panels = []
        for key, title in (self.panels or {"": "not available"}).items():
            rows = self.data.filter(pl.col("panel") == key)
            moved = {} if key == CROSS_FITTED else self._moved(key)  # there every half has an l* of its own
            empty = "" if rows.height else "no items in either group"
            panels.append(Panel(title, group_lines(rows, self.styles), empty, (), moved, self.styles))
        title = f"{self.model}: which layer and which probe sorts"
        axes_of = delta_p_axes(self.n_layers, mark_rows=len(self.styles))
        legend = Legend(handles, 5 if len(self.styles) < 3 else 4, self.notes)
        return line_chart(title, panels, (1, len(panels)), _PANEL_INCHES, axes_of, legend)

    def _moved(self, key: str) -> dict[str, tuple[int, ...]]:
        """The sorting layers of one panel; a moved layer stays within the model."""
        shift, last = self.shifts.get(key, 0), self.n_layers - 1
        return {d: tuple(min(max(x + shift, 0), last) for x in layers) for d, layers in self.reference_layers.items()}


def shift_title(shift: int) -> str:
    """The sorting layer in words."""
    if shift == 0:
        return "sorted at l*"
    return f"sorted at l* {'+' if shift > 0 else '−'} {abs(shift)} layers"
