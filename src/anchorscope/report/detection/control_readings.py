"""Readings that say whether to believe the table: calibration, tossed labels, gates, as many weights, the grader."""

from anchorscope.report.detection import paper
from anchorscope.report.detection.averages import mean_value
from anchorscope.report.detection.detection_reading import DIGITS, YES_OR_NO, DetectionReading, over_datasets
from anchorscope.report.detection.results import BALANCED, NATURAL, PROBE, DetectionResults, shown_place
from anchorscope.report.detection.tested_readings import Contest, described_reading
from anchorscope.report.verdicts import CALIBRATED, TOSSED, Verdict, all_of, below
from anchorscope.report.wording import estimate, listing, number
from anchorscope.stats.estimate import Estimate

PERMUTED, LABEL_NOISE = "permuted-labels", "label-noise"
READINGS_OF_MOP = {"hard": "hard subsets", "soft": "soft weights", "joint": "joint fit"}
_GUESSING = 0.5
_THEIRS = (
    f"The paper gives {paper.RANDOM_GATE / 100:.3f} for a random gate, {paper.mean_auc(paper.MOP):.3f} for its own, "
    f"{paper.EQUAL_EXPERTS / 100:.3f} for equal experts."
)
MORE_CONTESTS = (
    *(
        Contest(
            f"mop-{reading}-{gate}",
            f"mop-{reading}-random",
            named=f"mop_{reading}_{gate}_gate",
            asked=f"Mixture-of-Probes, {words}: does the {gate} gate beat a random one?",
            why="If not, the experts gain by being two, not by knowing the pathway. "
            + (_THEIRS if reading == "hard" else ""),
        )
        for reading, words in READINGS_OF_MOP.items()
        for gate in ("measured", "predicted")
    ),
    Contest(
        "mop",
        "ensemble-two",
        "It stacks the probes of the two best layers and knows no pathway.",
        named="mop_beats_two_probes",
        asked="Does mop beat two plain probes with as many weights?",
    ),
)
"""Does a gate know more than a coin, and Mixture-of-Probes more than as many weights?"""


def control_readings(results: DetectionResults, chosen: str) -> list[DetectionReading]:
    """Everything that can be asked of these tables."""
    found = [
        _calibrated(results, chosen),
        _tossed(results),
        *(described_reading(results, contest) for contest in MORE_CONTESTS),
        _label_noise(results, chosen),
        *(_oracle(results, reading) for reading in READINGS_OF_MOP),
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
        return "yes"
    return "no" if found.ci_low > _GUESSING or found.ci_high < _GUESSING else "inconclusive"


def _tossed(results: DetectionResults) -> DetectionReading | None:
    cells = tossed_cells(results)
    if not cells:
        return None
    verdicts = {place: tossed_verdict(one) for place, one in cells.items()}
    verdict = all_of(list(verdicts.values()))
    off = [place for place, found in verdicts.items() if found != "yes"]
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


def _oracle(results: DetectionResults, reading: str) -> DetectionReading | None:
    found = mean_value(results, f"mop-{reading}-oracle", results.in_domain)
    if found is None:
        return None
    answer = f"AUROC {estimate(found, DIGITS)} {over_datasets(len(results.in_domain))}."
    why = "Under the plain rule the pathway of an item is nearly its label: a gate that knows it knows the answer."
    question = f"Mixture-of-Probes, {READINGS_OF_MOP[reading]}, with an oracle gate?"
    return DetectionReading(
        f"mop_{reading}_oracle",
        question,
        answer,
        "No detector: this gate has seen the label.",
        why,
        found,
        None,
        "by construction",
    )
