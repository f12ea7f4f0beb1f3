"""Where the cut matters: the knockout in one layer at a time, and in windows of layers.

Cutting a single layer asks which layer carries the question's words to the answer; but what one layer loses a later one
may still fetch, so that single layers can do little where all together do much. Windows stand in between. The heat map
has a row for the first layer that is cut and a column for every layer from there on that a probe reads; below the cut
there is nothing to see. `share_of_cumulative` says how much of the whole knockout's ΔP the single layers add up to,
`deepest_layer` which of them takes most, with the interval of that layer over the draws.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.evidence.measured import A_ANCHORED, GROUPS, Q_ANCHORED
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.partial_cuts import (
    Effects,
    Outcome,
    PartialCut,
    cumulative,
    effects_of,
    reference_statistics,
    run_partial_cuts,
    summed_over,
    window_starts,
    window_width,
)
from anchorscope.experiments.statistics import (
    FEW,
    METHOD,
    estimate_of,
    known,
    mean_in_deviations,
    p_value,
    p_values,
    q_values,
)
from anchorscope.report.charts.heatmap import draw_heat, hatch_handle, symmetric_limit
from anchorscope.report.charts.layout import beside, empty_panel
from anchorscope.report.charts.line_chart import reference_handle
from anchorscope.report.findings import Findings
from anchorscope.report.palette import LINE_STYLES, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Own, Panel, Place, Series
from anchorscope.report.result_rows import find, present, row_estimate, select, statistics
from anchorscope.report.verdicts import DISCOVERY_RATE, SMALL_EFFECT, above
from anchorscope.report.wording import estimate, percent, points
from anchorscope.stats.estimate import Estimate

if TYPE_CHECKING:
    from torch import Tensor

SINGLE = "single"
"""One layer at a time."""


def run(inputs: ExperimentInputs) -> Found:
    """The knockout in every layer and window, and what it does to the groups."""
    n_layers, width = inputs.measured.n_layers, window_width(inputs)
    singles = [PartialCut(SINGLE, range(layer, layer + 1)) for layer in range(n_layers)]
    starts = window_starts(n_layers, width) if width > 1 else []
    windows = [PartialCut(f"window {width}", range(start, start + width)) for start in starts]
    outcomes, missing = run_partial_cuts(inputs, [*singles, *windows], "layers")
    found = analyse(inputs, outcomes)
    return Found(found.statistics, found.values, (*missing, *found.missing))


def analyse(inputs: ExperimentInputs, outcomes: Sequence[Outcome]) -> Found:
    """All statistics of cuts in single layers and windows."""
    from anchorscope.evidence.draws import resampling

    rows: list[Statistic] = []
    missing: list[str] = []
    families = list(dict.fromkeys(outcome.cut.variant for outcome in outcomes))
    inputs.progress.start("layers: statistics", len(inputs.calls))
    with resampling(inputs.draws.device):
        for assignment in inputs.calls:
            for variant in families:
                family = effects_of(inputs, assignment, [one for one in outcomes if one.cut.variant == variant])
                rows += _heat_map(family)
                found, reasons = reference_statistics(family)
                rows += found
                missing += reasons
                if variant == SINGLE:
                    for more, why in (_shares(inputs, family), _deepest(family)):
                        rows += more
                        missing += why
            inputs.progress.advance(1)
    inputs.progress.finish()
    return Found(tuple(rows), _values(inputs, outcomes), tuple(dict.fromkeys(missing)))


def _heat_map(family: Sequence[Effects]) -> list[Statistic]:
    """ΔP at every probe layer from the cut on; the false discovery rate is controlled over the map of a group."""
    rows = []
    for group in GROUPS:
        shown = [one for one in family if one.members(group).sum() >= FEW]
        if not shown:
            continue
        curves = [one.curve(group) for one in shown]
        q = q_values(np.concatenate([p_values(samples) for samples in curves]))
        for one, samples in zip(shown, curves, strict=True):
            own, q = q[: len(samples)], q[len(samples) :]
            rows += _heat_map_row(one, samples, group, own.tolist())
    return rows


def _heat_map_row(one: Effects, samples: Tensor, group: str, q: Sequence[float]) -> list[Statistic]:
    from anchorscope.evidence.draws import estimates

    value, low, high = estimates(samples)
    p, inside = p_values(samples), one.values[one.members(group)]
    return [
        Statistic(
            quantity="delta_p",
            estimate=Estimate(float(value[k]), float(low[k]), float(high[k]), len(inside), METHOD),
            variant=one.variant,
            assignment=one.assignment,
            group=group,
            truth="all",
            layer=one.first,
            probe_layer=one.first + k,
            p_value=known(p[k]),
            q_value=known(q[k]),
            effect_size=mean_in_deviations(inside[:, k]),
        )
        for k in range(len(samples))
    ]


def _shares(inputs: ExperimentInputs, singles: Sequence[Effects]) -> tuple[list[Statistic], list[str]]:
    """What single layers add up to at the reference layer, over what the whole knockout does to the same items."""
    import torch

    if not _complete(inputs, singles):
        return [], ["share_of_cumulative: not every single layer could be cut in every item"]
    (whole,) = effects_of(inputs, singles[0].assignment, [cumulative(inputs, singles[0].items)])
    shares, numbers, missing = {}, {}, []
    for group in GROUPS:
        numbers[group] = int(whole.members(group).sum())
        if numbers[group] < FEW:
            continue  # said with the means of the group
        of_whole = estimate_of(whole.reference(group), numbers[group])
        if of_whole.ci_low <= 0 <= of_whole.ci_high:
            missing.append(
                f"share_of_cumulative of {group} items under the {whole.assignment} rule: the whole knockout changes "
                f"them by {of_whole.value:.1f} points [{of_whole.ci_low:.1f}, {of_whole.ci_high:.1f}], no share of "
                f"which can be told"
            )
            continue
        added = torch.stack([one.reference_sums(group)[0] for one in singles]).sum(dim=0)
        shares[group] = added / whole.reference_sums(group)[0]
    rows = [
        Statistic(
            "share_of_cumulative",
            estimate_of(samples, numbers[group], f"{METHOD}, ratio of means"),
            SINGLE,
            "cumulative",
            whole.assignment,
            group,
            "all",
        )
        for group, samples in shares.items()
    ]
    if len(shares) == len(GROUPS):
        samples = shares[Q_ANCHORED] - shares[A_ANCHORED]
        estimate = estimate_of(samples, sum(numbers.values()), f"{METHOD}, difference of ratios of means")
        p = p_value(samples)
        rows.append(
            Statistic(
                "share_of_cumulative_difference",
                estimate,
                SINGLE,
                "cumulative",
                whole.assignment,
                None,
                "all",
                p_value=p,
            )
        )
    return rows, missing


def _complete(inputs: ExperimentInputs, singles: Sequence[Effects]) -> bool:
    """Whether every layer that a reference layer can see was cut alone, in all of the items."""
    needed = inputs.some_items()
    top = int(inputs.reference[needed].max())
    whole = {one.first for one in singles if len(one.items) == len(needed)}
    return whole.issuperset(range(top + 1))


def _deepest(singles: Sequence[Effects]) -> tuple[list[Statistic], list[str]]:
    """The single layer whose cut lowers ΔP at the reference layer most, in every draw."""
    import torch

    rows, missing, deepest = [], [], {}
    for group in GROUPS:
        shown = [one for one in singles if one.reached(group).sum() >= FEW]
        if len(shown) < 2:
            continue
        samples = torch.stack([one.reference(group) for one in shown]).nan_to_num(nan=torch.inf)
        assignment, n = shown[0].assignment, max(int(one.reached(group).sum()) for one in shown)
        if float(samples[:, 0].min()) >= 0:
            missing.append(f"deepest_layer of {group} items under the {assignment} rule: no layer lowers their ΔP")
            continue
        layers = torch.tensor([one.first for one in shown], dtype=torch.float64, device=samples.device)
        deepest[group] = layers[samples.argmin(dim=0)], n
        estimate = estimate_of(deepest[group][0], n, f"{METHOD}, the layer in every draw")
        rows.append(Statistic("deepest_layer", estimate, SINGLE, None, assignment, group, "all"))
    if len(deepest) == len(GROUPS):
        (first, n_first), (second, n_second) = (deepest[group] for group in GROUPS)
        estimate = estimate_of(first - second, n_first + n_second, f"{METHOD}, the layers in every draw")
        assignment = singles[0].assignment
        rows.append(Statistic("deepest_layer_difference", estimate, SINGLE, None, assignment, None, "all"))
    return rows, missing


def _values(inputs: ExperimentInputs, outcomes: Sequence[Outcome]) -> tuple[ItemValues, ...]:
    """What the single layers add up to in every item, at its reference layer and without any correction."""
    singles = [one for one in outcomes if one.cut.variant == SINGLE]
    if not singles or not _complete(inputs, [Effects(inputs, next(iter(inputs.calls)), one) for one in singles]):
        return ()
    return (summed_over(inputs, singles, SINGLE),)


EXPERIMENT = Experiment("layers", "the knockout in single layers and in windows of layers", run)


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


def width_of_window(variant: str) -> int | None:
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
        width = width_of_window(row["variant"])
        if width is None:
            continue
        colour, found = place.colours.colour(row["group"]), row_estimate(row)
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
    windows = [name for name in present(data, "variant") if width_of_window(name) is not None]
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
    return f"{points(row_estimate(row))} (cut {row['layer']}, read {row['probe_layer']})"


def _told_from_zero(sign: int) -> Callable[[pl.DataFrame], str]:
    return lambda cells: str(significant(cells).filter(pl.col("value").sign() == sign).height)


def _windows(rows: pl.DataFrame) -> pl.DataFrame:
    found = select(rows, measure="delta_p_reference", truth="all").filter(pl.col("variant") != SINGLE)
    return found.sort("layer", maintain_order=True).with_columns(cut=pl.format("{}, from layer {}", "variant", "layer"))


def _sum_of_layers(rows: pl.DataFrame) -> section.Said | None:
    mine = select(rows, group=Q_ANCHORED, truth="all")
    deepest = find(mine, quantity="deepest_layer")
    share = find(mine, quantity="share_of_cumulative")
    where = f"deepest: layer {estimate(deepest, 0)}; sum:" if deepest else ""
    return section.number(share, above(share, section.HALF), section.whole_percent, where)


SECTION = section.SectionSpec(
    slug="layers",
    title="Where the cut matters",
    rows=lambda findings: statistics(findings, "layers"),
    asks="In which layers is the question read? The key words are cut in one layer alone, or in a window of layers.",
    careful="Any cut lowers items that were called right before: look at the size. The deepest layer is picked after "
    "the fact.",
    answer=section.Answer(
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
        section.TableSpec(
            "The layer with the lowest ΔP at l*, and what single layers add up to",
            (section.RULE, section.GROUP),
            (
                section.value("deepest layer", lambda found: estimate(found, 0), quantity="deepest_layer"),
                section.value("sum of single layers, share of the knockout", percent, quantity="share_of_cumulative"),
                section.items(),
            ),
            lambda rows: select(rows, quantity=("deepest_layer", "share_of_cumulative"), truth="all"),
        ),
        section.TableSpec(
            f"Cells of the map of single layers with q < {DISCOVERY_RATE} and |d| ≥ {SMALL_EFFECT}",
            (section.RULE, section.GROUP),
            (
                ("cells", lambda cells: str(cells.height)),
                ("below zero", _told_from_zero(-1)),
                ("above zero", _told_from_zero(1)),
                ("lowest cell", _lowest_cell),
            ),
            _cells,
        ),
        section.TableSpec(
            "Windows at the reference layer",
            (section.RULE, section.Key("cut", "cut")),
            (*(section.value(group, points, aspect="", group=group) for group in GROUPS), *section.difference(points)),
            _windows,
        ),
    ),
)
