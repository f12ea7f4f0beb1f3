"""How a number changes from run to run: a reading per quantity, over all datasets and for each.

The parts of the evidence come first, then the paper's ΔP curves. Runs are independent samples, so their intervals are
combined as such (`stats/curves.py`). The claim is always "it changes in one direction": yes if the change from the
first run to the last is significant and no step between two runs significantly goes the other way; no if one does, or
if the change is too small to matter. Models with random weights are left out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.reading import Reading, finite
from anchorscope.report.run_curves import RunCurves
from anchorscope.report.shares import NEEDS_QUESTION, has_shares, share_at, why_silent
from anchorscope.report.verdicts import NEGLIGIBLE_SHARE, TWO_SIZES, Verdict, excludes_zero, has_interval, one_direction
from anchorscope.report.wording import as_percent, estimate, number, parameters_text
from anchorscope.stats import curves as shape
from anchorscope.stats.curves import difference_of, mean_of
from anchorscope.stats.estimate import Estimate

Measure = Callable[[RunCurves, str], Estimate | None]


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


@dataclass(frozen=True)
class Quantity:
    """One number of a run on a dataset."""

    id: str
    noun: str
    measure: Measure
    unit: str
    digits: int
    negligible: float
    """A change that is smaller with 95 % confidence is none."""
    of_share: bool


def _share(part: str, intervention: str = "knockout") -> Measure:
    """Over each run's band; None where a run's shares are not quoted."""

    def measured(run: RunCurves, dataset: str) -> Estimate | None:
        if why_silent(run.findings, dataset) is not None:
            return None
        return share_at(run.findings, dataset, intervention, part)

    return measured


def _curve(measure: Callable[[shape.SampledCurve], Estimate]) -> Measure:
    """Of the Q-Anchored curve under the paper's rule."""

    def measured(run: RunCurves, dataset: str) -> Estimate | None:
        curve = run.q(dataset)
        return None if curve is None else measure(curve)

    return measured


_EVIDENCE, _DEPTH = "share of the evidence", "share of the depth"
QUANTITIES = (
    *(
        Quantity(name, noun, _share(part, cut), _EVIDENCE, 2, NEGLIGIBLE_SHARE, True)
        for name, noun, part, cut in (
            ("share_together", "what needs question and answer together", "together", "knockout"),
            ("share_question", "what the question alone carries", "question", "knockout"),
            ("share_answer", "what the answer alone carries", "answer", "knockout"),
            ("share_tested", "what needs the key words", NEEDS_QUESTION, "knockout"),
            ("share_random", "what needs random words", NEEDS_QUESTION, "random"),
        )
    ),
    Quantity("trough_depth", "the lowest ΔP", _curve(lambda q: shape.trough(q).depth), "points", 1, 5.0, False),
    Quantity("trough_place", "the place of it", _curve(lambda q: shape.trough(q).relative), _DEPTH, 2, 0.1, False),
    Quantity("last_value", "ΔP at the last layer", _curve(shape.last), "points", 1, 5.0, False),
)
"""What is compared; parts are ratios on one scale, so that runs with different AUCs can be compared. A change counts
from a tenth of the axis's width."""


def read_across(runs: Sequence[Findings]) -> list[Reading]:
    """All readings across runs: the mean over the datasets that all of them have, and each dataset."""
    order = order_by_size(runs)
    if len(order.runs) < 2 or not order.datasets:
        return []
    curves = [RunCurves(run, "plain") for run in order.runs]
    with_shares = any(has_shares(run) for run in order.runs)
    several = len(order.datasets) > 1
    readings = []
    for quantity in (one for one in QUANTITIES if with_shares or not one.of_share):
        by_dataset = {name: _values(curves, quantity, name) for name in order.datasets}
        if several:
            known = {name: values for name, values in by_dataset.items() if values}
            means = [mean_of(list(values)) for values in zip(*known.values(), strict=True)] if known else None
            readings.append(_reading(order, quantity, None, tuple(known), means))
        readings += [_reading(order, quantity, name, (name,), values) for name, values in by_dataset.items()]
    return readings


def _values(curves: Sequence[RunCurves], quantity: Quantity, dataset: str) -> list[Estimate] | None:
    """The number of every run; None where one has no such number with an interval."""
    values = [quantity.measure(run, dataset) for run in curves]
    known = [value for value in values if value is not None and math.isfinite(value.value) and has_interval(value)]
    return known if len(known) == len(values) else None


def _reading(
    order: OrderedRuns, quantity: Quantity, dataset: str | None, datasets: Sequence[str], values: list[Estimate] | None
) -> Reading:
    change: Estimate | None = None
    verdict: Verdict = "not measured"
    turned = False
    if values:
        change, verdict, turned = trend_of(values, quantity.negligible)
    where = display_name(dataset) if dataset else f"Mean of {len(datasets)} datasets"
    site, position = (
        " and ".join(dict.fromkeys(getattr(run, name) for run in order.runs)) for name in ("site", "position")
    )
    per_run = [
        {
            "run": run.model,
            "parameters": run.parameters,
            "value": finite(value.value),
            "ci_low": finite(value.ci_low),
            "ci_high": finite(value.ci_high),
        }
        for run, value in zip(order.runs, values or (), strict=False)
    ]
    return Reading(
        id=f"across:{dataset or 'all datasets'}:{quantity.id}",
        claim=f"across:{quantity.id}",
        topic=quantity.noun,
        statement=f"{quantity.noun} changes {order.along}",
        sentence=_sentence(order, quantity, change, verdict, turned),
        numbers=_numbers(order, quantity, values, change),
        estimate=change,
        verdict=verdict,
        unit=quantity.unit,
        subject=where,
        model=", ".join(order.names),
        dataset=dataset,
        site=site,
        position=position,
        assignment=None if quantity.of_share else "plain",
        scope="models",
        key=dataset is None or len(order.datasets) == 1,
        more={"along": order.along, "values": per_run},
    )


def trend_of(values: Sequence[Estimate], negligible: float) -> tuple[Estimate, Verdict, bool]:
    """The change from first to last, whether it goes in one direction, and whether a step goes the other way."""
    change = difference_of(values[-1], values[0])
    sign = 1 if change.value >= 0 else -1
    turned = any(excludes_zero(difference_of(after, before), -sign) for before, after in pairwise(values))
    return change, one_direction(change, turned, negligible), turned


def _sentence(order: OrderedRuns, quantity: Quantity, change: Estimate | None, verdict: Verdict, turned: bool) -> str:
    noun = quantity.noun[:1].upper() + quantity.noun[1:]
    if change is None or verdict in ("inconclusive", "not measured"):
        return f"It is unclear whether {quantity.noun} changes {order.along}"
    if verdict == "no":
        return f"{noun} {'goes up and down' if turned else 'hardly changes'} {order.along}"
    return f"{noun} {'increases' if change.value > 0 else 'decreases'} {order.along}"


def _numbers(order: OrderedRuns, quantity: Quantity, values: list[Estimate] | None, change: Estimate | None) -> str:
    if values is None or change is None:
        return "not measured in every run"
    names = zip(order.names, values, strict=True)
    shown = ", ".join(f"{_shown(quantity, value)} for {name}" for name, value in names)
    return f"change {estimate(change, quantity.digits)}: {shown}"


def _shown(quantity: Quantity, value: Estimate) -> str:
    return as_percent(value.value) if quantity.unit == _EVIDENCE else number(value.value, quantity.digits)
