"""Checks across runs: does a number change from run to run, and do claims of earlier descriptions hold?

Runs are independent samples, so their intervals are combined as such (`stats/curves.py`). A number changes if the
difference between the first run and the last is significant and no step between two runs significantly goes the other
way; it does not if one does, or if the difference is too small to matter. Random weights are left out.

The claims (`--claims`) come from five written descriptions of two published layer charts, which contradict each other.
Each is a row of one table: our wording, who says so, who says otherwise, a number of the curves and where it must lie.
A claim is about all curves: one curve that contradicts it with 95 % confidence refutes it, and it is confirmed only if
every curve confirms it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from anchorscope.report.findings import Findings, RunCurves
from anchorscope.report.palette import display_name
from anchorscope.report.reading import EVIDENCE, Reading
from anchorscope.report.shares import NEEDS_QUESTION, share_at, why_silent
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
from anchorscope.report.wording import capitalised, estimate, number
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import SampledCurve, difference_of, mean_of
from anchorscope.stats.estimate import Estimate

POINTS = "points"


def _share(run: Findings, dataset: str, part: str, intervention: str = "knockout") -> Estimate | None:
    """A part of the evidence, if it may be quoted."""
    return share_at(run, dataset, intervention, part) if why_silent(run, dataset) is None else None


def _lowest_delta_p(run: Findings, dataset: str) -> Estimate | None:
    curve = RunCurves(run, "plain").q(dataset)
    return None if curve is None else shape.trough(curve).depth


QUANTITIES: dict[str, tuple[str, Callable[[Findings, str], Estimate | None]]] = {
    "share_together": ("what needs question and answer together", partial(_share, part="together")),
    "share_question": ("what the question alone carries", partial(_share, part="question")),
    "share_answer": ("what the answer alone carries", partial(_share, part="answer")),
    "share_tested": ("what needs the key words", partial(_share, part=NEEDS_QUESTION)),
    "share_random": ("what needs random words", partial(_share, part=NEEDS_QUESTION, intervention="random")),
    "lowest_delta_p": ("the lowest Q-Anchored ΔP", _lowest_delta_p),
}
"""What is compared: its words, and its number on a run's dataset. Parts are ratios on one scale, so that runs with
different AUCs can be compared; ΔP is in points."""


def trained_runs(runs: Sequence[Findings]) -> list[Findings]:
    """Those without random weights, the smallest model first."""
    return sorted((run for run in runs if not run.random_weights), key=lambda run: run.parameters)


def along(runs: Sequence[Findings]) -> str:
    """What changes from the first run to the last."""
    sizes = [run.parameters for run in trained_runs(runs)]
    if sizes[0] > 0 and sizes[-1] >= TWO_SIZES * sizes[0]:
        return "with size"
    return "from run to run" if sizes[0] == sizes[-1] > 0 else "from model to model"


def read_across(runs: Sequence[Findings]) -> list[Reading]:
    """All readings across runs: the mean over the datasets that all of them have, and each dataset."""
    trained = trained_runs(runs)
    if len(trained) < 2:
        return []
    datasets = [name for name in trained[0].datasets if all(name in run.datasets for run in trained)]
    readings = []
    for name in QUANTITIES:
        by_dataset = {dataset: _values(trained, name, dataset) for dataset in datasets}
        if len(datasets) > 1:
            measured = [values for values in by_dataset.values() if values]
            means = [mean_of(values) for values in zip(*measured, strict=True)]
            readings.append(_change_reading(trained, name, None, means, key=True))
        for dataset, values in by_dataset.items():
            readings.append(_change_reading(trained, name, dataset, values, key=len(datasets) == 1))
    return readings


def _values(runs: Sequence[Findings], quantity: str, dataset: str) -> list[Estimate]:
    """The number of every run; nothing where one run has none with an interval."""
    measured = [QUANTITIES[quantity][1](run, dataset) for run in runs]
    quoted = [value for value in measured if value and math.isfinite(value.value) and has_interval(value)]
    return quoted if len(quoted) == len(runs) else []


def _change_reading(
    runs: Sequence[Findings], name: str, dataset: str | None, values: Sequence[Estimate], key: bool
) -> Reading:
    noun, in_points, where = QUANTITIES[name][0], name == "lowest_delta_p", along(runs)
    change: Estimate | None = None
    verdict: Verdict = "not measured"
    sentence, numbers = f"It is unclear whether {noun} changes {where}", "not measured in every run"
    if values:
        digits, scale, sign = (1, 1.0, "") if in_points else (0, 100.0, "%")
        change = difference_of(values[-1], values[0])
        back = -1 if change.value >= 0 else 1
        turned = any(excludes_zero(difference_of(after, before), back) for before, after in pairwise(values))
        verdict = one_direction(change, turned, MIN_TROUGH if in_points else NEGLIGIBLE_SHARE)
        pairs = zip(runs, values, strict=True)
        shown = ", ".join(f"{number(scale * value.value, digits)}{sign} for {run.model}" for run, value in pairs)
        numbers = f"change {estimate(change, digits, scale, sign)}: {shown}"
        if verdict == "no":
            sentence = f"{capitalised(noun)} {'goes up and down' if turned else 'hardly changes'} {where}"
        elif verdict == "yes":
            sentence = f"{capitalised(noun)} {'decreases' if back > 0 else 'increases'} {where}"
    return Reading(
        id=f"across:{dataset or 'all datasets'}:{name}",
        claim=f"across:{name}",
        topic=noun,
        statement=f"{noun} changes {where}",
        sentence=sentence,
        numbers=numbers,
        estimate=change,
        verdict=verdict,
        unit=POINTS if in_points else EVIDENCE,
        subject=display_name(dataset) if dataset else "Mean of all datasets",
        model=", ".join(run.model for run in runs),
        dataset=dataset,
        site=" and ".join(dict.fromkeys(run.site for run in runs)),
        position=" and ".join(dict.fromkeys(run.position for run in runs)),
        scope="models",
        key=key,
    )


# Claims

PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
"""The datasets of the charts that were described."""


@dataclass(frozen=True)
class Claim:
    """One sentence about a ΔP chart that can be computed."""

    text: str
    says: str
    """The descriptions that say so, by number; 1–3 describe Llama-3.2, 4 and 5 Qwen3."""
    against: str
    measure: Callable[[SampledCurve, SampledCurve], Estimate]
    """A number of a dataset's Q-Anchored and A-Anchored curve."""
    over: float = -math.inf
    under: float = math.inf
    unit: str = POINTS
    dataset: str | None = None
    """Of a claim that this dataset's number is below those of all others; all four of the paper are needed."""


def _late(curve: SampledCurve, thirds: int = 1) -> SampledCurve:
    """The curve from one or two thirds of the depth on."""
    first = thirds * round((curve.n_layers - 1) / 3)
    return SampledCurve(curve.value[first:], curve.samples[:, first:], curve.n)


def _mean(curve: SampledCurve) -> Estimate:
    return curve.estimate(curve.value.mean(), curve.whole.mean(axis=1))


_FLAT, _FALL, _NEAR, _RISE = (f"{limit:.0f} points" for limit in (STAYS_FLAT, MIN_TROUGH, NEAR_ZERO, MIN_RECOVERY))
_LOWEST = {"popqa": ("2, 3, 5", "1, 4"), "triviaqa": ("2", "1, 3–5"), "hotpotqa": ("4", "1–3, 5"), "nq": ("1", "2–5")}
"""Which dataset's Q curve is the lowest: who says so, who says otherwise."""
CLAIMS: dict[str, Claim] = {
    "groups_apart": Claim(
        "From a third of the depth on, Q is below A at every layer",
        "2–5",
        "1",
        lambda q, a: shape.trough(_late(a - q)).depth,
        over=0.0,
    ),
    "q_above_a_late": Claim(
        "In the last third of the layers, Q is above A", "1", "2–5", lambda q, a: _mean(_late(q - a, 2)), over=0.0
    ),
    "a_near_zero": Claim(
        f"A stays within {_FLAT} of zero at every layer",
        "2, 4, 5",
        "1, 3",
        lambda q, a: shape.range_within(a),
        under=STAYS_FLAT,
    ),
    "a_falls": Claim(
        "A falls too, to −20 points or lower", "1, 3", "2, 4, 5", lambda q, a: shape.trough(a).depth, under=-20.0
    ),
    "starts_at_zero": Claim(
        f"Q starts within {_NEAR} of zero", "1, 3–5", "2", lambda q, a: shape.first(q), -NEAR_ZERO, NEAR_ZERO
    ),
    "starts_low": Claim(
        "Q starts between −10 and −20 points", "2", "1, 3–5", lambda q, a: shape.first(q), -20.0, -10.0
    ),
    "trough_in_the_middle": Claim(
        "Q is lowest in the middle third of the layers",
        "2",
        "3–5",
        lambda q, a: shape.trough(q).relative,
        *MIDDLE_THIRD,
        unit="share of the depth",
    ),
    "recovers": Claim(
        f"Q recovers from its lowest point by more than {_RISE}",
        "2, 4",
        "3, 5",
        lambda q, a: shape.recovery(q),
        over=MIN_RECOVERY,
    ),
    "falls_on": Claim(
        f"Q falls by more than {_FALL} from the middle layer to the last",
        "3, 5",
        "2, 4",
        lambda q, a: shape.last(q.relative_to((q.n_layers - 1) // 2)),
        under=-MIN_TROUGH,
    ),
} | {
    f"{name}_lowest": Claim(
        f"From a third of the depth on, the Q curve of {display_name(name)} is the lowest on average",
        *sources,
        lambda q, a: _mean(_late(q)),
        under=0.0,
        dataset=name,
    )
    for name, sources in _LOWEST.items()
}
"""Every claim, in the order of the page; Q and A are the Q-Anchored and the A-Anchored curve."""


def check_claims(runs: Sequence[Findings]) -> list[Reading]:
    """Every claim under the paper's rule; runs with random weights have no say."""
    curves = [RunCurves(run, "plain") for run in runs if not run.random_weights]
    models = ", ".join(run.model for run in runs)
    return [_claim_reading(name, claim, curves, models) for name, claim in CLAIMS.items()]


def _claim_numbers(claim: Claim, runs: Sequence[RunCurves]) -> Iterator[tuple[str, Estimate]]:
    """The claim's number on every dataset of every run, with what it is of."""
    for run in runs:
        curves = {name: (run.q(name), run.a(name)) for name in run.datasets}
        values = {name: claim.measure(q, a) for name, (q, a) in curves.items() if q is not None and a is not None}
        if claim.dataset is None:
            yield from ((f"{display_name(name)}, {run.model}", value) for name, value in values.items())
        elif set(PAPER) <= set(values):
            for other in (name for name in PAPER if name != claim.dataset):
                gap = difference_of(values[claim.dataset], values[other])
                yield f"against {display_name(other)}, {run.model}", gap


def _claim_reading(name: str, claim: Claim, curves: Sequence[RunCurves], models: str) -> Reading:
    judged = [
        (inside(value, claim.over, claim.under) if has_interval(value) else "inconclusive", whose, value)
        for whose, value in _claim_numbers(claim, curves)
    ]
    worst = min(judged, key=lambda part: WORST_FIRST.index(part[0]), default=None)
    verdict: Verdict = worst[0] if worst else "not measured"
    decided = [part for part in judged if part[0] == verdict]
    numbers = f"{estimate(worst[2], 1)} ({worst[1]}); {len(decided)} of {len(judged)}" if worst else "needs other runs"
    return Reading(
        id=f"claim:{name}:plain",
        claim=name,
        topic=f"said by {claim.says}, denied by {claim.against}",
        statement=claim.text,
        sentence=f"{claim.text}: {verdict}",
        numbers=numbers,
        estimate=worst[2] if worst else None,
        verdict=verdict,
        unit=claim.unit,
        subject=models,
        model=models,
        scope="claim",
        more={"source": claim.says, "sources_against": claim.against},
    )
