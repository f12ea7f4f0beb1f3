"""Which detector to use, by one rule from the numbers of a comparison; no words, no pictures.

The cheapest detector (`confidence`, where it was compared) is the one to use unless another is shown to gain more AUROC
on its own data than its further passes cost. Of several that are, it is the one whose least gain, on its own or on
other data, is the largest. Gains are paired differences to the cheapest detector. Their intervals hold for all of them
together (Bonferroni), so that they also hold for the detector that is picked because its numbers are the best; were all
detectors alike, a dearer one would be recommended in at most 2.5 % of comparisons.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from anchorscope.catalogue import DETECTORS
from anchorscope.stats.estimate import Estimate, simultaneous

PRICE_OF_A_PASS = 0.01
"""The AUROC that every further pass through the model has to gain: a convention."""
Place = Literal["same", "other"]
"""Tested on the dataset that was learned from, or on another one."""
Mean = Callable[[str, Place, str], Estimate | None]
"""The mean AUROC of a detector over the datasets of a place, or of its difference to another one."""


@dataclass(frozen=True)
class Gain:
    """A detector beside the cheapest one."""

    detector: str
    against: str
    estimate: Estimate
    """Of the difference in AUROC, with an interval that holds for all comparisons together."""
    needed: float
    """What its further passes cost."""

    @property
    def least(self) -> float:
        """By how much it is shown to gain more than it has to; minus infinity where nothing is shown."""
        has_spread = self.estimate.ci_high > self.estimate.ci_low
        return self.estimate.ci_low - self.needed if has_spread else -math.inf


@dataclass(frozen=True)
class Recommendation:
    detector: str
    auroc: Estimate
    """On its own data, with an interval that holds for all candidates together."""
    decided_by: Gain | None
    """What the recommended detector gains on its own data; if it is the cheapest one, what the nearest other gains.
    None if there was no other."""
    elsewhere: Gain | None
    """What the recommended detector gains on other data; None if it is the cheapest, or was not tested there."""
    others: int
    """Detectors that were compared with the cheapest one."""
    comparisons: int

    def record(self) -> dict[str, Any]:
        """As detection.json holds it; a number is a list of value and interval."""
        gains = {"decided_by": self.decided_by, "elsewhere": self.elsewhere}
        return {
            "detector": self.detector,
            "auroc": _numbers(self.auroc),
            "others": self.others,
            "comparisons": self.comparisons,
            **{name: gain and _gain_record(gain) for name, gain in gains.items()},
        }


def recommend(names: Sequence[str], mean: Mean) -> Recommendation | None:
    """The detector to use; None if none that can be used was tested on what it learned from."""
    aurocs = {
        name: area
        for name in filter(_is_candidate, names)
        if (area := mean(name, "same", "")) is not None
    }
    if not aurocs:
        return None
    cheapest = min(aurocs, key=lambda name: DETECTORS[name].passes)
    own = _gains(aurocs, cheapest, "same", mean)
    other = _gains(own, cheapest, "other", mean)
    comparisons = len(own) + len(other)
    own, other = (_together(gains, comparisons) for gains in (own, other))

    def guaranteed(name: str) -> float:
        return min(gains[name].least for gains in (own, other) if name in gains)

    shown = [name for name, gain in own.items() if gain.least > 0]
    chosen = max(shown, key=guaranteed, default=cheapest)
    nearest = max(own, key=lambda name: own[name].least, default=cheapest)
    return Recommendation(
        detector=chosen,
        auroc=simultaneous(aurocs[chosen], len(aurocs)),
        decided_by=own.get(chosen if shown else nearest),
        elsewhere=other.get(chosen),
        others=len(own),
        comparisons=comparisons,
    )


def _is_candidate(name: str) -> bool:
    """Controls and baselines are there to compare with, and what cannot be saved cannot be used."""
    entry = DETECTORS[name]
    return entry.saved and not entry.baseline and not entry.variant_of


def _gains(
    names: Mapping[str, Any], cheapest: str, place: Place, mean: Mean
) -> dict[str, Gain]:
    gains = {}
    for name in names:
        estimate = None if name == cheapest else mean(name, place, cheapest)
        if estimate is not None:
            further = DETECTORS[name].passes - DETECTORS[cheapest].passes
            gains[name] = Gain(name, cheapest, estimate, PRICE_OF_A_PASS * further)
    return gains


def _together(gains: Mapping[str, Gain], comparisons: int) -> dict[str, Gain]:
    return {
        name: replace(gain, estimate=simultaneous(gain.estimate, comparisons))
        for name, gain in gains.items()
    }


def _gain_record(gain: Gain) -> dict[str, Any]:
    return vars(gain) | {"estimate": _numbers(gain.estimate)}


def _numbers(estimate: Estimate) -> list[float | None]:
    ends = (estimate.value, estimate.ci_low, estimate.ci_high)
    return [end if math.isfinite(end) else None for end in ends]
