"""Single heads: the knockout in one query head at a time, in the most frequent reference layer.

A probe there sees what its own block's attention fetched; much may have been fetched before. All heads at once give the
scale. Items whose own reference layer lies below the cut don't count.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from anchorscope.evidence.delta_p import GROUPS, Q_ANCHORED
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found
from anchorscope.experiments.partial_cuts import (
    PartialCut,
    reference_statistics,
    run_partial_cuts,
    summed_over,
)
from anchorscope.report.findings import Findings, row_estimate, select, statistics
from anchorscope.report.palette import LINE_STYLES, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.verdicts import DISCOVERY_RATE, above, size_ratio
from anchorscope.report.wording import NOTHING, p_value_cell, points

ALL_HEADS, SINGLE_HEADS = "all heads", "single heads"
"""All heads of the layer cut together; each cut alone, added up."""


def run(inputs: ExperimentInputs) -> Found:
    """Every head alone, and all of them, at the reference layer."""
    from anchorscope.evidence.draws import resampling

    layer = inputs.most_frequent_reference
    layers = range(layer, layer + 1)
    cuts = [
        PartialCut(f"head {head}", layers, (head,))
        for head in range(inputs.planner.n_heads)
    ]
    effects, missing = run_partial_cuts(
        inputs, [*cuts, PartialCut(ALL_HEADS, layers)], "heads"
    )
    alone = [effect for effect in effects if effect.cut.heads is not None]
    together = [
        effect for effect in effects if effect.cut.heads is None
    ]  # no test among many
    with resampling(inputs.draws.device):
        (rows, reasons), (scale, _) = (
            reference_statistics(alone),
            reference_statistics(together),
        )
    values = (summed_over(inputs, alone, SINGLE_HEADS),) if alone else ()
    return Found((*rows, *scale), values, (*missing, *reasons))


EXPERIMENT = Experiment(
    "heads", "the knockout in single heads of the reference layer", run
)


def _rows(findings: Findings) -> pl.DataFrame:
    """ΔP at l*, with the head in its own column (−1 for all), and whether q separates it from zero."""
    rows = select(statistics(findings, "heads", "delta_p_reference"), group=GROUPS)
    beside = pl.col("group").replace_strict(
        dict(zip(GROUPS, (-0.17, 0.17), strict=True)), return_dtype=pl.Float64
    )
    head = (
        pl.col("variant").str.extract(r"^head (\d+)$", 1).cast(pl.Int64).fill_null(-1)
    )
    rows = rows.with_columns(
        head=head,
        x=head + beside,
        together=pl.col("variant") == ALL_HEADS,
        proved=(pl.col("q_value") < DISCOVERY_RATE).fill_null(False),
    )
    return rows.filter(pl.col("together") | (pl.col("head") >= 0))


def _style(group: str, filled: bool, colours: DatasetStyle) -> dict[str, object]:
    face = colours.colour if filled else "white"
    marker = "o" if group == Q_ANCHORED else "s"
    marks = {
        "marker": marker,
        "markersize": 4.4,
        "linestyle": "none",
        "markerfacecolor": face,
    }
    return {"color": colours.colour} | marks


def _level(group: str, colours: DatasetStyle) -> dict[str, object]:
    return {
        "color": colours.colour,
        "linestyle": LINE_STYLES[group],
        "linewidth": 1.1,
        "zorder": 2,
    }


_SERIES = [
    *(
        Series(
            {"group": group, "together": False, "proved": proved},
            partial(_style, group, proved),
            label,
            "bars",
        )
        for group in GROUPS
        for proved, label in ((True, f"{group}, one head"), (False, ""))
    ),
    *(
        Series(
            {"group": group, "together": True},
            partial(_level, group),
            f"{group}, all heads",
            "level",
        )
        for group in GROUPS
    ),
]
_PANEL = Lines(_SERIES, "ΔP at l*", "", 4.3, x="x", x_label="Head", over_layers=False)


def _lowest_head(column: int, rows: pl.DataFrame) -> str:
    """The number, ΔP or q of the single head with the lowest ΔP."""
    single = select(rows, together=False).sort("value")
    if not single.height:
        return NOTHING
    row = single.row(0, named=True)
    return (
        str(row["head"]),
        points(row_estimate(row)),
        p_value_cell(row["p_value"], row["q_value"]),
    )[column]


def _one_head(rows: pl.DataFrame) -> section.Said | None:
    mine = select(rows, group=Q_ANCHORED)
    single, together = (
        select(mine, together=False).sort("value"),
        select(mine, together=True),
    )
    if not single.height or not together.height:
        return None
    lowest = single.row(0, named=True)
    part = size_ratio(row_estimate(lowest), row_estimate(together.row(0, named=True)))
    return section.number(
        part,
        above(part, section.HALF),
        section.whole_percent,
        f"head {lowest['head']}:",
    )


SECTION = section.SectionSpec(
    slug="heads",
    title="Single heads",
    rows=_rows,
    asks="Does one head carry the question to the answer? The key words are cut for one head at a time.",
    careful="The strongest head is picked after the fact, and others may stand in for a head that is cut.",
    answer=section.Answer(
        "One head alone does at least half of what all heads of its layer do to Q-Anchored items",
        "No head alone does half of what all heads of its layer do to Q-Anchored items",
        "Whether one head does half of what all heads of its layer do is undecided",
        _one_head,
    ),
    charts=(
        ChartSpec(
            "heads",
            "single heads",
            "ΔP at l* for every head and both groups",
            "All heads together: level lines.",
            "ΔP at the reference layer with the key words cut for one query head, in percentage points; bars: 95 % "
            f"intervals. Filled: q < {DISCOVERY_RATE} over the heads of a panel.",
            lambda findings: _rows(findings).select(
                *section.FIGURE_COLUMNS, "head", "together", "proved", "x"
            ),
            lambda _: [_PANEL],
            height=2.2,
            gap=0.55,
            legend_columns=2,
        ),
    ),
    tables=(
        section.TableSpec(
            "All heads together, and the head with the lowest ΔP in each group",
            (section.GROUP,),
            (
                section.value("all heads", points, together=True),
                *(
                    (head, partial(_lowest_head, column))
                    for column, head in enumerate(("lowest head", "its ΔP", "q"))
                ),
            ),
        ),
    ),
)
