"""The page of `anchorscope detect`: report.html and report.md with their tables and figures."""

import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.progress import Progress, Silent
from anchorscope.report.answer_card import AnswerCard, NextStep, Trust
from anchorscope.report.charts.display import save_all
from anchorscope.report.detection.detection_charts import CHARTS, detection_figures
from anchorscope.report.detection.readings import DIGITS, DetectionReadings, passes_words, read_detection, signed
from anchorscope.report.detection.results import (
    AUTO,
    BOTH,
    CONFIDENCE,
    METRICS,
    PROBE,
    SMALLER_IS_BETTER,
    DetectionContext,
    DetectionResults,
    entry_of,
    shown_dataset,
)
from anchorscope.report.page_sections import Section, SectionFigure, SectionsPage, filled, write_sections_page
from anchorscope.report.page_writer import FRAME_SCRIPTS
from anchorscope.report.palette import display_name
from anchorscope.report.reading import readings_table
from anchorscope.report.wording import NOTHING, Table, count, estimate, listing, number, percent
from anchorscope.stats.estimate import Estimate

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
_METHODS = (
    "Layer, penalty, gate, stacking weights and calibration are chosen inside the training folds; questions that share "
    "a subject are always on the same side of a fold, across datasets too. Intervals come from a bootstrap over groups "
    "of questions. The mean over datasets has the interval of independent estimates; the mean over pairs of datasets, "
    "which share answers, has the mean of their intervals. A gate reads from the clean state how far the cut will move "
    "the score, so it needs no label.",
)


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
    text = json.dumps([one.record() for one in readings.all], indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "observations.json").write_text(text + "\n", encoding="utf-8")
    made = {figure.name for figure in figures}
    page = SectionsPage(
        "anchorscope detectors",
        f"{context.model}: which detector catches its false answers?",
        (_setting(context),),
        _sections(results, context, readings, made),
        context.command,
        FILES | {path: f"the detector {name}, to score new answers with" for name, path in context.bundles.items()},
        card := detection_card(results, readings, context),
        _figures(made, "detector_auroc"),
    )
    write_sections_page(page, folder, "report", SCRIPTS, {"detector-data": page_table(results)})
    return card


def detection_card(results: DetectionResults, readings: DetectionReadings, context: DetectionContext) -> AnswerCard:
    """The detector to use, whether to trust the numbers, and how to use it."""
    chosen = readings.recommendation
    bundle = context.bundles.get(chosen.detector) if chosen else None
    why = "From this folder, score new answers:"
    steps = (NextStep(why, f"anchorscope score --detector {bundle} FILE"),) if bundle else ()
    return AnswerCard(context.model, answer_sentence(results, readings), _trust(readings), next_steps=steps)


def answer_sentence(results: DetectionResults, readings: DetectionReadings) -> str:
    """Use X: AUROC …; on other data …. No recommendation where the permuted-label control failed."""
    chosen = readings.recommendation
    if chosen is None:
        return "No detector was tested on the dataset that it learned from, so that none can be recommended."
    away = results.mean(chosen.detector, results.elsewhere)
    confidence = results.mean(CONFIDENCE, results.elsewhere)
    elsewhere = "not tested on other data"
    if away is not None:
        elsewhere = f"on other data {number(away.value, DIGITS)}"
        if confidence is not None and chosen.detector != CONFIDENCE:
            elsewhere += f", where {CONFIDENCE} alone has {number(confidence.value, DIGITS)}"
    passes = passes_words(results.passes.get(chosen.detector))
    numbers = f"{chosen.detector} ({passes} per answer): AUROC {estimate(chosen.auroc, DIGITS)}; {elsewhere}"
    permuted = readings.named("permuted_labels")
    if permuted is not None and permuted.verdict == "no":
        return f"No detector is recommended: the permuted-label control failed. The highest would be {numbers}."
    return f"Use {numbers}."


def _trust(readings: DetectionReadings) -> Trust:
    """No where the permuted-label control failed; yes where the probabilities are calibrated too."""
    permuted, calibrated = readings.named("permuted_labels"), readings.named("calibrated")
    reasons = [f"chosen because {readings.recommendation.reason}"] if readings.recommendation else []
    reasons += [f"{one.topic}: {one.numbers.partition(';')[0]}" for one in (permuted, calibrated) if one is not None]
    if permuted is None:
        reasons.append("the control with permuted labels was not run")
    if permuted is not None and permuted.verdict == "no":
        return Trust("no", "; ".join(reasons))
    passed = all(one is not None and one.verdict == "yes" for one in (permuted, calibrated))
    return Trust("yes" if passed else "partly", "; ".join(reasons))


def _setting(context: DetectionContext) -> str:
    runs = f"{len(context.runs)} run{'s' * (len(context.runs) != 1)}"
    seeds = f"{len(context.seeds)} fold seed{'s' * (len(context.seeds) != 1)}"
    names = listing([display_name(facts.name) for facts in context.datasets]) if context.datasets else "no dataset"
    return f"{runs} on {names}, {seeds}, {number(context.seconds, 0)} s."


def _figures(made: Collection[str], *names: str) -> tuple[SectionFigure, ...]:
    charts = [chart for chart in CHARTS if chart.name in names and chart.name in made]
    return tuple(SectionFigure(chart.name, chart.alt, chart.caption) for chart in charts)


def _sections(
    results: DetectionResults, context: DetectionContext, readings: DetectionReadings, made: Collection[str]
) -> list[Section]:
    curves = _figures(made, "detector_roc")
    roc = (Section("", "ROC curves", figures=curves),) if curves else ()
    tests = sum(reading.p_value is not None for reading in readings.tested)
    other = (("", readings_table(readings.transfer, subjects=False)), ("", transfer_table(results)))
    what = {name: f"not here: {reason}" for name, reason in context.left_out.items()}
    methods = {"runs": ", ".join(context.runs), "fold seeds": ", ".join(map(str, context.seeds))}
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
        Section("other", "On other data", (), filled(*other)),
        Section(
            "verdicts",
            "MoP, PR and pathways",
            (
                "Mixture-of-Probes (MoP) and Pathway Reweighting (PR) are the paper's two detectors. Differences are "
                f"paired; p-values are corrected together (Holm, {tests} tests). “No” also means that the interval "
                "leaves no room for a gain of 0.01.",
            ),
            filled(("", readings_table(readings.tested, subjects=False))),
        ),
        Section("risk", "Risk and coverage", figures=_figures(made, "detector_risk_coverage"), more=roc),
        Section("calibration", "Calibration", figures=_figures(made, "detector_reliability")),
        Section("controls", "Controls", warnings, filled(("", readings_table(readings.controls, subjects=False)))),
        Section("what", "What each is", (), filled(("", catalogue_table(results, context))), facts=what),
        Section("methods", "Methods", _METHODS, filled(("", datasets_table(context))), facts=methods),
    ]
    return [section for section in sections if section.tables or section.figures or section.text]


def auroc_table(results: DetectionResults) -> Table:
    """Every detector on every dataset, tested on what it learned from; and what it gains over the two to beat."""
    cells = results.in_domain
    rows = []
    for name in results.names:
        values = [results.value(name, cell) for cell in cells]
        if any(value is not None for value in values):
            gains = [results.mean(name, cells, against) if name != against else None for against in (PROBE, BOTH)]
            shown = [signed(gain) if gain else NOTHING for gain in gains]
            rows.append((name, _passes(results, name), *map(_auroc, values), *shown))
    head = ("detector", "passes", *(shown_dataset(cell.test) for cell in cells), f"over {PROBE}", f"over {BOTH}")
    return Table(head, tuple(rows))


def transfer_table(results: DetectionResults) -> Table:
    """AUROC of the main detectors on data that they did not learn from."""
    names = [name for name in (CONFIDENCE, PROBE, BOTH, AUTO) if name in results.names]
    rows = tuple(
        (shown_dataset(cell.train), shown_dataset(cell.test), *(_auroc(results.value(name, cell)) for name in names))
        for cell in (*results.elsewhere, *results.held_out, *results.prompted)
    )
    return Table(("learned from", "tested on", *names), rows, 2)


def catalogue_table(results: DetectionResults, context: DetectionContext) -> Table:
    """What each detector is, and where it was saved."""
    rows = [
        (name, entry_of(name).about, _passes(results, name), context.bundles.get(name, NOTHING))
        for name in results.names
    ]
    return Table(("detector", "what it is", "passes", "saved in this folder"), tuple(rows), 2)


def datasets_table(context: DetectionContext) -> Table:
    """The answers behind the numbers."""
    rows = tuple(
        (
            display_name(facts.name),
            count(facts.n_used),
            count(facts.n_true),
            count(facts.n_graded),
            percent(Estimate(facts.natural_prevalence, math.nan, math.nan, facts.n_graded, "")),
            "tested only" if facts.target_only else "learned from and tested",
        )
        for facts in context.datasets
    )
    return Table(("dataset", "used", "true", "graded in all", "true among these", "role"), rows)


def _auroc(value: Estimate | None) -> str:
    return NOTHING if value is None else estimate(value, DIGITS)


def _passes(results: DetectionResults, name: str) -> str:
    return count(results.passes[name]) if name in results.passes else NOTHING


def page_table(results: DetectionResults) -> dict[str, Any]:
    """detectors.csv and differences.csv for the page's sortable table: names once, rows as numbers."""
    places = list(dict.fromkeys(name for cell in results.cells for name in (cell.train, cell.test)))
    metrics = [name for name in METRICS if name in set(results.detectors["metric"])]
    prevalences = sorted(results.detectors["prevalence"].unique(), key=lambda name: name != results.prevalence)
    against = [name for name in (PROBE, BOTH) if name in results.names]
    codes: dict[str, Sequence[str]] = {
        "detector": results.names,
        "against": against,
        "train": places,
        "test": places,
        "metric": metrics,
        "prevalence": prevalences,
    }
    where = ("train", "test", "metric", "prevalence")
    gains = _coded_rows(
        results.differences, codes, ("detector", "against", *where), ("difference", "ci_low", "ci_high")
    )
    return {
        "detectors": [[name, results.passes.get(name), _kind(name)] for name in results.names],
        "against": against,
        "places": [shown_dataset(name) for name in places],
        "metrics": [[name, METRICS[name], name in SMALLER_IS_BETTER] for name in metrics],
        "prevalences": prevalences,
        "rows": _coded_rows(results.detectors, codes, ("detector", *where), ("value", "ci_low", "ci_high", "n")),
        "gains": gains,
    }


def _coded_rows(
    table: pl.DataFrame, codes: dict[str, Sequence[str]], keys: Sequence[str], numbers: Sequence[str]
) -> list[list[float | int | None]]:
    """Rows whose names are all in the lists: names as places in them, numbers with four digits or none."""
    listed = table.filter(pl.all_horizontal(pl.col(key).is_in(list(codes[key])) for key in keys))
    coded = listed.select(
        *(pl.col(key).replace_strict({name: place for place, name in enumerate(codes[key])}) for key in keys),
        *(pl.when(pl.col(name).is_finite()).then(pl.col(name).round(4)).alias(name) for name in numbers if name != "n"),
        *(pl.col(name) for name in numbers if name == "n"),
    )
    return [list(row) for row in coded.iter_rows()]


def _kind(name: str) -> str:
    entry = entry_of(name)
    return "variant" if entry.variant_of else "baseline" if entry.baseline else "detector"
