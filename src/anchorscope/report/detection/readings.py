"""What may be said of detectors: a recommendation, tested differences, other data, controls; each with its verdict.

`probe+confidence` is the detector to beat. Another one takes its place if it is better in the mean over the datasets
(p-values of all candidates corrected together, Holm) and gains more than its further passes cost, 0.01 AUROC each: a
convention. If nothing is better, a cheaper detector takes its place if it is less than 0.01 worse with 95 % confidence.
Differences are paired: the same items in the same resamples. A gain holds by its corrected p-value; it does not hold
where the interval leaves no room for a gain of 0.01. The records of all readings are `observations.json`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.report.detection import paper
from anchorscope.report.detection.results import (
    AUTO,
    BALANCED,
    BOTH,
    CONFIDENCE,
    NATURAL,
    PROBE,
    Cell,
    DetectionResults,
    entry_of,
    mean_difference,
    mean_of_datasets,
    mean_value,
    shown_place,
)
from anchorscope.report.reading import Standing, finite
from anchorscope.report.verdicts import (
    CALIBRATED,
    FAR_BELOW,
    NEGLIGIBLE_AUROC,
    TOSSED,
    Verdict,
    above,
    above_zero,
    all_of,
    below,
    has_interval,
    p_from_interval,
)
from anchorscope.report.wording import MISSING, estimate, listing, number, p_value_cell
from anchorscope.stats.estimate import Estimate, holm

DIGITS = 3
"""Of an AUROC."""
YES_OR_NO = {"yes": "Yes", "no": "No", "inconclusive": "Undecided"}
"""How an answer begins."""
RANDOM_CUT, PERMUTED, LABEL_NOISE = "random-cut", "permuted-labels", "label-noise"
"""Controls, as controls.csv names them."""
WATCHED = (PROBE, BOTH, "mop", "counterfactual", AUTO)
"""Detectors that are compared with confidence, cell by cell."""
_MOST_CELLS = 4  # named in one sentence
_GUESSING = 0.5


@dataclass(frozen=True)
class DetectionReading:
    """A question that was fixed before the numbers were seen, and what they say."""

    claim: str
    """Its name in observations.json."""
    question: str
    answer: str
    """One sentence: yes, no or undecided, with the number."""
    sure: str
    """What the verdict rests on."""
    why: str
    """What to make of it."""
    found: Estimate | None
    verdict: Verdict | None
    standing: Standing = "description"
    p_value: float | None = None
    p_corrected: float | None = None

    @property
    def text(self) -> str:
        """Question, answer and verdict in one line, so that it can't be quoted without."""
        sentences = " ".join(filter(None, (self.answer, self.sure, self.why)))
        return f"{self.question} {sentences}" + (f" ({self.badge})" if self.badge else "")

    @property
    def badge(self) -> str:
        """The verdict; empty for what only reports a number."""
        return self.verdict or ""

    def record(self, model: str) -> dict[str, Any]:
        """As observations.json holds it."""
        found = self.found
        return {
            "id": f"detection:{self.claim}",
            "text": self.text,
            "question": self.question,
            "value": finite(found.value if found else None),
            "ci_low": finite(found.ci_low if found else None),
            "ci_high": finite(found.ci_high if found else None),
            "verdict": self.verdict,
            "standing": self.standing,
            "p_value": finite(self.p_value),
            "p_corrected": finite(self.p_corrected),
            "claim": self.claim,
            "model": model,
            "unit": "AUROC",
            "n": found.n if found else 0,
            "method": found.method if found else "",
        }


def claim_name(detector: str) -> str:
    """A detector as part of a claim's name."""
    return detector.replace("-", "_").replace("+", "_and_")


def signed(value: float, digits: int = DIGITS) -> str:
    """A difference, with its sign."""
    text = number(value, digits)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def signed_estimate(found: Estimate | None, digits: int = DIGITS) -> str:
    """+0.012 [−0.003, 0.027]."""
    if found is None:
        return MISSING
    text = signed(found.value, digits)
    if not has_interval(found):
        return text
    return f"{text} [{number(found.ci_low, digits)}, {number(found.ci_high, digits)}]"


def over_datasets(n: int) -> str:
    """What a mean runs over."""
    return "on the one dataset" if n == 1 else f"in the mean of {n} datasets"


def passes_words(passes: int | None) -> str:
    """1 pass, 3 passes, no further pass."""
    if passes is None:
        return "an unknown number of passes"
    return "no further pass" if passes == 0 else "1 pass" if passes == 1 else f"{passes} passes"


@dataclass(frozen=True)
class Recommendation:
    """The detector to use, and what speaks for it."""

    detector: str
    passes: int | None
    auroc: Estimate | None
    """In the mean over the datasets that it learned from and was tested on."""
    against: str | None
    """What it was compared with; None where it is itself the one to beat."""
    gain: Estimate | None
    """Its AUROC minus that of `against`."""
    reason: str
    """One sentence."""
    dearer: tuple[str, ...] = ()
    """Detectors that are better and do not gain what their passes cost."""


def recommend(results: DetectionResults) -> Recommendation | None:
    """The detector to use; None where no detector was tested on what it learned from."""
    heights = {
        name: auroc
        for name in results.names
        if entry_of(name).variant_of is None and (auroc := mean_value(results, name, results.in_domain)) is not None
    }

    def recommended(name: str, against: str | None, reason: str, dearer: tuple[str, ...] = ()) -> Recommendation:
        gain = gains[name] if against else None
        return Recommendation(name, results.passes(name), heights[name], against, gain, reason, dearer)

    gains: dict[str, Estimate] = {}
    reference = next((name for name in (BOTH, PROBE, CONFIDENCE) if name in heights), None)
    if reference is None:
        best = max(heights, key=lambda name: heights[name].value, default=None)
        return None if best is None else recommended(best, None, f"{BOTH} was not measured; this one is the highest")
    gains |= {
        name: gain
        for name in heights
        if name != reference and (gain := mean_difference(results, name, reference, results.in_domain)) is not None
    }
    further = {name: (results.passes(name) or 0) - (results.passes(reference) or 0) for name in gains}
    corrected = holm([p_from_interval(gain) for gain in gains.values()])
    better = [
        name
        for (name, gain), p in zip(gains.items(), corrected, strict=True)
        if above_zero(gain, p, NEGLIGIBLE_AUROC) == "yes"
    ]
    net = {name: gains[name].value - NEGLIGIBLE_AUROC * further[name] for name in better}
    worth = [name for name in better if net[name] > 0]
    if worth:
        best = max(worth, key=lambda name: net[name])
        price = f" by more than its {passes_words(further[best])} more" if further[best] > 0 else ""
        return recommended(best, reference, f"it beats {reference}{price}")
    cheaper = [name for name, gain in gains.items() if further[name] < 0 and above(gain, -NEGLIGIBLE_AUROC) == "yes"]
    if cheaper and not better:
        best = max(cheaper, key=lambda name: (-(results.passes(name) or 0), gains[name].value))
        margin = number(NEGLIGIBLE_AUROC, 2)
        return recommended(best, reference, f"it is less than {margin} worse than {reference} and cheaper")
    others = "what is better costs too much" if better else f"none of {len(gains)} others is better"
    return recommended(reference, None, others if gains else "nothing else was measured", tuple(better))


def recommendation_reading(results: DetectionResults, found: Recommendation) -> DetectionReading:
    """The choice as a reading: is anything worth more passes than the one to beat?"""
    height = f"AUROC {estimate(found.auroc, DIGITS)} {over_datasets(len(results.in_domain))}"
    sure = f"Chosen because {found.reason}."
    if found.against:
        sure += f" Against {found.against}: {signed_estimate(found.gain)}."
    why = (
        f"A detector must beat {BOTH} with 95 % confidence, corrected for all candidates (Holm), and gain "
        f"{number(NEGLIGIBLE_AUROC, 2)} for every further pass; that price is a convention."
    )
    if found.dearer:
        why += f" Better at too high a price: {', '.join(found.dearer)}."
    answer = f"{found.detector}, at {passes_words(found.passes)}: {height}."
    question = "Which detector is worth its passes here?"
    return DetectionReading("worth_its_passes", question, answer, sure, why, found.auroc, None)


@dataclass(frozen=True)
class Contest:
    """Does one detector beat another?"""

    detector: str
    against: str
    """Another detector, or `RANDOM_CUT`: the same one with a random cut, as controls.csv has it."""
    why: str = ""
    """What the answer means, whichever it is."""
    paper: str = ""
    """The paper's detector whose gain over its probe is shown beside ours."""

    @property
    def claim(self) -> str:
        """Its name in observations.json."""
        return f"{claim_name(self.detector)}_beats_{claim_name(self.against.removeprefix(f'{self.detector}-'))}"

    @property
    def question(self) -> str:
        """The question in words."""
        if self.against == RANDOM_CUT:
            return f"Does {self.detector} do better with the knockout than with a random cut?"
        return f"Does {self.detector} beat {self.against}?"

    def gains(self, results: DetectionResults) -> dict[str, Estimate]:
        """The gain on every dataset that has one."""
        by_dataset = {
            cell.test: results.control(RANDOM_CUT, self.detector, cell.train)
            if self.against == RANDOM_CUT
            else results.difference(self.detector, self.against, cell)
            for cell in results.in_domain
        }
        return {dataset: gain for dataset, gain in by_dataset.items() if gain is not None}


CONTESTS = (
    Contest(BOTH, PROBE, "The model's own confidence costs nothing: it is there when the answer is written."),
    Contest("mop", PROBE, "Mixture-of-Probes, the gate found without a label.", paper.MOP),
    Contest("mop", BOTH, "The paper leaves this open: its table has no row that combines the probe with confidence."),
    Contest("pr-attention", PROBE, "Pathway Reweighting, read as stronger attention before the softmax.", paper.PR),
    Contest("pr-attention", BOTH),
    Contest(
        "counterfactual",
        BOTH,
        "It reads all that probe+confidence reads, and the same under the cut: the gain is what pathways add.",
    ),
    Contest(
        "counterfactual",
        RANDOM_CUT,
        "A second pass may help whatever is cut: only what exceeds a random cut is the question's.",
    ),
    Contest(AUTO, PROBE),
    Contest(AUTO, BOTH, "auto is chosen on the training folds alone."),
)
"""The family over which p-values are corrected."""
_GATE = "If not, what helps is a second probe and not the pathway."
_PAPERS_GATES = (
    f"The paper gives {paper.RANDOM_GATE / 100:.3f} for a random gate, {paper.mean_auc(paper.MOP):.3f} for its own, "
    f"{paper.EQUAL_EXPERTS / 100:.3f} for equal experts."
)
GATE_CONTESTS = (
    Contest("mop", "mop-random-gate", f"{_GATE} {_PAPERS_GATES}"),
    Contest("mop", "mop-constant-gate", _GATE),
    Contest("pr-attention", "pr-attention-random-gate", _GATE),
    Contest("pr-attention", "pr-attention-constant-gate", _GATE),
)
"""Does the gate know more than a coin, and more than nothing? Each is decided by its interval alone."""


def tested_readings(results: DetectionResults, left_out: Mapping[str, str]) -> list[DetectionReading]:
    """All contests; those that could not be held say why."""
    gains = [mean_of_datasets(list(contest.gains(results).values())) for contest in CONTESTS]
    p_values = [math.nan if gain is None else p_from_interval(gain) for gain in gains]
    n_tests = sum(not math.isnan(p) for p in p_values)
    readings = []
    for contest, gain, p, corrected in zip(CONTESTS, gains, p_values, holm(p_values), strict=True):
        verdict: Verdict = "inconclusive"
        if gain is None:
            reason = left_out.get(contest.detector) or left_out.get(contest.against) or "it was not fitted"
            answer, sure = f"Not measured here: {reason}.", ""
        else:
            verdict = above_zero(gain, corrected, NEGLIGIBLE_AUROC)
            each = contest.gains(results)
            answer, sure = _gain_answer(gain, verdict, len(each)), _tests_words(each, p, corrected, n_tests)
        why = " ".join(filter(None, (contest.why, _beside_paper(contest, gain))))
        readings.append(
            DetectionReading(
                contest.claim,
                contest.question,
                answer,
                sure,
                why,
                gain,
                verdict,
                "tested",
                None if gain is None else p,
                None if gain is None else corrected,
            )
        )
    return readings


def _gate_reading(results: DetectionResults, contest: Contest) -> DetectionReading | None:
    gains = contest.gains(results)
    gain = mean_of_datasets(list(gains.values()))
    if gain is None:
        return None
    verdict = above(gain, 0.0)
    if verdict == "inconclusive" and gain.ci_high < NEGLIGIBLE_AUROC:
        verdict = "no"
    answer = _gain_answer(gain, verdict, len(gains))
    return DetectionReading(contest.claim, contest.question, answer, "", contest.why, gain, verdict)


def _gain_answer(gain: Estimate, verdict: Verdict, n_datasets: int) -> str:
    shown = f"AUROC {signed_estimate(gain)} {over_datasets(n_datasets)}"
    if verdict == "no" and gain.ci_high < 0:
        return f"No, it is worse: {shown}."
    if verdict == "no":
        return f"No: {shown}, which leaves no room for a gain of {number(NEGLIGIBLE_AUROC, 2)}."
    return f"{YES_OR_NO[verdict]}: {shown}."


def _tests_words(each: Mapping[str, Estimate], p: float, corrected: float, n_tests: int) -> str:
    if math.isnan(p):
        return "Without an interval nothing can be decided."
    first, second = (text if (text := p_value_cell(value)).startswith("<") else f"= {text}" for value in (p, corrected))
    tests = f"p {first}, corrected for {n_tests} tests {second}"
    if len(each) == 1:
        return f"{tests}."
    alone = [above(gain, 0.0) for gain in each.values()]
    better, worse = alone.count("yes"), alone.count("no")
    return f"{tests}; taken alone (95 % intervals), better on {better} and worse on {worse} of {len(each)} datasets."


def _beside_paper(contest: Contest, gain: Estimate | None) -> str:
    """Where the paper's gain lies beside our interval."""
    if not contest.paper or gain is None:
        return ""
    theirs = paper.mean_gain(contest.paper)
    reported = (
        f"The paper reports {signed(theirs)} for {contest.paper} over its probe, mean of eight cells without interval"
    )
    if not has_interval(gain):
        return f"{reported}."
    where = "above" if theirs > gain.ci_high else "below" if theirs < gain.ci_low else "inside"
    return f"{reported}: {where} ours."


def transfer_readings(results: DetectionResults, chosen: str) -> list[DetectionReading]:
    """How the chosen detector and `auto` do on other data; nothing where no other data was tested.

    Cells of the train × test matrix share items, so that the interval of their mean is the mean of their intervals.
    """
    shown = AUTO if AUTO in results.names else chosen
    simple = better_simple(results, results.elsewhere)
    as_good = "On other data, is {} at least as good as the better of probe and confidence?"
    found = [
        _not_below(results, name, simple, results.elsewhere, "transfers", as_good.format(name))
        for name in dict.fromkeys((chosen, shown))
    ]
    unseen = f"Does {shown} serve on a dataset that it has not seen, having learned from all others?"
    reworded = f"Does {shown} serve when the questions are worded differently?"
    found += [
        _beside_confidence(results, shown),
        _not_below(results, shown, CONFIDENCE, results.held_out, "held_out", unseen),
        _not_below(results, shown, CONFIDENCE, results.prompted, "other_prompt", reworded),
    ]
    return [reading for reading in found if reading is not None]


def other_transfer_readings(results: DetectionResults) -> list[DetectionReading]:
    """The other detectors beside confidence."""
    found = [_beside_confidence(results, name) for name in WATCHED if name in results.names and name != AUTO]
    return [reading for reading in found if reading is not None]


def better_simple(results: DetectionResults, cells: Sequence[Cell]) -> str | None:
    """Of probe and confidence, the one with the higher mean on these cells."""
    means = {name: mean_value(results, name, cells, independent=False) for name in (PROBE, CONFIDENCE)}
    measured = {name: mean.value for name, mean in means.items() if mean is not None}
    return max(measured, key=lambda name: measured[name]) if measured else None


def _not_below(
    results: DetectionResults, detector: str, against: str | None, cells: Sequence[Cell], claim: str, question: str
) -> DetectionReading | None:
    """Is its mean over the cells not below that of another one?"""
    own = mean_value(results, detector, cells, independent=False)
    if own is None or against is None or against == detector:  # nothing to compare with
        return None
    gap = mean_difference(results, detector, against, cells, independent=False)
    if gap is None:
        return None
    other = mean_value(results, against, cells, independent=False)
    home = mean_value(results, detector, results.in_domain)
    verdict = above(gap, -NEGLIGIBLE_AUROC)
    answer = (
        f"{YES_OR_NO[verdict]}: AUROC {estimate(own, DIGITS)} in the mean of {len(cells)}, {against} "
        f"{estimate(other, DIGITS)}, difference {signed_estimate(gap)}."
    )
    means = {
        name: mean.value
        for name in (*WATCHED, CONFIDENCE)
        if (mean := mean_value(results, name, cells, independent=False)) is not None
    }
    best = max(means, key=lambda name: means[name])
    why = (
        f"On what it learned from it has {estimate(home, DIGITS)}. Highest here: {best} with "
        f"{number(means[best], DIGITS)}."
    )
    margin = f"A difference of {number(NEGLIGIBLE_AUROC, 2)} is allowed."
    return DetectionReading(f"{claim_name(detector)}_{claim}", question, answer, margin, why, gap, verdict)


def _beside_confidence(results: DetectionResults, detector: str) -> DetectionReading | None:
    """Is there a cell in which it falls far below confidence?"""
    gaps = {
        cell: gap for cell in results.elsewhere if (gap := results.difference(detector, CONFIDENCE, cell)) is not None
    }
    if not gaps:
        return None
    verdict = all_of([above(gap, -FAR_BELOW) for gap in gaps.values()])
    fallen = sorted((cell for cell, gap in gaps.items() if gap.value < -FAR_BELOW), key=lambda cell: gaps[cell].value)
    worst = min(gaps, key=lambda cell: gaps[cell].value)
    if fallen:
        named = [f"{cell.words} ({signed(gaps[cell].value)})" for cell in fallen[:_MOST_CELLS]]
        hidden = len(fallen) - len(named)
        pairs = f"{', '.join(named)} and {hidden} more" if hidden else listing(named)
        answer = f"{YES_OR_NO[verdict]}: it is lower in {len(fallen)} of {len(gaps)} pairs, {pairs}."
    else:
        doubt = "" if verdict == "yes" else ", though not with 95 % confidence in each"
        lowest = f"the lowest is {worst.words} ({signed_estimate(gaps[worst])})"
        answer = f"{YES_OR_NO[verdict]}: no pair is lower{doubt}; {lowest}."
    return DetectionReading(
        f"{claim_name(detector)}_never_far_below_confidence",
        f"Does {detector} stay within {number(FAR_BELOW, 2)} of confidence, whatever it learned from?",
        answer,
        f"{len(gaps)} pairs of datasets, each by its own interval.",
        "Where a detector falls below the model's own confidence, it is better not used.",
        gaps[worst],
        verdict,
    )


def control_readings(results: DetectionResults, chosen: str) -> list[DetectionReading]:
    """Calibration, permuted labels, gates, the grader's errors: whether to believe the table."""
    found = [
        _calibrated(results, chosen),
        _permuted_labels(results),
        *(_gate_reading(results, contest) for contest in GATE_CONTESTS),
        _label_noise(results, chosen),
    ]
    return [reading for reading in found if reading is not None]


def calibration_cells(results: DetectionResults, detector: str) -> dict[tuple[str, str], Estimate]:
    """ECE by dataset and prevalence, tested on what it learned from."""
    return {
        (cell.test, prevalence): ece
        for cell in results.in_domain
        for prevalence in (BALANCED, NATURAL)
        if (ece := results.value(detector, cell, "ece", prevalence)) is not None
    }


def _calibrated(results: DetectionResults, detector: str) -> DetectionReading | None:
    cells = calibration_cells(results, detector)
    if not cells:
        return None
    verdict = all_of([below(ece, CALIBRATED) for ece in cells.values()])
    worst = max(cells, key=lambda cell: cells[cell].value)
    inside = sum(ece.value <= CALIBRATED for ece in cells.values())
    answer = (
        f"{YES_OR_NO[verdict]}: ECE is at most {number(CALIBRATED, 2)} in {inside} of {len(cells)} (datasets × "
        f"prevalences); the largest is {estimate(cells[worst], DIGITS)}, {shown_place(worst[0])}, {worst[1]}."
    )
    why = "ECE is how far the stated probability lies from the share of true answers; small samples raise it."
    question = f"Are the probabilities of {detector} calibrated?"
    rule = "Holds only where every interval ends below the line."
    return DetectionReading("calibrated", question, answer, rule, why, cells[worst], verdict)


def permuted_label_cells(results: DetectionResults) -> dict[tuple[str, str], Estimate]:
    """Mean AUROC with permuted labels, by detector and dataset."""
    rows = results.controls.filter(results.controls["control"] == PERMUTED).select("detector", "train").rows()
    found = {(name, train): results.control(PERMUTED, name, train) for name, train in rows}
    return {place: area for place, area in found.items() if area is not None}


def permuted_label_verdict(found: Estimate) -> Verdict:
    """Within 0.01 of a half by its value; beyond it, refuted only where the interval leaves out the half."""
    if abs(found.value - _GUESSING) <= TOSSED:
        return "yes"
    return "no" if found.ci_low > _GUESSING or found.ci_high < _GUESSING else "inconclusive"


def _permuted_labels(results: DetectionResults) -> DetectionReading | None:
    cells = permuted_label_cells(results)
    if not cells:
        return None
    verdicts = [permuted_label_verdict(area) for area in cells.values()]
    verdict = all_of(verdicts)
    farthest = max(cells, key=lambda place: abs(cells[place].value - _GUESSING))
    area = cells[farthest]
    answer = (
        f"{YES_OR_NO[verdict]}: {verdicts.count('yes')} of {len(cells)} stay within {number(TOSSED, 2)} of 0.50; the "
        f"farthest is {farthest[0]} on {shown_place(farthest[1])}, {estimate(area, DIGITS)}."
    )
    return DetectionReading(
        "permuted_labels",
        "With permuted labels, is every detector at 0.50?",
        answer,
        f"Mean over {area.n} permutations; intervals are corrected for all {len(cells)} (Bonferroni).",
        "A detector that finds something in permuted labels was not kept apart from its test items.",
        area,
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
    ranges = listing(
        [
            f"{shown_place(train)} {number(band.ci_low, DIGITS)} to {number(band.ci_high, DIGITS)}"
            for train, band in bands.items()
        ]
    )
    why = (
        "Errors that depend on the truth alone pull every AUROC towards a half by the same factor, so that detectors "
        "keep their order."
    )
    question = f"How far could the grader's own errors move the AUROC of {name}?"
    first = next(iter(bands.values()))
    return DetectionReading("label_noise", question, f"Within {ranges}.", "", why, first, None)


@dataclass(frozen=True)
class DetectionReadings:
    """All readings, by kind."""

    recommendation: Recommendation | None
    choice: tuple[DetectionReading, ...]
    """Which detector to use: one reading, or none."""
    tested: tuple[DetectionReading, ...]
    transfer: tuple[DetectionReading, ...]
    other_transfer: tuple[DetectionReading, ...]
    """The same of detectors that are not the first choice."""
    controls: tuple[DetectionReading, ...]
    """Calibration, controls and descriptions."""

    @property
    def all(self) -> tuple[DetectionReading, ...]:
        """Every reading, in the order of the page."""
        return (*self.choice, *self.tested, *self.transfer, *self.other_transfer, *self.controls)

    def named(self, claim: str) -> DetectionReading | None:
        """The reading of this name."""
        return next((reading for reading in self.all if reading.claim == claim), None)


def read_detection(results: DetectionResults, left_out: Mapping[str, str]) -> DetectionReadings:
    """Everything that can be read from the tables."""
    found = recommend(results)
    chosen = found.detector if found else ""
    return DetectionReadings(
        found,
        (recommendation_reading(results, found),) if found else (),
        tuple(tested_readings(results, left_out)),
        tuple(transfer_readings(results, chosen)),
        tuple(other_transfer_readings(results)),
        tuple(control_readings(results, chosen)),
    )
