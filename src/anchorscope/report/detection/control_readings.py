"""Readings that say whether to believe the table: calibration, tossed labels, gates, the grader."""

from anchorscope.report.detection import paper
from anchorscope.report.detection.detection_reading import DIGITS, YES_OR_NO, DetectionReading
from anchorscope.report.detection.results import BALANCED, NATURAL, PROBE, DetectionResults, shown_place
from anchorscope.report.detection.tested_readings import Contest, described_reading
from anchorscope.report.verdicts import CALIBRATED, TOSSED, Verdict, all_of, below
from anchorscope.report.wording import estimate, listing, number
from anchorscope.stats.estimate import Estimate

PERMUTED, LABEL_NOISE = "permuted-labels", "label-noise"
_GUESSING = 0.5
_PAPERS_GATES = (
    f"The paper gives {paper.RANDOM_GATE / 100:.3f} for a random gate, {paper.mean_auc(paper.MOP):.3f} for its own, "
    f"{paper.EQUAL_EXPERTS / 100:.3f} for equal experts."
)
GATE_CONTESTS = tuple(
    Contest(
        name,
        f"{name}-{gate}-gate",
        " ".join(filter(None, ("If not, what helps is a second probe and not the pathway.", beside))),
        named=f"{name.replace('-', '_')}_beats_{gate}_gate",
        asked=f"Does {name} beat itself with a {gate} gate?",
    )
    for name, beside in (("mop", _PAPERS_GATES), ("pr-attention", ""))
    for gate in ("random", "constant")
)
"""Does the gate know more than a coin, and more than nothing?"""


def control_readings(results: DetectionResults, chosen: str) -> list[DetectionReading]:
    """Everything that can be asked of these tables."""
    found = [
        _calibrated(results, chosen),
        _tossed(results),
        *(described_reading(results, contest) for contest in GATE_CONTESTS),
        _label_noise(results, chosen),
    ]
    return [one for one in found if one is not None]


def calibration_cells(results: DetectionResults, detector: str) -> dict[tuple[str, str], Estimate]:
    """ECE by dataset and prevalence, tested on what it learned from."""
    return {
        (cell.test, prevalence): found
        for cell in results.in_domain
        for prevalence in (BALANCED, NATURAL)
        if (found := results.value(detector, cell, "ece", prevalence)) is not None
    }


def _calibrated(results: DetectionResults, detector: str) -> DetectionReading | None:
    cells = calibration_cells(results, detector)
    if not cells:
        return None
    verdict = all_of([below(one, CALIBRATED) for one in cells.values()])
    worst = max(cells, key=lambda cell: cells[cell].value)
    inside = sum(one.value <= CALIBRATED for one in cells.values())
    answer = (
        f"{YES_OR_NO[verdict]}: ECE is at most {number(CALIBRATED, 2)} in {inside} of {len(cells)} (datasets × "
        f"prevalences); the largest is {estimate(cells[worst], DIGITS)}, {shown_place(worst[0])}, {worst[1]}."
    )
    why = "ECE is how far the stated probability lies from the share of true answers; small samples raise it."
    return DetectionReading(
        "calibrated",
        f"Can the probability of {detector} be taken at its word?",
        answer,
        "Holds only where every interval ends below the line.",
        why,
        cells[worst],
        verdict,
    )


def tossed_cells(results: DetectionResults) -> dict[tuple[str, str], Estimate]:
    """Mean AUROC with labels tossed, by detector and dataset."""
    rows = results.controls.filter(results.controls["control"] == PERMUTED).select("detector", "train").rows()
    found = {(name, train): results.control(PERMUTED, name, train) for name, train in rows}
    return {place: one for place, one in found.items() if one is not None}


def tossed_verdict(found: Estimate) -> Verdict:
    """Within 0.01 of a half by its value; beyond it, refuted only where the spread leaves out the half."""
    if abs(found.value - _GUESSING) <= TOSSED:
        return "holds"
    return "does not hold" if found.ci_low > _GUESSING or found.ci_high < _GUESSING else "undecided"


def _tossed(results: DetectionResults) -> DetectionReading | None:
    cells = tossed_cells(results)
    if not cells:
        return None
    verdicts = {place: tossed_verdict(one) for place, one in cells.items()}
    verdict = all_of(list(verdicts.values()))
    off = [place for place, found in verdicts.items() if found != "holds"]
    farthest = max(cells, key=lambda place: abs(cells[place].value - _GUESSING))
    named = f"{farthest[0]} on {shown_place(farthest[1])}, {estimate(cells[farthest], DIGITS)}"
    answer = (
        f"{YES_OR_NO[verdict]}: {len(cells) - len(off)} of {len(cells)} stay within {number(TOSSED, 2)} of 0.50; the "
        f"farthest is {named}."
    )
    why = "A detector that scores above a half on tossed labels has seen its test items."
    return DetectionReading(
        "tossed_labels",
        "With labels tossed, is every detector at 0.50?",
        answer,
        f"Mean over {cells[farthest].n} seeds, with their spread.",
        why,
        cells[farthest],
        verdict,
        "control",
    )


def _label_noise(results: DetectionResults, detector: str) -> DetectionReading | None:
    name = detector if any(results.control(LABEL_NOISE, detector, cell.train) for cell in results.in_domain) else PROBE
    bands = {
        cell.train: band
        for cell in results.in_domain
        if (band := results.control(LABEL_NOISE, name, cell.train)) is not None
    }
    if not bands:
        return None
    told = listing(
        [
            f"{shown_place(train)} {number(band.ci_low, DIGITS)} to {number(band.ci_high, DIGITS)}"
            for train, band in bands.items()
        ]
    )
    first = next(iter(bands.values()))
    why = (
        "Errors that depend on the truth alone pull every AUROC towards a half by the same factor, so that detectors "
        "keep their order."
    )
    return DetectionReading(
        "label_noise",
        f"How far could the grader's own errors move the AUROC of {name}?",
        f"Within {told}.",
        "",
        why,
        first,
        None,
    )
