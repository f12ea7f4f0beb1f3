"""Readings across models: what changes from the smallest model to the largest, with an interval and a verdict.

The parts of the evidence come first, then ΔP, under the paper's rule and with the common shift taken out. Runs are
independent samples, so their intervals are combined as such (`stats/curves.py`). The claim is always "it changes
in one direction": it holds if the change from the first run to the last is sure and no step between two runs surely
goes the other way; it does not hold if one does, or if the change surely is too small to be seen. Models with random
weights are left out.
"""

from collections.abc import Sequence

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.comparison.size_trends import (
    SPREAD,
    Quantity,
    Trend,
    followed,
    trend_of,
    values_of,
    with_intervals,
)
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.shares import has_shares
from anchorscope.report.size_order import OrderedRuns, order_by_size
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.statements.statement import Reading, finite, record
from anchorscope.report.wording import estimate, number

ASSIGNMENTS = (None, "plain", "corrected")
"""The parts of the evidence, which sort nothing; the paper's rule; the common shift taken out."""
ALL_DATASETS = "all datasets"


def read_across(runs: Sequence[Findings]) -> list[Reading]:
    """All readings across runs: in the mean over the datasets that all of them have, and per dataset."""
    order = order_by_size(runs)
    if len(order.runs) < 2 or not order.datasets:
        return []
    readings = []
    for assignment in ASSIGNMENTS if any(has_shares(run) for run in order.runs) else ASSIGNMENTS[1:]:
        curves = [RunCurves(run, assignment or "plain") for run in order.runs]
        asked: list[tuple[Quantity, str | None]] = []
        together = with_intervals(curves, order.datasets, assignment)
        if len(order.datasets) > 1:
            asked += [(one, None) for one in followed(assignment)]
            asked += [(SPREAD, None)] if assignment is not None and len(together) > 1 else []
        asked += [(one, name) for name in order.datasets for one in followed(assignment)]
        for quantity, dataset in asked:
            values = values_of(curves, quantity, [dataset] if dataset else together)
            trend = trend_of(values, quantity.negligible) if values else None
            where = display_name(dataset) if dataset else _together(order, together)
            readings.append(_reading(order, assignment, quantity, dataset, where, trend))
    return readings


def _together(order: OrderedRuns, kept: Sequence[str]) -> str:
    """How many datasets are taken together, and which have too few items for that."""
    few = [display_name(name) for name in order.datasets if name not in kept]
    named = display_name(kept[0]) if len(kept) == 1 else f"{len(kept)} datasets together"
    return named + (f" ({', '.join(few)}: too few items)" if few else "")


def _sentence(order: OrderedRuns, quantity: Quantity, trend: Trend | None) -> str:
    """What may be said. A direction is only named where it is sure."""
    noun, along = quantity.noun, f"{'' if len(order.runs) == 2 else 'in one direction '}{order.along}"
    if trend is None or trend.verdict == "undecided":
        return f"Whether {noun} changes {along} is undecided"
    said = noun[:1].upper() + noun[1:]
    if trend.verdict == "does not hold":
        return f"{said} {'does not change' if trend.turned else 'hardly changes'} {along}"
    return f"{said} {quantity.more if trend.change.value > 0 else quantity.less} {order.along}"


def _numbers(order: OrderedRuns, quantity: Quantity, trend: Trend | None) -> str:
    if trend is None:
        return "not measured in every run"
    first, *_, last = (number(found.value, quantity.digits) for found in trend.values)
    change = estimate(trend.change, quantity.digits)
    told = f"{change} {quantity.unit}: {first} for {order.names[0]}, {last} for {order.names[-1]}"
    if len(trend.values) == 2:
        return told
    if trend.turned:
        return f"{told}; a step in between surely goes the other way"
    return f"{told}; {'in step' if trend.monotone else 'not in step'} over all {len(order.runs)} runs"


def _reading(
    order: OrderedRuns, assignment: str | None, quantity: Quantity, dataset: str | None, where: str, trend: Trend | None
) -> Reading:
    site, position = (
        " and ".join(dict.fromkeys(getattr(run, name) for run in order.runs)) for name in ("site", "position")
    )
    made = record(
        id=":".join(filter(None, ("across", dataset or ALL_DATASETS, assignment, quantity.id))),
        subject=f"{where}, {RULES[assignment]}" if assignment else where,
        statement=f"{quantity.noun} changes {order.along}",
        sentence=_sentence(order, quantity, trend),
        topic=quantity.noun,
        key=assignment != "corrected" and (dataset is None or len(order.datasets) == 1),
        numbers=_numbers(order, quantity, trend),
        found=trend.change if trend else None,
        verdict=trend.verdict if trend else "undecided",
        claim=f"across:{quantity.id}",
        model=", ".join(order.names),
        dataset=dataset,
        assignment=assignment,
        scope="models",
        unit=quantity.unit,
        site=site,
        position=position,
    )
    return made | {
        "monotone": trend.monotone if trend else None,
        "along": order.along,
        "values": [
            {
                "run": run.model,
                "parameters": run.parameters,
                "value": finite(found.value),
                "ci_low": finite(found.ci_low),
                "ci_high": finite(found.ci_high),
            }
            for run, found in (zip(order.runs, trend.values, strict=True) if trend else ())
        ],
    }
