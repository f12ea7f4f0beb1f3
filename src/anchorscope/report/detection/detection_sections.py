"""The sections of the detectors' page: what was compared, what came out, what it rests on."""

from collections.abc import Collection

from anchorscope.report.detection.context import DetectionContext
from anchorscope.report.detection.detection_charts import CHARTS
from anchorscope.report.detection.detection_readings import DetectionReadings
from anchorscope.report.detection.detection_tables import (
    auroc_table,
    catalogue_table,
    controls_table,
    datasets_table,
    metrics_table,
    paper_table,
    prompt_table,
)
from anchorscope.report.detection.results import BOTH, PROBE, DetectionResults
from anchorscope.report.page_sections import Section, SectionFigure, Tables, filled

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
    tests = sum(one.p_value is not None for one in readings.tested)
    other_prompt = ("Another prompt: the same questions put another way", prompt_table(results))
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
