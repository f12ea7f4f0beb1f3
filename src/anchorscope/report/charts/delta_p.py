"""The paper's chart: ΔP per layer, a colour per dataset, Q-Anchored solid, A-Anchored dashed, with bands.

One panel for a run, a panel each for several. Cutting the question moves a probe's verdict towards "false" for every
item, so the plain rule mixes that shift and the loss of signal. The corrected rule removes one shift per layer and
fold, without using the labels.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.errors import UserError
from anchorscope.report.charts.display import layer_axis, mark_reference, reference_handle, reserve_mark_space
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, GROUPS, INK, LINE_STYLES, RULE_TITLES, dataset_styles, display_name
from anchorscope.report.panel_figure import ChartSpec, ExperimentFigure, Lines, Place, Series
from anchorscope.stats.curves import FEWEST_GROUPS

CURVE_COLUMNS = (
    *("dataset", "intervention", "assignment", "group", "truth"),
    *("layer", "delta_p", "ci_low", "ci_high", "n", "n_groups"),
)
POINTS_NOTE = (
    "ΔP in percentage points: change of the probability that the probe at a layer gives to the item's true label. "
    "Bands: 95% intervals."
)
LEAST_PANEL = 1.0  # inch
_PANEL = (5.4, 3.3)  # inches


def chart_name(rule: str) -> str:
    """The name of a rule's chart: the paper's rule has the short one."""
    return "delta_p" if rule == "plain" else f"delta_p_{rule}"


def delta_p_chart(findings: Findings, rule: str = "plain", size: tuple[float, float] | None = None) -> ExperimentFigure:
    """The chart of a run under one rule; `size`, in inches, is the whole figure's, which then has no small print."""
    data = chart_rows(findings, rule).select(CURVE_COLUMNS).sort("intervention", "dataset", "group", "layer")
    has_line = set(data.filter(pl.col("intervention") == "knockout").select("dataset", "group").iter_rows())
    names = [(dataset, group) for dataset in findings.datasets for group in GROUPS if (dataset, group) not in has_line]
    notes = (POINTS_NOTE, *(f"{group} ({display_name(dataset)}): no items" for dataset, group in names))
    layers = {name: tuple(findings.reference_layers.get(name, ())) for name in findings.datasets}
    span = delta_p_span(findings.curves)

    def chart(width: float, height: float) -> ExperimentFigure:
        spec = _spec(data, findings.datasets, {"": findings.n_layers}, span, layers, rule, (width, height))
        return ExperimentFigure(data, () if size else notes, spec, findings.model, findings.n_layers, ("",))

    width, height = _PANEL
    if size is None:
        return chart(width, height)
    for _ in range(2):  # the height of the legend depends on the width
        whole = chart(width, height).plot().get_size_inches()
        width, height = width + size[0] - whole[0], height + size[1] - whole[1]
        if min(width, height) < LEAST_PANEL:
            raise UserError(
                f"A figure of {size[0]:g} x {size[1]:g} inches has no room for its panel; take a larger one."
            )
    return chart(width, height)


def delta_p_of_runs(runs: Sequence[Findings], titles: Mapping[str, str], notes: Sequence[str]) -> ExperimentFigure:
    """The paper's chart with a panel per run."""
    depths = {run.model: run.n_layers for run in runs}
    rows = pl.concat(chart_rows(run, "plain").with_columns(run=pl.lit(run.model)) for run in runs)
    data = rows.select("run", *CURVE_COLUMNS).drop("truth")
    datasets = tuple(dict.fromkeys(name for run in runs for name in run.datasets))
    words = {run: title if len(title) <= 52 else f"{title[:26]}…{title[-26:]}" for run, title in titles.items()}
    spec = _spec(data, datasets, depths, delta_p_span(*(run.curves for run in runs)), words=words)
    question, deepest = "ΔP when the question's key words are hidden", max(depths.values(), default=1)
    return ExperimentFigure(data, (POINTS_NOTE, *notes), spec, question, deepest, tuple(titles))


def preliminary_chart(
    curves: pl.DataFrame, layers: Mapping[str, tuple[int, ...]], n_layers: int, note: str
) -> ExperimentFigure:
    """The chart of a run that is not finished: the plain curves, as far as they go."""
    data = curves.filter(_DRAWN & (pl.col("n") > 0) & (pl.col("assignment") == "plain")).select(CURVE_COLUMNS)
    spec = _spec(data, tuple(layers), {"": n_layers}, delta_p_span(curves), layers)
    return ExperimentFigure(data, (note,), spec, f"{curves['model'][0]} (preliminary)", n_layers, ("",))


_DRAWN = (pl.col("truth") == "all") & pl.col("intervention").is_in(["knockout", "random"])


def chart_rows(findings: Findings, rule: str) -> pl.DataFrame:
    """What is drawn: all items, knockout and random control, at the headline site and position."""
    wanted = _DRAWN & (pl.col("assignment") == rule) & pl.col("dataset").is_in(findings.datasets)
    return drawable(findings).filter(wanted)


def drawable(findings: Findings) -> pl.DataFrame:
    """The rows of the headline site and position that have a value and at least one item."""
    here = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    return findings.curves.filter(here & pl.col("delta_p").is_finite() & (pl.col("n") > 0))


def delta_p_span(*curves: pl.DataFrame) -> tuple[float, float]:
    """One y axis for everything that can be drawn of these curves; lines of few items do not stretch it."""
    tables = [table.select("delta_p", "ci_low", "ci_high", "n", "n_groups", "truth") for table in curves]
    rows = pl.concat(tables).filter(pl.col("delta_p").is_finite() & (pl.col("n") > 0) & (pl.col("truth") == "all"))
    enough = rows.filter(pl.coalesce("n_groups", "n") >= FEWEST_GROUPS)
    rows = enough if enough.height else rows
    numbers = pl.concat([rows[name].cast(pl.Float64) for name in ("delta_p", "ci_low", "ci_high")])
    numbers = numbers.drop_nulls().drop_nans()
    low, high = min([-10.0, *numbers]), max([10.0, *numbers])
    return max(-100.0, 10 * math.floor(low / 10)), min(100.0, 10 * math.ceil(high / 10))


def _spec(
    data: pl.DataFrame,
    datasets: Sequence[str],
    depths: Mapping[str, int],
    span: tuple[float, float],
    layers: Mapping[str, tuple[int, ...]] | None = None,
    rule: str = "plain",
    panel: tuple[float, float] = _PANEL,
    words: Mapping[str, str] | None = None,
) -> ChartSpec:
    """How the chart is drawn: one panel, or one for each run in `words`; `depths` has the layers of every panel."""

    def finish(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
        axes.set_ylim(*span)
        layer_axis(axes, depths[place.dataset])
        if layers:
            mark_reference(axes, layers, dataset_styles(datasets))
            reserve_mark_space(axes, len(layers))

    width = 4.35 if words else panel[0]
    lines = Lines(_group_series(datasets), "ΔP", width=width, y="delta_p", empty="no items", finish=finish)
    titles = words or {"": display_name(datasets[0]) if len(datasets) == 1 else ""}
    handles = _handles(data, datasets, any((layers or {}).values()), named="" not in titles or not titles[""])
    return ChartSpec(
        chart_name(rule),
        "as in the paper" if words else "" if rule == "plain" else RULE_TITLES[rule],
        "",
        "",
        "",
        lambda _: data,
        lambda _: [lines],
        height=panel[1],
        by="run" if words else "",
        dataset_words=titles.__getitem__,
        legend_columns=len(handles),
        more_handles=lambda _, __: handles,
        formats=("svg", "png", "pdf"),
    )


_RANDOM = {"color": CONTROL_GREY, "linestyle": ":", "linewidth": 1.2, "zorder": 2.5}


def _group_series(datasets: Sequence[str]) -> list[Series]:
    """Both groups of every dataset, and the random control of each; markers where datasets must be told apart."""
    series: list[Series] = []
    for group in GROUPS:
        for dataset, look in dataset_styles(datasets).items():
            where = {"dataset": dataset, "group": group}
            style: dict[str, Any] = {"color": look.colour, "linestyle": LINE_STYLES[group]}
            if len(datasets) > 1:  # every line has its markers at other layers, so that they do not cover each other
                marks = {"markersize": 4.2, "markeredgewidth": 0.0, "markevery": (len(series) // 2 % 4, 4)}
                style |= {"marker": look.marker} | marks
            name = f"{group} ({display_name(dataset)})"
            series += [
                Series(where | {"intervention": "knockout"}, style, name, in_legend=False),
                Series(where | {"intervention": "random"}, _RANDOM, f"Random, {name}", "none", in_legend=False),
            ]
    return series


def _handles(data: pl.DataFrame, datasets: Sequence[str], has_layers: bool, named: bool) -> list[Line2D]:
    """The legend: of one dataset its two lines; of several a colour for each, then a stroke for each group."""
    styles = dataset_styles([name for name in datasets if name in set(data["dataset"])])
    groups = [group for group in GROUPS if group in set(data["group"])]
    if len(styles) == 1:
        ((name, look),) = styles.items()
        about = f" ({display_name(name)})" if named else ""
        words = {f"{group}{about}": (look.colour, LINE_STYLES[group], "") for group in groups}
    else:
        words = {display_name(name): (look.colour, "-", look.marker) for name, look in styles.items()}
        words |= {group: (INK, LINE_STYLES[group], "") for group in groups}
    if "random" in set(data["intervention"]):
        words["Random words cut"] = (CONTROL_GREY, ":", "")
    handles = [
        Line2D([], [], label=label, color=colour, linestyle=stroke, marker=marker, markersize=4.2, markeredgewidth=0.0)
        for label, (colour, stroke, marker) in words.items()
    ]
    return [*handles, *([reference_handle("l* of a fold")] if has_layers else [])]
