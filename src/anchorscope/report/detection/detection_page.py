"""The page of `anchorscope detect`: the detector to use, three figures, the table of all detectors, and the checks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from anchorscope.catalogue import DETECTORS
from anchorscope.progress import Progress, Silent
from anchorscope.report.answer_card import AnswerCard, NextStep, Trust
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
    passes_words,
    read_detection,
    recommend,
    shown_dataset,
    signed,
)
from anchorscope.report.findings import select
from anchorscope.report.page import (
    Section,
    SectionFigure,
    SectionsPage,
    Tables,
    filled,
    write_json,
    write_sections_page,
)
from anchorscope.report.palette import INK, QUIET_INK, display_name
from anchorscope.report.panel_figure import ChartSpec, ExperimentFigure, Forest, Lines, Marks, Place, Series, save_all
from anchorscope.report.reading import Reading, readings_table
from anchorscope.report.wording import Table, estimate, listing, number, shown

FILES = {
    "report.html, report.md": "this page, and the same as plain text",
    "detectors.csv": "every number with its interval: detector × learned from × tested on × metric × prevalence",
    "differences.csv": "paired differences against confidence, probe and probe+confidence",
    "controls.csv": "AUROC with permuted labels",
    "detector_curves.csv": "points of the risk–coverage curves",
    "observations.json": "the checks with verdicts, for programs",
    "figures/": "every figure, with its numbers as CSV",
}
_LINES: dict[str, dict[str, Any]] = {
    CONFIDENCE: {"color": "#6f6f6f", "linestyle": (0, (1.0, 1.4)), "linewidth": 1.6},
    PROBE: {"color": "#0072b2", "linestyle": (0, (5.0, 2.0)), "linewidth": 1.6},
    BOTH: {"color": "#d55e00", "linestyle": "-", "linewidth": 2.6},  # auto may be the same line: both can be seen
    AUTO: {"color": "#111111", "linestyle": (0, (2.2, 2.2)), "linewidth": 1.6},
}
"""The detectors that are drawn as lines: distinct in grey and for the colour-blind."""
_LONGEST_NAME = 24


def write_detection_report(
    folder: Path, context: DetectionContext, progress: Progress | None = None
) -> tuple[str, str | None]:
    """Read the tables of a folder and write figures/, observations.json, report.html and report.md beside them.

    Returns the sentence that the page begins with, and the detector that it recommends.
    """
    results = DetectionResults.read(folder)
    figures = detection_figures(results, context.model)
    listener = progress or Silent()
    listener.start("figures", len(figures))
    save_all(figures, folder, listener)
    listener.finish()
    readings = read_detection(results, context.left_out, context.model)
    write_json(folder / "observations.json", [check.record() for check in readings])
    card = detection_card(results, readings, context)
    drawn = {figure.name: (SectionFigure(figure.name, figure.chart.alt, figure.chart.caption),) for figure in figures}
    page = SectionsPage(
        "anchorscope detectors",
        f"{context.model}: which detector catches its false answers?",
        (f"{listing([display_name(name) for name in context.datasets])}: {context.setting}.",),
        _sections(results, context, readings, drawn),
        context.command,
        FILES | {path: f"the detector {name}, to score new answers with" for name, path in context.bundles.items()},
        card,
        drawn.get("detector_auroc", ()),
    )
    write_sections_page(page, folder, "report")
    chosen = recommend(results)
    return card.sentence, chosen.detector if chosen and card.trust and card.trust.verdict != "no" else None


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
    away, confidence = (results.mean(name, "other") for name in (chosen.detector, CONFIDENCE))
    elsewhere = "not tested on other data"
    if away is not None:
        elsewhere = f"on other data {number(away.value, DIGITS)}"
        if confidence is not None and chosen.detector != CONFIDENCE:
            elsewhere += f", where {CONFIDENCE} alone has {number(confidence.value, DIGITS)}"
    passes = passes_words(DETECTORS[chosen.detector].passes)
    numbers = f"{chosen.detector} ({passes} per answer): AUROC {estimate(chosen.auroc, DIGITS)}; {elsewhere}"
    if failed:
        return f"No detector is recommended: the permuted-label control failed. The highest would be {numbers}."
    return f"Use {numbers}."


def _sections(
    results: DetectionResults,
    context: DetectionContext,
    readings: Sequence[Reading],
    drawn: Mapping[str, tuple[SectionFigure, ...]],
) -> list[Section]:
    other = [reading for reading in readings if reading.standing == "description"]
    checks = [reading for reading in readings if reading.standing != "description" and reading.estimate is not None]
    tests = sum(reading.p_value is not None for reading in readings)
    about = {name: DETECTORS[name].about for name in results.names}
    about |= {name: f"not here: {reason}" for name, reason in context.left_out.items()}
    explained = (
        "Means over the datasets. AUROC: of as many true as false answers. Calibration error (ECE) and accuracy: at "
        "the natural share of true answers. More metrics are in detectors.csv."
    )
    tested = (
        "Mixture-of-Probes (MoP) and Pathway Reweighting (PR) are the paper's two detectors. Differences are paired; "
        f"p-values are corrected together (Holm, {tests} tests). “No” also means that the interval leaves no room for "
        "a gain of 0.01."
    )
    methods = (
        "Everything is chosen inside the training folds; questions that share a subject are on the same side of a "
        "fold. Intervals come from a bootstrap over groups of questions; the mean over datasets has the interval of "
        "independent estimates, the mean over pairs of datasets the mean of their intervals."
    )
    warnings = (f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in context.warnings)
    return [
        section
        for section in (
            Section("risk", "Risk and coverage", figures=drawn.get("detector_risk_coverage", ())),
            Section("other", "On other data", (), _as_table(other), drawn.get("detector_other_data", ())),
            Section(
                "table",
                "Every detector",
                (explained,),
                filled(("", detector_table(results))),
                more=(Section("what", "What each is", facts=about),),
            ),
            Section("checks", "Checks", (tested, *warnings), _as_table(checks)),
            Section(
                "methods",
                "Methods",
                (methods,),
                facts={display_name(name): words for name, words in context.datasets.items()},
                docs="detectors.md",
            ),
        )
        if section.tables or section.figures or section.text
    ]


def _as_table(readings: Sequence[Reading]) -> Tables:
    return filled(("", readings_table(readings, subjects=False)))


def detector_table(results: DetectionResults) -> Table:
    """Every detector in the mean over the datasets: what it costs, how good it is, what it gains."""

    def auroc(value: Any) -> str:
        return shown(value, lambda measured: estimate(measured, DIGITS))

    rows = [
        (
            name,
            str(DETECTORS[name].passes),
            auroc(results.mean(name, "same")),
            *(shown(results.mean(name, "same", against), signed) for against in (CONFIDENCE, BOTH)),
            auroc(results.mean(name, "other")),
            auroc(results.mean(name, "same", metric="ece", prevalence=NATURAL)),
            auroc(results.mean(name, "same", metric="accuracy@80", prevalence=NATURAL)),
        )
        for name in results.names
    ]
    head = ("AUROC", f"over {CONFIDENCE}", f"over {BOTH}", "AUROC, other data", "ECE", "accuracy, 80% accepted")
    return Table(("detector", "passes", *head), tuple(rows))


# Figures


def detection_figures(results: DetectionResults, model: str) -> list[ExperimentFigure]:
    """The figures that have something to draw."""
    figures = []
    for chart in CHARTS:
        data = chart.rows(results)
        if data.height:
            first = [test for _, test in results.cells["same"]]
            names = tuple(dict.fromkeys((*(name for name in first if name in set(data["dataset"])), *data["dataset"])))
            figures.append(ExperimentFigure(data, (str(chart.note),), chart, model, 0, names, {}))
    return figures


def _short_name(name: str) -> str:
    words = shown_dataset(name)
    return words if len(words) <= _LONGEST_NAME else f"{words[: _LONGEST_NAME - 1]}…"


def _auroc_rows(results: DetectionResults) -> pl.DataFrame:
    """Tested on what was learned from; controls of other detectors are in the table only."""
    entries = [DETECTORS[name] for name in results.names if not DETECTORS[name].variant_of]
    # A detector stands beside its passes; the blanks are such that SVG does not join them.
    lines = {entry.name: f"{entry.name}\u2002\u2002{entry.passes}" for entry in entries}
    kinds = {entry.name: "baseline" if entry.baseline else "detector" for entry in entries}
    rows = select(results.detectors, metric=AUROC, prevalence=BALANCED, detector=list(lines))
    return rows.filter((pl.col("train") == pl.col("test")) & pl.col("value").is_finite()).select(
        pl.col("detector").replace_strict(lines, return_dtype=pl.String).alias("line"),
        pl.col("detector").replace_strict(kinds, return_dtype=pl.String).alias("kind"),
        "detector",
        pl.col("test").alias("dataset"),
        "value",
        "ci_low",
        "ci_high",
        "n",
    )


def _other_rows(results: DetectionResults) -> pl.DataFrame:
    """Gains over confidence on data that was not learned from."""
    drawn = {"metric": AUROC, "prevalence": BALANCED, "against": CONFIDENCE, "detector": list(_LINES)}
    rows = select(results.differences, **drawn).filter(pl.col("train") != pl.col("test"))
    lines = {
        name: "from all the others" if name.startswith("all but ") else f"from {_short_name(name)}"
        for name in rows["train"].unique()
    }
    return rows.filter(pl.col("difference").is_finite()).select(
        pl.col("train").replace_strict(lines, return_dtype=pl.String).alias("line"),
        pl.col("detector").alias("kind"),
        pl.col("test").alias("dataset"),
        pl.col("difference").alias("value"),
        "ci_low",
        "ci_high",
        "n",
    )


_OPEN = {"color": QUIET_INK, "marker": "s", "markerfacecolor": "white", "markeredgecolor": QUIET_INK}
_MARKS: dict[str, dict[str, Any]] = {
    "detector": {"color": INK, "marker": "o"},
    "baseline": _OPEN,
    PROBE: {"color": _LINES[PROBE]["color"], "marker": "s"},
    BOTH: {"color": _LINES[BOTH]["color"], "marker": "o"},
    AUTO: {"color": _LINES[AUTO]["color"], "marker": "D"},
}


def _forest(data: pl.DataFrame, label: str, null: float, offset: float) -> list[Forest]:
    """A line per detector, or per dataset that was learned from; a mark per kind."""
    kinds = set(data["kind"])
    size = {"markersize": 4.2, "linewidth": 1.3, "markeredgewidth": 1.0}
    marks = Marks("kind", {name: (name, size | style) for name, style in _MARKS.items() if name in kinds}, offset)
    lines = {line: line for line in data["line"].unique(maintain_order=True)}
    baselines = set(select(data, kind="baseline")["line"])
    width = 4.2 if data["dataset"].n_unique() == 1 else 2.6
    return [
        Forest(
            "line", lines, marks, label, "", width, null=null, set_apart=baselines, words_once=True, finish=_draw_guide
        )
    ]


def _draw_guide(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    """The AUROC of confidence through all lines."""
    if "detector" in rows.columns:
        for auroc in select(rows, detector=CONFIDENCE)["value"]:
            axes.axvline(auroc, zorder=1.6, **_LINES[CONFIDENCE])


def _room_for_lines(data: pl.DataFrame) -> float:
    return max(0.0, 0.083 * max(map(len, data["line"])) - 0.45)


def _risk_panels(data: pl.DataFrame) -> list[Lines]:
    series = [Series({"detector": name}, line, name, "none") for name, line in _LINES.items()]
    axis: dict[str, Any] = {"x": "coverage", "y": "risk", "x_label": "coverage (answers accepted)"}
    finish, width = _draw_square, _panel_side(data)
    label = "risk (false among them)"
    return [Lines(series, label, "", width, null=None, finish=finish, over_layers=False, **axis)]


def _panel_side(data: pl.DataFrame) -> float:
    return {1: 3.9, 2: 3.3, 3: 3.0}.get(data["dataset"].n_unique(), 2.6)


def _draw_square(axes: Axes, rows: pl.DataFrame, place: Place) -> None:
    axes.set(xlim=(-0.01, 1.01), xticks=np.linspace(0.0, 1.0, 6))
    axes.set_ylim(bottom=0.0)
    axes.grid(True, axis="both")


_LAYOUT: dict[str, Any] = {"side_by_side": 4, "dataset_words": _short_name, "legend_columns": 4}
CHARTS = (
    ChartSpec(
        "detector_auroc",
        "telling true from false answers",
        "AUROC of every detector on every dataset with its interval; that of confidence as a line through all rows; "
        "baselines under a dashed line",
        "AUROC with 95% intervals: the chance that a true answer scores above a false one. Each detector is tested on "
        "the dataset that it learned from, on answers it has not seen.",
        "Out of fold; 0.5 is guessing. Bars: 95% intervals over groups. Dotted line: confidence, which takes no "
        "extra pass. The number beside a name: extra passes through the model per answer.",
        _auroc_rows,
        lambda data: _forest(data, f"AUROC, n = {max(data['n']):,}", 0.5, 0.0),
        share="x",
        height=lambda data: 0.205 * data["line"].n_unique() + 0.1,
        gap=0.22,
        labels=_room_for_lines,
        **_LAYOUT,
    ),
    ChartSpec(
        "detector_risk_coverage",
        "risk and coverage",
        "Risk (false among them) against coverage (answers accepted) of the main detectors, a panel per dataset",
        "How many accepted answers are false, the more are accepted.",
        "Answers are accepted from the most probable down. At full coverage every detector has the same risk.",
        lambda results: select(results.curves, detector=list(_LINES)),
        _risk_panels,
        share="y",
        height=_panel_side,
        gap=0.42,
        **_LAYOUT,
    ),
    ChartSpec(
        "detector_other_data",
        "on other data, beside confidence",
        "What the AUROC of probe, probe+confidence and auto gains over confidence, by the dataset that they learned "
        "from and the one that they are tested on, with intervals",
        "Gain in AUROC over confidence on answers of another dataset (or prompt) than the one learned from.",
        "Paired differences with 95% intervals. Left of zero the model's own confidence, which is free, is better.",
        _other_rows,
        lambda data: _forest(data, "AUROC over confidence", 0.0, 0.22),
        share="x",
        height=lambda data: 0.34 * data["line"].n_unique() + 0.1,
        gap=0.22,
        labels=_room_for_lines,
        **_LAYOUT,
    ),
)
"""In the order of the page."""
