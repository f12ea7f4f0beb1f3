"""What five written descriptions of two published layer charts claimed, checked on the runs at hand (`--claims`).

The descriptions contradict each other: the A-Anchored lines are flat, or fall to −40; the lowest line is PopQA, or
HotpotQA, or NQ; the curves recover, stay low, or fall to the end. Each claim is a row of one table: our wording, who
says so, who says otherwise, a number of the curves and where it must lie. A claim is about all curves, so one curve
that contradicts it with 95 % confidence refutes it, and it is confirmed only if every curve confirms it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anchorscope.report.comparison.trends import order_by_size
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.reading import Reading
from anchorscope.report.run_curves import RunCurves
from anchorscope.report.verdicts import (
    MIDDLE_THIRD,
    MIN_RECOVERY,
    MIN_TROUGH,
    NEAR_ZERO,
    STAYS_FLAT,
    WORST_FIRST,
    Verdict,
    has_interval,
    inside,
)
from anchorscope.report.wording import NOTHING, Table, estimate
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import SIMULTANEOUS, SampledCurve, difference_of, mean_of
from anchorscope.stats.estimate import Estimate

PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
"""The datasets of the charts that were described."""

Parts = Iterator[tuple[str, Estimate]]
"""Whose number it is, and the number."""
Measure = Callable[[Sequence[RunCurves]], Parts]


@dataclass(frozen=True)
class Claim:
    """One sentence about a ΔP chart that can be computed."""

    text: str
    says: str
    """The descriptions that say so, by number; 1–3 describe Llama-3.2, 4 and 5 Qwen3."""
    against: str
    measure: Measure
    over: float = -math.inf
    under: float = math.inf
    unit: str = "points"


def _third(curve: SampledCurve) -> int:
    return round((curve.n_layers - 1) / 3)


def _from_layer(curve: SampledCurve, first: int) -> SampledCurve:
    return SampledCurve(curve.value[first:], curve.samples[:, first:], curve.n)


def _mean(curve: SampledCurve) -> Estimate:
    return curve.estimate(curve.value.mean(), curve.whole.mean(axis=1))


def _level(curve: SampledCurve) -> Estimate:
    """The mean from a third of the depth on: before it all curves are near zero."""
    return _mean(_from_layer(curve, _third(curve)))


def _extreme(curve: SampledCurve, highest: bool) -> Estimate:
    """The highest or lowest value, from the band for all layers."""
    low, high = curve.band
    value, least, most = (float(line.max() if highest else line.min()) for line in (curve.value, low, high))
    return Estimate(value, least, most, curve.n, SIMULTANEOUS)


def _lowest(curve: SampledCurve) -> Estimate:
    return _extreme(curve, highest=False)


def _of_q(measure: Callable[[SampledCurve], Estimate]) -> Measure:
    return _of_groups(lambda q, a: measure(q))


def _of_a(measure: Callable[[SampledCurve], Estimate]) -> Measure:
    return _of_groups(lambda q, a: measure(a))


def _of_groups(measure: Callable[[SampledCurve, SampledCurve], Estimate]) -> Measure:
    """Every dataset of every run."""

    def parts(runs: Sequence[RunCurves]) -> Parts:
        for run in runs:
            for dataset in run.datasets:
                q, a = run.q(dataset), run.a(dataset)
                if q is not None and a is not None:
                    yield f"{display_name(dataset)}, {run.model}", measure(q, a)

    return parts


def _lower_than_others(dataset: str) -> Measure:
    """One dataset's level against every other dataset of the paper; all four are needed."""

    def parts(runs: Sequence[RunCurves]) -> Parts:
        for run in runs:
            curves = {name: curve for name in PAPER if (curve := run.q(name)) is not None}
            if len(curves) == len(PAPER):
                for other in (name for name in PAPER if name != dataset):
                    gap = difference_of(_level(curves[dataset]), _level(curves[other]))
                    yield f"against {display_name(other)}, {run.model}", gap

    return parts


def _closing(runs: Sequence[RunCurves]) -> Parts:
    """How much closer the datasets are at the last layer than in the middle third."""
    for run in runs:
        curves = [curve for name in run.datasets if (curve := run.q(name)) is not None]
        if len(curves) > 1:
            first = _third(curves[0])
            yield run.model, shape.closing(curves, slice(first, curves[0].n_layers - first))


def _with_size(measure: Callable[[SampledCurve], Estimate]) -> Measure:
    """The largest model less the smallest, the mean over the datasets that both have."""

    def parts(runs: Sequence[RunCurves]) -> Parts:
        order = order_by_size([run.findings for run in runs])
        if order.by_size:
            small, large = (next(run for run in runs if run.findings is order.runs[end]) for end in (0, -1))
            pairs = [(small.q(name), large.q(name)) for name in order.datasets]
            known = [(first, last) for first, last in pairs if first is not None and last is not None]
            if known:
                means = [mean_of([measure(pair[end]) for pair in known]) for end in (0, 1)]
                yield f"{order.names[0]} to {order.names[-1]}", difference_of(means[1], means[0])

    return parts


_GAP_HIGHEST = _of_groups(lambda q, a: _extreme(_from_layer(q - a, _third(q)), highest=True))
_GAP_LATE = _of_groups(lambda q, a: _mean(_from_layer(q - a, 2 * _third(q))))
_TROUGH = _of_q(lambda q: shape.trough(q).relative)
_DECLINE = _with_size(shape.decline)
_LOWEST = "Of the Q-Anchored curves that of {} is lowest on average from a third of the depth on"
_DEPTH = "share of the depth"
CLAIMS: dict[str, Claim] = {
    "groups_apart": Claim(
        "From a third of the depth on, Q-Anchored is below A-Anchored at every layer",
        "2–5",
        "1",
        _GAP_HIGHEST,
        under=0.0,
    ),
    "q_above_a_late": Claim(
        "In the last third of the layers Q-Anchored is above A-Anchored", "1", "2–5", _GAP_LATE, over=0.0
    ),
    "a_near_zero": Claim(
        f"The A-Anchored curve stays within {STAYS_FLAT:.0f} points of zero at every layer",
        "2, 4, 5",
        "1, 3",
        _of_a(shape.range_within),
        under=STAYS_FLAT,
    ),
    "a_falls": Claim(
        "The A-Anchored curve falls too, to −20 points or lower", "1, 3", "2, 4, 5", _of_a(_lowest), under=-20.0
    ),
    "starts_at_zero": Claim(
        f"The Q-Anchored curve starts within {NEAR_ZERO:.0f} points of zero",
        "1, 3–5",
        "2",
        _of_q(shape.first),
        -NEAR_ZERO,
        NEAR_ZERO,
    ),
    "starts_low": Claim(
        "The Q-Anchored curve starts between −10 and −20 points", "2", "1, 3–5", _of_q(shape.first), -20.0, -10.0
    ),
    "trough_in_the_middle": Claim(
        "The Q-Anchored curve is lowest in the middle third of the layers", "2", "3–5", _TROUGH, *MIDDLE_THIRD, _DEPTH
    ),
    "recovers": Claim(
        f"The Q-Anchored curve recovers from its lowest point by more than {MIN_RECOVERY:.0f} points",
        "2, 4",
        "3, 5",
        _of_q(shape.recovery),
        over=MIN_RECOVERY,
    ),
    "falls_on": Claim(
        f"The Q-Anchored curve falls by more than {MIN_TROUGH:.0f} points from the middle layer to the last",
        "3, 5",
        "2, 4",
        _of_q(lambda q: shape.last(q.relative_to((q.n_layers - 1) // 2))),
        under=-MIN_TROUGH,
    ),
    **{
        f"{name}_lowest": Claim(_LOWEST.format(display_name(name)), says, against, _lower_than_others(name), under=0.0)
        for name, says, against in zip(
            PAPER, ("2, 3, 5", "2", "4", "1"), ("1, 4", "1, 3–5", "1–3, 5", "2–5"), strict=True
        )
    },
    "datasets_converge": Claim(
        "The datasets' Q-Anchored curves are closer together at the end than in the middle",
        "5",
        "3",
        _closing,
        over=0.0,
    ),
    "larger_deeper": Claim(
        "The larger model's Q-Anchored curves reach a deeper trough", "1–4", NOTHING, _with_size(_lowest), under=0.0
    ),
    "larger_longer_decline": Claim(
        "In the larger model the decline takes more layers", "2, 3, 5", NOTHING, _DECLINE, over=0.0, unit="layers"
    ),
}
"""Every claim, in the order of the page."""


def check_claims(runs: Sequence[Findings], claims: Mapping[str, Claim] = CLAIMS) -> list[Reading]:
    """Every claim under the paper's rule; runs with random weights have no say."""
    curves = [RunCurves(run, "plain") for run in runs if not run.random_weights]
    models = ", ".join(run.model for run in runs)
    return [_reading(name, claim, curves, models) for name, claim in claims.items()]


def _reading(name: str, claim: Claim, curves: Sequence[RunCurves], models: str) -> Reading:
    judged = [(_verdict(value, claim), whose, value) for whose, value in claim.measure(curves)]
    worst = min(judged, key=lambda part: WORST_FIRST.index(part[0]), default=None)
    verdict: Verdict = worst[0] if worst else "not measured"
    decided = [part for part in judged if part[0] == verdict]
    numbers = f"{estimate(worst[2], 1)} ({worst[1]}); {len(decided)} of {len(judged)}" if worst else "needs other runs"
    return Reading(
        id=f"claim:{name}:plain",
        claim=name,
        topic=name.replace("_", " "),
        statement=claim.text,
        sentence=f"{claim.text}: {verdict}",
        numbers=numbers,
        estimate=worst[2] if worst else None,
        verdict=verdict,
        unit=claim.unit,
        subject=models,
        model=models,
        assignment="plain",
        scope="claim",
        more={"source": claim.says, "sources_against": claim.against},
    )


def _verdict(value: Estimate, claim: Claim) -> Verdict:
    if math.isnan(value.value) or not has_interval(value):
        return "inconclusive"
    return inside(value, claim.over, claim.under)


def claims_table(readings: Sequence[Reading]) -> Table:
    """Who says it, who says otherwise, and what the numbers say."""
    rows = tuple(
        (one.statement, one.more["source"], one.more["sources_against"], one.verdict or "", one.numbers)
        for one in readings
    )
    return Table(("claim", "says so", "says otherwise", "verdict", "number that decides it"), rows, 5)
