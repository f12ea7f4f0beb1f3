"""What is left of the truth signal when the question is cut, free of thresholds and of groups.

`transfer` asks the probe that was trained on untouched states; it falls where the signal is lost and also where it is
merely written differently. `refit` trains a new probe on the states under the cut; what it still reads cannot come
from the tokens that were cut. The random control shows what cutting anything would do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.drawing import Legend, empty_panel, layer_axis, line_with_band, sheet, zero_line
from anchorscope.report.charts.probe_auc import SCORE_COLUMNS, panel_grid, panel_size
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name

# (intervention, kind) → legend, colour, dashes, marker
LINES: Mapping[tuple[str, str], tuple[str, str, tuple[int, tuple[float, ...]] | str, str]] = {
    ("clean", "transfer"): ("untouched", "#222222", "-", ""),
    ("random", "transfer"): ("random tokens cut, same probe", "#7a7a7a", (0, (1.0, 1.5)), ""),
    ("knockout", "refit"): ("question cut, probe trained again", "#2ca02c", (0, (5.0, 1.6)), "s"),
    ("knockout", "transfer"): ("question cut, same probe", "#d62728", "-", "o"),
}


@final
@dataclass(frozen=True)
class SurvivingSignalChart(Display):
    """AUC per layer at the headline site: untouched, and under the cuts."""

    model: str
    """Title of the chart."""
    n_layers: int
    """Length of the x axis."""
    datasets: tuple[str, ...]
    """One panel each."""
    site: str
    """The headline site, named in the title."""

    name: ClassVar[str] = "surviving_signal"

    @classmethod
    def from_findings(cls, findings: Findings) -> "SurvivingSignalChart":
        """Choose the four lines at the headline site and position."""
        here = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
        pair = pl.concat_str("intervention", pl.lit("/"), "kind").is_in(["/".join(key) for key in LINES])
        scored = pl.col("auc").is_not_null() & pl.col("auc").is_not_nan()
        data = findings.probe_scores.filter(here & pair & scored & pl.col("dataset").is_in(findings.datasets))
        data = data.select(SCORE_COLUMNS).sort("dataset", "intervention", "kind", "layer")
        notes = ("AUC = area under the ROC curve, out of fold; 0.5 is guessing. Bands: 95 % intervals.",)
        return cls(data, notes, findings.model, findings.n_layers, findings.datasets, findings.site)

    def draw(self) -> Figure:
        """One panel per dataset."""
        handles = [
            Line2D([], [], label=label, **_style(colour, dashes, marker))
            for key, (label, colour, dashes, marker) in LINES.items()
            if self._rows(self.data, key).height
        ]
        grid = panel_grid(len(self.datasets))
        legend = Legend(handles, 2 if grid[1] == 1 else 4, self.notes)
        page = sheet(f"{self.model}: what survives the cut ({self.site})", grid, panel_size(grid), legend)
        for axes, dataset in zip(page.panels, self.datasets, strict=False):
            zero_line(axes, 0.5)
            table = self.data.filter(pl.col("dataset") == dataset)
            if not table.height:
                empty_panel(axes, "no scores")
            for key, (_, colour, dashes, marker) in LINES.items():
                chosen = self._rows(table, key)
                if chosen.height:
                    line_with_band(axes, chosen, "auc", markevery=4, zorder=3, **_style(colour, dashes, marker))
            axes.set_title(display_name(dataset))
            layer_axis(axes, self.n_layers)
        for axes in page.panels[len(self.datasets) :]:
            axes.set_axis_off()
        for row in page.axes:
            row[0].set_ylabel("AUC")
        return page.figure

    @staticmethod
    def _rows(table: pl.DataFrame, key: tuple[str, str]) -> pl.DataFrame:
        return table.filter((pl.col("intervention") == key[0]) & (pl.col("kind") == key[1]))


def _style(colour: str, dashes: object, marker: str) -> dict[str, Any]:
    return {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.6, "markeredgewidth": 0.0}
