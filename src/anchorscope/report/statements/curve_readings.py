"""Readings of curves along the depth: where one starts, how low it gets and where, how it ends; how datasets compare.

The claims are the same for both groups, so that they can be compared; for A-Anchored, which is said to be flat, there
is one more. All numbers come from the bootstrap draws of the whole curve (`stats/curve_shape.py`). With one dataset
there is nothing to compare, and nothing is said of datasets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED, display_name
from anchorscope.report.statements.reading import About, Reading, at_layers, of_depth
from anchorscope.report.verdicts import Verdict, above, all_of, below, between
from anchorscope.report.wording import estimate, number, points
from anchorscope.stats import curve_order
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


SAME_ORDER = 5.0
"""Points. Two curves that change places by less have hardly done so."""
END_TOGETHER = 10.0
"""Points. Curves of a chart that spans a hundred points and end this close look like one bundle."""
CLOSING = 0.0
"""Points. Any clear approach counts as one."""

MEASURES = {
    "separation": "from layer", "trough": "lowest ΔP", "trough_place": "at this part of the depth", "recovery": "rise",
    "a_flat": "farthest from zero", "sorts_by_label": "true share of Q-Anchored − of A-Anchored",
    "random_small": "random cut / knockout", "noop": "flips", "beats_baselines": "AUC − that of the best baseline",
    "signal_survives": "AUC",
}  # fmt: skip
"""What is counted where a claim is told for all datasets at once."""

_WORST_FIRST = ("does not hold", "undecided", "holds")


def of_group(about: About, group: str, curves: Sequence[SampledCurve | None]) -> list[Reading]:
    """The datasets' curves of one group against each other; undecided where one of them is missing."""
    known = [curve for curve in curves if curve is not None]
    whole = known if len(known) == len(curves) and len({curve.n_layers for curve in known}) == 1 else []
    return [make(about, group, whole) for make in (_lowest, _order, _spread, _closing)]


def in_each(about: About, readings: Sequence[Reading]) -> Reading:
    """One claim over all datasets: its verdict is the worst, its number that dataset's."""
    worst = min(readings, key=lambda reading: _WORST_FIRST.index(reading["verdict"]))
    verdict = all_of([reading["verdict"] for reading in readings])
    each = ", ".join(f"{display_name(reading['dataset'])} {short_number(reading)}" for reading in readings)
    numbers = f"{MEASURES[worst['claim']]}: {each}"
    made = about.reading(f"all_{worst['claim']}", worst["statement"], numbers, _nothing(), verdict,
                         group=worst["group"], scope="model", unit=worst["unit"], layer=worst["layer"])  # fmt: skip
    return made | {name: worst[name] for name in ("value", "ci_low", "ci_high", "n", "method")}


def short_number(reading: Reading) -> str:
    """The number of a reading alone, as its unit asks; "–" where there is none."""
    value, low, high = (reading[name] for name in ("value", "ci_low", "ci_high"))
    if value is None:
        return "none" if reading["unit"] == "layer" and low is not None else "–"
    digits, scale, sign = {
        "points": (1, 1.0, ""), "layer": (0, 1.0, ""), "share": (0, 100.0, "\u00a0%"),
        "share of the depth": (0, 100.0, "\u00a0%"),
    }.get(reading["unit"], (2, 1.0, ""))  # fmt: skip
    if low is None and high is None:
        return number(value * scale, digits) + sign
    ends = ("none" if end is None else number(end * scale, digits) for end in (low, high))
    return f"{number(value * scale, digits)}{sign} [{', '.join(ends)}]"


def _lowest(about: About, group: str, curves: Sequence[SampledCurve]) -> Reading:
    found, words, numbers = None, f"one {group} curve lies below all others", ""
    if curves:
        first = _third(about)
        place, found = curve_order.lowest_curve(curves, first)
        name = display_name(about.findings.datasets[place])
        words = f"of the {group} curves, that of {name} lies lowest in the mean from layer {first} on"
        numbers = f"{points(found)} points below the next"
    return _reading(about, group, "lowest_dataset", words, numbers, found, above(found, 0.0))


def _order(about: About, group: str, curves: Sequence[SampledCurve]) -> Reading:
    first = _third(about)
    found = curve_order.crossing(curves, first) if curves else None
    words = (
        f"the {group} curves keep their order from layer {first} on: no two change places by more than "
        f"{number(SAME_ORDER, 0)} points"
    )
    ranked = sorted(range(len(curves)), key=lambda place: float(curves[place].value[first:].mean()))
    names = ", ".join(display_name(about.findings.datasets[place]) for place in ranked)
    numbers = f"largest change {points(found)}; here from low to high, in the mean: {names}"
    return _reading(about, group, "order_stable", words, numbers, found, below(found, SAME_ORDER))


def _spread(about: About, group: str, curves: Sequence[SampledCurve]) -> Reading:
    found = curve_order.spread(curves, -1) if curves else None
    words = f"the {group} curves end within {number(END_TOGETHER, 0)} points of each other"
    numbers = f"highest − lowest {points(found)}"
    return _reading(about, group, "spread_end", words, numbers, found, below(found, END_TOGETHER))


def _closing(about: About, group: str, curves: Sequence[SampledCurve]) -> Reading:
    first, last = _third(about), about.findings.n_layers - 1
    found = curve_order.closing(curves, slice(first, last - first + 1)) if curves else None
    words = f"the {group} curves lie nearer together at the last layer than in the middle third of the depth"
    numbers = f"distance in the middle less that at the end: {estimate(found, 1)} points, root mean square"
    return _reading(about, group, "converge", words, numbers, found, above(found, CLOSING))


def _reading(
    about: About, group: str, claim: str, words: str, numbers: str, found: Estimate | None, verdict: Verdict
) -> Reading:
    named = claim if group == Q_ANCHORED else f"a_{claim}"
    return about.reading(named, words, numbers, found, verdict, group=group, scope="model")


def _third(about: About) -> int:
    """The layer at a third of the depth: before it, all curves lie near zero and their order is noise."""
    return round((about.findings.n_layers - 1) / 3)


def _nothing() -> Estimate:
    return Estimate(0.0, 0.0, 0.0, 0, "")
