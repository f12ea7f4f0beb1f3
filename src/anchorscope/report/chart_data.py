"""The charts to touch, of one run or of several side by side: which lines they can show, and under which choices.

Values are stored in thousandths of a point (ΔP) and ten-thousandths (AUC, shares): what is shown is rounded
once more, and must not come out differently from the tables. A run with many experiments may have more curves than a
page should carry. Then what a reader would miss least goes first: further interventions at other sites and positions
than the chart's, the splits by truth there, the splits of further interventions, other sites.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from anchorscope.artefacts.schema import BAND
from anchorscope.catalogue import INTERVENTIONS, intervention_label
from anchorscope.report.assignment_rules import MENU_TITLES
from anchorscope.report.auc_data import probe_chart, surviving_chart
from anchorscope.report.charts.delta_p import delta_p_span
from anchorscope.report.charts.evidence_parts import HIGHEST, LOWEST
from anchorscope.report.charts.live_chart import (
    OWN,
    Axis,
    LiveChart,
    LivePanel,
    Menu,
    chart_menu,
    choices_of,
    live_lines,
    place_menus,
)
from anchorscope.report.findings import Findings
from anchorscope.report.looks import group_line, group_looks, share_line, share_looks
from anchorscope.report.palette import dataset_styles
from anchorscope.report.result_rows import TRUTHS
from anchorscope.report.shares import CONTROLS, NEEDS, NEEDS_QUESTION, PARTS, band_numbers, share_layer

MOST_POINTS = 140_000  # about three megabytes
MAIN_INTERVENTIONS = ("knockout", "direct", "random", "none")
"""Those that the page carries for every site and position."""
CURVE_SCALE = 1_000
SCORE_SCALE = 10_000

Runs = Sequence[Findings]


def page_data(findings: Findings, most_points: int = MOST_POINTS) -> dict[str, Any]:
    """All charts of a run's page, by the id of the element that they are drawn into."""
    charts = {
        "share-view": share_chart([findings], findings.datasets),
        "delta-p-view": delta_p_chart([findings], findings.datasets, most_points=most_points),
        "probe-view": probe_chart(findings),
        "surviving-view": surviving_chart(findings),
    }
    return {"model": findings.model, "views": live_records(charts)}


def live_records(charts: Mapping[str, LiveChart]) -> dict[str, Any]:
    """As the page reads them; charts without a line are left out."""
    return {name: chart.record() for name, chart in charts.items() if any(panel.lines for panel in chart.panels)}


def delta_p_chart(
    runs: Runs,
    datasets: Sequence[str],
    titles: Mapping[str, str] | None = None,
    *,
    rule: str = "plain",
    relative: bool = False,
    most_points: int = MOST_POINTS,
) -> LiveChart:
    """ΔP per layer: rule, truth and site to choose, other interventions and positions folded.

    `titles` are those of the panels, by run, where several runs stand side by side.
    """
    found = [_curves(run) for run in runs]
    fitting = [_that_fit(run, curves, most_points // len(runs)) for run, curves in zip(runs, found, strict=True)]
    tables, starts = _own_places(runs, fitting)
    cuts = {name: intervention_label(name) for name in INTERVENTIONS}
    menus = [
        chart_menu(
            "rule", "Sorted by the rule", tables, MENU_TITLES, "groups by the rule {}", column="assignment", start=rule
        ),
        chart_menu("truth", "Answers", tables, TRUTHS, start="all"),
        *place_menus(tables, starts),
        chart_menu(
            "cut", "Intervention", tables, cuts, column="intervention", start="knockout", folded=True, named=True
        ),
    ]
    panels = []
    for run, table in zip(runs, tables, strict=True):
        about = (menus, "delta_p", CURVE_SCALE, run.n_layers)
        named = table.with_columns(line=group_line(datasets))
        chosen = named.with_columns(pl.col("line").str.strip_suffix("r"))
        lines = live_lines(chosen, *about, by=("dataset",), point=_points(run, titles))
        lines += live_lines(named.filter(pl.col("intervention") == "random"), *about, anyway=("cut",))
        references = {} if titles else _references(run)  # of several runs only the tested layers are quoted
        panels.append(_panel(run, lines, _marks(menus, datasets, references), titles))
    whole = all(one.height == every.height for one, every in zip(fitting, found, strict=True))
    axis = Axis("ΔP, percentage points", *delta_p_span(*found), 0.0, 1)
    return LiveChart(
        "cp" if titles else "dp",
        "delta_p",
        "ΔP per layer",
        axis,
        CURVE_SCALE,
        menus,
        group_looks(datasets),
        panels,
        mark_words="l*: the layer that sorts the items",
        point_words="tested layer",
        relative=relative,
        note="" if whole else "Further curves are in curves.csv.",
    )


def share_chart(
    runs: Runs, datasets: Sequence[str], titles: Mapping[str, str] | None = None, *, relative: bool = False
) -> LiveChart:
    """Any part of the evidence per layer, with every control."""
    tables, starts = _own_places(runs, [_shares(run) for run in runs])
    menus = [
        chart_menu("part", "Part of the evidence", tables, PARTS | NEEDS, start=NEEDS_QUESTION),
        *place_menus(tables, starts),
    ]
    panels = []
    for run, table in zip(runs, tables, strict=True):
        named = table.with_columns(line=share_line(datasets))
        lines = live_lines(
            named, menus, "share", SCORE_SCALE, run.n_layers, by=("dataset", "intervention"), point=_points(run, titles)
        )
        tested = {(name, run.site, run.position): band_numbers(run, name) for name in run.datasets}
        panels.append(_panel(run, lines, _marks(menus, datasets, tested), titles))
    return LiveChart(
        "cs" if titles else "qs",
        "share",
        "Parts of the evidence per layer",
        Axis("Share of the evidence", LOWEST, HIGHEST, 0.0, 2),
        SCORE_SCALE,
        menus,
        share_looks(datasets),
        panels,
        mark_words="layers of the band",
        point_words="middle of the band",
        file="evidence_parts",
        relative=relative,
        beyond="there, and in gaps, there is too little evidence to divide by",
    )


def _panel(
    run: Findings, lines: list[list[Any]], marks: list[list[Any]], titles: Mapping[str, str] | None
) -> LivePanel:
    """A panel; among several it has a title."""
    if titles is None:
        return LivePanel(run.n_layers, lines, marks)
    return LivePanel(run.n_layers, lines, marks, titles[run.model], run.model)


def _own_places(runs: Runs, tables: Sequence[pl.DataFrame]) -> tuple[list[pl.DataFrame], dict[str, str]]:
    """The tables, where headlines differ with every run's own once more under that name; and where charts start."""
    found, starts = list(tables), {}
    for name in ("site", "position"):
        headlines = [str(getattr(run, name)) for run in runs]
        starts[name] = headlines[0] if len(set(headlines)) == 1 else OWN
        if starts[name] == OWN:
            found = [
                pl.concat([table.filter(pl.col(name) == here).with_columns(pl.lit(OWN).alias(name)), table])
                for table, here in zip(found, headlines, strict=True)
            ]
    return found, starts


def _points(run: Findings, titles: Mapping[str, str] | None) -> Callable[[Mapping[str, Any]], int | None]:
    """The layer of lines that the text quotes: of the knockout, at the headline place."""
    layers = {name: share_layer(run, name) for name in run.datasets} if titles is None else {}

    def point(row: Mapping[str, Any]) -> int | None:
        here = (row["site"], row["position"], row["intervention"]) == (run.site, run.position, "knockout")
        return layers.get(row["dataset"]) if here else None

    return point


def _shares(findings: Findings) -> pl.DataFrame:
    """Rows of evidence_parts.csv that have a value, layer by layer."""
    known = pl.col("share").is_finite() & pl.col("dataset").is_in(findings.datasets) & (pl.col("layer") != BAND)
    drawn = pl.col("intervention").is_in(["knockout", *CONTROLS])
    return findings.evidence_parts.filter(known & drawn).with_columns(pl.col("layer").cast(pl.Int64))


def _curves(findings: Findings) -> pl.DataFrame:
    """Rows of curves.csv that have a value and items."""
    there = pl.col("delta_p").is_finite() & (pl.col("n") > 0) & pl.col("dataset").is_in(findings.datasets)
    return findings.curves.filter(there & pl.col("assignment").is_in(list(MENU_TITLES)))


def _that_fit(findings: Findings, curves: pl.DataFrame, most_points: int) -> pl.DataFrame:
    here = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
    main = pl.col("intervention").is_in(MAIN_INTERVENTIONS)
    undivided = pl.col("truth") == "all"
    steps = (pl.lit(True), here | main, here | (main & undivided), (here & (main | undivided)) | (main & undivided))
    for wanted in steps:
        kept = curves.filter(wanted)
        if kept.height <= most_points:
            return kept
    return curves.filter(here & main)


def _references(findings: Findings) -> dict[tuple[str, str, str], list[int]]:
    """Per dataset, site and position the reference layers of the folds, as the plain rule used them."""
    plain = findings.pathways.filter(pl.col("assignment") == "plain").drop_nulls("reference_layer")
    by_site = plain.group_by("dataset", "site", "position", maintain_order=True).agg(pl.col("reference_layer").unique())
    found = {(d, s, p): sorted(layers) for d, s, p, layers in by_site.iter_rows()}
    for name, layers in findings.reference_layers.items():
        found[name, findings.site, findings.position] = sorted(set(layers))
    return found


def _marks(
    menus: Sequence[Menu], datasets: Sequence[str], layers: Mapping[tuple[str, str, str], list[int]]
) -> list[list[Any]]:
    """A row of ticks per dataset, at the places where it has layers to mark."""
    styles, marks = dataset_styles(datasets), []
    for (name, site, position), marked in layers.items():
        choices = choices_of(menus, {"site": site, "position": position}) if name in styles else None
        if choices is not None:
            colour = styles[name].q_colour if len(datasets) > 1 else "var(--ink)"
            marks.append([choices, colour, list(datasets).index(name), marked])
    return marks
