"""The tables of the further experiments, with the columns that other programs rely on."""

import math
from collections.abc import Mapping, Sequence

import polars as pl

from anchorscope.evidence.experiments.experiment import Found, Statistic
from anchorscope.evidence.measuring import Missing
from anchorscope.report.findings import EXPERIMENT_ITEM_SCHEMA, EXPERIMENT_SCHEMA, UNAVAILABLE_SCHEMA


def experiments_frame(
    model: str, dataset: str, headline: tuple[str, str], found: Mapping[str, Found]
) -> pl.DataFrame:
    """experiments.csv: one statistic per row."""
    site, position = headline
    place = {"model": model, "dataset": dataset, "site": site, "position": position}
    rows = [
        {**place, "experiment": name, **_row(one)} for name, result in found.items() for one in result.statistics
    ]
    return pl.DataFrame(rows, schema=EXPERIMENT_SCHEMA)


def _row(one: Statistic) -> dict[str, object]:
    estimate = one.estimate
    return {
        "variant": one.variant, "against": one.against, "assignment": one.assignment, "group": one.group,
        "truth": one.truth, "layer": one.layer, "probe_layer": one.probe_layer, "quantity": one.quantity,
        "value": _number(estimate.value), "ci_low": _number(estimate.ci_low), "ci_high": _number(estimate.ci_high),
        "n": estimate.n, "p_value": _number(one.p_value), "q_value": _number(one.q_value),
        "effect_size": _number(one.effect_size), "method": estimate.method,
    }  # fmt: skip


def experiment_items_frame(dataset: str, item_ids: Sequence[str], found: Mapping[str, Found]) -> pl.DataFrame:
    """experiment_items.parquet: one number of one item per row."""
    frames = [pl.DataFrame(schema=EXPERIMENT_ITEM_SCHEMA)]
    for name, result in found.items():
        for one in result.values:
            columns = {
                "dataset": [dataset] * len(one.items),
                "item_id": [item_ids[index] for index in one.items],
                "experiment": [name] * len(one.items),
                "variant": [one.variant] * len(one.items),
                "quantity": [one.quantity] * len(one.items),
                "value": [_number(float(value)) for value in one.values],
            }
            frames.append(pl.DataFrame(columns, schema=EXPERIMENT_ITEM_SCHEMA))
    return pl.concat(frames)


def unavailable_frame(dataset: str, missing: Sequence[Missing]) -> pl.DataFrame:
    """What was asked for and cannot be done on a dataset, with the reason."""
    rows = [(dataset, one.experiment, one.reason) for one in missing]
    return pl.DataFrame(rows, schema=UNAVAILABLE_SCHEMA, orient="row")


def _number(value: float | None) -> float | None:
    """A missing value is null in the tables, never NaN."""
    return value if value is not None and math.isfinite(value) else None
