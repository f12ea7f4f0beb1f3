"""How the parts of the evidence change from run to run: a reading per part, over all datasets and for each.

Runs are independent samples, so their intervals are combined as such (`stats/curves.py`). The claim is always "it
changes in one direction": yes if the change from the first run to the last is significant and no step between two runs
significantly goes the other way; no if one does, or if the change is too small to matter. Models with random weights
are left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.reading import Reading, finite
from anchorscope.report.shares import NEEDS_QUESTION, has_shares, share_at, why_silent
from anchorscope.report.verdicts import NEGLIGIBLE_SHARE, TWO_SIZES, Verdict, excludes_zero, has_interval, one_direction
from anchorscope.report.wording import as_percent, estimate, parameters_text
from anchorscope.stats.curves import difference_of, mean_of
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
            readings.append(_reading(order, quantity, None, f"Mean of {len(measured)} datasets", means))
        readings += [_reading(order, quantity, name, display_name(name), values) for name, values in by_dataset.items()]
    return readings


def _values(runs: Sequence[Findings], quantity: str, dataset: str) -> list[Estimate] | None:
    """The share of every run over its band; None where one has none that may be quoted."""
    _, part, intervention = QUANTITIES[quantity]
    shares = [share_at(run, dataset, intervention, part) for run in runs if why_silent(run, dataset) is None]
    quoted = [one for one in shares if one is not None and math.isfinite(one.value) and has_interval(one)]
    return quoted if len(quoted) == len(runs) else None


def _reading(
    order: OrderedRuns, quantity: str, dataset: str | None, subject: str, values: list[Estimate] | None
) -> Reading:
    noun = QUANTITIES[quantity][0]
    change: Estimate | None = None
    verdict: Verdict = "not measured"
    sentence, numbers = f"It is unclear whether {noun} changes {order.along}", "not measured in every run"
    if values:
        change, verdict, turned = trend_of(values, NEGLIGIBLE_SHARE)
        pairs = zip(order.names, values, strict=True)
        shown = ", ".join(f"{as_percent(value.value)} for {name}" for name, value in pairs)
        numbers = f"change {estimate(change)}: {shown}"
        claimed = noun[:1].upper() + noun[1:]
        if verdict == "no":
            sentence = f"{claimed} {'goes up and down' if turned else 'hardly changes'} {order.along}"
        elif verdict == "yes":
            sentence = f"{claimed} {'increases' if change.value > 0 else 'decreases'} {order.along}"
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


def trend_of(values: Sequence[Estimate], negligible: float) -> tuple[Estimate, Verdict, bool]:
    """The change from first to last, whether it goes in one direction, and whether a step goes the other way."""
    change = difference_of(values[-1], values[0])
    sign = 1 if change.value >= 0 else -1
    turned = any(excludes_zero(difference_of(after, before), -sign) for before, after in pairwise(values))
    return change, one_direction(change, turned, negligible), turned
