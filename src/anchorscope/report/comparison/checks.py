"""Checks across runs: how the parts of the evidence change from run to run, and claims of earlier descriptions.

A change is a reading per part, over all datasets and for each. Runs are independent samples, so their intervals are
combined as such (`stats/curves.py`). It is a change in one direction if the difference between the first run and the
last is significant and no step between two runs significantly goes the other way; it is none if one does, or if the
difference is too small to matter. Models with random weights are left out.

The claims (`--claims`) come from five written descriptions of two published layer charts, which contradict each other:
the A-Anchored lines are flat, or fall to −40; the lowest line is PopQA, or HotpotQA, or NQ; the curves recover, stay
low, or fall to the end. Each claim is a row of one table: our wording, who says so, who says otherwise, a number of the
curves and where it must lie. A claim is about all curves, so one curve that contradicts it with 95 % confidence refutes
it, and it is confirmed only if every curve confirms it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.reading import Reading, finite
from anchorscope.report.run_curves import RunCurves
from anchorscope.report.shares import NEEDS_QUESTION, has_shares, share_at, why_silent
from anchorscope.report.verdicts import (
    MIDDLE_THIRD,
    MIN_RECOVERY,
    MIN_TROUGH,
    NEAR_ZERO,
    NEGLIGIBLE_SHARE,
    STAYS_FLAT,
    TWO_SIZES,
    WORST_FIRST,
    Verdict,
    excludes_zero,
    has_interval,
    inside,
    one_direction,
)
from anchorscope.report.wording import as_percent, estimate, parameters_text
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import SIMULTANEOUS, SampledCurve, difference_of, mean_of
from anchorscope.stats.estimate import Estimate

QUANTITIES = {
    "share_together": ("what needs question and answer together", "together", "knockout"),
    "share_question": ("what the question alone carries", "question", "knockout"),
    "share_answer": ("what the answer alone carries", "answer", "knockout"),
    "share_tested": ("what needs the key words", NEEDS_QUESTION, "knockout"),
    "share_random": ("what needs random words", NEEDS_QUESTION, "random"),
}
"""What is compared: its words, part and intervention. Parts are ratios on one scale, so that runs with different AUCs
can be compared."""


@dataclass(frozen=True)
class OrderedRuns:
    """The runs that can be compared, first to last."""

    runs: tuple[Findings, ...]
    by_size: bool
    """Whether the last is larger than the first."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that all of them have."""
        first = self.runs[0].datasets if self.runs else ()
        return tuple(name for name in first if all(name in run.datasets for run in self.runs))

    @property
    def names(self) -> tuple[str, ...]:
        """The runs' names, with the model's size where that differs."""
        return tuple(run.model + (f" ({parameters_text(run.parameters)})" if self.by_size else "") for run in self.runs)

    @property
    def along(self) -> str:
        """What changes from the first run to the last."""
        if self.by_size:
            return "with size"
        same = len({run.parameters for run in self.runs}) == 1 and self.runs[0].parameters > 0
        return "from run to run" if same else "from model to model"


def order_by_size(runs: Sequence[Findings]) -> OrderedRuns:
    """Order the runs; those with random weights are left out."""
    real = [run for run in runs if not run.random_weights]
    sizes = [run.parameters for run in real]
    by_size = bool(sizes) and min(sizes) > 0 and max(sizes) >= TWO_SIZES * min(sizes)
    if by_size:
        real.sort(key=lambda run: run.parameters)
    return OrderedRuns(tuple(real), by_size)


def read_across(runs: Sequence[Findings]) -> list[Reading]:
    """All readings across runs: the mean over the datasets that all of them have, and each dataset."""
    order = order_by_size(runs)
    if len(order.runs) < 2 or not order.datasets or not any(has_shares(run) for run in order.runs):
        return []
    readings = []
    for quantity in QUANTITIES:
        by_dataset = {name: _values(order.runs, quantity, name) for name in order.datasets}
        if len(by_dataset) > 1:
            measured = [values for values in by_dataset.values() if values]
            means = [mean_of(list(values)) for values in zip(*measured, strict=True)] if measured else None
            readings.append(_trend_reading(order, quantity, None, f"Mean of {len(measured)} datasets", means))
        for name, values in by_dataset.items():
            readings.append(_trend_reading(order, quantity, name, display_name(name), values))
    return readings


def _values(runs: Sequence[Findings], quantity: str, dataset: str) -> list[Estimate] | None:
    """The share of every run over its band; None where one has none that may be quoted."""
    _, part, intervention = QUANTITIES[quantity]
    shares = [share_at(run, dataset, intervention, part) for run in runs if why_silent(run, dataset) is None]
    quoted = [one for one in shares if one is not None and math.isfinite(one.value) and has_interval(one)]
    return quoted if len(quoted) == len(runs) else None


def _trend_reading(
    order: OrderedRuns, quantity: str, dataset: str | None, subject: str, values: list[Estimate] | None
) -> Reading:
    noun = QUANTITIES[quantity][0]
    change: Estimate | None = None
    verdict: Verdict = "not measured"
    sentence, numbers = f"It is unclear whether {noun} changes {order.along}", "not measured in every run"
    if values:
        change = difference_of(values[-1], values[0])
        sign = 1 if change.value >= 0 else -1
        turned = any(excludes_zero(difference_of(after, before), -sign) for before, after in pairwise(values))
        verdict = one_direction(change, turned, NEGLIGIBLE_SHARE)
        pairs = zip(order.names, values, strict=True)
        shown = ", ".join(f"{as_percent(value.value)} for {name}" for name, value in pairs)
        numbers = f"change {estimate(change)}: {shown}"
        claimed = noun[:1].upper() + noun[1:]
        if verdict == "no":
            sentence = f"{claimed} {'goes up and down' if turned else 'hardly changes'} {order.along}"
        elif verdict == "yes":
            sentence = f"{claimed} {'increases' if change.value > 0 else 'decreases'} {order.along}"
    per_run = [
        {"run": run.model, "parameters": run.parameters}
        | {name: finite(getattr(value, name)) for name in ("value", "ci_low", "ci_high")}
        for run, value in zip(order.runs, values or (), strict=False)
    ]
    return Reading(
        id=f"across:{dataset or 'all datasets'}:{quantity}",
        claim=f"across:{quantity}",
        topic=noun,
        statement=f"{noun} changes {order.along}",
        sentence=sentence,
        numbers=numbers,
        estimate=change,
        verdict=verdict,
        unit="share of the evidence",
        subject=subject,
        model=", ".join(order.names),
        dataset=dataset,
        site=" and ".join(dict.fromkeys(run.site for run in order.runs)),
        position=" and ".join(dict.fromkeys(run.position for run in order.runs)),
        scope="models",
        key=dataset is None or len(order.datasets) == 1,
        more={"along": order.along, "values": per_run},
    )


# Claims

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
_LATE_FALL = _of_q(lambda q: shape.last(q.relative_to((q.n_layers - 1) // 2)))
_DECLINE = _with_size(lambda q: shape.decline(q).length)
_LOWEST = "From a third of the depth on, the Q curve of {} is the lowest on average"
_FLAT, _FALL, _NEAR, _RISE = (f"{points:.0f} points" for points in (STAYS_FLAT, MIN_TROUGH, NEAR_ZERO, MIN_RECOVERY))
CLAIMS: dict[str, Claim] = {
    "groups_apart": Claim(
        "From a third of the depth on, Q is below A at every layer", "2–5", "1", _GAP_HIGHEST, under=0.0
    ),
    "q_above_a_late": Claim("In the last third of the layers, Q is above A", "1", "2–5", _GAP_LATE, over=0.0),
    "a_near_zero": Claim(
        f"A stays within {_FLAT} of zero at every layer", "2, 4, 5", "1, 3", _of_a(shape.range_within), under=STAYS_FLAT
    ),
    "a_falls": Claim("A falls too, to −20 points or lower", "1, 3", "2, 4, 5", _of_a(_lowest), under=-20.0),
    "starts_at_zero": Claim(
        f"Q starts within {_NEAR} of zero", "1, 3–5", "2", _of_q(shape.first), -NEAR_ZERO, NEAR_ZERO
    ),
    "starts_low": Claim("Q starts between −10 and −20 points", "2", "1, 3–5", _of_q(shape.first), -20.0, -10.0),
    "trough_in_the_middle": Claim(
        "Q is lowest in the middle third of the layers", "2", "3–5", _TROUGH, *MIDDLE_THIRD, "share of the depth"
    ),
    "recovers": Claim(
        f"Q recovers from its lowest point by more than {_RISE}", "2, 4", "3, 5", _of_q(shape.recovery), MIN_RECOVERY
    ),
    "falls_on": Claim(
        f"Q falls by more than {_FALL} from the middle layer to the last", "3, 5", "2, 4", _LATE_FALL, under=-MIN_TROUGH
    ),
    "popqa_lowest": Claim(_LOWEST.format("PopQA"), "2, 3, 5", "1, 4", _lower_than_others("popqa"), under=0.0),
    "triviaqa_lowest": Claim(_LOWEST.format("TriviaQA"), "2", "1, 3–5", _lower_than_others("triviaqa"), under=0.0),
    "hotpotqa_lowest": Claim(_LOWEST.format("HotpotQA"), "4", "1–3, 5", _lower_than_others("hotpotqa"), under=0.0),
    "nq_lowest": Claim(_LOWEST.format("NQ"), "1", "2–5", _lower_than_others("nq"), under=0.0),
    "datasets_converge": Claim(
        "The datasets' Q curves are closer together at the end than in the middle", "5", "3", _closing, over=0.0
    ),
    "larger_deeper": Claim("The larger model's Q curves go deeper", "1–4", "", _with_size(_lowest), under=0.0),
    "larger_longer_decline": Claim(
        "In the larger model the decline takes more layers", "2, 3, 5", "", _DECLINE, over=0.0, unit="layers"
    ),
}
"""Every claim, in the order of the page; Q and A are the Q-Anchored and the A-Anchored curve."""


def check_claims(runs: Sequence[Findings], claims: Mapping[str, Claim] = CLAIMS) -> list[Reading]:
    """Every claim under the paper's rule; runs with random weights have no say."""
    curves = [RunCurves(run, "plain") for run in runs if not run.random_weights]
    models = ", ".join(run.model for run in runs)
    return [_claim_reading(name, claim, curves, models) for name, claim in claims.items()]


def _claim_reading(name: str, claim: Claim, curves: Sequence[RunCurves], models: str) -> Reading:
    judged = [
        (inside(value, claim.over, claim.under) if has_interval(value) else "inconclusive", whose, value)
        for whose, value in claim.measure(curves)
    ]
    worst = min(judged, key=lambda part: WORST_FIRST.index(part[0]), default=None)
    verdict: Verdict = worst[0] if worst else "not measured"
    decided = [part for part in judged if part[0] == verdict]
    numbers = f"{estimate(worst[2], 1)} ({worst[1]}); {len(decided)} of {len(judged)}" if worst else "needs other runs"
    sources = f"said in descriptions {claim.says}" + (f", denied in {claim.against}" if claim.against else "")
    return Reading(
        id=f"claim:{name}:plain",
        claim=name,
        topic=name.replace("_", " "),
        statement=claim.text,
        sentence=f"{claim.text}: {verdict}",
        numbers=f"{numbers}; {sources}",
        estimate=worst[2] if worst else None,
        verdict=verdict,
        unit=claim.unit,
        subject="Plain rule",
        model=models,
        assignment="plain",
        scope="claim",
        more={"source": claim.says, "sources_against": claim.against},
    )
