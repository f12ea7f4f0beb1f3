"""The page of `anchorscope detect`: answer card, sections, tables and figures of report.html and report.md.

Tables are plain text in cells: both templates (HTML and Markdown) draw the same ones.
"""

import json
import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.progress import Progress, Silent
from anchorscope.report.answer_card import AnswerCard, NextStep, Tile
from anchorscope.report.charts.display import save_all
from anchorscope.report.detection import paper
from anchorscope.report.detection.detection_charts import CHARTS, detection_figures
from anchorscope.report.detection.readings import (
    DIGITS,
    LABEL_NOISE,
    PERMUTED,
    RANDOM_CUT,
    DetectionReadings,
    better_simple,
    calibration_cells,
    claim_name,
    passes_words,
    read_detection,
    signed,
    signed_estimate,
)
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
    mean_of_datasets,
    mean_value,
    shown_place,
)
from anchorscope.report.page_sections import Section, SectionFigure, SectionsPage, Tables, filled, write_sections_page
from anchorscope.report.page_writer import FRAME_SCRIPTS
from anchorscope.report.palette import display_name
from anchorscope.report.verdicts import CALIBRATED, Verdict, all_of
from anchorscope.report.wording import MISSING, NOTHING, Table, count, estimate, listing, number, shown, spanned
from anchorscope.stats.estimate import Estimate

_CONTROLS = {
    PERMUTED: "permuted labels: AUROC",
    RANDOM_CUT: "knockout − random cut",
    LABEL_NOISE: "grader's error: AUROC",
}
_REPORTED = ("auroc", "auprc", "brier", "ece", "e-aurc", "prr", "accuracy@50", "accuracy@80", "accuracy@90")


def _auroc(found: Estimate | None) -> str:
    return shown(found, lambda one: estimate(one, DIGITS))


def auroc_table(results: DetectionResults) -> Table:
    """Every detector on every dataset, tested on what it learned from; and what it gains over the two to beat."""
    cells = results.in_domain
    tested = [f"{shown_place(cell.test)}, n = {count(results.n_tested(cell))}" for cell in cells]
    head = ("detector", "passes", *tested, f"over {PROBE}", f"over {BOTH}")
    rows = []
    for name in results.names:
        values = [results.value(name, cell) for cell in cells]
        if any(value is not None for value in values):
            rows.append(
                (
                    name,
                    _passes(results, name),
                    *map(_auroc, values),
                    *(_gain(results, name, against) for against in (PROBE, BOTH)),
                )
            )
    return Table(head, tuple(rows))


def _gain(results: DetectionResults, name: str, against: str) -> str:
    from_each = (
        []
        if name == against
        else [one for cell in results.in_domain if (one := results.difference(name, against, cell)) is not None]
    )
    return shown(mean_of_datasets(from_each), signed_estimate)


def metrics_table(results: DetectionResults, detectors: Sequence[str], prevalence: str) -> Table:
    """Every metric of a few detectors at one prevalence, dataset by dataset."""
    rows = []
    for cell in results.in_domain:
        for name in detectors:
            values = [results.value(name, cell, metric, prevalence) for metric in _REPORTED]
            if any(value is not None for value in values):
                cells = [NOTHING if one is None else number(one.value, DIGITS) for one in values]
                rows.append((shown_place(cell.test), name, *cells))
    return Table(("dataset", "detector", *(METRICS[metric] for metric in _REPORTED)), tuple(rows), 2)


def prompt_table(results: DetectionResults) -> Table:
    """The shift to another prompt."""
    names = [name for name in (CONFIDENCE, PROBE, BOTH, "mop", "counterfactual", AUTO) if name in results.names]
    rows = tuple(
        (shown_place(cell.train), shown_place(cell.test), *(_auroc(results.value(name, cell)) for name in names))
        for cell in results.prompted
    )
    return Table(("learned from", "tested on", *names), rows, 2)


def paper_table(results: DetectionResults) -> Table:
    """The paper's table and ours, with what MoP and PR gain over the probe."""
    ours = [name for name in results.datasets if any(cell.test == name for cell in results.in_domain)]
    columns = [*paper.DATASETS, *(name for name in ours if name not in paper.DATASETS)]
    rows = [*_paper_rows(columns), *_own_rows(results, columns)]
    return Table(("whose", "detector", *map(display_name, columns), "mean", "over its probe"), tuple(rows), 2)


def _paper_rows(columns: Sequence[str]) -> list[tuple[str, ...]]:
    rows = []
    for model, table in paper.TABLE.items():
        probe = sum(table[paper.PROBE]) / len(paper.DATASETS)
        for name in ("Logits-min", paper.PROBE, paper.MOP, paper.PR):
            values = dict(zip(paper.DATASETS, table[name], strict=True))
            mean = sum(values.values()) / len(values)
            gain = NOTHING if name == paper.PROBE else signed((mean - probe) / 100)
            cells = [number(values[column] / 100, DIGITS) if column in values else NOTHING for column in columns]
            rows.append((f"paper, {model}", name, *cells, number(mean / 100, DIGITS), gain))
    return rows


def _own_rows(results: DetectionResults, columns: Sequence[str]) -> list[tuple[str, ...]]:
    rows = []
    for name in (CONFIDENCE, PROBE, "mop", "pr-attention", BOTH, "counterfactual", AUTO):
        if name not in results.names:
            continue
        cells = {cell.test: results.value(name, cell) for cell in results.in_domain}
        # Without intervals, as the paper's stand: these are in the table of all detectors.
        values = [NOTHING if (one := cells.get(column)) is None else number(one.value, DIGITS) for column in columns]
        rows.append(
            ("here", name, *values, _auroc(mean_value(results, name, results.in_domain)), _gain(results, name, PROBE))
        )
    return rows


def controls_table(results: DetectionResults) -> Table:
    """Every row of controls.csv, a detector and a dataset each."""
    kinds = [kind for kind in _CONTROLS if kind in set(results.controls["control"])]
    show: dict[str, Callable[[Estimate], str]] = {RANDOM_CUT: signed_estimate}
    rows = []
    for name in results.names:
        for cell in results.in_domain:
            found = {kind: results.control(kind, name, cell.train) for kind in kinds}
            if any(one is not None for one in found.values()):
                cells = [NOTHING if one is None else show.get(kind, _auroc)(one) for kind, one in found.items()]
                rows.append((name, shown_place(cell.train), *cells))
    return Table(("detector", "dataset", *(_CONTROLS[kind] for kind in kinds)), tuple(rows), 2)


def catalogue_table(results: DetectionResults, context: DetectionContext) -> Table:
    """What each detector is; of those that are not here, why."""
    rows = [
        (name, entry_of(name).about, _passes(results, name), context.bundles.get(name, NOTHING))
        for name in results.names
    ]
    return Table(("detector", "what it is", "passes", "saved in"), tuple(rows), 2)


def datasets_table(context: DetectionContext) -> Table:
    """The answers behind the numbers."""
    rows = tuple(
        (
            display_name(facts.name),
            count(facts.n_used),
            count(facts.n_true),
            count(facts.n_graded),
            f"{number(100 * facts.natural_prevalence, 1)}\u00a0%",
            "tested only" if facts.target_only else "learned from and tested",
        )
        for facts in context.datasets
    )
    return Table(("dataset", "used", "true", "graded in all", "true among these", "role"), rows)


def _passes(results: DetectionResults, name: str) -> str:
    return count(results.passes(name)) if results.passes(name) is not None else NOTHING


_PAPER = (
    "The paper's numbers beside ours: its models, questions and grading are others, and it gives no intervals, so that "
    "gains over the probe can be compared and heights cannot"
)
_METHODS = (
    "Everything that is chosen (layer, penalty, gate, strength, stacking weights, calibration) is chosen inside the "
    "training folds; questions that share a subject never stand on both sides of a fold, across datasets either. "
    "Intervals come from a bootstrap over groups of questions. The mean over datasets has the interval of independent "
    "estimates; the mean over pairs of datasets, which share answers, has the mean of their intervals.",
    "Under the paper's plain rule an item's pathway is found with its label, and nearly is its label. A gate here goes "
    "by what a probe reads in the clean state of how far the cut moves the score, which needs no label.",
)


def detection_sections(
    results: DetectionResults, context: DetectionContext, readings: DetectionReadings, drawn: Collection[str]
) -> list[Section]:
    """All of them, in the order of the page; `drawn` are the figures that were made."""

    def figures(*names: str) -> tuple[SectionFigure, ...]:
        return tuple(
            SectionFigure(chart.name, chart.alt, chart.caption, chart.name == "detector_transfer")
            for chart in CHARTS
            if chart.name in names and chart.name in drawn
        )

    curves = figures("detector_risk_coverage", "detector_reliability", "detector_roc")
    numbers = Section("", "The numbers", tables=filled(("", auroc_table(results))))
    variants = Section("", "Detectors with another gate or cut", figures=figures("detector_variants"))
    transfer = figures("detector_transfer")
    others = Section("", "The other detectors beside confidence, pair by pair", asked=readings.other_transfer)
    single = Section("", "Control by control", tables=filled(("", controls_table(results))))
    tests = sum(reading.p_value is not None for reading in readings.tested)
    other_prompt = ("Another prompt: the same questions, worded differently", prompt_table(results))
    return [
        Section(
            "detectors",
            "Every detector",
            (
                "AUROC is the chance that a true answer scores above a false one: 0.5 is guessing. Overlapping "
                "intervals say little about a difference: that is measured on the same answers, in the numbers' "
                "last columns.",
            ),
            figures=figures("detector_auroc"),
            asked=readings.choice,
            more=_kept(numbers, variants),
        ),
        *(
            [
                Section(
                    "other",
                    "On other data",
                    (),
                    filled(other_prompt),
                    transfer,
                    asked=readings.transfer,
                    more=_kept(others),
                )
            ]
            if readings.transfer
            else []
        ),
        Section(
            "verdicts",
            "MoP, PR and pathways",
            (
                "Mixture-of-Probes (MoP) and Pathway Reweighting (PR) are the paper's two detectors. Differences are "
                f"paired, and p-values corrected together (Holm, {tests} tests). A gain does not hold where its "
                "interval leaves no room for 0.01.",
            ),
            filled((_PAPER, paper_table(results))),
            asked=readings.tested,
        ),
        Section(
            "table",
            "The whole table",
            (
                "Balanced: as many true answers as false ones. Natural: as the model answers. Of Brier score, ECE "
                "(expected calibration error) and E-AURC (excess area under the risk–coverage curve) less is better; "
                "of AUPRC (for true answers), PRR (prediction–rejection ratio) and accuracy at a coverage, more.",
            ),
            _metrics(results, readings),
            live="detector-table",
        ),
        Section("decide", "Decisions", () if curves else ("No curves were written.",), figures=curves),
        Section("controls", "Controls", asked=readings.controls, more=_kept(single)),
        Section(
            "what",
            "What each is",
            (),
            filled(("", catalogue_table(results, context))),
            facts={name: f"is not here: {reason}" for name, reason in context.left_out.items()},
        ),
        Section(
            "methods",
            "Methods",
            _METHODS,
            filled(("", datasets_table(context))),
            facts={"runs": ", ".join(context.runs), "fold seeds": ", ".join(map(str, context.seeds)), **context.facts},
        ),
    ]


def _kept(*parts: Section) -> tuple[Section, ...]:
    """Those with anything in them."""
    return tuple(part for part in parts if part.tables or part.figures or part.asked)


def _metrics(results: DetectionResults, readings: DetectionReadings) -> Tables:
    """Every metric of the chosen detector and the two to beat, at each prevalence."""
    chosen = readings.recommendation.detector if readings.recommendation else PROBE
    names = list(dict.fromkeys(name for name in (chosen, BOTH, PROBE) if name in results.names))
    prevalences = results.detectors["prevalence"].unique(maintain_order=True)
    return filled(*((f"{name.capitalize()} prevalence", metrics_table(results, names, name)) for name in prevalences))


_BESIDE_SIMPLE: dict[Verdict, str] = {
    "yes": "It loses nothing to {}, the better of probe and confidence there.",
    "no": "It is worse than {}, the better of probe and confidence there.",
    "inconclusive": "Whether it is as good as {}, the better of probe and confidence there, is undecided.",
}
_PERMUTED: dict[Verdict, str] = {
    "yes": "Permuted labels stay at 0.50.",
    "inconclusive": "Permuted labels: undecided.",
    "no": "Permuted-label control failed: do not rely on these numbers.",
}


def detection_card(results: DetectionResults, readings: DetectionReadings, context: DetectionContext) -> AnswerCard:
    """The card of a folder of detectors."""
    found = readings.recommendation
    saved = context.bundles.get(found.detector) if found else None
    steps = (NextStep("Score new answers:", f"anchorscope score --detector {saved} FILE"),) if saved else ()
    tiles = (_best(results, readings), _pathways(readings), _other_data(results, readings), _trust(results, readings))
    sentence = answer_sentence(results, readings)
    return AnswerCard(context.model, sentence, warnings=context.warnings, next_steps=steps, tiles=tiles)


def answer_sentence(results: DetectionResults, readings: DetectionReadings) -> str:
    """Use X: AUROC …; it costs …; on other data …. No recommendation where permuted labels are told apart."""
    found = readings.recommendation
    if found is None:
        return "No detector was tested on the dataset that it learned from, so that none can be recommended."
    away = mean_value(results, found.detector, results.elsewhere, independent=False)
    confidence = mean_value(results, CONFIDENCE, results.elsewhere, independent=False)
    elsewhere = "on other data it was not tested"
    if away is not None:
        elsewhere = f"on other data {number(away.value, DIGITS)}"
        if confidence is not None and found.detector != CONFIDENCE:
            elsewhere += f", where {CONFIDENCE} alone has {number(confidence.value, DIGITS)}"
    numbers = (
        f"{found.detector}: AUROC {estimate(found.auroc, DIGITS)}; it costs {passes_words(found.passes)} per answer; "
        f"{elsewhere}"
    )
    if _control_failed(readings):
        return f"No detector is recommended: the permuted-label control failed. The highest would be {numbers}."
    return f"Use {numbers}."


def _control_failed(readings: DetectionReadings) -> bool:
    permuted = readings.named("permuted_labels")
    return permuted is not None and permuted.verdict == "no"


def _best(results: DetectionResults, readings: DetectionReadings) -> Tile:
    asked, found = "Is one worth its passes?", readings.recommendation
    if found is None:
        return Tile(asked, MISSING, "No detector was tested on what it learned from.", "inconclusive")
    probe = mean_value(results, PROBE, results.in_domain)
    beside = "" if probe is None or found.detector == PROBE else f" The probe alone has {number(probe.value, DIGITS)}."
    detail = f"AUROC {estimate(found.auroc, DIGITS)}, {passes_words(found.passes)}: {found.reason}.{beside}"
    return Tile(asked, found.detector, detail, "inconclusive" if _control_failed(readings) else "yes")


def _pathways(readings: DetectionReadings) -> Tile:
    asked = f"Do pathways add to {BOTH}?"
    names = (
        "counterfactual_beats_probe_and_confidence",
        "counterfactual_beats_random_cut",
        "mop_beats_probe_and_confidence",
    )
    main, random, mop = (reading if reading and reading.found else None for reading in map(readings.named, names))
    if main is None:
        return Tile(asked, MISSING, "The counterfactual detector was not fitted here.", "inconclusive")
    parts = ["The counterfactual detector over it."]
    parts += [f"With the knockout against a random cut {signed_estimate(random.found)}."] if random else []
    parts += [f"Mixture-of-Probes over it {signed_estimate(mop.found)}."] if mop else []
    verdicts = [reading.verdict for reading in (main, random) if reading and reading.verdict]
    return Tile(asked, signed_estimate(main.found), " ".join(parts), all_of(verdicts))


def _other_data(results: DetectionResults, readings: DetectionReadings) -> Tile:
    asked, found = "Does it serve on other data?", readings.recommendation
    if not results.elsewhere or found is None:
        return Tile(asked, MISSING, "No detector was tested on another dataset than it learned from.", "inconclusive")
    first = readings.named(f"{claim_name(found.detector)}_transfers")
    away, held_out = (
        mean_value(results, found.detector, cells, independent=False) for cells in (results.elsewhere, results.held_out)
    )
    parts = [f"{found.detector} learned from one dataset and tested on another."]
    parts += [f"Learned from all others: {number(held_out.value, DIGITS)}."] if held_out else []
    verdict = first.verdict if first else None
    parts += [_BESIDE_SIMPLE[verdict].format(better_simple(results, results.elsewhere))] if verdict else []
    return Tile(asked, estimate(away, DIGITS), " ".join(parts), verdict or "inconclusive")


def _trust(results: DetectionResults, readings: DetectionReadings) -> Tile:
    calibrated, permuted = readings.named("calibrated"), readings.named("permuted_labels")
    detector = readings.recommendation.detector if readings.recommendation else ""
    cells = calibration_cells(results, detector)
    span = spanned((ece.value for ece in cells.values()), lambda value: number(value, DIGITS))
    inside = sum(ece.value <= CALIBRATED for ece in cells.values())
    parts = [f"At most {number(CALIBRATED, 2)} in {inside} of {len(cells)} cells."] if calibrated else []
    parts.append("Permuted labels were not run." if permuted is None else _PERMUTED[permuted.verdict or "inconclusive"])
    verdicts: list[Verdict] = [check.verdict for check in (calibrated, permuted) if check is not None and check.verdict]
    return Tile(
        "Are calibration and controls in order?", f"ECE {span}" if cells else MISSING, " ".join(parts), all_of(verdicts)
    )


SCRIPTS = (*FRAME_SCRIPTS, "hash_state", "controls", "detector_table")
FILES = {
    "report.html": "this page",
    "report.md": "the same as plain text",
    "detectors.csv": "every number with its interval, n and passes: detector × learned from × tested on × metric × "
    "prevalence",
    "differences.csv": "paired differences against probe and against probe+confidence",
    "controls.csv": "permuted labels, random cut, the band of the grader's error",
    "detector_curves.csv": "points of the ROC, risk–coverage and reliability curves",
    "observations.json": "the readings with verdicts, for programs",
    "figures/": "every figure as PNG, SVG and PDF, with the numbers drawn as CSV",
}
_AGAINST = (PROBE, BOTH)
_ROUNDED = 4  # digits of a number in the page's own table


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
    readings = read_detection(results, context.left_out)
    records = [reading.record(context.model) for reading in readings.all]
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
        card := detection_card(results, readings, context),
    )
    write_sections_page(page, folder, "report", SCRIPTS, {"detector-data": page_table(results)})
    return card


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
    names = listing([display_name(facts.name) for facts in context.datasets]) if context.datasets else "no dataset"
    return (
        f"Trained on the kept states of {runs} of {context.model}, on {names}, with {len(context.seeds)} seeds of "
        f"the folds, in {number(context.seconds, 0)} s."
    )
