"""Where the cut matters: the knockout in one layer at a time, and in windows of layers.

What one layer loses a later one may still fetch, so single layers can do little where all together do much.
`share_of_cumulative` is the sum of the single layers' ΔP over that of the whole knockout, `deepest_layer` the layer
with the largest effect, with its interval over the draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import polars as pl

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.delta_p import GROUPS, Q_ANCHORED
from anchorscope.experiments import section
from anchorscope.experiments.experiment import (
    Experiment,
    ExperimentInputs,
    Found,
    Statistic,
)
from anchorscope.experiments.partial_cuts import (
    QUANTITY,
    CutEffects,
    PartialCut,
    Scored,
    reference_statistics,
    run_partial_cuts,
    summed_over,
)
from anchorscope.experiments.statistics import FEW, METHOD, estimate_of
from anchorscope.report.findings import Findings, find, select, statistics
from anchorscope.report.palette import LINE_STYLES, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate, percent

SINGLE = "single"


def window_starts(n_layers: int, width: int) -> list[int]:
    """Where windows begin: every half width, and one that ends with the last layer."""
    last = n_layers - width
    return sorted({*range(0, last + 1, max(1, width // 2)), last})


def run(inputs: ExperimentInputs) -> Found:
    """The knockout in every layer and window, and its effect on the groups."""
    n_layers = inputs.measured.n_layers
    width = min(n_layers, inputs.window or max(2, n_layers // 4))
    cuts = [PartialCut(SINGLE, range(layer, layer + 1)) for layer in range(n_layers)]
    if width > 1:
        starts = window_starts(n_layers, width)
        cuts += [
            PartialCut(f"window {width}", range(start, start + width))
            for start in starts
        ]
    effects, missing = run_partial_cuts(inputs, cuts, "layers")
    result = analyse(inputs, effects)
    return Found(result.statistics, result.values, (*missing, *result.missing))


def analyse(inputs: ExperimentInputs, effects: Sequence[CutEffects]) -> Found:
    """All statistics of cuts in single layers and windows."""
    from anchorscope.evidence.draws import resampling

    singles = [effect for effect in effects if effect.cut.variant == SINGLE]
    windows = [effect for effect in effects if effect.cut.variant != SINGLE]
    with resampling(inputs.draws.device):
        parts = [
            reference_statistics(singles),
            reference_statistics(windows),
            _shares(inputs, singles),
            _deepest(singles),
        ]
    values = (
        (summed_over(inputs, singles, SINGLE),) if _complete(inputs, singles) else ()
    )
    missing = dict.fromkeys(reason for _, reasons in parts for reason in reasons)
    return Found(
        tuple(row for rows, _ in parts for row in rows), values, tuple(missing)
    )


def _shares(
    inputs: ExperimentInputs, singles: Sequence[CutEffects]
) -> tuple[list[Statistic], list[str]]:
    """The sum of single layers at the reference layer, over the whole knockout's effect on the same items."""
    import torch

    if not _complete(inputs, singles):
        return [], [
            "share_of_cumulative: not every single layer could be cut in every item"
        ]
    whole = _cumulative(inputs, singles[0])
    rows, missing = [], []
    for group in GROUPS:
        n = int(whole.members(group).sum())
        if n < FEW:
            continue  # reported with the means of the group
        of_whole = estimate_of(whole.reference(group), n)
        if of_whole.ci_low <= 0 <= of_whole.ci_high:
            missing.append(
                f"share_of_cumulative of {group} items: the whole knockout changes them by {of_whole.value:.1f} points "
                f"[{of_whole.ci_low:.1f}, {of_whole.ci_high:.1f}], no share of which can be given"
            )
            continue
        added = torch.stack(
            [effect.reference_sums[group][0] for effect in singles]
        ).sum(dim=0)
        share = estimate_of(
            added / whole.reference_sums[group][0], n, f"{METHOD}, ratio of means"
        )
        rows.append(
            Statistic(
                "share_of_cumulative",
                share,
                SINGLE,
                "cumulative",
                group=group,
                truth="all",
            )
        )
    return rows, missing


def _cumulative(inputs: ExperimentInputs, single: CutEffects) -> CutEffects:
    """The knockout itself, in all layers, on the items of a single layer's cut."""
    measured = inputs.measured
    where = np.searchsorted(measured.ran[KNOCKOUT], single.items)
    logits = measured.after[KNOCKOUT][:, where]
    return CutEffects(
        inputs,
        PartialCut("cumulative", range(measured.n_layers)),
        Scored(single.items, logits),
    )


def _complete(inputs: ExperimentInputs, singles: Sequence[CutEffects]) -> bool:
    """Whether every layer that a reference layer can see was cut alone, in all of the items."""
    needed = inputs.some_items()
    whole = {effect.cut.first for effect in singles if len(effect.items) == len(needed)}
    return whole.issuperset(range(int(inputs.reference[needed].max()) + 1))


def _deepest(singles: Sequence[CutEffects]) -> tuple[list[Statistic], list[str]]:
    """The single layer whose cut lowers ΔP at the reference layer most, in every draw."""
    import torch

    rows, missing = [], []
    for group in GROUPS:
        shown = [effect for effect in singles if effect.reached(group).sum() >= FEW]
        if len(shown) < 2:
            continue
        samples = torch.stack([effect.reference(group) for effect in shown]).nan_to_num(
            nan=torch.inf
        )
        if float(samples[:, 0].min()) >= 0:
            missing.append(f"deepest_layer of {group} items: no layer lowers their ΔP")
            continue
        n = max(int(effect.reached(group).sum()) for effect in shown)
        layers = torch.tensor(
            [effect.cut.first for effect in shown],
            dtype=torch.float64,
            device=samples.device,
        )
        deepest = estimate_of(
            layers[samples.argmin(dim=0)], n, f"{METHOD}, the layer in every draw"
        )
        rows.append(
            Statistic("deepest_layer", deepest, SINGLE, group=group, truth="all")
        )
    return rows, missing


EXPERIMENT = Experiment(
    "layers", "the knockout in single layers and in windows of layers", run
)


def _figure_rows(findings: Findings) -> pl.DataFrame:
    """ΔP at l* of single layers and of windows, these at their middle."""
    rows = select(statistics(findings, "layers", QUANTITY), group=GROUPS)
    width = pl.col("variant").str.extract(r"^window (\d+)$", 1).cast(pl.Float64)
    rows = rows.with_columns(
        x=pl.col("layer") + (width.fill_null(1) - 1) / 2,
        single=pl.col("variant") == SINGLE,
    )
    return rows.select(*section.FIGURE_COLUMNS, "x", "single")


def _style(group: str, single: bool, colours: DatasetStyle) -> dict[str, object]:
    colour = colours.colour
    if single:
        return {
            "color": colour,
            "linestyle": LINE_STYLES[group],
            "marker": "o",
            "markersize": 2.0,
        }
    face = colour if group == Q_ANCHORED else "white"
    return {
        "color": colour,
        "linestyle": "none",
        "marker": "D",
        "markersize": 3.4,
        "markerfacecolor": face,
    }


_SERIES = [
    Series(
        {"group": group, "single": single},
        partial(_style, group, single),
        f"{group}, {words}",
        kind,
    )
    for single, words, kind in (
        (True, "one layer", "band"),
        (False, "a window", "bars"),
    )
    for group in GROUPS
]
_PANEL = Lines(_SERIES, "ΔP at l*", x="x", x_label="Layer that is cut")


def _sum_of_layers(rows: pl.DataFrame) -> section.Said | None:
    mine = select(rows, group=Q_ANCHORED)
    deepest, share = (
        find(mine, quantity=quantity)
        for quantity in ("deepest_layer", "share_of_cumulative")
    )
    where = f"deepest: layer {estimate(deepest, 0)}; sum:" if deepest else ""
    return section.number(
        share, above(share, section.HALF), section.whole_percent, where
    )


SECTION = section.SectionSpec(
    slug="layers",
    title="Where the cut matters",
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
            "ΔP at l* of both groups by the layer that is cut",
            "One layer cut at a time, or a window of layers.",
            "ΔP at the reference layer in percentage points. Bands and upright lines: 95 % intervals. A window stands "
            "at its middle layer.",
            _figure_rows,
            lambda _: [_PANEL],
            marks_reference=True,
            legend_columns=2,
        ),
    ),
    tables=(
        section.TableSpec(
            "The layer with the lowest ΔP at l*, and what single layers add up to",
            (section.GROUP,),
            (
                section.value(
                    "deepest layer",
                    lambda layer: estimate(layer, 0),
                    quantity="deepest_layer",
                ),
                section.value(
                    "sum of single layers, share of the knockout",
                    percent,
                    quantity="share_of_cumulative",
                ),
                section.items(),
            ),
            lambda rows: select(
                rows, quantity=("deepest_layer", "share_of_cumulative")
            ),
        ),
    ),
)
