"""AUC per layer: how well a probe tells true from false answers, and what is left of that when the question is cut.

A probe's AUC means little alone: the relation asked for, the words, or the model's own confidence may predict truth as
well. So every panel of the first chart carries these baselines as level lines, and the AUC within relations, where a
probe cannot gain by knowing which relations are easy.

The second chart needs no threshold and no groups. `transfer` asks the probe that was trained on untouched states; it
falls where the signal is lost and also where it is merely written differently. `refit` trains a new probe on the states
under the cut; what it still reads cannot come from the tokens that were cut. The random control shows what cutting
anything would do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.layout import Legend
from anchorscope.report.charts.line_chart import Line, Panel, auc_axes, line_chart
from anchorscope.report.findings import Findings
from anchorscope.report.palette import SITE_COLOURS, display_name

BASELINES: Mapping[str, str] = {
    "relation-only": "relation only",
    "words": "words of question and answer",
    "confidence-mean": "model's confidence, mean",
    "confidence-min": "model's confidence, minimum",
}
SCORE_COLUMNS = ("dataset", "intervention", "kind", "site", "layer", "auc", "ci_low", "ci_high", "n")

_SITE_MARKERS = {"attention": "s", "mlp": "o", "residual": "^"}
_BASELINE_LINES: Mapping[str, tuple[str, tuple[int, tuple[float, ...]]]] = {
    "relation-only": ("#7f7f7f", (0, (1.0, 1.6))),
    "words": ("#8c564b", (0, (5.0, 2.0))),
    "confidence-mean": ("#9467bd", (0, (5.0, 1.6, 1.0, 1.6))),
    "confidence-min": ("#e377c2", (0, (3.0, 1.2, 1.0, 1.2, 1.0, 1.2))),
}


def panel_grid(datasets: int) -> tuple[int, int]:
    """Rows and columns for one panel per dataset; three columns at most, so that a page can hold them."""
    columns = 2 if datasets == 4 else min(3, datasets)
    return math.ceil(datasets / columns), columns


def panel_size(grid: tuple[int, int]) -> tuple[float, float]:
    """Inches of one panel: a lone one is wider, three in a row are narrower."""
    return {1: 6.2, 2: 4.35, 3: 3.6}[grid[1]], 3.0


@final
@dataclass(frozen=True)
class ProbeAucChart(Display):
    """AUC per layer and site of the clean probes, with the baselines."""

    model: str
    """Title of the chart."""
    n_layers: int
    """Length of the x axis."""
    datasets: tuple[str, ...]
    """One panel each."""
    site: str
    """The site whose AUC within relations is drawn."""

    name: ClassVar[str] = "probe_auc"

    @classmethod
    def from_findings(cls, findings: Findings) -> "ProbeAucChart":
        """Choose the clean probes of all sites, the headline site's AUC within relations, and the baselines."""
        kind, site, position = pl.col("kind"), pl.col("site"), pl.col("position")
        here = position.is_null() | (position == findings.position)
        probes = (kind == "transfer") & (pl.col("intervention") == "clean") & site.is_not_null()
        within = (kind == "within-relation") & (site.is_null() | (site == findings.site))
        wanted = here & (probes | (within & (pl.col("intervention") == "clean")) | kind.is_in(list(BASELINES)))
        scored = pl.col("auc").is_not_null() & pl.col("auc").is_not_nan()
        data = findings.probe_scores.filter(wanted & scored & pl.col("dataset").is_in(findings.datasets))
        data = data.select(SCORE_COLUMNS).sort("dataset", "kind", "site", "layer", maintain_order=True)
        notes = ("AUC = area under the ROC curve, out of fold; 0.5 is guessing. Bands: 95 % intervals.",)
        return cls(data, notes, findings.model, findings.n_layers, findings.datasets, findings.site)

    def draw(self) -> Figure:
        """One panel per dataset with all lines, one legend below."""
        grid = panel_grid(len(self.datasets))
        legend = Legend(self._handles(), {1: 2, 2: 4, 3: 5}[grid[1]], self.notes)
        panels = [self._panel(dataset) for dataset in self.datasets]
        title = f"{self.model}: telling true from false answers"
        return line_chart(title, panels, grid, panel_size(grid), auc_axes(self.n_layers), legend)

    def _panel(self, dataset: str) -> Panel:
        table = self.data.filter(pl.col("dataset") == dataset)
        levels: list[tuple[float, dict[str, Any]]] = [
            (height, {"color": colour, "linestyle": dashes, "linewidth": 1.3, "zorder": 2})
            for kind, (colour, dashes) in _BASELINE_LINES.items()
            for height in table.filter(pl.col("kind") == kind)["auc"]
        ]
        within, above = table.filter(pl.col("kind") == "within-relation"), {"zorder": 2.5} | _within_style()
        levels += [(height, above) for height in within.filter(pl.col("layer").is_null())["auc"]]
        lines = [Line(within.filter(pl.col("layer").is_not_null()).sort("layer"), above, band=False)]
        for site in self._sites():
            rows = table.filter((pl.col("kind") == "transfer") & (pl.col("site") == site))
            if rows.height:
                lines.append(Line(rows, {"markevery": 4, "zorder": 3} | _site_style(site)))
        return Panel(display_name(dataset), lines, "" if table.height else "no scores", levels)

    def _sites(self) -> list[str]:
        return sorted(self.data.filter(pl.col("kind") == "transfer")["site"].unique().to_list())

    def _handles(self) -> list[Line2D]:
        handles = [Line2D([], [], label=f"probe at {site}", **_site_style(site)) for site in self._sites()]
        kinds = set(self.data["kind"])
        if "within-relation" in kinds:
            handles.append(Line2D([], [], label=f"probe at {self.site}, within relations", **_within_style()))
        for kind, (colour, dashes) in _BASELINE_LINES.items():
            if kind in kinds:
                handles.append(Line2D([], [], color=colour, linestyle=dashes, linewidth=1.3, label=BASELINES[kind]))
        return handles


def _site_style(site: str) -> dict[str, Any]:
    colour, marker = SITE_COLOURS.get(site, "#17becf"), _SITE_MARKERS.get(site, "D")
    return {"color": colour, "marker": marker, "markersize": 3.6, "markeredgewidth": 0.0}


def _within_style() -> dict[str, Any]:
    return {"color": "#333333", "linestyle": (0, (2.0, 1.2)), "linewidth": 1.4}


# (intervention, kind) → legend, colour, dashes, marker
SURVIVING_LINES: Mapping[tuple[str, str], tuple[str, str, tuple[int, tuple[float, ...]] | str, str]] = {
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
        pair = pl.concat_str("intervention", pl.lit("/"), "kind").is_in(["/".join(key) for key in SURVIVING_LINES])
        scored = pl.col("auc").is_not_null() & pl.col("auc").is_not_nan()
        data = findings.probe_scores.filter(here & pair & scored & pl.col("dataset").is_in(findings.datasets))
        data = data.select(SCORE_COLUMNS).sort("dataset", "intervention", "kind", "layer")
        notes = ("AUC = area under the ROC curve, out of fold; 0.5 is guessing. Bands: 95 % intervals.",)
        return cls(data, notes, findings.model, findings.n_layers, findings.datasets, findings.site)

    def draw(self) -> Figure:
        """One panel per dataset."""
        handles = [
            Line2D([], [], label=label, **_surviving_style(colour, dashes, marker))
            for key, (label, colour, dashes, marker) in SURVIVING_LINES.items()
            if self._rows(self.data, key).height
        ]
        grid = panel_grid(len(self.datasets))
        legend = Legend(handles, 2 if grid[1] == 1 else 4, self.notes)
        panels = [self._panel(dataset) for dataset in self.datasets]
        title = f"{self.model}: what survives the cut ({self.site})"
        return line_chart(title, panels, grid, panel_size(grid), auc_axes(self.n_layers), legend)

    def _panel(self, dataset: str) -> Panel:
        table = self.data.filter(pl.col("dataset") == dataset)
        lines = [
            Line(rows, {"markevery": 4, "zorder": 3} | _surviving_style(colour, dashes, marker))
            for key, (_, colour, dashes, marker) in SURVIVING_LINES.items()
            if (rows := self._rows(table, key)).height
        ]
        return Panel(display_name(dataset), lines, "" if table.height else "no scores")

    @staticmethod
    def _rows(table: pl.DataFrame, key: tuple[str, str]) -> pl.DataFrame:
        return table.filter((pl.col("intervention") == key[0]) & (pl.col("kind") == key[1]))


def _surviving_style(colour: str, dashes: object, marker: str) -> dict[str, Any]:
    return {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.6, "markeredgewidth": 0.0}
