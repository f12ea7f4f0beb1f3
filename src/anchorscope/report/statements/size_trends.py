"""Several runs in order of size, a number per run, and how it changes from the first run to the last."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anchorscope.report.findings import Findings
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.verdicts import TWO_SIZES, Verdict, one_direction, surely
from anchorscope.report.wording import number
from anchorscope.stats import curve_shape as shape
from anchorscope.stats.curve_order import difference_of, mean_of, spread
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import SampledCurve


@dataclass(frozen=True)
class OrderedRuns:
    """The runs that can be compared, first to last."""

    runs: tuple[Findings, ...]
    left_out: tuple[Findings, ...]
    """Runs with random weights: no evidence about anything."""
    by_size: bool
    """Whether the last is larger than the first."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that all of them have."""
        if not self.runs:
            return ()
        return tuple(name for name in self.runs[0].datasets if all(name in run.datasets for run in self.runs))

    @property
    def names(self) -> tuple[str, ...]:
        """What each run is called: its model, with the size where that tells them apart, numbered where it does not."""
        models = [run.model for run in self.runs]
        sizes = [f" ({size(run.parameters)})" if self.by_size else "" for run in self.runs]
        numbers = [f" (run {i + 1})" if models.count(models[i]) > 1 else "" for i in range(len(models))]
        return tuple(model + (own or told) for model, told, own in zip(models, sizes, numbers, strict=True))

    @property
    def along(self) -> str:
        """What changes from the first run to the last."""
        if self.by_size:
            return "with size"
        same = len({run.model for run in self.runs}) == 1
        return "from run to run of the same model" if same else "from model to model"


def order_by_size(runs: Sequence[Findings]) -> OrderedRuns:
    """Order the runs; those with random weights are set aside."""
    real = [run for run in runs if not run.random_weights]
    sizes = [run.parameters for run in real]
    by_size = bool(sizes) and min(sizes) > 0 and max(sizes) >= TWO_SIZES * min(sizes)
    if by_size:
        real.sort(key=lambda run: run.parameters)
    return OrderedRuns(tuple(real), tuple(run for run in runs if run.random_weights), by_size)


def size(parameters: int) -> str:
    """Parameters as people say them: 135 M, 1.2 B."""
    if parameters <= 0:
        return "size unknown"
    billions = parameters / 1e9
    if billions >= 0.9995:
        return f"{number(billions, 1 if billions < 9.95 else 0)}\u00a0B"
    return f"{number(parameters / 1e6, 0)}\u00a0M" if parameters >= 1e6 else f"{number(parameters / 1e3, 0)}\u00a0k"


@dataclass(frozen=True)
class Quantity:
    """One number of a Q-Anchored curve (or of a pair of curves) that may change with size."""

    id: str
    noun: str
    measure: Callable[[SampledCurve, SampledCurve], Estimate]
    """From the Q-Anchored and the A-Anchored curve of a dataset."""
    unit: str
    digits: int
    negligible: float
    """A change that surely is smaller is none."""
    less: str
    """What a smaller value means in words."""
    more: str


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


def _relative_separation(q: SampledCurve, a: SampledCurve) -> Estimate:
    found = shape.separation(q, a)
    depth = max(1, q.n_layers - 1)
    return Estimate(found.value / depth, found.ci_low / depth, found.ci_high / depth, found.n, found.method)


# A change counts from where a reader of the chart would see it: half a tick of its axis, a tenth of its width.
QUANTITIES = (
    Quantity("trough_depth", "the lowest value", lambda q, a: shape.trough(q).depth, "points", 1, 5.0,
             "becomes lower", "becomes higher"),
    Quantity("trough_place", "the place of the lowest value", lambda q, a: shape.trough(q).relative,
             "of the depth", 2, 0.1, "comes earlier", "comes later"),
    Quantity("decline_layers", "the length of the decline", lambda q, a: shape.decline(q).length, "layers", 1, 2.0,
             "becomes shorter", "becomes longer"),
    Quantity("decline_share", "the part of the depth that the decline takes", lambda q, a: shape.decline(q).relative,
             "of the depth", 2, 0.1, "becomes shorter", "becomes longer"),
    Quantity("volatility", "the jaggedness from layer to layer", lambda q, a: shape.volatility(q), "points", 1, 2.0,
             "falls", "grows"),
    Quantity("last_value", "the value at the last layer", lambda q, a: shape.last(q), "points", 1, 5.0,
             "becomes lower", "becomes higher"),
    Quantity("separation", "the layer from which the groups stay apart", _relative_separation,
             "of the depth", 2, 0.1, "comes earlier", "comes later"),
)  # fmt: skip
"""What is followed per dataset, and in the mean over the datasets."""

SPREAD = Quantity("spread_at_end", "the spread of the datasets at the last layer", lambda q, a: shape.last(q), "points",
                  1, 5.0, "becomes narrower", "becomes wider")  # fmt: skip
"""What is followed over all datasets together."""


def values_of(runs: Sequence[RunCurves], quantity: Quantity, datasets: Sequence[str]) -> list[Estimate] | None:
    """The number of every run, in the mean over the datasets; None where a curve is missing, or has no such number."""
    values = []
    for run in runs:
        pairs = [(q, a) for name in datasets if (q := run.q(name)) is not None and (a := run.a(name)) is not None]
        if len(pairs) < len(datasets):
            return None
        if quantity is SPREAD:
            values.append(spread([q for q, _ in pairs], -1))
        else:
            values.append(mean_of([quantity.measure(q, a) for q, a in pairs]))
    return values if all(math.isfinite(found.value) for found in values) else None


def trend_of(values: Sequence[Estimate], negligible: float) -> Trend:
    """The change over all runs. It is one only if it is sure, large enough to matter, and never surely turns round."""
    change = difference_of(values[-1], values[0])
    sign = 1 if change.value >= 0 else -1
    steps = [difference_of(after, before) for before, after in pairwise(values)]
    monotone = all(sign * step.value >= 0 for step in steps)
    turned = any(surely(step, -sign) for step in steps)
    verdict = one_direction(change, turned, negligible)
    return Trend(tuple(values), change, verdict, monotone, turned)
