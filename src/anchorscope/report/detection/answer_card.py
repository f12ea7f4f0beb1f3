"""The first thing on the page: which detector to use, what it costs, what it does on other data; then four tiles."""

from dataclasses import dataclass

from anchorscope.report.detection.averages import mean_value
from anchorscope.report.detection.control_readings import calibration_cells
from anchorscope.report.detection.detection_reading import DIGITS, claim_name, passes_words, signed_estimate
from anchorscope.report.detection.detection_readings import DetectionReadings
from anchorscope.report.detection.recommendation import Recommendation
from anchorscope.report.detection.results import BOTH, CONFIDENCE, PROBE, DetectionResults
from anchorscope.report.detection.transfer_readings import better_simple
from anchorscope.report.verdicts import CALIBRATED, Verdict, all_of
from anchorscope.report.wording import MISSING, estimate, number, spanned


@dataclass(frozen=True)
class Tile:
    """One of the four."""

    label: str
    figure: str
    """The number or name that stands large."""
    detail: str
    badge: str = ""
    """A verdict, where one stands behind it."""

_BESIDE_SIMPLE: dict[Verdict, str] = {
    "holds": "It loses nothing to {}, the better of probe and confidence there.",
    "does not hold": "It is worse than {}, the better of probe and confidence there.",
    "undecided": "Whether it is as good as {}, the better of probe and confidence there, is undecided.",
}


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
    beside = "" if confidence is None or detector == CONFIDENCE else (
        f", where {CONFIDENCE} alone has {number(confidence.value, DIGITS)}")  # fmt: skip
    return f"on other data {number(away.value, DIGITS)}{beside}"


def _best(results: DetectionResults, found: Recommendation | None) -> Tile:
    if found is None:
        return Tile("Worth its passes", MISSING, "No detector was tested on what it learned from.")
    probe = mean_value(results, PROBE, results.in_domain)
    beside = "" if probe is None or found.detector == PROBE else f" The probe alone has {number(probe.value, DIGITS)}."
    detail = f"AUROC {estimate(found.auroc, DIGITS)}, {passes_words(found.passes)}: {found.reason}.{beside}"
    return Tile("Worth its passes", found.detector, detail)


def _pathways(readings: DetectionReadings) -> Tile:
    main, random = (readings.one(f"counterfactual_beats_{name}") for name in ("probe_and_confidence", "random_cut"))
    if main is None or main.found is None:
        return Tile("What pathways add", MISSING, "The counterfactual detector was not fitted here.", "undecided")
    mop = readings.one("mop_beats_probe_and_confidence")
    parts = [f"counterfactual over {BOTH}."]
    if random is not None and random.found is not None:
        parts.append(f"With the knockout against a random cut {signed_estimate(random.found)}.")
    if mop is not None and mop.found is not None:
        parts.append(f"Mixture-of-Probes over {BOTH} {signed_estimate(mop.found)}.")
    verdicts = [one.verdict for one in (main, random) if one is not None and one.found is not None and one.verdict]
    return Tile("What pathways add", signed_estimate(main.found), " ".join(parts), all_of(verdicts))


def _other_data(results: DetectionResults, readings: DetectionReadings) -> Tile:
    if not results.elsewhere:
        return Tile("Other data", MISSING, "No detector was tested on another dataset than it learned from.")
    found = readings.recommendation
    first = readings.one(f"{claim_name(found.detector)}_transfers") if found else None
    away = mean_value(results, found.detector, results.elsewhere, independent=False) if found else None
    held_out = mean_value(results, found.detector, results.held_out, independent=False) if found else None
    parts = [f"{found.detector} learned from one dataset and tested on another." if found else ""]
    if held_out is not None:
        parts.append(f"Learned from all others: {number(held_out.value, DIGITS)}.")
    if first is not None and found is not None and first.verdict is not None:
        parts.append(_BESIDE_SIMPLE[first.verdict].format(better_simple(results, results.elsewhere)))
    return Tile("Other data", estimate(away, DIGITS), " ".join(filter(None, parts)), first.badge if first else "")


def _trust(results: DetectionResults, readings: DetectionReadings) -> Tile:
    calibrated, tossed = readings.one("calibrated"), readings.one("tossed_labels")
    detector = readings.recommendation.detector if readings.recommendation else ""
    cells = calibration_cells(results, detector)
    span = spanned((one.value for one in cells.values()), lambda value: number(value, DIGITS))
    figure = f"ECE {span}" if cells else MISSING
    parts = []
    if calibrated is not None:
        inside = sum(one.value <= CALIBRATED for one in cells.values())
        parts.append(f"At most {number(CALIBRATED, 2)} in {inside} of {len(cells)} cells.")
    parts.append("Tossed labels were not run." if tossed is None else {
        "holds": "Tossed labels stay at 0.50.", "undecided": "Tossed labels: undecided.",
        "does not hold": "Tossed labels do not stay at 0.50: do not believe this table.",
    }[tossed.verdict or "undecided"])  # fmt: skip
    verdicts: list[Verdict] = [one.verdict for one in (calibrated, tossed) if one is not None and one.verdict]
    return Tile("Calibration and controls", figure, " ".join(parts), all_of(verdicts))
