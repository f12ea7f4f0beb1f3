"""A number per run, and how it changes from the first run to the last: of the question share, and of the ΔP curves."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anchorscope.report.shares import has_shares, result_of, share_at, share_layer
from anchorscope.report.statements.layer_band import LayerBand, share_band
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


def _share(intervention: str) -> _Measure:
    """At the layer that is tested."""
    return lambda run, dataset: share_at(run.findings, dataset, share_layer(run.findings, dataset), intervention)


def _band(measure: Callable[[LayerBand], Estimate], relative: bool = False) -> _Measure:
    """Of the share along the layers, read off a band that holds for all of them."""

    def measured(run: RunCurves, dataset: str) -> Estimate | None:
        band = share_band(run.findings, dataset, "knockout")
        found = measure(band) if band else None
        return _relative(found, run.findings.n_layers) if found and relative else found

    return measured


def _thirds(run: RunCurves, dataset: str) -> Estimate | None:
    found = result_of(run.findings, dataset, "thirds_difference")
    return found.estimate if found else None


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
SHARE_QUANTITIES = (
    Quantity(
        "share_tested",
        "the question share at the tested layer",
        _share("knockout"),
        _EVIDENCE,
        2,
        NEGLIGIBLE_SHARE,
        *_GROWS,
        "Λ at the tested layer",
    ),
    Quantity(
        "share_random",
        "what random words take there",
        _share("random"),
        _EVIDENCE,
        2,
        NEGLIGIBLE_SHARE,
        *_GROWS,
        "Random words, same layer",
    ),
    Quantity(
        "share_thirds",
        "the difference of the items' upper and lower third",
        _thirds,
        _EVIDENCE,
        2,
        NEGLIGIBLE_SHARE,
        *_GROWS,
        "Upper − lower third",
    ),
    Quantity(
        "share_peak",
        "the highest question share",
        _band(lambda band: band.peak),
        _EVIDENCE,
        2,
        NEGLIGIBLE_SHARE,
        *_GROWS,
        "Λ at its peak",
    ),
    Quantity(
        "share_peak_place",
        "the peak of the question share",
        _band(lambda band: band.peak_layer, True),
        _DEPTH,
        2,
        0.1,
        *_LATER,
        "Place of the peak",
    ),
    Quantity(
        "share_half_place",
        "half of the peak",
        _band(lambda band: band.half_way, True),
        _DEPTH,
        2,
        0.1,
        *_LATER,
        "Place of half the peak",
    ),
)
"""What is followed of the question share."""

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
    """The numbers of the question share, or of the curves under a rule."""
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
