"""The figures of a run: the paper's chart, the parts of the evidence over the layers, and AUC per layer.

ΔP has a colour per dataset, Q-Anchored solid, A-Anchored dashed, with bands; one panel for a run, a panel each for
several.

Parts are stacked; one below zero is drawn below the zero line. Layers at which an interval is wider than the whole
scale are left blank. The band over which the text averages is marked; black lines show what needs the key words, and
what needs random words.

Baselines of the probe (relation, words, confidence) are level lines. "Same probe" was trained on untouched states: it
falls where the signal is lost and where it is merely written differently. "Trained again" reads the states under the
cut: what it still reads cannot come from the tokens that were cut.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from anchorscope.artefacts.schema import BAND
from anchorscope.errors import UserError, unknown
from anchorscope.report.findings import (
    NEEDS_QUESTION,
    PARTS,
    Findings,
    band_numbers,
    has_shares,
    select,
)
from anchorscope.report.palette import (
    BASELINES,
    CONTROL_GREY,
    FEW_CLUSTERS,
    GROUPS,
    INK,
    LINE_STYLES,
    PART_COLOURS,
    PART_HATCHES,
    dataset_styles,
    display_name,
)
from anchorscope.report.panel_figure import (
    ChartSpec,
    ExperimentFigure,
    Lines,
    Place,
    Series,
    catalogued_sections,
    empty_panel,
    layer_axis,
    mark_reference,
    note_curve,
    reference_handle,
    reserve_mark_space,
)
from anchorscope.report.verdicts import WIDEST_SHARE
from anchorscope.stats.curves import FEWEST_GROUPS

# The paper's chart

CURVE_COLUMNS = (
    *("dataset", "intervention", "group", "truth"),
    *("layer", "delta_p", "ci_low", "ci_high", "n", "n_groups"),
)
POINTS_NOTE = (
    "ΔP in percentage points: change of the probability that the probe at a layer gives to the item's true label. "
    "Bands: 95% intervals."
)
LEAST_PANEL = 1.0  # inch
_PANEL = (5.4, 3.3)  # inches


DELTA_P = "delta_p"
"""The name of the chart."""


def delta_p_chart(
    findings: Findings, size: tuple[float, float] | None = None
) -> ExperimentFigure:
    """The chart of a run; `size`, in inches, is the whole figure's, which then has no small print."""
    data = (
        chart_rows(findings)
        .select(CURVE_COLUMNS)
        .sort("intervention", "dataset", "group", "layer")
    )
    has_line = set(
        data.filter(pl.col("intervention") == "knockout")
        .select("dataset", "group")
        .iter_rows()
    )
    names = [
        (dataset, group)
        for dataset in findings.datasets
        for group in GROUPS
        if (dataset, group) not in has_line
    ]
    notes = (
        POINTS_NOTE,
        *(f"{group} ({display_name(dataset)}): no items" for dataset, group in names),
    )
    layers = {
        name: tuple(findings.reference_layers.get(name, ()))
        for name in findings.datasets
    }
    span = delta_p_span(findings.curves)

    def chart(width: float, height: float) -> ExperimentFigure:
        spec = _spec(
            data,
            findings.datasets,
            {"": findings.n_layers},
            span,
            layers,
            (width, height),
        )
        return ExperimentFigure(
            data, () if size else notes, spec, findings.model, findings.n_layers, ("",)
        )

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


def delta_p_of_runs(runs: Sequence[Findings]) -> ExperimentFigure:
    """The paper's chart with a panel per run."""
    depths = {run.model: run.n_layers for run in runs}
    rows = pl.concat(
        chart_rows(run).with_columns(run=pl.lit(run.model)) for run in runs
    )
    data = rows.select("run", *CURVE_COLUMNS).drop("truth")
    datasets = tuple(dict.fromkeys(name for run in runs for name in run.datasets))
    words = {
        name: name if len(name) <= 52 else f"{name[:26]}…{name[-26:]}"
        for name in depths
    }
    spec = _spec(
        data, datasets, depths, delta_p_span(*(run.curves for run in runs)), words=words
    )
    question, deepest = (
        "ΔP when the question's key words are hidden",
        max(depths.values(), default=1),
    )
    return ExperimentFigure(
        data, (POINTS_NOTE,), spec, question, deepest, tuple(depths)
    )


def preliminary_chart(
    curves: pl.DataFrame,
    layers: Mapping[str, tuple[int, ...]],
    n_layers: int,
    note: str,
) -> ExperimentFigure:
    """The chart of a run that is not finished: the curves, as far as they go."""
    data = curves.filter(_DRAWN & (pl.col("n") > 0)).select(CURVE_COLUMNS)
    spec = _spec(data, tuple(layers), {"": n_layers}, delta_p_span(curves), layers)
    return ExperimentFigure(
        data, (note,), spec, f"{curves['model'][0]} (preliminary)", n_layers, ("",)
    )


_DRAWN = (pl.col("truth") == "all") & pl.col("intervention").is_in(
    ["knockout", "random"]
)


def chart_rows(findings: Findings) -> pl.DataFrame:
    """What is drawn: all items, knockout and random control, at the headline site and position."""
    return drawable(findings).filter(
        _DRAWN & pl.col("dataset").is_in(findings.datasets)
    )


def drawable(findings: Findings) -> pl.DataFrame:
    """The rows of the headline site and position that have a value and at least one item."""
    return findings.at_headline(findings.curves).filter(
        pl.col("delta_p").is_finite() & (pl.col("n") > 0)
    )


def delta_p_span(*curves: pl.DataFrame) -> tuple[float, float]:
    """One y axis for everything that can be drawn of these curves; lines of few items do not stretch it."""
    tables = [
        table.select("delta_p", "ci_low", "ci_high", "n", "n_groups", "truth")
        for table in curves
    ]
    rows = pl.concat(tables).filter(
        pl.col("delta_p").is_finite() & (pl.col("n") > 0) & (pl.col("truth") == "all")
    )
    enough = rows.filter(pl.coalesce("n_groups", "n") >= FEWEST_GROUPS)
    rows = enough if enough.height else rows
    numbers = pl.concat(
        [rows[name].cast(pl.Float64) for name in ("delta_p", "ci_low", "ci_high")]
    )
    numbers = numbers.drop_nulls().drop_nans()
    low, high = min([-10.0, *numbers]), max([10.0, *numbers])
    return max(-100.0, 10 * math.floor(low / 10)), min(100.0, 10 * math.ceil(high / 10))


def _spec(
    data: pl.DataFrame,
    datasets: Sequence[str],
    depths: Mapping[str, int],
    span: tuple[float, float],
    layers: Mapping[str, tuple[int, ...]] | None = None,
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
    lines = Lines(
        _group_series(datasets),
        "ΔP",
        width=width,
        y="delta_p",
        empty="no items",
        finish=finish,
    )
    titles = words or {"": display_name(datasets[0]) if len(datasets) == 1 else ""}
    handles = _handles(
        data,
        datasets,
        any((layers or {}).values()),
        named="" not in titles or not titles[""],
    )
    return ChartSpec(
        DELTA_P,
        "as in the paper" if words else "",
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
            style: dict[str, Any] = {
                "color": look.colour,
                "linestyle": LINE_STYLES[group],
            }
            # every line has its markers at other layers, so that they do not cover each other
            if len(datasets) > 1:
                marks = {
                    "markersize": 4.2,
                    "markeredgewidth": 0.0,
                    "markevery": (len(series) // 2 % 4, 4),
                }
                style |= {"marker": look.marker} | marks
            name = f"{group} ({display_name(dataset)})"
            series += [
                Series(
                    where | {"intervention": "knockout"}, style, name, in_legend=False
                ),
                Series(
                    where | {"intervention": "random"},
                    _RANDOM,
                    f"Random, {name}",
                    "none",
                    in_legend=False,
                ),
            ]
    return series


def _handles(
    data: pl.DataFrame, datasets: Sequence[str], has_layers: bool, named: bool
) -> list[Line2D]:
    """The legend: of one dataset its two lines; of several a colour for each, then a stroke for each group."""
    styles = dataset_styles([name for name in datasets if name in set(data["dataset"])])
    groups = [group for group in GROUPS if group in set(data["group"])]
    if len(styles) == 1:
        ((name, look),) = styles.items()
        about = f" ({display_name(name)})" if named else ""
        words = {
            f"{group}{about}": (look.colour, LINE_STYLES[group], "") for group in groups
        }
    else:
        words = {
            display_name(name): (look.colour, "-", look.marker)
            for name, look in styles.items()
        }
        words |= {group: (INK, LINE_STYLES[group], "") for group in groups}
    if "random" in set(data["intervention"]):
        words["Random words cut"] = (CONTROL_GREY, ":", "")
    handles = [
        Line2D(
            [],
            [],
            label=label,
            color=colour,
            linestyle=stroke,
            marker=marker,
            markersize=4.2,
            markeredgewidth=0.0,
        )
        for label, (colour, stroke, marker) in words.items()
    ]
    if _has_few_clusters(data):
        thin = FEW_CLUSTERS | {"label": f"Thin: fewer than {FEWEST_GROUPS} clusters"}
        handles.append(Line2D([], [], color=INK, **thin))
    if has_layers:
        handles.append(reference_handle("l* of each fold"))
    return handles


def _has_few_clusters(data: pl.DataFrame) -> bool:
    """Whether a line of the knockout rests on so few clusters that it is drawn thin."""
    clusters = pl.coalesce("n_groups", "n")
    lines = data.filter(pl.col("intervention") == "knockout")
    most = lines.group_by("dataset", "group").agg(clusters.max().alias("most"))
    return most.filter(pl.col("most") < FEWEST_GROUPS).height > 0


# The parts of the evidence

LOWEST, HIGHEST = -0.2, 1.1
"""What the axis shows: in the first layers there is hardly any evidence to divide by, and a share can be anything."""
_NEEDS_LINES = {
    "knockout": ("-", "needs the key words"),
    "random": (":", "needs random words"),
}


def _part_look(part: str) -> dict[str, Any]:
    return {
        "facecolor": PART_COLOURS[part],
        "hatch": PART_HATCHES[part],
        "edgecolor": "white",
    }


def _part_handles(*_: object) -> list[Artist]:
    lines = [
        Line2D([], [], color=INK, linestyle=dash, label=words)
        for dash, words in _NEEDS_LINES.values()
    ]
    return [
        *(Patch(label=words, **_part_look(part)) for part, words in PARTS.items()),
        *lines,
    ]


def _part_rows(findings: Findings) -> pl.DataFrame:
    """The parts under the knockout, and what needs the question under both cuts; `in_band` marks the band."""
    cuts = pl.col("intervention").is_in(list(_NEEDS_LINES)) & (
        pl.col("part") == NEEDS_QUESTION
    )
    parts = (pl.col("intervention") == "knockout") & pl.col("part").is_in(list(PARTS))
    columns = (
        "dataset",
        "intervention",
        "part",
        "layer",
        "share",
        "ci_low",
        "ci_high",
        "n",
        "n_groups",
    )
    rows = findings.at_headline(findings.evidence_parts).filter(
        pl.col("layer") != BAND, cuts | parts
    )
    rows = (
        select(rows, dataset=findings.datasets)
        .filter(pl.col("share").is_finite())
        .select(columns)
    )
    rows = rows.with_columns(pl.col("layer").cast(pl.Int64)).sort(
        "layer", maintain_order=True
    )
    bands = {name: set(band_numbers(findings, name)) for name in findings.datasets}
    in_band = [
        layer in bands[name]
        for name, layer in rows.select("dataset", "layer").iter_rows()
    ]
    return rows.with_columns(pl.Series("in_band", in_band, dtype=pl.Boolean))


def _draw_parts(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """The parts above each other, the band at the foot, and the two lines."""
    shares = np.stack(
        [shares_of_layers(rows, "knockout", part, place.n_layers) for part in PARTS]
    )
    shares[:, np.isnan(shares).any(axis=0)] = np.nan
    layers = np.arange(place.n_layers)
    up, down = np.zeros(place.n_layers), np.zeros(place.n_layers)
    for part, values in zip(PARTS, shares, strict=True):
        for base, signed in (
            (up, np.maximum(values, 0.0)),
            (down, np.minimum(values, 0.0)),
        ):
            axes.fill_between(
                layers, base, base + signed, linewidth=0.4, **_part_look(part)
            )
            base += np.nan_to_num(signed)
        note_curve(
            axes, PARTS[part], PART_COLOURS[part], layers.tolist(), values.tolist()
        )
    for cut, (dash, words) in _NEEDS_LINES.items():
        values = shares_of_layers(rows, cut, NEEDS_QUESTION, place.n_layers)
        axes.plot(layers, values, color=INK, linestyle=dash, linewidth=1.3)
        note_curve(axes, words, INK, layers.tolist(), values.tolist())
    for layer in rows.filter("in_band")["layer"].unique():
        axes.axvspan(
            layer - 0.5, layer + 0.5, ymin=0.0, ymax=0.035, color=INK, linewidth=0.5
        )
    if np.isnan(shares).all():
        empty_panel(axes, "too little evidence to divide")
    axes.set_ylim(LOWEST, HIGHEST)


def shares_of_layers(
    rows: pl.DataFrame, cut: str, part: str, n_layers: int
) -> np.ndarray:
    """The share at every layer; NaN where there is none that says anything."""
    values = np.full(n_layers, np.nan)
    mine = rows.filter((pl.col("intervention") == cut) & (pl.col("part") == part))
    for layer, share, low, high in mine.select(
        "layer", "share", "ci_low", "ci_high"
    ).iter_rows():
        if low is not None and high - low <= WIDEST_SHARE:
            values[layer] = share
    return values


EVIDENCE_PARTS = ChartSpec(
    "evidence_parts",
    "what the evidence rests on",
    "Four parts of the probe's evidence, stacked over the layers, a panel per dataset",
    "Solid line: what needs the key words. Dotted line: what needs random words.",
    "Shares of the probe's evidence for the truth. Strip at the foot: the layers of the band, whose AUC is within one "
    "standard error of the best. Intervals are in the tables.",
    _part_rows,
    lambda _: [Lines((), "share of the evidence", finish=_draw_parts)],
    height=3.1,
    side_by_side=2,
    legend_columns=2,
    more_handles=_part_handles,
    made=has_shares,
)


# The probe

_AUC_COLUMNS = (
    "dataset",
    "intervention",
    "kind",
    "site",
    "layer",
    "auc",
    "ci_low",
    "ci_high",
    "n",
)
_BASELINE_LOOKS: dict[str, tuple[str, Any]] = {
    "relation-only": ("#b9a27c", ":"),
    "words": ("#4f2812", "--"),
    "confidence-mean": ("#54208a", "-."),
    "confidence-min": ("#ee4d8e", (0, (3, 1, 1, 1, 1, 1))),
}
_AUC_MARKS = {"markersize": 4.2, "markeredgewidth": 0.0, "markevery": 4}
_CUTS: tuple[tuple[str, str, dict[str, Any], str, str], ...] = (
    ("clean", "transfer", {"color": INK}, "Probe, untouched", "band"),
    (
        "random",
        "transfer",
        {"color": CONTROL_GREY, "linestyle": ":", "linewidth": 1.2},
        "Random words cut",
        "none",
    ),
    (
        "knockout",
        "refit",
        {"color": "#11692f", "marker": "s", "linestyle": "--"} | _AUC_MARKS,
        "Key words cut, probe trained again",
        "band",
    ),
    (
        "knockout",
        "transfer",
        {"color": "#d4281e", "marker": "o"} | _AUC_MARKS,
        "Key words cut, same probe",
        "band",
    ),
)
"""Intervention, kind, look, label and interval of every line."""


def _auc_rows(findings: Findings) -> pl.DataFrame:
    """Untouched and under the cuts, at the headline site, and the baselines, which have no layer and no site."""
    cuts = pl.concat_list("intervention", "kind").is_in(
        [[cut, kind] for cut, kind, *_ in _CUTS]
    )
    lines = (
        cuts
        & (pl.col("site") == findings.site)
        & (pl.col("position") == findings.position)
    )
    levels = pl.col("kind").is_in(list(BASELINES)) & pl.col("layer").is_null()
    finite = pl.col("dataset").is_in(findings.datasets) & pl.col("auc").is_finite()
    rows = findings.probe_scores.filter(
        finite & ((lines & pl.col("layer").is_not_null()) | levels)
    )
    return rows.select(_AUC_COLUMNS).sort(
        "dataset", "intervention", "kind", "layer", maintain_order=True
    )


def _auc_lines(data: pl.DataFrame) -> list[Lines]:
    series = [
        Series({"intervention": cut, "kind": kind}, look, label, band)
        for cut, kind, look, label, band in _CUTS
    ]
    for kind, (colour, stroke) in _BASELINE_LOOKS.items():
        look = {"color": colour, "linestyle": stroke, "linewidth": 1.4, "zorder": 2}
        series.append(
            Series({"kind": kind}, look, BASELINES[kind].capitalize(), "level")
        )
    return [Lines(series, "AUC", y="auc", null=0.5)]


PROBE_AUC = ChartSpec(
    "probe_auc",
    "telling true from false answers",
    "AUC per layer of the probe: untouched, random words hidden, key words hidden with the same and with a new probe; "
    "baselines as level lines",
    "AUC out of fold: 0.5 is guessing. “Trained again”: a new probe on the masked states.",
    "AUC = area under the ROC curve, out of fold; 0.5 is guessing. Bands: 95% intervals.",
    _auc_rows,
    _auc_lines,
    height=3.0,
    share="y",
    legend_columns=2,
)


# All of them


def figures_of(findings: Findings) -> list[ExperimentFigure]:
    """Every figure of a run, computed and not yet drawn; those of the experiments come last."""
    specs = [
        EVIDENCE_PARTS,
        PROBE_AUC,
        *(chart for section in catalogued_sections() for chart in section.charts),
    ]
    return [
        delta_p_chart(findings),
        *(spec.from_findings(findings) for spec in specs if spec.was_made(findings)),
    ]


def figure_named(
    findings: Findings,
    name: str,
    datasets: Sequence[str] | None = None,
    size: tuple[float, float] | None = None,
) -> ExperimentFigure:
    """A figure by name, of all datasets or some; `size` in inches is for the ΔP chart, which has one panel."""
    for dataset in datasets or ():
        if dataset not in findings.datasets:
            raise unknown("dataset", dataset, findings.datasets)
    chosen = tuple(
        dataset for dataset in findings.datasets if not datasets or dataset in datasets
    )
    findings = replace(findings, datasets=chosen)
    if name == DELTA_P:
        return delta_p_chart(findings, size)
    if size:
        raise UserError(
            f"Only {DELTA_P} takes a size; {name!r} was asked for. Leave the size out."
        )
    figures = {figure.name: figure for figure in figures_of(findings)}
    if name not in figures:
        raise unknown("figure", name, sorted(figures))
    return figures[name]
