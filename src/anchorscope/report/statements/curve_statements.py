"""Checks of the ΔP curves along the depth: where one starts, how low it gets and where, how it ends; how datasets
compare.

They are the same for both groups; A-Anchored, which is said to be flat, has one more. All numbers come from the
bootstrap draws of the whole curve (`stats/curves.py`), so that choosing the most striking layer afterwards costs width.
"""

import math
from collections.abc import Callable, Sequence

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.palette import A_ANCHORED, GROUPS, Q_ANCHORED, display_name
from anchorscope.report.reading import Check, Measured, Subject, at_layers, over, under, within
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
    Verdict,
    below,
    has_interval,
)
from anchorscope.report.wording import estimate, number, points
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import SampledCurve
from anchorscope.stats.estimate import Estimate

WHOLE_CURVES = ("plain", "corrected")
"""Rules whose curves are read one by one: the paper's, and the one without the common shift."""

CurveMeasure = Callable[[SampledCurve], Measured]


def _layer(found: Estimate) -> int | None:
    return int(found.value) if math.isfinite(found.value) else None


def _first(curve: SampledCurve) -> Measured:
    return Measured(shape.first(curve), f"ΔP {points(shape.first(curve))} at layer 0", 0)


def _farthest(curve: SampledCurve) -> Measured:
    return Measured(shape.range_within(curve), f"farthest: {points(shape.range_within(curve))}")


def _trough(curve: SampledCurve) -> Measured:
    found = shape.trough(curve)
    layer = _layer(found.layer)
    return Measured(found.depth, f"ΔP {points(found.depth)}, lowest at layer {layer}", layer)


def _place(curve: SampledCurve) -> Measured:
    found = shape.trough(curve)
    part = estimate(found.relative, 0, 100.0, "%")
    return Measured(found.relative, f"{at_layers(found.layer)}, {part} of the depth", _layer(found.layer))


def _recovery(curve: SampledCurve) -> Measured:
    return Measured(shape.recovery(curve), f"rise from the lowest layer to the end: {points(shape.recovery(curve))}")


def _last(curve: SampledCurve) -> Measured:
    return Measured(shape.last(curve), f"ΔP {points(shape.last(curve))}", curve.n_layers - 1)


def _level(curve: SampledCurve) -> Measured:
    found, wanted = shape.plateau(curve), math.floor((1 - LEVEL_PART) * (curve.n_layers - 1))
    return Measured(found, f"level from {at_layers(found)} on", _layer(found), verdict=below(found, wanted + 0.5))


def _jags(curve: SampledCurve) -> Measured:
    return Measured(shape.volatility(curve), f"root mean square {points(shape.volatility(curve))}")


def _given(found: Measured) -> Verdict:
    return found.verdict or "inconclusive"


_NEAR, _FALL, _RISE, _FLAT, _JAG = (
    number(size, 0) for size in (NEAR_ZERO, MIN_TROUGH, MIN_RECOVERY, STAYS_FLAT, SMOOTH)
)
_OF_CURVES: tuple[tuple[str, str, str, str, CurveMeasure, Callable[[Measured], Verdict], str], ...] = (
    (
        "first_layer",
        "Start",
        f"starts within ±{_NEAR} points of zero",
        f"does not start within ±{_NEAR} points of zero",
        _first,
        within(-NEAR_ZERO, NEAR_ZERO),
        "points",
    ),
    (
        "flat",
        "Flat",
        f"stays within ±{_FLAT} points of zero at every layer",
        f"does not stay within ±{_FLAT} points of zero at every layer",
        _farthest,
        under(STAYS_FLAT),
        "points",
    ),
    (
        "trough",
        "Fall",
        f"gets more than {_FALL} points below zero",
        f"never gets more than {_FALL} points below zero",
        _trough,
        under(-MIN_TROUGH),
        "points",
    ),
    (
        "trough_place",
        "Place",
        "is lowest in the middle third of the depth",
        "is lowest outside the middle third of the depth",
        _place,
        within(*MIDDLE_THIRD),
        "share of the depth",
    ),
    (
        "recovery",
        "Return",
        f"recovers by more than {_RISE} points by the last layer",
        f"does not recover by more than {_RISE} points",
        _recovery,
        over(MIN_RECOVERY),
        "points",
    ),
    ("last_layer", "End", "is still below zero at the last layer", "ends above zero", _last, under(0.0), "points"),
    (
        "plateau",
        "Level",
        f"keeps within ±{number(shape.FLAT, 0)} points of its end over the last quarter of the depth",
        "is not level over the last quarter of the depth",
        _level,
        _given,
        "layer",
    ),
    (
        "volatility",
        "Smooth",
        f"is smooth: its layers lie less than {_JAG} points off the middle of their neighbours",
        "jumps from layer to layer",
        _jags,
        under(SMOOTH),
        "points",
    ),
)
"""Claim, topic, what the curve does, what it does where that fails, measure, judge, unit."""
_KEY = {(Q_ANCHORED, "trough_place"), (Q_ANCHORED, "recovery"), (A_ANCHORED, "flat")}


def _of_group(group: str, measure: CurveMeasure) -> Callable[[Subject], Measured]:
    def measured(subject: Subject) -> Measured:
        curve = subject.curve(group)
        return measure(curve) if curve else Measured()

    return measured


CURVES = tuple(
    Check(
        claim if group == Q_ANCHORED else f"a_{claim}",
        f"{topic}, {group}",
        f"the {group} curve {does}",
        f"The {group} curve {fails}",
        _of_group(group, measure),
        judge,
        rules=WHOLE_CURVES,
        group=group,
        scope="curve",
        unit=unit,
        built_in=WHOLE_CURVES if (group, claim) == (Q_ANCHORED, "trough") else (),
        key=("plain",) if (group, claim) in _KEY else (),
    )
    for group in GROUPS
    for claim, topic, does, fails, measure, judge, unit in _OF_CURVES
    if claim != "flat" or group == A_ANCHORED
)
"""Of single curves, both groups. Items called Q-Anchored because they fall do fall: that has no verdict."""


def _apart(subject: Subject) -> Measured:
    q, a = subject.curve(Q_ANCHORED), subject.curve(A_ANCHORED)
    if not (q and a):
        return Measured()
    found = shape.separation(q, a)
    return Measured(
        found, at_layers(found) if math.isinf(found.value) else f"from {at_layers(found)} on", _layer(found)
    )


APART = (
    Check(
        "separation",
        "Apart",
        f"from some layer on, Q-Anchored stays more than {number(shape.APART, 0)} point below A-Anchored",
        "At no layer does Q-Anchored stay below A-Anchored to the end",
        _apart,
        lambda found: "yes" if found.estimate and has_interval(found.estimate) else "inconclusive",
        rules=tuple(RULES),
        built_in=tuple(RULES),
        unit="layer",
    ),
)
"""True by construction under every rule: shown with its layer."""


def _third(subject: Subject) -> int:
    """The layer at a third of the depth: before it, all curves lie near zero and their order is noise."""
    return round((subject.findings.n_layers - 1) / 3)


def _lowest(subject: Subject, group: str, curves: Sequence[SampledCurve]) -> Measured:
    place, found = shape.lowest_curve(curves, _third(subject))
    name = display_name(subject.findings.datasets[place])
    words = f"of the {group} curves, that of {name} is lowest on average from layer {_third(subject)} on"
    return Measured(found, f"{points(found)} points below the next one", that=words)


def _order(subject: Subject, group: str, curves: Sequence[SampledCurve]) -> Measured:
    first = _third(subject)
    found = shape.crossing(curves, first)
    ranked = sorted(range(len(curves)), key=lambda place: float(curves[place].value[first:].mean()))
    names = ", ".join(display_name(subject.findings.datasets[place]) for place in ranked)
    return Measured(found, f"largest change {points(found)}; from low to high, on average: {names}")


def _spread(subject: Subject, group: str, curves: Sequence[SampledCurve]) -> Measured:
    found = shape.spread(curves, -1)
    return Measured(found, f"highest − lowest {points(found)}")


def _closing(subject: Subject, group: str, curves: Sequence[SampledCurve]) -> Measured:
    first, last = _third(subject), subject.findings.n_layers - 1
    found = shape.closing(curves, slice(first, last - first + 1))
    return Measured(
        found, f"distance in the middle less that at the end: {estimate(found, 1)} points, root mean square"
    )


_OF_DATASETS = (
    (
        "lowest_dataset",
        "Lowest dataset",
        "one {} curve is below all others",
        "The lowest {} curve in the sample is not the lowest",
        "It is unclear which dataset's {} curve is lowest",
        _lowest,
        over(0.0),
    ),
    (
        "order_stable",
        "Order of the datasets",
        f"the {{}} curves keep their order from a third of the depth on: none change places by {number(SAME_ORDER, 0)} "
        "points",
        "The {} curves change places along the depth",
        "",
        _order,
        under(SAME_ORDER),
    ),
    (
        "spread_end",
        "Spread at the end",
        f"the {{}} curves end within {number(END_TOGETHER, 0)} points of each other",
        f"The {{}} curves end more than {number(END_TOGETHER, 0)} points apart",
        "",
        _spread,
        under(END_TOGETHER),
    ),
    (
        "converge",
        "Convergence",
        "the {} curves are closer together at the last layer than in the middle third",
        "The {} curves do not converge towards the end",
        "",
        _closing,
        over(CLOSING),
    ),
)


def _all_curves(
    group: str, measure: Callable[[Subject, str, Sequence[SampledCurve]], Measured]
) -> Callable[[Subject], Measured | None]:
    """Undecided where a curve is missing or of another length."""

    def measured(subject: Subject) -> Measured | None:
        found = [subject.curves.curve(name, group) for name in subject.findings.datasets] if subject.curves else []
        known = [curve for curve in found if curve is not None]
        alike = len(known) == len(found) and len({curve.n_layers for curve in known}) == 1
        return measure(subject, group, known) if alike else Measured()

    return measured


DATASETS = tuple(
    Check(
        claim if group == Q_ANCHORED else f"a_{claim}",
        f"{topic}, {group}",
        that.format(group),
        fails.format(group),
        _all_curves(group, measure),
        judge,
        open=unsure.format(group),
        rules=WHOLE_CURVES,
        group=group,
        scope="model",
        key=("plain",) if group == Q_ANCHORED else (),
    )
    for group in GROUPS
    for claim, topic, that, fails, unsure, measure, judge in _OF_DATASETS
)
"""Of several datasets' curves against each other."""
