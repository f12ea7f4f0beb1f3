"""Readings across models: what changes from the smallest model to the largest, with an interval and a verdict.

Runs are independent samples, so their intervals are combined as such (`stats/curve_order.py`). The claim is always
"it changes in one direction": it holds if the change from the first run to the last is sure and no step between
two runs surely goes the other way; it does not hold if one does, or if the change surely is too small to be seen.
Models with random weights are named and left out.
"""

from collections.abc import Sequence

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings
from anchorscope.report.palette import display_name
from anchorscope.report.statements.run_curves import RunCurves, measurable
from anchorscope.report.statements.size_trends import (
    QUANTITIES,
    SPREAD,
    OrderedRuns,
    Quantity,
    Trend,
    order_by_size,
    trend_of,
    values_of,
)
from anchorscope.report.statements.statement import Reading, finite, record
from anchorscope.report.wording import estimate, number

ASSIGNMENTS = ("plain", "corrected")
"""The paper's rule, and the common shift taken out."""
ALL_DATASETS = "all datasets"


def read_across(runs: Sequence[Findings]) -> list[Reading]:
    """All readings across runs: per dataset that all of them have, and in the mean over those datasets."""
    order = order_by_size(runs)
    readings = [_left_out(run, place) for place, run in enumerate(order.left_out, start=1)]
    if len(order.runs) < 2 or not order.datasets:
        return [*readings, _nothing_to_compare(order)]
    for assignment in ASSIGNMENTS:
        curves = [RunCurves(run, assignment) for run in order.runs]
        together = measurable(curves, order.datasets)
        if len(order.datasets) > 1:
            over = QUANTITIES if len(together) == 1 else (*QUANTITIES, SPREAD)
            readings += [_reading(order, curves, quantity, None, together) for quantity in over]
        readings += [_reading(order, curves, quantity, name) for name in order.datasets for quantity in QUANTITIES]
    return readings


def _reading(
    order: OrderedRuns,
    curves: Sequence[RunCurves],
    quantity: Quantity,
    dataset: str | None,
    together: Sequence[str] = (),
) -> Reading:
    assignment = curves[0].assignment
    values = values_of(curves, quantity, [dataset] if dataset else together)
    trend = trend_of(values, quantity.negligible) if values else None
    where = display_name(dataset) if dataset else _together(order, together)
    name = f"{dataset or ALL_DATASETS}:{assignment}:{quantity.id}"
    subject, statement = f"{where}, {RULES[assignment]}", _statement(order, quantity, trend)
    return _record(order, name, statement, _numbers(order, quantity, trend), trend, subject) | {
        "claim": f"across:{quantity.id}",
        "dataset": dataset,
        "assignment": assignment,
        "unit": quantity.unit,
        "key": assignment == "plain" and (dataset is None or len(order.datasets) == 1),
    }


def _together(order: OrderedRuns, kept: Sequence[str]) -> str:
    """How many datasets are taken together, and which have too few items for that."""
    few = [display_name(name) for name in order.datasets if name not in kept]
    return f"{len(kept)} datasets together" + (f" ({', '.join(few)}: too few items)" if few else "")


def _statement(order: OrderedRuns, quantity: Quantity, trend: Trend | None) -> str:
    """What is claimed. A direction is only named where it is sure."""
    if trend is not None and trend.verdict == "holds":
        return f"{quantity.noun} {quantity.more if trend.change.value > 0 else quantity.less} {order.along}"
    return f"{quantity.noun} changes {'' if len(order.runs) == 2 else 'in one direction '}{order.along}"


def _numbers(order: OrderedRuns, quantity: Quantity, trend: Trend | None) -> str:
    if trend is None:
        return "a curve is missing, or the groups never stay apart"
    first, *_, last = (number(found.value, quantity.digits) for found in trend.values)
    change = estimate(trend.change, quantity.digits)
    told = f"{change} {quantity.unit}: {first} for {order.names[0]}, {last} for {order.names[-1]}"
    return told if len(trend.values) == 2 else f"{told}; {_steps(trend, len(trend.values))}"


def _steps(trend: Trend, runs: int) -> str:
    if trend.turned:
        return "a step in between surely goes the other way"
    return f"in step over all {runs} runs" if trend.monotone else f"not in step over all {runs} runs"


def _left_out(run: Findings, place: int) -> Reading:
    statement = f"{run.model} fits in with the others"
    order = OrderedRuns((run,), (), False)
    return _record(order, f"left_out:{place}", statement, "left out: with random weights its curves are noise", None)


def _nothing_to_compare(order: OrderedRuns) -> Reading:
    lacking = "a second run with real weights" if len(order.runs) < 2 else "a dataset that all runs have"
    return _record(order, "nothing", "something changes from model to model", f"needs {lacking}", None)


def _record(
    order: OrderedRuns, name: str, statement: str, numbers: str, trend: Trend | None, subject: str = "Across models"
) -> Reading:
    site, position = (" and ".join(dict.fromkeys(getattr(run, where) for run in order.runs))
                      for where in ("site", "position"))  # fmt: skip
    values = zip(order.names, order.runs, trend.values, strict=True) if trend else ()
    return record(
        id=f"across:{name}",
        subject=subject,
        statement=statement,
        numbers=numbers,
        found=trend.change if trend else None,
        verdict=trend.verdict if trend else "undecided",
        claim=f"across:{name.partition(':')[0]}",
        model=", ".join(order.names),
        dataset=None,
        site=site,
        position=position,
        assignment=None,
        scope="models",
        unit="",
    ) | {
        "key": True,
        "monotone": trend.monotone if trend else None,
        "along": order.along,
        "values": [
            {"run": name, "model": run.model, "parameters": run.parameters, "value": finite(found.value),
             "ci_low": finite(found.ci_low), "ci_high": finite(found.ci_high)}
            for name, run, found in values
        ],
    }  # fmt: skip
