"""Where the cut matters: the key words cut in one layer alone, or in a window of layers.

The knockout cuts in all layers from the first on, so it cannot say where the question is read. The heat map has the
layer that is cut on one axis and the layer whose probe reads on the other; a probe below the cut cannot see it.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from anchorscope.report.assignment_rules import rule_name, rule_title
from anchorscope.report.charts.forest import legend_style
from anchorscope.report.charts.heatmap import draw_heat, hatch_handle, symmetric_limit
from anchorscope.report.charts.layout import (
    Grid,
    Legend,
    beside,
    canvas,
    empty_panel,
    layer_axis,
    rows_that_fit,
    zero_line,
)
from anchorscope.report.charts.line_chart import line_with_band, mark_reference, reference_handle, reserve_mark_space
from anchorscope.report.experiments.experiment_rows import (
    datasets_in,
    estimate_of,
    find,
    present,
    rules_in,
    select,
    statistics,
)
from anchorscope.report.experiments.intervention_curves import DirectEdgesChart
from anchorscope.report.experiments.interventions import effects_table
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, LINE_STYLES, DatasetStyle, dataset_styles, display_name
from anchorscope.report.verdicts import DISCOVERY_RATE, SMALL_EFFECT
from anchorscope.report.wording import Table, count, difference_cells, estimate, number, percent, points, shown

SINGLE = "single"
_LEAST_REACH = 5.0  # points: a map of noise must not look like one of effects
_COLUMNS = ("dataset", "assignment", "quantity", "variant", "group", "layer", "probe_layer", "value", "ci_low",
            "ci_high", "n", "p_value", "q_value", "effect_size")  # fmt: skip


@final
@dataclass(frozen=True)
class LayersChart(ExperimentChart):
    """Heat maps of single layers, and ΔP at l* per layer that is cut."""

    name: ClassVar[str] = "layers"

    alt: ClassVar[str] = "Heat maps of ΔP by cut layer and probe layer, and ΔP at l* by cut layer"
    caption: ClassVar[str] = "Left and middle: one layer cut. Right: at the reference layer."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """The cells of single layers, and ΔP at l* of single layers and windows."""
        rows = select(statistics(findings, "layers", "delta_p", "delta_p_reference"), truth="all")
        single = (pl.col("quantity") == "delta_p_reference") | (pl.col("variant") == SINGLE)
        rows = rows.filter(single & pl.col("layer").is_not_null() & pl.col("group").is_in(list(GROUPS)))
        return rows.select(_COLUMNS).sort(_COLUMNS[:7])

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What the maps, the hatching and the lines are."""
        return (
            "ΔP in percentage points. Maps: key words cut in one layer alone; hatched: not told from zero with the "
            f"false discovery rate held at {DISCOVERY_RATE} over a map, or smaller than {SMALL_EFFECT} standard "
            "deviations of the items (d); plus: above zero. Right: ΔP at the reference layer, by the layer that is "
            "cut; bands and upright lines: 95 % intervals; level ones span a window.",
        )

    def draw(self) -> Figure:
        """A row per dataset and rule: both maps, then the lines; one colour bar for all."""
        lines = [(dataset, rule) for dataset in self.datasets for rule in rules_in(select(self.data, dataset=dataset))]
        colours = dataset_styles(self.datasets)
        heights = rows_that_fit(len(lines), 2.35, 0.78)
        page = canvas(
            f"{self.model}: the cut in single layers",
            Grid([2.5, 2.5, 3.1], heights, gap_x=[0.35, 1.45]), self._legend(colours),
        )  # fmt: skip
        cells = select(self.data, quantity="delta_p")
        reach = symmetric_limit(cells["value"].to_numpy(), _LEAST_REACH)
        barred = False
        for panels, (dataset, rule) in zip(page.axes, lines, strict=True):
            image = None
            for axes, group in zip(panels, GROUPS, strict=False):
                rows = select(cells, dataset=dataset, assignment=rule, group=group)
                image = self._draw_map(axes, rows, dataset, reach) or image
                axes.set_title(f"{display_name(dataset)}, {rule}: {group}")
            panels[0].set_ylabel("Layer that is cut")
            panels[1].set_yticklabels([])
            if image is not None and not barred:  # one for all maps: they share their colours
                barred = True
                bar = page.figure.colorbar(image, cax=beside(page.figure, panels[1], 0.12, 0.13))
                bar.outline.set_visible(False)
                bar.ax.set_title("ΔP", fontsize=8.5)
            self._draw_lines(panels[2], select(self.data, dataset=dataset, assignment=rule), dataset, colours[dataset])
            panels[2].set_title(f"{display_name(dataset)}, {rule_title(rule)}")
        return page.figure

    def _draw_map(self, axes: Axes, rows: pl.DataFrame, dataset: str, reach: float) -> AxesImage | None:
        values = np.full((self.n_layers, self.n_layers), np.nan)
        not_significant = np.ones(values.shape, dtype=bool)
        for cut, read, value in rows.select("layer", "probe_layer", "value").iter_rows():
            if read is not None:
                values[cut, read] = value
        for cut, read in significant(rows).select("layer", "probe_layer").drop_nulls().iter_rows():
            not_significant[cut, read] = False
        if not np.isfinite(values).any():
            axes.grid(False)
            axes.set(xticks=[], yticks=[])
            empty_panel(axes, "too few items")
            return None
        image = draw_heat(axes, values, not_significant, reach)
        for layer in sorted(set(self.reference_layers.get(dataset, ()))):
            axes.axvline(layer, ymax=0.05, color="black", linewidth=2.0, zorder=5)
        axes.set_xlabel("Layer whose probe reads")
        return image

    def _draw_lines(self, axes: Axes, table: pl.DataFrame, dataset: str, colours: DatasetStyle) -> None:
        zero_line(axes)
        mark_reference(axes, {dataset: self.reference_layers.get(dataset, ())}, {dataset: colours})
        table = select(table, quantity="delta_p_reference")
        for group in GROUPS:
            colour = colours.colour(group)
            rows = select(table, group=group, variant=SINGLE)
            if rows.height:
                marker = {"marker": "o", "markersize": 3.0} if rows.height < 3 else {}
                line_with_band(axes, rows, "value", color=colour, linestyle=LINE_STYLES[group], zorder=3, **marker)
            for variant in present(table, "variant"):
                width = window_width(variant)
                if width is not None:
                    _draw_windows(axes, select(table, group=group, variant=variant), width, group, colours)
        if not table.height:
            empty_panel(axes, "too few items")
        layer_axis(axes, self.n_layers)
        axes.set_xlabel("Layer that is cut")
        axes.set_ylabel("ΔP at l*")
        reserve_mark_space(axes, 1)

    def _legend(self, colours: dict[str, DatasetStyle]) -> Legend:
        shown = legend_style(list(colours.values()))
        handles: list[Artist] = [
            Line2D([], [], color=shown.colour(group), linestyle=LINE_STYLES[group], label=f"{group}, one layer")
            for group in GROUPS
        ]
        windows = [name for name in present(self.data, "variant") if window_width(name) is not None]
        if windows:
            handles.append(Line2D([], [], color=shown.q_colour, linewidth=1.0, marker="D", markersize=3.4,
                                  label=f"{', '.join(windows)} (A-Anchored open)"))  # fmt: skip
        handles.append(reference_handle())
        if select(self.data, quantity="delta_p").height:
            handles.append(hatch_handle(f"q ≥ {DISCOVERY_RATE} or |d| < {SMALL_EFFECT}"))
        return Legend(handles, 5, self.notes)


def significant(cells: pl.DataFrame) -> pl.DataFrame:
    """Cells that are told from zero and not small; where the items do not spread, no size is known and q decides."""
    small = pl.col("effect_size").fill_nan(None).abs() < SMALL_EFFECT
    return cells.filter((pl.col("q_value") < DISCOVERY_RATE) & ~small.fill_null(False))


def window_width(variant: str) -> int | None:
    """Layers of a window, from its name "window 7"; None for single layers."""
    found = re.fullmatch(r"window (\d+)", variant)
    return int(found.group(1)) if found else None


def _draw_windows(axes: Axes, rows: pl.DataFrame, width: int, group: str, colours: DatasetStyle) -> None:
    """Each window as a bar over its layers, with its interval."""
    colour = colours.colour(group)
    face = colour if group == GROUPS[0] else "white"
    for first, value, low, high in rows.select("layer", "value", "ci_low", "ci_high").iter_rows():
        middle = first + (width - 1) / 2
        axes.plot([first, first + width - 1], [value, value], color=colour, linewidth=0.9, alpha=0.7, zorder=2)
        if low is not None and high is not None:
            axes.plot([middle, middle], [low, high], color=colour, linewidth=0.9, zorder=2)
        axes.plot([middle], [value], marker="D", markersize=3.4, markerfacecolor=face, markeredgecolor=colour,
                  markeredgewidth=0.9, linestyle="none", zorder=3.2)  # fmt: skip


def _of(table: pl.DataFrame, *quantities: str) -> pl.DataFrame:
    return table.filter(pl.col("quantity").is_in(list(quantities)))


def _depth_table(findings: Findings, table: pl.DataFrame) -> Table:
    table = select(_of(table, "deepest_layer", "share_of_cumulative"), truth="all")
    rows = []
    for dataset in datasets_in(findings, table):
        for rule in rules_in(table):
            for group in GROUPS:
                mine = select(table, dataset=dataset, assignment=rule, group=group)
                deepest, share = (find(mine, quantity=name) for name in ("deepest_layer", "share_of_cumulative"))
                found = deepest or share
                if found:
                    cells = (shown(deepest, lambda e: estimate(e, 0)), shown(share, percent), count(found.n))
                    rows.append((display_name(dataset), rule_name(rule), group, *cells))
    head = ("dataset", "rule", "group", "deepest layer", "sum of single layers, share of the knockout", "items")
    return Table(head, tuple(rows), 3)


def _cells_table(findings: Findings, table: pl.DataFrame) -> Table:
    table = _of(table, "delta_p").filter(pl.col("probe_layer").is_not_null())
    table = select(table, truth="all", variant="single")
    rows = []
    for dataset in datasets_in(findings, table):
        for rule in rules_in(table):
            for group in GROUPS:
                mine = select(table, dataset=dataset, assignment=rule, group=group)
                if mine.height:
                    told = significant(mine)
                    lowest = mine.sort("value").row(0, named=True)
                    where = f"{points(estimate_of(lowest))} (cut {lowest['layer']}, read {lowest['probe_layer']})"
                    falls = told.filter(pl.col("value") < 0).height
                    cells = (str(mine.height), str(falls), str(told.height - falls), where)
                    rows.append((display_name(dataset), rule_name(rule), group, *cells))
    head = ("dataset", "rule", "group", "cells", "below zero", "above zero", "lowest cell")
    return Table(head, tuple(rows), 3)


def _windows_table(findings: Findings, table: pl.DataFrame) -> Table:
    table = _of(table, "delta_p_reference", "delta_p_reference_difference")
    table = select(table, truth="all").filter(pl.col("variant") != "single")
    rows = []
    for dataset in datasets_in(findings, table):
        for variant in present(select(table, dataset=dataset), "variant"):
            for rule in rules_in(table):
                mine = select(table, dataset=dataset, variant=variant, assignment=rule)
                for first in sorted(mine["layer"].drop_nulls().unique().to_list()):
                    here = select(mine, layer=first)
                    both = [shown(find(here, quantity="delta_p_reference", group=group), points) for group in GROUPS]
                    gap = difference_cells(here, "delta_p_reference", points)
                    label = f"{variant}, from layer {number(first, 0)}"
                    rows.append((display_name(dataset), rule_name(rule), label, *both, *gap))
    return Table(("dataset", "rule", "cut", *GROUPS, "Q − A", "p", "d"), tuple(rows), 3)


_SINGLE_LAYERS = (
    "In which layers is the question read? The key words are cut in one layer alone, or in a window of layers, "
    "and every probe from there on is asked. A probe below the cut cannot see it: those cells are left empty.",
    "A cell is hatched where it cannot be told from zero with the false discovery rate held over the whole "
    f"map, or where it is smaller than {SMALL_EFFECT} standard deviations of the items. Being told from zero "
    "alone says little: whatever is cut lowers items that were chosen because they were called right.",
    "If single layers together explain little of the knockout, the question is read in several layers that "
    "can stand in for each other: then no single layer is the place, however dark its cell. The deepest layer "
    "is picked after the fact; its interval says how firmly.",
)
_DIRECT_EDGES = (
    "Direct edges: only the answer's own tokens lose sight of the key words, while the tokens between question "
    "and answer may still read them. What the knockout does beyond that is carried by those tokens in between.",
)
SECTION = SectionSpec(
    slug="layers",
    title="Where the cut matters",
    rows=lambda findings: statistics(findings, "layers"),
    text=lambda findings, rows: (
        *(_SINGLE_LAYERS if rows.height else ()),
        *(_DIRECT_EDGES if DirectEdgesChart.was_made(findings) else ()),
    ),
    charts=(LayersChart, DirectEdgesChart),
    tables=(
        ("The layer with the lowest ΔP at l*, and what single layers add up to", _depth_table),
        (f"Cells of the map of single layers with q < {DISCOVERY_RATE} and |d| ≥ {SMALL_EFFECT}", _cells_table),
        ("Windows at the reference layer", _windows_table),
        (
            "Direct edges against all later positions",
            lambda findings, _: effects_table(findings, ("knockout", "direct"), ("direct",)),
        ),
    ),
)
