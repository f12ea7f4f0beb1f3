"""The page of `anchorscope detect`: the detector to use, the figures, the table of all detectors, and the checks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from anchorscope.progress import Progress, Silent
from anchorscope.report.answer_card import AnswerCard, NextStep, Trust
from anchorscope.report.charts.display import save_all
from anchorscope.report.detection.results import (
    AUROC,
    AUTO,
    BALANCED,
    BOTH,
    CONFIDENCE,
    DIGITS,
    NATURAL,
    PROBE,
    DetectionContext,
    DetectionResults,
    Recommendation,
    entry_of,
    passes_words,
    read_detection,
    recommend,
    shown_dataset,
    signed,
)
from anchorscope.report.page_sections import Section, SectionFigure, SectionsPage, filled, write_sections_page
from anchorscope.report.page_writer import FRAME_SCRIPTS, write_json
from anchorscope.report.palette import INK, QUIET_INK, DatasetStyle, display_name
from anchorscope.report.panel_figure import ChartSpec, ExperimentFigure, Forest, Lines, Marks, Place, Series
from anchorscope.report.reading import Reading, readings_table
from anchorscope.report.result_rows import present, select
from anchorscope.report.wording import NOTHING, Table, as_percent, count, estimate, listing, number, shown

SCRIPTS = (*FRAME_SCRIPTS, "hash_state", "controls", "detector_table")
FILES = {
    "report.html, report.md": "this page, and the same as plain text",
    "detectors.csv": "every number with its interval: detector × learned from × tested on × metric × prevalence",
    "differences.csv": "paired differences against probe and against probe+confidence",
    "controls.csv": "permuted labels, random cut, the band of the grader's error",
    "detector_curves.csv": "points of the ROC, risk–coverage and reliability curves",
    "observations.json": "the checks with verdicts, for programs",
    "figures/": "every figure, with its numbers as CSV",
}
METRICS = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "brier": "Brier score",
    "ece": "ECE",
    "e-aurc": "E-AURC",
    "prr": "PRR",
    "accuracy@50": "accuracy at 50% coverage",
    "accuracy@80": "accuracy at 80% coverage",
    "accuracy@90": "accuracy at 90% coverage",
    "auroc-spread": "spread of AUROC over seeds",
}
SMALLER_IS_BETTER = ("brier", "ece", "e-aurc", "auroc-spread")
_METHODS = (
    "Layer, penalty, gate, stacking weights and calibration are chosen inside the training folds; questions that share "
    "a subject are always on the same side of a fold, across datasets too. Intervals come from a bootstrap over groups "
    "of questions. The mean over datasets has the interval of independent estimates; the mean over pairs of datasets, "
    "which share answers, has the mean of their intervals. A gate reads from the clean state how far the cut will move "
    "the score, so it needs no label.",
)
_LINES: dict[str, dict[str, Any]] = {
    CONFIDENCE: {"color": "#6f6f6f", "linestyle": (0, (1.0, 1.4)), "linewidth": 1.6},
    PROBE: {"color": "#0072b2", "linestyle": (0, (5.0, 2.0)), "linewidth": 1.6},
    BOTH: {"color": "#d55e00", "linestyle": "-", "linewidth": 2.6},  # auto may be the same line: both can be seen
    AUTO: {"color": "#111111", "linestyle": (0, (2.2, 2.2)), "linewidth": 1.6},
}
"""The detectors that are drawn as lines: distinct in grey and for the colour-blind."""
_GUIDES = {name: _LINES[name] | {"linewidth": 1.2} for name in (PROBE, BOTH)}
_LONGEST_NAME = 24


def write_detection_report(folder: Path, context: DetectionContext, progress: Progress | None = None) -> AnswerCard:
    """Read the tables of a folder and write figures/, observations.json, report.html and report.md beside them.

    Returns the card that the page begins with.
    """
    results = DetectionResults.read(folder, [facts.name for facts in context.datasets])
    figures = detection_figures(results, context.model)
    listener = progress or Silent()
    listener.start("figures", len(figures))
    save_all(figures, folder, listener)
    listener.finish()
    readings = read_detection(results, context.left_out, context.model)
    write_json(folder / "observations.json", [check.record() for check in readings])
    auroc, risk = (
        tuple(SectionFigure(chart.name, chart.alt, chart.caption) for figure in figures if figure.chart is chart)
        for chart in CHARTS
    )
    page = SectionsPage(
        "anchorscope detectors",
        f"{context.model}: which detector catches its false answers?",
        (_setting(context),),
        _sections(results, context, readings, risk),
        context.command,
        FILES | {path: f"the detector {name}, to score new answers with" for name, path in context.bundles.items()},
        card := detection_card(results, readings, context),
        auroc,
    )
    write_sections_page(page, folder, "report", SCRIPTS, {"detector-data": page_table(results)})
    return card


def detection_card(results: DetectionResults, readings: Sequence[Reading], context: DetectionContext) -> AnswerCard:
    """The detector to use, whether to trust the numbers, and how to use it."""
    chosen = recommend(results)
    bundle = context.bundles.get(chosen.detector) if chosen else None
    why = "From this folder, score new answers:"
    steps = (NextStep(why, f"anchorscope score --detector {bundle} FILE"),) if bundle else ()
    checks = {reading.claim: reading for reading in readings}
    permuted, calibrated = checks.get("permuted_labels"), checks.get("calibrated")
    failed = permuted is not None and permuted.verdict == "no"
    sentence = _answer_sentence(results, chosen, failed)
    reasons = [f"chosen because {chosen.reason}"] if chosen else []
    measured = [check for check in (permuted, calibrated) if check is not None]
    reasons += [f"{check.topic}: {check.numbers.partition(';')[0]}" for check in measured]
    reasons += [] if permuted else ["the control with permuted labels was not run"]
    passed = len(measured) == 2 and all(check.verdict == "yes" for check in measured)
    trust = Trust("no" if failed else "yes" if passed else "partly", "; ".join(reasons))
    return AnswerCard(context.model, sentence, trust, next_steps=steps)


def _answer_sentence(results: DetectionResults, chosen: Recommendation | None, failed: bool) -> str:
    """Use X: AUROC …; on other data …. No recommendation where the permuted-label control failed."""
    if chosen is None:
        return "No detector was tested on the dataset that it learned from, so that none can be recommended."
    away, confidence = (results.mean(name, results.elsewhere) for name in (chosen.detector, CONFIDENCE))
    elsewhere = "not tested on other data"
    if away is not None:
        elsewhere = f"on other data {number(away.value, DIGITS)}"
        if confidence is not None and chosen.detector != CONFIDENCE:
            elsewhere += f", where {CONFIDENCE} alone has {number(confidence.value, DIGITS)}"
    passes = passes_words(results.passes.get(chosen.detector))
    numbers = f"{chosen.detector} ({passes} per answer): AUROC {estimate(chosen.auroc, DIGITS)}; {elsewhere}"
    if failed:
        return f"No detector is recommended: the permuted-label control failed. The highest would be {numbers}."
    return f"Use {numbers}."


def _setting(context: DetectionContext) -> str:
    runs = f"{len(context.runs)} run{'s' * (len(context.runs) != 1)}"
    seeds = f"{len(context.seeds)} fold seed{'s' * (len(context.seeds) != 1)}"
    names = listing([display_name(facts.name) for facts in context.datasets]) if context.datasets else "no dataset"
    return f"{runs} on {names}, {seeds}, {number(context.seconds, 0)} s."


def _sections(
    results: DetectionResults, context: DetectionContext, readings: Sequence[Reading], risk: tuple[SectionFigure, ...]
) -> list[Section]:
    tested, other, controls = (
        filled(("", readings_table([check for check in readings if check.standing == standing], subjects=False)))
        for standing in ("tested", "description", "control")
    )
    tests = sum(reading.p_value is not None for reading in readings)
    what = {
        name: entry_of(name).about + (f"; saved in {context.bundles[name]}" if name in context.bundles else "")
        for name in results.names
    }
    what |= {name: f"not here: {reason}" for name, reason in context.left_out.items()}
    about = {
        display_name(facts.name): f"{count(facts.n_used)} answers used, {count(facts.n_true)} of them true; "
        f"{count(facts.n_graded)} graded in all, {as_percent(facts.natural_prevalence)} true"
        + ("; tested only: too few true answers to learn from" if facts.target_only else "")
        for facts in context.datasets
    }
    about |= {"runs": ", ".join(context.runs), "fold seeds": ", ".join(map(str, context.seeds))}
    warnings = tuple(f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in context.warnings)
    sections = [
        Section(
            "table",
            "Every detector",
            (
                "Balanced: as many true as false answers. Natural: as the model answers. Lower is better for Brier "
                "score, ECE (expected calibration error) and E-AURC (excess area under the risk–coverage curve); for "
                "the others, higher. PRR is the prediction–rejection ratio.",
            ),
            filled(("", auroc_table(results))),
            live="detector-table",
        ),
        Section("other", "On other data", (), other),
        Section(
            "verdicts",
            "MoP, PR and pathways",
            (
                "Mixture-of-Probes (MoP) and Pathway Reweighting (PR) are the paper's two detectors. Differences are "
                f"paired; p-values are corrected together (Holm, {tests} tests). “No” also means that the interval "
                "leaves no room for a gain of 0.01.",
            ),
            tested,
        ),
        Section("risk", "Risk and coverage", figures=risk),
        Section("controls", "Controls", warnings, controls),
        Section("what", "What each is", facts=what),
        Section("methods", "Methods", _METHODS, facts=about),
    ]
    return [section for section in sections if section.tables or section.figures or section.text or section.facts]


def auroc_table(results: DetectionResults) -> Table:
    """Every detector on every dataset, tested on what it learned from; and what it gains over the two to beat."""
    cells = results.in_domain
    rows = []
    for name in results.names:
        values = [results.value(name, cell) for cell in cells]
        if any(value is not None for value in values):
            gains = [results.mean(name, cells, against) if name != against else None for against in (PROBE, BOTH)]
            aurocs = [shown(value, lambda auroc: estimate(auroc, DIGITS)) for value in values]
            passes = str(results.passes.get(name, NOTHING))
            rows.append((name, passes, *aurocs, *(shown(gain, signed) for gain in gains)))
    head = ("detector", "passes", *(shown_dataset(test) for _, test in cells), f"over {PROBE}", f"over {BOTH}")
    return Table(head, tuple(rows))


def page_table(results: DetectionResults) -> dict[str, Any]:
    """detectors.csv and differences.csv for the page's sortable table: names once, rows as numbers."""
    places = list(dict.fromkeys(name for cell in results.cells for name in cell))
    metrics = [name for name in METRICS if name in set(results.detectors["metric"])]
    prevalences = sorted(results.detectors["prevalence"].unique(), key=lambda name: name != BALANCED)
    against = [name for name in (PROBE, BOTH) if name in results.names]
    codes = {
        "detector": results.names,
        "against": against,
        "train": places,
        "test": places,
        "metric": metrics,
        "prevalence": prevalences,
    }

    def coded_rows(table: pl.DataFrame, value: str, *others: str) -> list[list[float | int | None]]:
        """Names as their places in the lists, numbers with four digits; rows with an unlisted name are left out."""
        keys = [name for name in codes if name in table.columns]
        listed = table.filter(pl.all_horizontal(pl.col(key).is_in(list(codes[key])) for key in keys))
        numbers = [
            pl.when(pl.col(name).is_finite()).then(pl.col(name).round(4)).alias(name)
            for name in (value, "ci_low", "ci_high")
        ]
        names = [pl.col(key).replace_strict({name: n for n, name in enumerate(codes[key])}) for key in keys]
        return [list(row) for row in listed.select(*names, *numbers, *others).iter_rows()]

    return {
        "detectors": [[name, results.passes.get(name), _kind(name)] for name in results.names],
        "against": against,
        "places": [shown_dataset(name) for name in places],
        "metrics": [[name, METRICS[name], name in SMALLER_IS_BETTER] for name in metrics],
        "prevalences": prevalences,
        "rows": coded_rows(results.detectors, "value", "n"),
        "gains": coded_rows(results.differences, "difference"),
    }


def _kind(name: str) -> str:
    entry = entry_of(name)
    return "variant" if entry.variant_of else "baseline" if entry.baseline else "detector"


# Figures


def detection_figures(results: DetectionResults, model: str) -> list[ExperimentFigure]:
    """The figures that have something to draw."""
    figures = []
    for chart in CHARTS:
        data = chart.rows(results)
        names = tuple(name for name in results.datasets if name in set(data["dataset"]))
        if names:
            figures.append(ExperimentFigure(data, (str(chart.note),), chart, model, 0, names, {}))
    return figures


def _short_name(name: str) -> str:
    words = shown_dataset(name)
    return words if len(words) <= _LONGEST_NAME else f"{words[: _LONGEST_NAME - 1]}…"


def _auroc_rows(results: DetectionResults) -> pl.DataFrame:
    """Tested on what was learned from; controls of other detectors are in the table only."""
    kinds = {name: kind for name in results.names if (kind := _kind(name)) != "variant"}
    rows = select(results.detectors, metric=AUROC, prevalence=BALANCED, detector=list(kinds))
    rows = rows.filter((pl.col("train") == pl.col("test")) & pl.col("value").is_finite())
    order = pl.col("detector").replace_strict({name: index for index, name in enumerate(results.names)})
    rows = rows.with_columns(kind=pl.col("detector").replace_strict(kinds, return_dtype=pl.String))
    return rows.sort(order, maintain_order=True).rename({"test": "dataset"}).drop("train", "metric")


def _forest(data: pl.DataFrame) -> list[Forest]:
    """A line per detector, with its passes."""
    passes = data.select("detector", pl.col("passes").cast(pl.String).fill_null("?")).unique(maintain_order=True)
    lines = {name: f"{name}\u2002\u2002{n}" for name, n in passes.iter_rows()}  # blanks that SVG does not join
    mark = {"markersize": 4.2, "linewidth": 1.3, "markeredgewidth": 1.0}
    open_mark = mark | {"color": QUIET_INK, "marker": "s", "markerfacecolor": "white", "markeredgecolor": QUIET_INK}
    styles = {"detector": ("detector", mark | {"color": INK, "marker": "o"}), "baseline": ("baseline", open_mark)}
    baselines = set(select(data, kind="baseline")["detector"])
    width = 4.2 if data["dataset"].n_unique() == 1 else 2.6
    marks = Marks("kind", styles, 0.0)
    return [
        Forest(
            "detector", lines, marks, width=width, null=0.5, set_apart=baselines, words_once=True, finish=_draw_guides
        )
    ]


def _draw_guides(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    for name, auroc in select(rows, detector=list(_GUIDES)).select("detector", "value").iter_rows():
        axes.axvline(auroc, zorder=1.6, **_GUIDES[name])
    axes.set_xlabel(f"AUROC, n = {count(rows['n'].max())}", fontsize=8.5)


def _guide_handles(data: pl.DataFrame, colours: DatasetStyle) -> list[Artist]:
    there = set(data["detector"])
    return [Line2D([], [], label=f"AUROC of {name}", **look) for name, look in _GUIDES.items() if name in there]


def _risk_rows(results: DetectionResults) -> pl.DataFrame:
    """Points that were tested on what was learned from, at natural prevalence if that was measured."""
    rows = select(results.curves, curve="risk-coverage", detector=list(_LINES))
    rows = rows.filter((pl.col("train") == pl.col("test")) & pl.col("x").is_finite() & pl.col("y").is_finite())
    measured = present(rows, "prevalence", (NATURAL,))
    rows = select(rows, prevalence=measured[0]) if measured else rows
    return rows.rename({"test": "dataset"}).drop("curve")


def _risk_panels(data: pl.DataFrame) -> list[Lines]:
    series = [Series({"detector": name}, line, name, "none") for name, line in _LINES.items()]
    label = "risk (false among them)"
    axis: dict[str, Any] = {"x": "x", "y": "y", "x_label": "coverage (answers accepted)", "over_layers": False}
    return [Lines(series, label, "", _panel_side(data), null=None, finish=_draw_square, **axis)]


def _panel_side(data: pl.DataFrame) -> float:
    return {1: 3.9, 2: 3.3, 3: 3.0}.get(data["dataset"].n_unique(), 2.6)


def _draw_square(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    axes.set(xlim=(-0.01, 1.01), xticks=np.linspace(0.0, 1.0, 6))
    axes.set_ylim(bottom=0.0)
    axes.grid(True, axis="both")


CHARTS = (
    ChartSpec(
        "detector_auroc",
        "telling true from false answers",
        "AUROC of every detector on every dataset with its interval; probe and probe+confidence as lines through all "
        "rows; baselines under a dashed line",
        "AUROC with 95% intervals: the chance that a true answer scores above a false one. Each detector is tested on "
        "the dataset that it learned from, on answers it has not seen.",
        "Out of fold; 0.5 is guessing. Bars: 95% intervals over groups. The number beside a name: extra passes through "
        "the model per answer.",
        _auroc_rows,
        _forest,
        share="x",
        side_by_side=4,
        height=lambda data: 0.205 * data["detector"].n_unique() + 0.1,
        dataset_words=_short_name,
        gap=0.22,
        legend_columns=4,
        more_handles=_guide_handles,
        labels=lambda data: max(0.0, 0.083 * max(map(len, _forest(data)[0].lines.values())) - 0.45),
    ),
    ChartSpec(
        "detector_risk_coverage",
        "risk and coverage",
        "Risk (false among them) against coverage (answers accepted) of the main detectors, a panel per dataset",
        "How many accepted answers are false, the more are accepted.",
        "Answers are accepted from the most probable down. At full coverage every detector has the same risk.",
        _risk_rows,
        _risk_panels,
        height=_panel_side,
        share="y",
        side_by_side=4,
        dataset_words=_short_name,
        gap=0.42,
    ),
)
"""In the order of the page."""
