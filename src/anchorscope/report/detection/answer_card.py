"""The first thing on the page: which detector to use, what it costs, what it does on other data; then four tiles."""

from anchorscope.report.answer_card import AnswerCard, NextStep, Tile
from anchorscope.report.detection.averages import mean_value
from anchorscope.report.detection.context import DetectionContext
from anchorscope.report.detection.control_readings import calibration_cells
from anchorscope.report.detection.detection_reading import DIGITS, claim_name, passes_words, signed_estimate
from anchorscope.report.detection.detection_readings import DetectionReadings
from anchorscope.report.detection.recommendation import Recommendation
from anchorscope.report.detection.results import BOTH, CONFIDENCE, PROBE, DetectionResults
from anchorscope.report.detection.transfer_readings import better_simple
from anchorscope.report.verdicts import CALIBRATED, Verdict, all_of
from anchorscope.report.wording import MISSING, estimate, number, spanned

_BESIDE_SIMPLE: dict[Verdict, str] = {
    "yes": "It loses nothing to {}, the better of probe and confidence there.",
    "no": "It is worse than {}, the better of probe and confidence there.",
    "inconclusive": "Whether it is as good as {}, the better of probe and confidence there, is undecided.",
}
_TOSSED: dict[Verdict, str] = {
    "yes": "Tossed labels stay at 0.50.",
    "inconclusive": "Tossed labels: undecided.",
    "no": "Tossed labels do not stay at 0.50: do not believe this table.",
}


def detection_card(results: DetectionResults, readings: DetectionReadings, context: DetectionContext) -> AnswerCard:
    """The card of a folder of detectors."""
    found = readings.recommendation
    saved = context.bundles.get(found.detector) if found else None
    steps = (NextStep("Score new answers:", f"anchorscope score --detector {saved} FILE"),) if saved else ()
    sentence = answer_sentence(results, found)
    shown = tiles(results, readings)
    return AnswerCard(context.model, sentence, warnings=context.warnings, next_steps=steps, tiles=shown)


def answer_sentence(results: DetectionResults, found: Recommendation | None) -> str:
    """Use X: AUROC …; it costs …; on other data …."""
    if found is None:
        return "No detector was tested on the dataset that it learned from, so that none can be recommended."
    cost = f"it costs {passes_words(found.passes)} per answer"
    return f"Use {found.detector}: AUROC {estimate(found.auroc, DIGITS)}; {cost}; {_away(results, found.detector)}."


def tiles(results: DetectionResults, readings: DetectionReadings) -> tuple[Tile, ...]:
    """Best detector, what pathways add, other data, calibration and controls."""
    found = readings.recommendation
    return (_best(results, found), _pathways(readings), _other_data(results, readings), _trust(results, readings))


def _away(results: DetectionResults, detector: str) -> str:
    away = mean_value(results, detector, results.elsewhere, independent=False)
    if away is None:
        return "on other data it was not tested"
    confidence = mean_value(results, CONFIDENCE, results.elsewhere, independent=False)
    beside = (
        ""
        if confidence is None or detector == CONFIDENCE
        else (f", where {CONFIDENCE} alone has {number(confidence.value, DIGITS)}")
    )
    return f"on other data {number(away.value, DIGITS)}{beside}"


def _best(results: DetectionResults, found: Recommendation | None) -> Tile:
    asked = "Is one worth its passes?"
    if found is None:
        return Tile(asked, MISSING, "No detector was tested on what it learned from.", "inconclusive")
    probe = mean_value(results, PROBE, results.in_domain)
    beside = "" if probe is None or found.detector == PROBE else f" The probe alone has {number(probe.value, DIGITS)}."
    detail = f"AUROC {estimate(found.auroc, DIGITS)}, {passes_words(found.passes)}: {found.reason}.{beside}"
    return Tile(asked, found.detector, detail, "yes")


def _pathways(readings: DetectionReadings) -> Tile:
    asked = f"Do pathways add to {BOTH}?"
    names = (
        "counterfactual_beats_probe_and_confidence",
        "counterfactual_beats_random_cut",
        "mop_beats_probe_and_confidence",
    )
    main, random, mop = (one if one and one.found else None for one in map(readings.one, names))
    if main is None:
        return Tile(asked, MISSING, "The counterfactual detector was not fitted here.", "inconclusive")
    parts = ["The counterfactual detector over it."]
    parts += [f"With the knockout against a random cut {signed_estimate(random.found)}."] if random else []
    parts += [f"Mixture-of-Probes over it {signed_estimate(mop.found)}."] if mop else []
    verdicts = [one.verdict for one in (main, random) if one and one.verdict]
    return Tile(asked, signed_estimate(main.found), " ".join(parts), all_of(verdicts))


def _other_data(results: DetectionResults, readings: DetectionReadings) -> Tile:
    asked, found = "Does it serve on other data?", readings.recommendation
    if not results.elsewhere or found is None:
        return Tile(asked, MISSING, "No detector was tested on another dataset than it learned from.", "inconclusive")
    first = readings.one(f"{claim_name(found.detector)}_transfers")
    away, held_out = (
        mean_value(results, found.detector, cells, independent=False) for cells in (results.elsewhere, results.held_out)
    )
    parts = [f"{found.detector} learned from one dataset and tested on another."]
    parts += [f"Learned from all others: {number(held_out.value, DIGITS)}."] if held_out else []
    verdict = first.verdict if first else None
    parts += [_BESIDE_SIMPLE[verdict].format(better_simple(results, results.elsewhere))] if verdict else []
    return Tile(asked, estimate(away, DIGITS), " ".join(parts), verdict or "inconclusive")


def _trust(results: DetectionResults, readings: DetectionReadings) -> Tile:
    calibrated, tossed = readings.one("calibrated"), readings.one("tossed_labels")
    detector = readings.recommendation.detector if readings.recommendation else ""
    cells = calibration_cells(results, detector)
    span = spanned((one.value for one in cells.values()), lambda value: number(value, DIGITS))
    inside = sum(one.value <= CALIBRATED for one in cells.values())
    parts = [f"At most {number(CALIBRATED, 2)} in {inside} of {len(cells)} cells."] if calibrated else []
    parts.append("Tossed labels were not run." if tossed is None else _TOSSED[tossed.verdict or "inconclusive"])
    verdicts: list[Verdict] = [one.verdict for one in (calibrated, tossed) if one is not None and one.verdict]
    return Tile(
        "Are calibration and controls in order?", f"ECE {span}" if cells else MISSING, " ".join(parts), all_of(verdicts)
    )
