"""Readings of a model over several datasets: what holds in each of them, which lies lowest, and do they converge?

With one dataset there is nothing to compare, and nothing is said.
"""

from collections.abc import Sequence

from anchorscope.report.palette import Q_ANCHORED, display_name
from anchorscope.report.readings.record import About, Reading
from anchorscope.report.verdicts import Verdict, above, all_of, below
from anchorscope.report.wording import estimate, number, points
from anchorscope.stats import curve_order
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import SampledCurve

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
