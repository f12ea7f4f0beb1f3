"""The tested readings: does one detector beat another, in the mean over the datasets?

Each difference is paired: the same items in the same resamples. Their p-values come from the intervals and are
corrected together (Holm). A gain holds by its corrected p-value; it does not hold where the interval leaves no room for
a gain that matters.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from anchorscope.report.detection import paper
from anchorscope.report.detection.averages import mean_of_datasets
from anchorscope.report.detection.detection_reading import (
    YES_OR_NO,
    DetectionReading,
    claim_name,
    over_datasets,
    signed,
    signed_estimate,
)
from anchorscope.report.detection.results import ANCHOR, BOTH, PROBE, DetectionResults
from anchorscope.report.verdicts import NEGLIGIBLE_AUROC, Verdict, above, above_zero, has_interval, p_from_interval
from anchorscope.report.wording import number, p_value_cell
from anchorscope.stats.estimate import Estimate, holm

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
        "pr-activation",
        PROBE,
        "Pathway Reweighting, read as scaled states. With a hard gate and a linear probe this is Mixture-of-Probes "
        "with tied weights.",
        paper.PR,
    ),
    Contest("pr-activation", BOTH),
    Contest("pr-delta", PROBE, "Pathway Reweighting, read as more or less of what the cut takes (ours).", paper.PR),
    Contest("pr-delta", BOTH),
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
    Contest(ANCHOR, PROBE),
    Contest(ANCHOR, BOTH, "anchor is chosen on the training folds: where nothing beats probe+confidence, it is that."),
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
    if verdict == "inconclusive" and gain.ci_high < NEGLIGIBLE_AUROC:
        verdict = "no"
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
            "inconclusive",
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
    if verdict == "no" and gain.ci_high < 0:
        return f"No, it is worse: {shown}."
    if verdict == "no":
        return f"No: {shown}, which leaves no room for a gain of {number(NEGLIGIBLE_AUROC, 2)}."
    return f"{YES_OR_NO[verdict]}: {shown}."


def _sure(each: Mapping[str, Estimate], p: float, corrected: float, n_tests: int) -> str:
    if math.isnan(p):
        return "Without an interval nothing can be decided."
    better = sum(above(one, 0.0) == "yes" for one in each.values())
    worse = sum(above(one, 0.0) == "no" for one in each.values())
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
