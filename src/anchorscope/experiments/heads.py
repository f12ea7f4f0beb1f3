"""Single heads: the knockout in one query head at a time, in the layer that decides about the pathways.

That is the most frequent reference layer r. A probe there sees what its own block's attention fetched, so a head of
that block that reads the question's words shows up; but much may have been fetched before. Each head number is also cut
in a window of layers that ends with r, all of them together (heads of one number in different layers have nothing in
common: the window only lets small effects add up). All heads at once stand beside them, for scale. Items whose own
reference layer lies below the cut cannot see it and do not count.
"""

from __future__ import annotations

import re
from functools import partial

import polars as pl

from anchorscope.evidence.measured import GROUPS, Q_ANCHORED
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, Statistic
from anchorscope.experiments.partial_cuts import (
    Outcome,
    PartialCut,
    effects_of,
    reference_statistics,
    run_partial_cuts,
    summed_over,
    window_width,
)
from anchorscope.report.charts.forest import group_offset
from anchorscope.report.findings import Findings
from anchorscope.report.palette import LINE_STYLES, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.result_rows import present, row_estimate, select, statistics
from anchorscope.report.verdicts import DISCOVERY_RATE, above, size_ratio
from anchorscope.report.wording import NOTHING, p_value_cell, points

ALL_HEADS = "all heads"
"""The whole layer, for scale."""
SINGLE_HEADS = "single heads"
"""All heads of the layer, each cut alone, added up."""


def run(inputs: ExperimentInputs) -> Found:
    """Every head alone at the reference layer's depth."""
    families = head_knockouts(inputs.planner.n_heads, inputs.most_frequent_reference, window_width(inputs))
    outcomes, missing = run_partial_cuts(inputs, [one for family in families for one in family], "heads")
    found = analyse(inputs, outcomes)
    alone = [one for one in outcomes if one.cut.heads is not None and len(one.cut.layers) == 1]
    values = (summed_over(inputs, alone, SINGLE_HEADS),) if alone else ()
    return Found(found.statistics, values, (*missing, *found.missing))


def head_knockouts(n_heads: int, layer: int, width: int) -> list[list[PartialCut]]:
    """Every head, and all of them, in one layer, and in a window that ends with it."""
    families = []
    for first in dict.fromkeys((layer, max(0, layer - width + 1))):
        where = "" if first == layer else f", layers {first}–{layer}"
        layers = range(first, layer + 1)
        each = [PartialCut(f"head {head}{where}", layers, (head,)) for head in range(n_heads)]
        families.append([*each, PartialCut(f"{ALL_HEADS}{where}", layers)])
    return families


def analyse(inputs: ExperimentInputs, outcomes: list[Outcome]) -> Found:
    """ΔP at the reference layer per head; the false discovery rate is controlled over the heads of a family."""
    from anchorscope.evidence.draws import resampling

    rows: list[Statistic] = []
    missing: list[str] = []
    starts = dict.fromkeys(outcome.cut.first for outcome in outcomes)
    inputs.progress.start("heads: statistics", len(inputs.calls))
    with resampling(inputs.draws.device):
        for assignment in inputs.calls:
            for first in starts:
                here = [one for one in outcomes if one.cut.first == first]
                for scale in (False, True):  # all heads together are no test among many
                    some = [one for one in here if (one.cut.heads is None) == scale]
                    found, reasons = reference_statistics(effects_of(inputs, assignment, some))
                    rows += found
                    missing += reasons
            inputs.progress.advance(1)
    inputs.progress.finish()
    return Found(tuple(rows), missing=tuple(dict.fromkeys(missing)))


EXPERIMENT = Experiment("heads", "the knockout in single heads at the reference layer's depth", run)


_ALL = -1
_VARIANT = re.compile(r"(?:head (?P<head>\d+)|all heads)(?:, (?P<depth>layers? .+))?")
_COLUMNS = (
    "dataset",
    "assignment",
    "group",
    "variant",
    "head",
    "depth",
    "layer",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "p_value",
    "q_value",
    "effect_size",
    "together",
    "told",
    "x",
)
HERE = "at the reference layer's depth"
_DEPTH = section.Key("depth", "where", {HERE: HERE})


def head_of(variant: str | None) -> tuple[int, str] | None:
    """The head (−1 for all of them) and the layers, from "head 3" or "head 3, layers 10–16"."""
    found = _VARIANT.fullmatch(variant or "")
    return (int(found["head"] or _ALL), found["depth"] or HERE) if found else None


def _rows(findings: Findings) -> pl.DataFrame:
    """All answers together, with the head and the layers in columns of their own, and whether q tells it from zero."""
    table = select(statistics(findings, "heads", "delta_p_reference", "delta_p_reference_difference"), truth="all")
    found = [head_of(variant) for variant in table["variant"]]
    return table.with_columns(
        pl.Series("head", [one and one[0] for one in found], dtype=pl.Int64),
        pl.Series("depth", [one and one[1] for one in found], dtype=pl.String),
        together=pl.col("variant").str.starts_with("all heads"),
        told=(pl.col("q_value") < DISCOVERY_RATE).fill_null(False),
    ).drop_nulls("head")


def _drawn(findings: Findings) -> pl.DataFrame:
    rows = select(_rows(findings), quantity="delta_p_reference", group=GROUPS)
    beside = pl.col("group").replace_strict({group: group_offset(group) for group in GROUPS}, return_dtype=pl.Float64)
    rows = rows.with_columns(x=pl.col("head") + beside).select(_COLUMNS)
    return rows.sort("dataset", "assignment", "depth", "group", "head", maintain_order=True)


def _panels(data: pl.DataFrame) -> list[Lines]:
    series = [
        *(
            Series(
                {"group": group, "together": False, "told": told_from_zero},
                partial(_marker, group, told_from_zero),
                f"{group}, one head" if told_from_zero else "",
                "bars",
            )
            for group in GROUPS
            for told_from_zero in (True, False)
        ),
        *(
            Series({"group": group, "together": True}, partial(_level, group), f"{group}, all heads", "level")
            for group in GROUPS
        ),
    ]
    return [
        Lines(
            series,
            "ΔP at l*",
            "" if depth == HERE else depth,
            4.3,
            {"depth": depth},
            "x",
            x_label="Head",
            over_layers=False,
        )
        for depth in present(data, "depth", (HERE,))
    ]


def _marker(group: str, filled: bool, colours: DatasetStyle) -> dict[str, object]:
    colour = colours.colour(group)
    return {
        "color": colour,
        "marker": "o" if group == Q_ANCHORED else "s",
        "markersize": 4.4,
        "linestyle": "none",
        "markeredgecolor": colour,
        "markerfacecolor": colour if filled else "white",
    }


def _level(group: str, colours: DatasetStyle) -> dict[str, object]:
    return {"color": colours.colour(group), "linestyle": LINE_STYLES[group], "linewidth": 1.1, "zorder": 2}


def _single(rows: pl.DataFrame) -> pl.DataFrame:
    """Single heads, the lowest first."""
    return select(rows, together=False).sort("value")


def _lowest_head(rows: pl.DataFrame) -> str:
    return str(_single(rows)["head"][0]) if _single(rows).height else NOTHING


def _lowest_effect(rows: pl.DataFrame) -> str:
    return points(row_estimate(_single(rows).row(0, named=True))) if _single(rows).height else NOTHING


def _lowest_q(rows: pl.DataFrame) -> str:
    single = _single(rows)
    return p_value_cell(single["p_value"][0], single["q_value"][0]) if single.height else NOTHING


def _how_many(rows: pl.DataFrame) -> str:
    single = _single(rows)
    return f"{select(single, told=True).height} of {single.height}" if single.height else NOTHING


def _with_gap(rows: pl.DataFrame) -> pl.DataFrame:
    """The heads whose groups surely differ."""
    gaps = select(rows, aspect="difference", together=False)
    gaps = gaps.filter(pl.coalesce("q_value", "p_value") < DISCOVERY_RATE)
    there = rows.join(gaps, on=["dataset", "assignment", "variant"], how="semi")
    return there.sort("assignment", "depth", "head", maintain_order=True)


def _one_head(rows: pl.DataFrame) -> section.Said | None:
    here = select(rows, quantity="delta_p_reference", group=Q_ANCHORED, depth=HERE)
    single, together = _single(here), select(here, together=True)
    if not single.height or not together.height:
        return None
    lowest = single.row(0, named=True)
    part = size_ratio(row_estimate(lowest), row_estimate(together.row(0, named=True)))
    return section.number(part, above(part, section.HALF), section.whole_percent, f"head {lowest['head']}:")


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
            _drawn,
            _panels,
            by="assignment",
            height=2.2,
            gap=0.55,
            legend_columns=4,
        ),
    ),
    tables=(
        section.TableSpec(
            "All heads together, and the head with the lowest ΔP in each group",
            (section.RULE, _DEPTH, section.GROUP),
            (
                section.value("all heads", points, together=True),
                ("lowest head", _lowest_head),
                ("its ΔP", _lowest_effect),
                ("q", _lowest_q),
                (f"heads with q < {DISCOVERY_RATE}", _how_many),
            ),
            lambda rows: select(rows, quantity="delta_p_reference"),
        ),
        section.TableSpec(
            f"Heads whose difference Q − A has q < {DISCOVERY_RATE}",
            (section.RULE, section.Key("variant", "head")),
            section.both_groups(points),
            _with_gap,
        ),
    ),
)
