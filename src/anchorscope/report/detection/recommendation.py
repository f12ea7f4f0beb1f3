"""Which detector is worth its passes here.

`probe+confidence` is the one to beat. Another detector takes its place if it is surely better in the mean over the
datasets (p-values of all that stand for choice corrected together, Holm) and gains more than its further passes cost,
0.01 AUROC each: a convention, so that a pass must bring something. Where nothing is better, a cheaper detector takes
the place if it is surely less than 0.01 worse. Variants and controls do not stand for choice.
"""

import math
from dataclasses import dataclass

from anchorscope.report.detection.averages import mean_difference, mean_value
from anchorscope.report.detection.detection_reading import (
    DIGITS,
    DetectionReading,
    over_datasets,
    passes_words,
    signed_estimate,
)
from anchorscope.report.detection.results import BOTH, CONFIDENCE, PROBE, DetectionResults, entry_of
from anchorscope.report.verdicts import NEGLIGIBLE_AUROC, Verdict, above, above_zero, p_from_interval
from anchorscope.report.wording import estimate, number
from anchorscope.stats.estimate import Estimate, holm


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
    better = [name for name, verdict in _verdicts(gains).items() if verdict == "yes"]
    net = {name: gains[name].value - _price(results, name, reference) for name in better}
    worth = [name for name in better if net[name] > 0]
    if worth:
        best = max(worth, key=lambda name: net[name])
        return _made(results, best, reference, gains[best], _worth_words(results, best, reference))
    dearer = tuple(better)
    cheaper = [
        name
        for name, gain in gains.items()
        if _price(results, name, reference) < 0 and above(gain, -NEGLIGIBLE_AUROC) == "yes"
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
