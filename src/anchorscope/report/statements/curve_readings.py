"""Readings of curves along the depth: where one starts, how low it gets and where, how it ends; how datasets compare.

The claims are the same for both groups, so that they can be compared; for A-Anchored, which is said to be flat, there
is one more. All numbers come from the bootstrap draws of the whole curve (`stats/curve_shape.py`). With one dataset
there is nothing to compare, and nothing is said of datasets.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anchorscope.report.palette import A_ANCHORED, GROUPS, Q_ANCHORED, display_name
from anchorscope.report.statements.layer_band import layer_names
from anchorscope.report.statements.reading_record import About, Reading, at_layers, of_depth
from anchorscope.report.verdicts import (
    CLOSING,
    END_TOGETHER,
    LEVEL_PART,
    MIDDLE_THIRD,
    MIN_RECOVERY,
    MIN_TROUGH,
    NEAR_ZERO,
    SAME_ORDER,
    SMOOTH,
    STAYS_FLAT,
    WORST_FIRST,
    Verdict,
    above,
    all_of,
    below,
    between,
)
from anchorscope.report.wording import estimate, number, points
from anchorscope.stats import curve_order
from anchorscope.stats import curve_shape as shape
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import SampledCurve


@dataclass(frozen=True)
class CurveStatement:
    """One statement about the shape of a curve: what is measured, against which threshold, in which words."""

    claim: str
    measure: Callable[[SampledCurve], Estimate]
    verdict: Callable[[Estimate | None], Verdict]
    holds: str
    """What "it", the curve, does where it holds."""
    fails: str
    numbers: Callable[[SampledCurve, Estimate], str]
    words: str = ""
    """The statement in full, where it says more than `holds`."""
    unit: str = "points"
    layer: Callable[[SampledCurve, Estimate], int | None] = lambda curve, found: None
    """The layer that it is about."""
    groups: tuple[str, ...] = GROUPS
    """Whose curves it is asked of."""

    def reading(self, about: About, group: str, curve: SampledCurve | None) -> Reading:
        """The statement on one curve; undecided where there is none."""
        found = self.measure(curve) if curve else None
        numbers, layer = (self.numbers(curve, found), self.layer(curve, found)) if curve and found else ("", None)
        named = self.claim if group == Q_ANCHORED else f"a_{self.claim}"
        words = f"the {group} curve {self.words or self.holds}"
        return about.reading(named, words, numbers, found, self.verdict(found), group=group, scope="curve",
                             unit=self.unit, layer=layer)  # fmt: skip


def curve_statements(n_layers: int) -> tuple[CurveStatement, ...]:
    """What is asked of every curve of a model of this depth, in the order in which it is told."""
    near, fall, rise, flat, jag = (
        number(size, 0) for size in (NEAR_ZERO, MIN_TROUGH, MIN_RECOVERY, STAYS_FLAT, SMOOTH)
    )
    level_from = math.floor((1 - LEVEL_PART) * (n_layers - 1))
    return (
        CurveStatement(
            "first_layer", shape.first, lambda found: between(found, -NEAR_ZERO, NEAR_ZERO),
            f"starts within ±{near} points of zero", f"does not start within ±{near} points of zero",
            lambda curve, found: f"ΔP {points(found)} at layer 0", layer=lambda curve, found: 0,
        ),
        CurveStatement(
            "flat", shape.range_within, lambda found: below(found, STAYS_FLAT),
            f"stays within ±{flat} points of zero at every layer",
            f"does not stay within ±{flat} points of zero at every layer",
            lambda curve, found: f"farthest: {points(found)}", groups=(A_ANCHORED,),
        ),
        CurveStatement(
            "trough", lambda curve: shape.trough(curve).depth, lambda found: below(found, -MIN_TROUGH),
            f"gets more than {fall} points below zero", f"never gets more than {fall} points below zero",
            lambda curve, found: f"ΔP {points(found)}, lowest at layer {_layer(shape.trough(curve).layer)}",
            layer=lambda curve, found: _layer(shape.trough(curve).layer),
        ),
        CurveStatement(
            "trough_place", lambda curve: shape.trough(curve).relative, lambda found: between(found, *MIDDLE_THIRD),
            "is lowest in the middle third of the depth", "is lowest outside the middle third of the depth",
            lambda curve, found: f"{at_layers(shape.trough(curve).layer)}, {of_depth(found)}",
            unit="share of the depth", layer=lambda curve, found: _layer(shape.trough(curve).layer),
        ),
        CurveStatement(
            "recovery", shape.recovery, lambda found: above(found, MIN_RECOVERY),
            f"comes back by more than {rise} points", f"does not come back by more than {rise} points",
            lambda curve, found: f"rise from the lowest layer to the end: {points(found)}",
            f"comes back by more than {rise} points by the last layer",
        ),
        CurveStatement(
            "last_layer", shape.last, lambda found: below(found, 0.0), "ends below zero", "ends above zero",
            lambda curve, found: f"ΔP {points(found)}", "is still below zero at the last layer",
            layer=lambda curve, found: n_layers - 1,
        ),
        CurveStatement(
            "plateau", shape.plateau, lambda found: below(found, level_from + 0.5),
            "is level over the last quarter of the depth", "is not level over the last quarter of the depth",
            lambda curve, found: f"level from {at_layers(found)} on",
            f"keeps within ±{number(shape.FLAT, 0)} points of its end from layer {level_from} on, or earlier",
            unit="layer", layer=lambda curve, found: _layer(found),
        ),
        CurveStatement(
            "volatility", shape.volatility, lambda found: below(found, SMOOTH), "is smooth",
            "jumps from layer to layer", lambda curve, found: f"root mean square {points(found)}",
            f"is smooth: its layers lie less than {jag} points off the middle of their neighbours",
        ),
    )  # fmt: skip


def of_curve(about: About, group: str, curve: SampledCurve | None) -> list[Reading]:
    """All readings of one group's curve; what is asked of one group alone comes last."""
    asked = [one for one in curve_statements(about.findings.n_layers) if group in one.groups]
    return [one.reading(about, group, curve) for one in sorted(asked, key=lambda one: one.groups != GROUPS)]


def separation(about: About, q: SampledCurve | None, a: SampledCurve | None) -> Reading:
    """From which layer on do the two groups lie apart, to the end?"""
    found = shape.separation(q, a) if q and a else None
    words = f"from some layer on, Q-Anchored stays more than {number(shape.APART, 0)} point below A-Anchored"
    numbers = (at_layers(found) if math.isinf(found.value) else f"from {at_layers(found)} on") if found else ""
    verdict = below(found, about.findings.n_layers - 0.5)
    return about.reading("separation", words, numbers, found, verdict, unit="layer", layer=_layer(found))


def _layer(found: Estimate | None) -> int | None:
    return int(found.value) if found and math.isfinite(found.value) else None


MEASURES = {
    "separation": "from layer", "trough": "lowest ΔP", "trough_place": "at this part of the depth", "recovery": "rise",
    "a_flat": "farthest from zero", "sorts_by_label": "true share of Q-Anchored − of A-Anchored",
    "random_small": "random cut / knockout", "noop": "flips", "beats_baselines": "AUC − that of the best baseline",
    "adds_to_confidence": "AUC gained", "signal_survives": "AUC − that of permuted labels", "share_needed": "Λ",
    "share_beyond_random": "Λ − that of random words", "items_differ": "upper − lower third",
    "share_given": "Λ that remains",
    "share_random_small": "highest random cut / knockout", "share_random_mass_small": "highest random cut / knockout",
    "share_floor_small": "highest with nothing cut", "share_permuted_zero": "farthest from zero",
    "share_random_weights": "random weights / model", "share_peak": "highest at layer",
}  # fmt: skip
"""What is counted where a claim is told for all datasets at once."""


def of_group(about: About, group: str, curves: Sequence[SampledCurve | None]) -> list[Reading]:
    """The datasets' curves of one group against each other; undecided where one of them is missing."""
    known = [curve for curve in curves if curve is not None]
    whole = known if len(known) == len(curves) and len({curve.n_layers for curve in known}) == 1 else []
    return [make(about, group, whole) for make in (_lowest, _order, _spread, _closing)]


def in_each(about: About, readings: Sequence[Reading]) -> Reading:
    """One claim over all datasets: its verdict is the worst, its number that dataset's."""
    worst = min(readings, key=lambda reading: WORST_FIRST.index(reading["verdict"]))
    verdict = all_of([reading["verdict"] for reading in readings])
    each = ", ".join(
        f"{display_name(reading['dataset'])} {short_number(reading)}{_failing(reading)}" for reading in readings
    )
    numbers = f"{MEASURES[worst['claim']]}: {each}"
    made = about.reading(f"all_{worst['claim']}", worst["statement"], numbers, _nothing(), verdict,
                         group=worst["group"], scope="model", unit=worst["unit"], layer=worst["layer"],
                         standing=worst["standing"])  # fmt: skip
    return made | {name: worst[name] for name in _NUMBERS_OF_ONE}


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


_NUMBERS_OF_ONE = ("value", "ci_low", "ci_high", "n", "method", "p_value", "p_corrected", "failing_layers",
                   "doubtful_layers")  # fmt: skip


def _failing(reading: Reading) -> str:
    told = {"fails": reading["failing_layers"], "in doubt": reading["doubtful_layers"]}
    said = [f"{word} at {layer_names(tuple(layers))}" for word, layers in told.items() if layers]
    return f" ({', '.join(said)})" if said else ""


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
