"""One reading of the detectors: a question, its answer in words, how sure that is, and why; and the verdict.

The record is what `observations.json` holds.
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
from anchorscope.report.statements.statement import Standing, finite
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


@dataclass(frozen=True)
class DetectionReading:
    """A question that was put before the numbers were seen, and what they say."""

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
        """Question, answer and verdict in one line, so that it cannot be quoted without."""
        said = " ".join(filter(None, (self.answer, self.sure, self.why)))
        return f"{self.question} {said}" + (f" ({self.badge})" if self.badge else "")

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


YES_OR_NO = {"holds": "Yes", "does not hold": "No", "undecided": "Undecided"}
"""How an answer begins."""


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
    """What it was held against; None where it is itself the one to beat."""
    gain: Estimate | None
    """Its AUROC minus that of `against`."""
    reason: str
    """One sentence."""
    dearer: tuple[str, ...] = ()
    """Detectors that are surely better and do not gain what their passes cost."""


def recommend(results: DetectionResults) -> Recommendation | None:
    """The detector to use; None where no detector was tested on what it learned from."""
    names = [name for name in results.names if _stands(name) and mean_value(results, name, results.in_domain)]
    reference = next((name for name in (BOTH, PROBE, CONFIDENCE) if name in names), None)
    if reference is None:
        return _highest(results, names) if names else None
    gains = {
        name: gain
        for name in names
        if name != reference and (gain := mean_difference(results, name, reference, results.in_domain)) is not None
    }
    better = [name for name, verdict in _verdicts(gains).items() if verdict == "holds"]
    net = {name: gains[name].value - _price(results, name, reference) for name in better}
    worth = [name for name in better if net[name] > 0]
    if worth:
        best = max(worth, key=lambda name: net[name])
        return _made(results, best, reference, gains[best], _worth_words(results, best, reference))
    dearer = tuple(better)
    cheaper = [
        name
        for name, gain in gains.items()
        if _price(results, name, reference) < 0 and above(gain, -NEGLIGIBLE_AUROC) == "holds"
    ]
    if cheaper and not dearer:
        best = max(cheaper, key=lambda name: (-(results.passes(name) or 0), gains[name].value))
        said = f"it is surely less than {number(NEGLIGIBLE_AUROC, 2)} worse than {reference} and cheaper"
        return _made(results, best, reference, gains[best], said)
    others = f"none of {len(gains)} others is surely better" if not dearer else "what is surely better costs too much"
    return _made(results, reference, None, None, others if gains else "nothing else was measured", dearer)


def recommendation_reading(results: DetectionResults, found: Recommendation) -> DetectionReading:
    """The choice as a reading: is there anything here that is worth more passes than the one to beat?"""
    question = "Which detector is worth its passes here?"
    n = len(results.in_domain)
    height = f"AUROC {estimate(found.auroc, DIGITS)} {over_datasets(n)}"
    answer = f"{found.detector}, at {passes_words(found.passes)}: {height}."
    sure = f"Chosen because {found.reason}."
    if found.against:
        sure += f" Against {found.against}: {signed_estimate(found.gain)}."
    why = (
        f"A detector must be surely better than {BOTH}, corrected for all that stand for choice (Holm), and gain "
        f"{number(NEGLIGIBLE_AUROC, 2)} for every further pass; that price is a convention."
    )
    if found.dearer:
        why += f" Surely better at too high a price: {', '.join(found.dearer)}."
    return DetectionReading("worth_its_passes", question, answer, sure, why, found.auroc, None, "description")


def _verdicts(gains: dict[str, Estimate]) -> dict[str, Verdict]:
    p_values = [p_from_interval(gain) for gain in gains.values()]
    return {
        name: above_zero(gain, p, NEGLIGIBLE_AUROC)
        for (name, gain), p in zip(gains.items(), holm(p_values), strict=True)
    }


def _stands(name: str) -> bool:
    return entry_of(name).variant_of is None


def _price(results: DetectionResults, name: str, reference: str) -> float:
    return NEGLIGIBLE_AUROC * ((results.passes(name) or 0) - (results.passes(reference) or 0))


def _worth_words(results: DetectionResults, best: str, reference: str) -> str:
    further = (results.passes(best) or 0) - (results.passes(reference) or 0)
    price = f" by more than its {passes_words(further)} more" if further > 0 else ""
    return f"it surely beats {reference}{price}"


def _made(
    results: DetectionResults,
    name: str,
    against: str | None,
    gain: Estimate | None,
    reason: str,
    dearer: tuple[str, ...] = (),
) -> Recommendation:
    auroc = mean_value(results, name, results.in_domain)
    return Recommendation(name, results.passes(name), auroc, against, gain, reason, dearer)


def _highest(results: DetectionResults, names: list[str]) -> Recommendation:
    def height(name: str) -> float:
        found = mean_value(results, name, results.in_domain)
        return -math.inf if found is None else found.value

    return _made(results, max(names, key=height), None, None, f"{BOTH} is not here to compare with; it is the highest")


RANDOM_CUT = "random-cut"
"""In the place of a second detector: the same one with a random cut, as controls.csv has it."""


@dataclass(frozen=True)
class Contest:
    """One question of the family."""

    detector: str
    against: str
    """Another detector, or `RANDOM_CUT`."""
    why: str = ""
    """What the answer means, whichever it is."""
    paper: str = ""
    """The paper's detector whose gain over its probe stands beside ours."""
    named: str = ""
    """Its name in observations.json, where it is not made of the two detectors'."""
    asked: str = ""
    """The question, where it has words of its own."""

    @property
    def claim(self) -> str:
        """Its name in observations.json."""
        return self.named or f"{claim_name(self.detector)}_beats_{claim_name(self.against)}"

    @property
    def question(self) -> str:
        """The question in words."""
        if self.against == RANDOM_CUT:
            return f"Does {self.detector} do better with the knockout than with a random cut?"
        return self.asked or f"Does {self.detector} beat {self.against}?"


CONTESTS = (
    Contest(BOTH, PROBE, "The model's own confidence costs nothing: it is there when the answer is written."),
    Contest("mop", PROBE, "Mixture-of-Probes, the gate chosen without a label.", paper.MOP),
    Contest(
        "mop",
        BOTH,
        "The question that the paper leaves open: its table has no row that combines the probe with confidence.",
    ),
    Contest("pr-attention", PROBE, "Pathway Reweighting, read as stronger attention before the softmax.", paper.PR),
    Contest("pr-attention", BOTH),
    Contest(
        "counterfactual",
        BOTH,
        "It sees all that probe+confidence sees, and the same under the cut: the gain is what pathways add.",
    ),
    Contest(
        "counterfactual",
        RANDOM_CUT,
        "A second look at the model may help whatever is cut: only what exceeds a random cut is the question's.",
    ),
    Contest(AUTO, PROBE),
    Contest(AUTO, BOTH, "auto is chosen on the training folds: where nothing beats probe+confidence, it is that."),
)
"""The family over which p-values are corrected."""


def tested_readings(results: DetectionResults, left_out: Mapping[str, str]) -> list[DetectionReading]:
    """All contests; those that were not held say why."""
    found = [contest_gain(results, contest) for contest in CONTESTS]
    p_values = [math.nan if one is None else p_from_interval(one) for one in found]
    corrected = holm(p_values)
    n_tests = sum(not math.isnan(p) for p in p_values)
    return [
        _reading(results, contest, gain, p, after, n_tests, left_out)
        for contest, gain, p, after in zip(CONTESTS, found, p_values, corrected, strict=True)
    ]


def described_reading(results: DetectionResults, contest: Contest) -> DetectionReading | None:
    """A contest outside the family, decided by its interval alone; None where it was not held."""
    gain = contest_gain(results, contest)
    if gain is None:
        return None
    verdict = above(gain, 0.0)
    if verdict == "undecided" and gain.ci_high < NEGLIGIBLE_AUROC:
        verdict = "does not hold"
    answer = _answer(gain, verdict, len(gains_by_dataset(results, contest)))
    return DetectionReading(contest.claim, contest.question, answer, "", contest.why, gain, verdict)


def contest_gain(results: DetectionResults, contest: Contest) -> Estimate | None:
    """The mean gain over the datasets."""
    return mean_of_datasets(list(gains_by_dataset(results, contest).values()))


def gains_by_dataset(results: DetectionResults, contest: Contest) -> dict[str, Estimate]:
    """The gain on every dataset that has one."""
    found = {}
    for cell in results.in_domain:
        one = (
            results.control(RANDOM_CUT, contest.detector, cell.train)
            if contest.against == RANDOM_CUT
            else results.difference(contest.detector, contest.against, cell)
        )
        if one is not None:
            found[cell.test] = one
    return found


def _reading(
    results: DetectionResults,
    contest: Contest,
    gain: Estimate | None,
    p: float,
    corrected: float,
    n_tests: int,
    left_out: Mapping[str, str],
) -> DetectionReading:
    if gain is None:
        reason = left_out.get(contest.detector) or left_out.get(contest.against) or "it was not fitted"
        return DetectionReading(
            contest.claim,
            contest.question,
            f"Not measured here: {reason}.",
            "",
            contest.why,
            None,
            "undecided",
            "tested",
        )
    verdict = above_zero(gain, corrected, NEGLIGIBLE_AUROC)
    each = gains_by_dataset(results, contest)
    return DetectionReading(
        contest.claim,
        contest.question,
        _answer(gain, verdict, len(each)),
        _sure(each, p, corrected, n_tests),
        " ".join(filter(None, (contest.why, _beside_paper(contest, gain)))),
        gain,
        verdict,
        "tested",
        p,
        corrected,
    )


def _answer(gain: Estimate, verdict: Verdict, n_datasets: int) -> str:
    shown = f"AUROC {signed_estimate(gain)} {over_datasets(n_datasets)}"
    if verdict == "does not hold" and gain.ci_high < 0:
        return f"No, it is worse: {shown}."
    if verdict == "does not hold":
        return f"No: {shown}, which leaves no room for a gain of {number(NEGLIGIBLE_AUROC, 2)}."
    return f"{YES_OR_NO[verdict]}: {shown}."


def _sure(each: Mapping[str, Estimate], p: float, corrected: float, n_tests: int) -> str:
    if math.isnan(p):
        return "Without an interval nothing can be decided."
    better = sum(above(one, 0.0) == "holds" for one in each.values())
    worse = sum(above(one, 0.0) == "does not hold" for one in each.values())
    tests = f"p {_shown(p)}, corrected for {n_tests} tests {_shown(corrected)}"
    if len(each) == 1:
        return f"{tests}."
    return f"{tests}; taken alone, surely better on {better} and surely worse on {worse} of {len(each)} datasets."


def _shown(p: float) -> str:
    text = p_value_cell(p)
    return text if text.startswith("<") else f"= {text}"


def _beside_paper(contest: Contest, gain: Estimate) -> str:
    """Where the paper's gain lies beside our interval."""
    if not contest.paper:
        return ""
    theirs = paper.mean_gain(contest.paper)
    said = f"The paper reports {signed(theirs)} for {contest.paper} over its probe, mean of eight cells, no interval"
    if not has_interval(gain):
        return f"{said}."
    where = "above" if theirs > gain.ci_high else "below" if theirs < gain.ci_low else "inside"
    return f"{said}: {where} ours."


WATCHED = (PROBE, BOTH, "mop", "counterfactual", AUTO)
"""Detectors that are held against confidence, cell by cell."""
_MOST_CELLS = 4  # named in one sentence


def transfer_readings(results: DetectionResults, chosen: str) -> list[DetectionReading]:
    """Nothing where no dataset was tested with what another one taught."""
    shown = AUTO if AUTO in results.names else chosen
    found: list[DetectionReading | None] = []
    for name in dict.fromkeys((chosen, shown)):
        question = f"On other data, is {name} at least as good as the better of probe and confidence?"
        better = better_simple(results, results.elsewhere)
        found.append(_not_below(results, name, better, results.elsewhere, "transfers", question))
    found += [
        _beside_confidence(results, shown),
        _not_below(
            results,
            shown,
            CONFIDENCE,
            results.held_out,
            "held_out",
            f"Does {shown} serve on a dataset that it has not seen, having learned from all others?",
        ),
        _not_below(
            results,
            shown,
            CONFIDENCE,
            results.prompted,
            "other_prompt",
            f"Does {shown} serve when the questions are put another way?",
        ),
    ]
    return [one for one in found if one is not None]


def other_transfer_readings(results: DetectionResults) -> list[DetectionReading]:
    """The other detectors beside confidence."""
    found = [_beside_confidence(results, name) for name in WATCHED if name in results.names and name != AUTO]
    return [one for one in found if one is not None]


def better_simple(results: DetectionResults, cells: Sequence[Cell]) -> str | None:
    """Of probe and confidence, the one with the higher mean on these cells."""
    means = {name: mean_value(results, name, cells, independent=False) for name in (PROBE, CONFIDENCE)}
    known = {name: found.value for name, found in means.items() if found is not None}
    return max(known, key=lambda name: known[name]) if known else None


def _not_below(
    results: DetectionResults, detector: str, against: str | None, cells: Sequence[Cell], claim: str, question: str
) -> DetectionReading | None:
    """Is its mean over the cells not below that of another one?"""
    own = mean_value(results, detector, cells, independent=False)
    if own is None or against is None or against == detector:  # nothing to be held against
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
    why = f"On what it learned from it has {estimate(home, DIGITS)}. Highest here: {_best(results, cells)}."
    line = f"The line is drawn {number(NEGLIGIBLE_AUROC, 2)} below."
    return DetectionReading(f"{claim_name(detector)}_{claim}", question, answer, line, why, gap, verdict)


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
    return DetectionReading(
        f"{claim_name(detector)}_never_far_below_confidence",
        f"Does {detector} stay within {number(FAR_BELOW, 2)} of confidence, whatever it learned from?",
        _fallen_words(verdict, fallen, gaps, worst),
        f"{len(gaps)} pairs of datasets, each by its own interval.",
        "Where a detector falls below the model's own confidence, it is better not used.",
        gaps[worst],
        verdict,
    )


def _fallen_words(verdict: Verdict, fallen: Sequence[Cell], gaps: dict[Cell, Estimate], worst: Cell) -> str:
    if not fallen:
        said = "" if verdict == "holds" else ", though not surely in each"
        return (
            f"{YES_OR_NO[verdict]}: no pair lies lower{said}; the lowest is {worst.words} "
            f"({signed_estimate(gaps[worst])})."
        )
    named = [f"{cell.words} ({signed(gaps[cell].value)})" for cell in fallen[:_MOST_CELLS]]
    more = f" and {len(fallen) - _MOST_CELLS} more" if len(fallen) > _MOST_CELLS else ""
    told = ", ".join(named) + more if more else listing(named)
    return f"{YES_OR_NO[verdict]}: it lies lower in {len(fallen)} of {len(gaps)} pairs, {told}."


def _best(results: DetectionResults, cells: Sequence[Cell]) -> str:
    means = {
        name: found.value
        for name in (*WATCHED, CONFIDENCE)
        if (found := mean_value(results, name, cells, independent=False)) is not None
    }
    best = max(means, key=lambda name: means[name])
    return f"{best} with {number(means[best], DIGITS)}"


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


@dataclass(frozen=True)
class DetectionReadings:
    """What may be said, by kind."""

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

    def one(self, claim: str) -> DetectionReading | None:
        """The reading of this name."""
        return next((reading for reading in self.all if reading.claim == claim), None)


def read_detection(results: DetectionResults, left_out: Mapping[str, str]) -> DetectionReadings:
    """Ask everything."""
    found = recommend(results)
    choice = (recommendation_reading(results, found),) if found else ()
    chosen = found.detector if found else ""
    return DetectionReadings(
        found,
        choice,
        tuple(tested_readings(results, left_out)),
        tuple(transfer_readings(results, chosen)),
        tuple(other_transfer_readings(results)),
        tuple(control_readings(results, chosen)),
    )
