"""Readings of one curve along the depth: where it starts, how low it gets and where, how it ends.

The claims are the same for both groups, so that they can be compared; for A-Anchored, which is said to be flat, there
is one more. All numbers come from the bootstrap draws of the whole curve (`stats/curve_shape.py`).
"""

import math
from dataclasses import dataclass

from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.report.readings.record import About, Reading, at_layers, of_depth
from anchorscope.report.verdicts import Verdict, above, below, between
from anchorscope.report.wording import number, points
from anchorscope.stats import curve_shape as shape
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import SampledCurve

NEAR_ZERO = 5.0
"""Points. In the first layers little has been cut yet; random cuts alone move a curve by a few points."""
MIN_TROUGH = 5.0
"""Points. Random cuts alone move a curve by a few points; a shallower dip means nothing."""
MIN_RECOVERY = 5.0
"""Points. A rise that a reader of the chart would see; the interval accounts for the lowest layer being picked."""
STAYS_FLAT = 10.0
"""Points. Readers of such charts call a line flat that keeps within ten points of zero."""
SMOOTH = 5.0
"""Points. A layer that lies farther off the middle of its neighbours makes a visible jag."""
MIDDLE_THIRD = (1 / 3 - 1e-9, 2 / 3 + 1e-9)
"""Shares of the depth. A layer at exactly a third (layer 9 of 28) belongs to it, whatever the rounding."""
LEVEL_PART = 0.25
"""Share of the depth, counted from the end, for which a curve must be level to have a plateau."""


def of_curve(about: About, group: str, curve: SampledCurve | None) -> list[Reading]:
    """All readings of one group's curve; undecided throughout where there is none."""
    reader = _Reader(about, group, curve)
    readings = [reader.first(), reader.trough(), reader.place(), reader.recovery(), reader.last(), reader.plateau(),
                reader.volatility()]  # fmt: skip
    return [*readings, reader.flat()] if group == A_ANCHORED else readings


@dataclass(frozen=True)
class _Reader:
    """One curve and what it is about."""

    about: About
    group: str
    curve: SampledCurve | None

    def first(self) -> Reading:
        found = shape.first(self.curve) if self.curve else None
        words = f"starts within ±{number(NEAR_ZERO, 0)} points of zero"
        return self._reading("first_layer", words, f"ΔP {points(found)} at layer 0", found,
                             between(found, -NEAR_ZERO, NEAR_ZERO), layer=0)  # fmt: skip

    def trough(self) -> Reading:
        found = shape.trough(self.curve) if self.curve else None
        depth = found.depth if found else None
        words = f"gets more than {number(MIN_TROUGH, 0)} points below zero"
        layer = _layer(found.layer if found else None)
        numbers = f"ΔP {points(depth)}, lowest at layer {layer}"
        return self._reading("trough", words, numbers, depth, below(depth, -MIN_TROUGH), layer=layer)

    def place(self) -> Reading:
        found = shape.trough(self.curve) if self.curve else None
        relative = found.relative if found else None
        numbers = f"{at_layers(found.layer)}, {of_depth(found.relative)}" if found else ""
        return self._reading("trough_place", "is lowest in the middle third of the depth", numbers, relative,
                             between(relative, *MIDDLE_THIRD), unit="share of the depth",
                             layer=_layer(found.layer if found else None))  # fmt: skip

    def recovery(self) -> Reading:
        found = shape.recovery(self.curve) if self.curve else None
        words = f"comes back by more than {number(MIN_RECOVERY, 0)} points by the last layer"
        numbers = f"rise from the lowest layer to the end: {points(found)}"
        return self._reading("recovery", words, numbers, found, above(found, MIN_RECOVERY))

    def last(self) -> Reading:
        found = shape.last(self.curve) if self.curve else None
        words = "is still below zero at the last layer"
        layer = self.about.findings.n_layers - 1
        return self._reading("last_layer", words, f"ΔP {points(found)}", found, below(found, 0.0), layer=layer)

    def plateau(self) -> Reading:
        found = shape.plateau(self.curve) if self.curve else None
        asked = math.floor((1 - LEVEL_PART) * (self.about.findings.n_layers - 1))
        words = f"keeps within ±{number(shape.FLAT, 0)} points of its end from layer {asked} on, or earlier"
        numbers = f"level from {at_layers(found)} on" if found else ""
        return self._reading("plateau", words, numbers, found, below(found, asked + 0.5), unit="layer",
                             layer=_layer(found))  # fmt: skip

    def volatility(self) -> Reading:
        found = shape.volatility(self.curve) if self.curve else None
        words = f"is smooth: its layers lie less than {number(SMOOTH, 0)} points off the middle of their neighbours"
        numbers = f"root mean square {points(found)}"
        return self._reading("volatility", words, numbers, found, below(found, SMOOTH))

    def flat(self) -> Reading:
        found = shape.range_within(self.curve) if self.curve else None
        words = f"stays within ±{number(STAYS_FLAT, 0)} points of zero at every layer"
        return self._reading("flat", words, f"farthest: {points(found)}", found, below(found, STAYS_FLAT))

    def _reading(
        self, claim: str, words: str, numbers: str, found: Estimate | None, verdict: Verdict, *,
        unit: str = "points", layer: int | None = None,
    ) -> Reading:  # fmt: skip
        named = claim if self.group == Q_ANCHORED else f"a_{claim}"
        return self.about.reading(named, f"the {self.group} curve {words}", numbers, found, verdict,
                                  group=self.group, scope="curve", unit=unit, layer=layer)  # fmt: skip


def separation(about: About, q: SampledCurve | None, a: SampledCurve | None) -> Reading:
    """From which layer on do the two groups lie apart, to the end?"""
    found = shape.separation(q, a) if q and a else None
    words = f"from some layer on, Q-Anchored stays more than {number(shape.APART, 0)} point below A-Anchored"
    numbers = (at_layers(found) if math.isinf(found.value) else f"from {at_layers(found)} on") if found else ""
    verdict = below(found, about.findings.n_layers - 0.5)
    return about.reading("separation", words, numbers, found, verdict, unit="layer", layer=_layer(found))


def _layer(found: Estimate | None) -> int | None:
    return int(found.value) if found and math.isfinite(found.value) else None
