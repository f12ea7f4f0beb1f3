"""The chart: mean ΔP per layer of Q-Anchored and A-Anchored items, as in the paper, corrected, and by what is retained.

Cutting the question moves a probe's verdict towards "false" for every item, so the plain chart shows that shift and the
loss of signal mixed together. The second panel takes one shift per layer and fold out, with the labels unused; what is
left of the gap there is what the first can be trusted for. In the third a probe that was trained on the cut states both
sorts and measures: it knows no shift, and an item that it can no longer tell from its opposite has lost its ground.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import polars as pl
from matplotlib.figure import Figure

from anchorscope.report.assignment_rules import PANEL_TITLES, RETAINED_TITLE
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
    random_handle,
    random_lines,
    reference_handle,
)
from anchorscope.report.findings import Findings
from anchorscope.report.palette import DatasetStyle, dataset_styles

_PANEL_INCHES = (4.35, 3.3)


@final
@dataclass(frozen=True)
class DeltaPChart(Display):
    """The ΔP chart of one run, a panel per rule."""

    model: str
    """Title of the chart."""
    n_layers: int
    """Length of the x axis."""
    styles: Mapping[str, DatasetStyle]
    """Colours and marker of every dataset, in order."""
    reference_layers: Mapping[str, tuple[int, ...]]
    """Per dataset, l* of every fold."""

    name: ClassVar[str] = "delta_p"

    @property
    def panels(self) -> dict[str, str]:
        """Titles of the panels by assignment; runs without probes that were trained again have two."""
        return PANEL_TITLES | (RETAINED_TITLE if self.data["assignment"].is_in(list(RETAINED_TITLE)).any() else {})

    @classmethod
    def from_findings(cls, findings: Findings) -> "DeltaPChart":
        """The chart of a run at its headline site and position."""
        return cls.from_curves(
            findings.curves,
            model=findings.model,
            n_layers=findings.n_layers,
            datasets=findings.datasets,
            site=findings.site,
            position=findings.position,
            reference_layers=findings.reference_layers,
        )

    @classmethod
    def from_curves(
        cls,
        curves: pl.DataFrame,
        *,
        model: str,
        n_layers: int,
        datasets: tuple[str, ...],
        site: str,
        position: str,
        reference_layers: Mapping[str, tuple[int, ...]],
    ) -> "DeltaPChart":
        """Choose the rows to draw: all items, knockout and random control, all panels."""
        sees_no_shift = pl.col("assignment").is_in(list(RETAINED_TITLE)) & (pl.col("variant") == "refit")
        wanted = (
            (pl.col("assignment").is_in(list(PANEL_TITLES)) | sees_no_shift)
            & (pl.col("truth") == "all")
            & pl.col("intervention").is_in(["knockout", "random"])
            & pl.col("dataset").is_in(datasets)
        )
        drawn = drawable(curves, site, position).filter(wanted).select(CURVE_COLUMNS)
        drawn = drawn.sort("assignment", "intervention", "dataset", "group", "layer", descending=[True] + [False] * 4)
        folds = [layers.count(layer) for layer, layers in _marks(drawn, reference_layers)]
        data = drawn.with_columns(pl.Series("reference_folds", folds, dtype=pl.Int64))
        empty = missing_groups(drawn.filter(pl.col("intervention") == "knockout"), datasets, PANEL_TITLES, "assignment")
        return cls(data, (POINTS_NOTE, *empty), model, n_layers, dataset_styles(datasets), reference_layers)

    def draw(self) -> Figure:
        """Draw all panels with a shared y axis, and one legend below."""
        knockout = self.data.filter(pl.col("intervention") == "knockout")
        random = self.data.filter(pl.col("intervention") == "random")
        handles = [*group_handles(self.styles, knockout), *([random_handle()] if random.height else [])]
        handles += [reference_handle()] if self.reference_layers else []
        panels = []
        for assignment, title in self.panels.items():
            here = pl.col("assignment") == assignment
            mine = knockout.filter(here)
            lines = [*random_lines(random.filter(here)), *group_lines(mine, self.styles)]
            empty = "" if mine.height else "no items in either group"
            panels.append(Panel(title, lines, empty, (), self.reference_layers, self.styles))
        axes_of = delta_p_axes(self.n_layers, mark_rows=len(self.styles))
        legend = Legend(handles, 3 if len(self.styles) == 3 else 4, self.notes)
        return line_chart(self.model, panels, (1, len(panels)), _PANEL_INCHES, axes_of, legend)


def _marks(drawn: pl.DataFrame, layers: Mapping[str, tuple[int, ...]]) -> list[tuple[int, tuple[int, ...]]]:
    """Every drawn row's layer with the reference layers of its dataset."""
    return [(row["layer"], layers.get(row["dataset"], ())) for row in drawn.select("layer", "dataset").to_dicts()]
