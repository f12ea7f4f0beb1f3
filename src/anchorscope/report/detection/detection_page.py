"""Writes what a reader sees of `anchorscope detect`: figures, readings, report.html and report.md."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.progress import Progress, Silent
from anchorscope.report.charts.parallel import save_all
from anchorscope.report.detection.answer_card import detection_card
from anchorscope.report.detection.context import DetectionContext
from anchorscope.report.detection.detection_charts import detection_figures
from anchorscope.report.detection.detection_readings import read_detection
from anchorscope.report.detection.detection_sections import detection_sections
from anchorscope.report.detection.results import (
    BOTH,
    METRICS,
    PROBE,
    SMALLER_IS_BETTER,
    DetectionResults,
    entry_of,
    shown_place,
)
from anchorscope.report.page_sections import SectionsPage, write_sections_page
from anchorscope.report.page_writer import FRAME_SCRIPTS
from anchorscope.report.palette import display_name
from anchorscope.report.wording import listing, number

SCRIPTS = (*FRAME_SCRIPTS, "hash_state", "controls", "detector_table")
FILES = {
    "report.html": "this page",
    "report.md": "the same as plain text",
    "detectors.csv": "every number with its interval, n and passes: detector × learned from × tested on × metric × "
    "prevalence",
    "differences.csv": "paired differences against probe and against probe+confidence",
    "controls.csv": "tossed labels, random cut, the band of the grader's error",
    "detector_curves.csv": "points of the ROC, risk–coverage and reliability curves",
    "observations.json": "the readings with verdicts, for programs",
    "figures/": "every figure as PNG, SVG and PDF, with the numbers drawn as CSV",
}
_AGAINST = (PROBE, BOTH)
_ROUNDED = 4  # digits of a number in the page's own table


def write_detection_report(folder: Path, context: DetectionContext, progress: Progress | None = None) -> list[str]:
    """Read the tables of a folder and write figures/, observations.json, report.html and report.md beside them.

    Returns the names of what was written, relative to the folder.
    """
    results = DetectionResults.read(folder, [one.name for one in context.datasets])
    figures = detection_figures(results, context.model)
    listener = progress or Silent()
    listener.start("figures", len(figures))
    save_all(figures, folder, listener)
    listener.finish()
    readings = read_detection(results, context.left_out)
    records = [one.record(context.model) for one in readings.all]
    text = json.dumps(records, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "observations.json").write_text(text + "\n", encoding="utf-8")
    sections = detection_sections(results, context, readings, {figure.name for figure in figures})
    saved = {
        place: f"{name}, saved: use it with anchorscope score --detector" for name, place in context.bundles.items()
    }
    page = SectionsPage(
        "anchorscope detectors",
        f"{context.model}: which detector catches its false answers?",
        (_run_line(context),),
        sections,
        context.command,
        FILES | saved,
        detection_card(results, readings, context),
    )
    write_sections_page(page, folder, "report", SCRIPTS, {"detector-data": page_table(results)})
    drawn = [f"figures/{figure.name}.{kind}" for figure in figures for kind in ("png", "svg", "pdf", "csv")]
    return [*drawn, "observations.json", "report.html", "report.md"]


def page_table(results: DetectionResults) -> dict[str, Any]:
    """detectors.csv and differences.csv for the page's own table: names once, rows as numbers."""
    places = list(dict.fromkeys(name for cell in results.cells for name in (cell.train, cell.test)))
    metrics = [name for name in METRICS if name in set(results.detectors["metric"])]
    prevalences = sorted(results.detectors["prevalence"].unique(), key=lambda name: name != results.prevalence)
    codes = {
        "detector": results.names,
        "against": _AGAINST,
        "train": places,
        "test": places,
        "metric": metrics,
        "prevalence": prevalences,
    }
    where = ("train", "test", "metric", "prevalence")
    return {
        "detectors": [[name, results.passes(name), _kind(name)] for name in results.names],
        "against": [name for name in _AGAINST if name in results.names],
        "places": [shown_place(name) for name in places],
        "metrics": [[name, METRICS[name], name in SMALLER_IS_BETTER] for name in metrics],
        "prevalences": prevalences,
        "rows": _coded(results.detectors, codes, ("detector", *where), ("value", "ci_low", "ci_high", "n")),
        "gains": _coded(
            results.differences, codes, ("detector", "against", *where), ("difference", "ci_low", "ci_high")
        ),
    }


def _coded(
    table: pl.DataFrame, codes: dict[str, Sequence[str]], keys: Sequence[str], numbers: Sequence[str]
) -> list[list[float | int | None]]:
    """Rows of which every name is known, names as places in their lists, numbers rounded."""
    known = table.filter(pl.all_horizontal(pl.col(key).is_in(list(codes[key])) for key in keys))
    places = [{name: place for place, name in enumerate(codes[key])} for key in keys]
    return [
        [*(place[name] for place, name in zip(places, row[: len(keys)], strict=True)), *map(_short, row[len(keys) :])]
        for row in known.select(*keys, *numbers).iter_rows()
    ]


def _short(value: float | int | None) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else round(value, _ROUNDED)


def _kind(name: str) -> str:
    entry = entry_of(name)
    return "variant" if entry.variant_of else "baseline" if entry.baseline else "detector"


def _run_line(context: DetectionContext) -> str:
    runs = f"{len(context.runs)} run" + ("s" if len(context.runs) != 1 else "")
    names = listing([display_name(one.name) for one in context.datasets]) if context.datasets else "no dataset"
    return (
        f"Trained on the kept states of {runs} of {context.model}, on {names}, with {len(context.seeds)} seeds of "
        f"the folds, in {number(context.seconds, 0)} s."
    )
