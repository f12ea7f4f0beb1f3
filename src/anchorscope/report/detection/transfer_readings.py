"""Readings on other data: does a detector that learned from one dataset serve on another one?

Cells of the train × test matrix share items, so that the interval of their mean is the mean of their intervals.
"""

from collections.abc import Sequence

from anchorscope.report.detection.averages import mean_difference, mean_value
from anchorscope.report.detection.detection_reading import (
    DIGITS,
    YES_OR_NO,
    DetectionReading,
    claim_name,
    signed,
    signed_estimate,
)
from anchorscope.report.detection.results import ANCHOR, BOTH, CONFIDENCE, PROBE, Cell, DetectionResults
from anchorscope.report.verdicts import FAR_BELOW, NEGLIGIBLE_AUROC, Verdict, above, all_of
from anchorscope.report.wording import estimate, listing, number
from anchorscope.stats.estimate import Estimate

WATCHED = (PROBE, BOTH, "mop", "counterfactual", ANCHOR)
"""Detectors that are held against confidence, cell by cell."""
_MOST_CELLS = 4  # named in one sentence


def transfer_readings(results: DetectionResults, chosen: str) -> list[DetectionReading]:
    """Nothing where no dataset was tested with what another one taught."""
    shown = ANCHOR if ANCHOR in results.names else chosen
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
    found = [_beside_confidence(results, name) for name in WATCHED if name in results.names and name != ANCHOR]
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
        said = "" if verdict == "yes" else ", though not surely in each"
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
