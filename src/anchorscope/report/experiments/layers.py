"""Where the cut matters: the key words cut in one layer alone, or in a window of layers.

The knockout cuts in all layers from the first on, so it cannot say where the question is read. The heat map has the
layer that is cut on one axis and the layer whose probe reads on the other; a probe below the cut cannot see it.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.report.charts.heatmap import draw_heat, hatch_handle, symmetric_limit
from anchorscope.report.charts.layout import beside, empty_panel
from anchorscope.report.charts.line_chart import reference_handle
from anchorscope.report.experiments.experiment_rows import estimate_of, find, present, select, statistics
from anchorscope.report.experiments.panels import Lines, Own, Panel, Place, Series
from anchorscope.report.experiments.section import SectionSpec
from anchorscope.report.experiments.section_answer import HALF, Answer, Said, told, whole_percent
from anchorscope.report.experiments.section_chart import ChartSpec
from anchorscope.report.experiments.section_tables import GROUP, RULE, Key, TableSpec, difference, items, value
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, LINE_STYLES, Q_ANCHORED, DatasetStyle
from anchorscope.report.verdicts import DISCOVERY_RATE, SMALL_EFFECT, above
from anchorscope.report.wording import estimate, percent, points

SINGLE = "single"
_LEAST_REACH = 5.0  # points: a map of noise must not look like one of effects
_COLUMNS = (
    "dataset",
    "assignment",
    "quantity",
    "variant",
    "group",
    "layer",
    "probe_layer",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "p_value",
    "q_value",
    "effect_size",
)


def significant(cells: pl.DataFrame) -> pl.DataFrame:
    """Cells that are told from zero and not small; where the items do not spread, no size is known and q decides."""
    small = pl.col("effect_size").fill_nan(None).abs() < SMALL_EFFECT
    return cells.filter((pl.col("q_value") < DISCOVERY_RATE) & ~small.fill_null(False))


def window_width(variant: str) -> int | None:
    """Layers of a window, from its name "window 7"; None for single layers."""
    found = re.fullmatch(r"window (\d+)", variant)
    return int(found.group(1)) if found else None


def _drawn(findings: Findings) -> pl.DataFrame:
    """The cells of single layers, and ΔP at l* of single layers and windows."""
    rows = select(statistics(findings, "layers", "delta_p", "delta_p_reference"), truth="all", group=GROUPS)
    kept = (pl.col("quantity") == "delta_p_reference") | (pl.col("variant") == SINGLE)
    return rows.filter(kept & pl.col("layer").is_not_null()).select(_COLUMNS).sort(_COLUMNS[:7])


def _panels(data: pl.DataFrame) -> list[Panel]:
    reach = symmetric_limit(select(data, quantity="delta_p")["value"].to_numpy(), _LEAST_REACH)
    series = [
        Series({"group": group, "variant": SINGLE}, partial(_line, group), f"{group}, one layer") for group in GROUPS
    ]
    return [
        *(Own(partial(_draw_map, group, reach), 2.5, group) for group in GROUPS),
        Lines(
            series,
            "",
            "",
            3.1,
            {"quantity": "delta_p_reference"},
            x_label="Layer that is cut",
            marks_reference=True,
            finish=_draw_windows,
        ),
    ]


def _line(group: str, colours: DatasetStyle) -> dict[str, object]:
    return {"color": colours.colour(group), "linestyle": LINE_STYLES[group], "marker": "o", "markersize": 2.0}


def _draw_map(group: str, reach: float, axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """ΔP by cut layer (up) and probe layer (along); the second map has the colour bar of both."""
    cells = select(rows, quantity="delta_p", group=group).drop_nulls("probe_layer")
    values = np.full((place.n_layers, place.n_layers), np.nan)
    not_significant = np.ones(values.shape, dtype=bool)
    for cut, read, found in cells.select("layer", "probe_layer", "value").iter_rows():
        values[cut, read] = found
    for cut, read in significant(cells).select("layer", "probe_layer").iter_rows():
        not_significant[cut, read] = False
    if not np.isfinite(values).any():
        axes.grid(False)
        axes.set(xticks=[], yticks=[])
        empty_panel(axes, "too few items")
        return
    image = draw_heat(axes, values, not_significant, reach)
    for layer in sorted(set(place.reference_layers)):
        axes.axvline(layer, ymax=0.05, color="black", linewidth=2.0, zorder=5)
    axes.set_xlabel("Layer whose probe reads")
    if place.column == 0:
        axes.set_ylabel("Layer that is cut")
        return
    axes.set_yticklabels([])
    figure = axes.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(image, cax=beside(figure, axes, 0.12, 0.13))
    bar.outline.set_visible(False)
    bar.ax.set_title("ΔP", fontsize=8.5)


def _draw_windows(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """Each window as a bar over its layers, with its interval."""
    axes.set_ylabel("ΔP at l*")
    for row in rows.to_dicts():
        width = window_width(row["variant"])
        if width is None:
            continue
        colour, found = place.colours.colour(row["group"]), estimate_of(row)
        face = colour if row["group"] == Q_ANCHORED else "white"
        first, middle = row["layer"], row["layer"] + (width - 1) / 2
        axes.plot([first, first + width - 1], [found.value] * 2, color=colour, linewidth=0.9, alpha=0.7, zorder=2)
        axes.plot([middle, middle], [found.ci_low, found.ci_high], color=colour, linewidth=0.9, zorder=2)
        axes.plot(
            [middle],
            [found.value],
            marker="D",
            markersize=3.4,
            markerfacecolor=face,
            markeredgecolor=colour,
            markeredgewidth=0.9,
            linestyle="none",
            zorder=3.2,
        )


def _more_handles(data: pl.DataFrame, colours: DatasetStyle) -> Sequence[Artist]:
    windows = [name for name in present(data, "variant") if window_width(name) is not None]
    diamond: dict[str, Any] = {"color": colours.q_colour, "linewidth": 1.0, "marker": "D", "markersize": 3.4}
    return [
        *([Line2D([], [], label=f"{', '.join(windows)} (A-Anchored open)", **diamond)] if windows else []),
        reference_handle(),
        *(
            [hatch_handle(f"q ≥ {DISCOVERY_RATE} or |d| < {SMALL_EFFECT}")]
            if select(data, quantity="delta_p").height
            else []
        ),
    ]


def _cells(rows: pl.DataFrame) -> pl.DataFrame:
    cells = select(rows, quantity="delta_p", truth="all", variant=SINGLE)
    return cells.drop_nulls("probe_layer")


def _lowest_cell(cells: pl.DataFrame) -> str:
    row = cells.sort("value").row(0, named=True)
    return f"{points(estimate_of(row))} (cut {row['layer']}, read {row['probe_layer']})"


def _told_from_zero(sign: int) -> Callable[[pl.DataFrame], str]:
    return lambda cells: str(significant(cells).filter(pl.col("value").sign() == sign).height)


def _windows(rows: pl.DataFrame) -> pl.DataFrame:
    found = select(rows, measure="delta_p_reference", truth="all").filter(pl.col("variant") != SINGLE)
    return found.sort("layer", maintain_order=True).with_columns(cut=pl.format("{}, from layer {}", "variant", "layer"))


def _sum_of_layers(rows: pl.DataFrame) -> Said | None:
    mine = select(rows, group=Q_ANCHORED, truth="all")
    deepest = find(mine, quantity="deepest_layer")
    share = find(mine, quantity="share_of_cumulative")
    where = f"deepest: layer {estimate(deepest, 0)}; sum:" if deepest else ""
    return told(share, above(share, HALF), whole_percent, where)


SECTION = SectionSpec(
    slug="layers",
    title="Where the cut matters",
    rows=lambda findings: statistics(findings, "layers"),
    asks="In which layers is the question read? The key words are cut in one layer alone, or in a window of layers.",
    careful="Any cut lowers items that were called right before: look at the size. The deepest layer is picked after "
    "the fact.",
    answer=Answer(
        "Single layers add up to at least half of the knockout",
        "Single layers add up to less than half of the knockout: no single layer is the place, others stand in",
        "Whether single layers add up to half of the knockout is undecided",
        _sum_of_layers,
    ),
    charts=(
        ChartSpec(
            "layers",
            "the cut in single layers",
            "Heat maps of ΔP by cut layer and probe layer, and ΔP at l* by cut layer",
            "Left and middle: one layer cut. Right: at the reference layer.",
            "ΔP in percentage points. Hatched: not told from zero with the false discovery rate held at "
            f"{DISCOVERY_RATE} over a map, or smaller than {SMALL_EFFECT} standard deviations of the items (d); plus: "
            "above zero. Right: bands and upright lines are 95 % intervals; level lines span a window.",
            _drawn,
            _panels,
            by="assignment",
            by_words=str,
            height=2.35,
            gap=(0.35, 1.45),
            legend_columns=5,
            more_handles=_more_handles,
        ),
    ),
    tables=(
        TableSpec(
            "The layer with the lowest ΔP at l*, and what single layers add up to",
            (RULE, GROUP),
            (
                value("deepest layer", lambda found: estimate(found, 0), quantity="deepest_layer"),
                value("sum of single layers, share of the knockout", percent, quantity="share_of_cumulative"),
                items(),
            ),
            lambda rows: select(rows, quantity=("deepest_layer", "share_of_cumulative"), truth="all"),
        ),
        TableSpec(
            f"Cells of the map of single layers with q < {DISCOVERY_RATE} and |d| ≥ {SMALL_EFFECT}",
            (RULE, GROUP),
            (
                ("cells", lambda cells: str(cells.height)),
                ("below zero", _told_from_zero(-1)),
                ("above zero", _told_from_zero(1)),
                ("lowest cell", _lowest_cell),
            ),
            _cells,
        ),
        TableSpec(
            "Windows at the reference layer",
            (RULE, Key("cut", "cut")),
            (*(value(group, points, aspect="", group=group) for group in GROUPS), *difference(points)),
            _windows,
        ),
    ),
)
