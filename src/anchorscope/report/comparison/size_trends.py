"""A number per run, and how it changes from the first to the last: of the parts of the evidence, and of ΔP curves."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anchorscope.report.shares import NEEDS_QUESTION, has_shares, share_at
from anchorscope.report.statements.run_curves import RunCurves, measurable
from anchorscope.report.verdicts import NEGLIGIBLE_SHARE, Verdict, has_interval, one_direction, surely
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import SampledCurve, difference_of, mean_of, spread
from anchorscope.stats.estimate import Estimate

_Measure = Callable[[RunCurves, str], Estimate | None]


@dataclass(frozen=True)
class Quantity:
    """One number of a run on a dataset that may change with size."""

    id: str
    noun: str
    measure: _Measure
    unit: str
    digits: int
    negligible: float
    """A change that surely is smaller is none."""
    less: str
    """What a smaller value means in words."""
    more: str
    title: str = ""
    """Of its panel in the figure; empty where it has none."""


@dataclass(frozen=True)
class Trend:
    """How a quantity goes from run to run."""

    values: tuple[Estimate, ...]
    change: Estimate
    """Last minus first."""
    verdict: Verdict
    """Whether it changes in one direction."""
    monotone: bool
    """Whether every run goes on in the direction of the whole change, as measured."""
    turned: bool
    """Whether a step from one run to the next surely goes the other way."""


def _share(part: str, intervention: str = "knockout") -> _Measure:
    """Over each run's band."""
    return lambda run, dataset: share_at(run.findings, dataset, intervention, part)


def _pair(measure: Callable[[SampledCurve, SampledCurve], Estimate]) -> _Measure:
    """Of the Q-Anchored and the A-Anchored curve."""

    def measured(run: RunCurves, dataset: str) -> Estimate | None:
        q, a = run.q(dataset), run.a(dataset)
        return None if q is None or a is None else measure(q, a)

    return measured


def _relative(found: Estimate, n_layers: int) -> Estimate:
    depth = max(1, n_layers - 1)
    return Estimate(found.value / depth, found.ci_low / depth, found.ci_high / depth, found.n, found.method)


_EVIDENCE, _DEPTH, _LATER = "of the evidence", "of the depth", ("comes earlier", "comes later")
_GROWS, _RISES, _LENGTH = ("falls", "grows"), ("becomes lower", "becomes higher"), ("becomes shorter", "becomes longer")

# A change counts from where a reader of the chart would see it: half a tick of its axis, a tenth of its width.
SHARE_QUANTITIES = tuple(
    Quantity(name, noun, _share(part, cut), _EVIDENCE, 2, NEGLIGIBLE_SHARE, *_GROWS, title)
    for name, noun, part, cut, title in (
        ("share_together", "what needs question and answer together", "together", "knockout", "Together"),
        ("share_question", "what the question alone carries", "question", "knockout", "Question alone"),
        ("share_answer", "what the answer alone carries", "answer", "knockout", "Answer alone"),
        ("share_tested", "what needs the key words", NEEDS_QUESTION, "knockout", "Needs the key words"),
        ("share_random", "what needs random words", NEEDS_QUESTION, "random", "Needs random words"),
    )
)
"""What is followed of the parts: ratios of two effects on one scale, so that runs of other AUCs can be compared."""

CURVE_QUANTITIES = (
    Quantity(
        "trough_depth",
        "the lowest value",
        _pair(lambda q, a: shape.trough(q).depth),
        "points",
        1,
        5.0,
        *_RISES,
        "Depth of the trough",
    ),
    Quantity(
        "trough_place",
        "the place of the lowest value",
        _pair(lambda q, a: shape.trough(q).relative),
        _DEPTH,
        2,
        0.1,
        *_LATER,
        "Place of the trough",
    ),
    Quantity(
        "decline_layers",
        "the length of the decline",
        _pair(lambda q, a: shape.decline(q).length),
        "layers",
        1,
        2.0,
        *_LENGTH,
    ),
    Quantity(
        "decline_share",
        "the part of the depth that the decline takes",
        _pair(lambda q, a: shape.decline(q).relative),
        _DEPTH,
        2,
        0.1,
        *_LENGTH,
        "Length of the decline",
    ),
    Quantity(
        "volatility",
        "the jaggedness from layer to layer",
        _pair(lambda q, a: shape.volatility(q)),
        "points",
        1,
        2.0,
        *_GROWS,
        "Volatility",
    ),
    Quantity(
        "last_value",
        "the value at the last layer",
        _pair(lambda q, a: shape.last(q)),
        "points",
        1,
        5.0,
        *_RISES,
        "Last layer",
    ),
    Quantity(
        "separation",
        "the layer from which the groups stay apart",
        _pair(lambda q, a: _relative(shape.separation(q, a), q.n_layers)),
        _DEPTH,
        2,
        0.1,
        *_LATER,
    ),
)
"""What is followed of the Q-Anchored curves."""

SPREAD = Quantity(
    "spread_at_end",
    "the spread of the datasets at the last layer",
    lambda run, dataset: None,
    "points",
    1,
    5.0,
    "becomes narrower",
    "becomes wider",
    "Spread of the datasets",
)
"""What is followed over all datasets together."""


BY_ID = {one.id: one for one in (*SHARE_QUANTITIES, *CURVE_QUANTITIES, SPREAD)}
"""All of them."""


def followed(assignment: str | None) -> tuple[Quantity, ...]:
    """The numbers of the parts, or of the curves under a rule."""
    return SHARE_QUANTITIES if assignment is None else CURVE_QUANTITIES


def with_intervals(runs: Sequence[RunCurves], datasets: Sequence[str], assignment: str | None) -> tuple[str, ...]:
    """The datasets on which every run has intervals; one with too few items must not keep the others from being
    compared, and who uses this names what is left out."""
    if assignment is not None:
        return measurable(runs, datasets)
    if not all(has_shares(run.findings) for run in runs):
        return tuple(datasets)
    tested = SHARE_QUANTITIES[0].measure
    kept = [name for name in datasets if all((one := tested(run, name)) and has_interval(one) for run in runs)]
    return tuple(kept) or tuple(datasets)


def values_of(runs: Sequence[RunCurves], quantity: Quantity, datasets: Sequence[str]) -> list[Estimate] | None:
    """The number of every run, in the mean over the datasets; None where a run has no such number."""
    values = []
    for run in runs:
        if quantity is SPREAD:
            curves = [run.q(name) for name in datasets]
            known = [curve for curve in curves if curve is not None]
            found = [spread(known, -1)] if known and len(known) == len(curves) else []
        else:
            measured = [quantity.measure(run, name) for name in datasets]
            found = [one for one in measured if one is not None] if None not in measured else []
        if not found:
            return None
        values.append(mean_of(found))
    return values if all(math.isfinite(one.value) for one in values) else None


def trend_of(values: Sequence[Estimate], negligible: float) -> Trend:
    """The change over all runs. It is one only if it is sure, large enough to matter, and never surely turns round."""
    change = difference_of(values[-1], values[0])
    sign = 1 if change.value >= 0 else -1
    steps = [difference_of(after, before) for before, after in pairwise(values)]
    monotone = all(sign * step.value >= 0 for step in steps)
    turned = any(surely(step, -sign) for step in steps)
    verdict = one_direction(change, turned, negligible)
    return Trend(tuple(values), change, verdict, monotone, turned)
