"""Fitted detectors as bundles: calibration, thresholds, training range and card."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float
from scipy.special import expit

from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.auto import QuestionRanges
from anchorscope.detectors.evaluation import TrainedOn
from anchorscope.detectors.fitted import TrainingRange, WithFallback
from anchorscope.detectors.trained import Card, DetectorSetting, TrainedDetector
from anchorscope.errors import UserError
from anchorscope.evidence.source_use import FOLLOWED, UseCalibration, calibrate_use
from anchorscope.finished import FinishedRun
from anchorscope.results import versions
from anchorscope.stats.calibration import Calibration, Threshold, threshold_at_coverage, threshold_at_risk
from anchorscope.stats.detection_metrics import BINS, reliability_bins
from anchorscope.stats.streams import priorities

LIMITS = (
    "The probability is calibrated for questions like those of the training data, at their natural share of true "
    "answers; on other questions it is a score.",
    "A threshold keeps its risk for exchangeable answers only: drawn as the training answers were.",
    "Truth is what the grader calls true.",
)
RISKS = (0.1, 0.05, 0.2, 0.3)
"""Risks that bundles have thresholds for where none are named."""
LEADING_COVERAGE = 0.3
"""Answers that are accepted where no risk is named; the risk is what was measured on these."""


def trained_detector(
    trained: TrainedOn,
    name: str,
    setting: DetectorSetting,
    about: str,
    longest: int,
    rows: Sequence[dict[str, Any]],
    risks: Sequence[float],
) -> TrainedDetector:
    """One detector, ready for use; `about` describes its data, `longest` is the longest prompt with its answer, `rows`
    are those of `detectors.csv` about it."""
    build = trained.fits.fit(name).build
    if build is None:
        raise UserError(f"The baseline {name!r} is there to compare with, and cannot be saved; choose a detector.")
    scale = trained.calibration(name, natural=True)
    number, dataset = trained.whole, trained.dataset
    labels, natural, groups = dataset.labels, dataset.natural, dataset.groups
    prevalence = float(natural[labels].sum() / natural.sum())
    (slope,), bias = scale.of_set(number)
    calibration = Calibration(slope, bias, prevalence)
    probability = expit(scale.scores[number].cpu().numpy())
    # One item of each group, drawn by lot: those of one group are not independent, and files have an order.
    by_lot = np.argsort(priorities(trained.plan.seed, "threshold items", dataset.item_ids), kind="stable")
    one_each = by_lot[np.unique(groups[by_lot], return_index=True)[1]]
    fitted = build(number)
    if isinstance(fitted, WithFallback) and isinstance(fitted.range, TrainingRange):
        span = fitted.range
    else:
        span = QuestionRanges(trained.fits.data, groups).build(number)
    card = Card(
        f"{DETECTORS[name].about}; trained on {dataset.features.n_items} answers ({about})",
        tuple({key: value for key, value in row.items() if value == value} for row in rows),  # NaN: JSON has none
        tuple(sorted({str(row["test"]) for row in rows if row["test"] != row["train"]})),
        LIMITS,
        versions(),
        calibration_rows(probability, labels, natural),
    )
    return TrainedDetector(
        name=name,
        fitted=fitted,
        calibration=calibration,
        setting=setting,
        card=card,
        thresholds=thresholds_at(probability[one_each], labels[one_each], natural[one_each], risks),
        range=replace(span, longest=longest),
    )


def calibrate_context_use(runs: Sequence[FinishedRun]) -> UseCalibration | None:
    """How `context_used` becomes a probability, from items that show what their answers went by; None for too few."""
    frames, on = [], ["dataset", "item_id"]
    by_path = {run.path: run for run in runs if "experiment_items.parquet" in run.manifest["sha256"]}
    for path, run in by_path.items():
        of_context = (pl.col("experiment") == "sources") & (pl.col("variant") == "context")
        values = run.parquet("experiment_items").filter(of_context)
        used, followed = (
            values.filter(pl.col("quantity") == quantity).select(*on, pl.col("value").alias(quantity))
            for quantity in ("context_used", FOLLOWED)
        )
        groups = run.parquet("items").select(*on, group=pl.lit(f"{path} ") + pl.col("group").cast(pl.String))
        frames.append(used.join(followed, on=on).join(groups, on=on))
    if not frames:
        return None
    every = pl.concat(frames)
    return calibrate_use(*(every[name].to_numpy() for name in ("context_used", FOLLOWED, "group")))


def thresholds_at(
    probability: Float[np.ndarray, " item"],
    labels: Bool[np.ndarray, " item"],
    weights: Float[np.ndarray, " item"],
    risks: Sequence[float] = (),
) -> tuple[Threshold, ...]:
    """Thresholds for these risks; where none are named, one that accepts `LEADING_COVERAGE` leads the usual ones.

    None where all answers are of one kind: no risk can be measured on them.
    """
    if not 0 < labels.sum() < len(labels):
        return ()
    at_risks = [threshold_at_risk(probability, labels, risk, weights=weights) for risk in risks or RISKS]
    leading = threshold_at_coverage(probability, labels, LEADING_COVERAGE, weights=weights)
    if risks or leading.probability is None:
        return tuple(at_risks)
    return (leading, *(threshold for threshold in at_risks if threshold.risk != leading.risk))


def calibration_rows(
    probability: Float[np.ndarray, " item"], labels: Bool[np.ndarray, " item"], weights: Float[np.ndarray, " item"]
) -> tuple[dict[str, Any], ...]:
    """Predicted and true shares in bins of equal width that hold answers, as `Card.calibration` has them."""
    bins = reliability_bins(probability, labels, weights, BINS, equal_width=True)
    counted = reliability_bins(probability, labels, None, BINS, equal_width=True)
    return tuple(
        {
            "low": place / BINS,
            "high": (place + 1) / BINS,
            "n": round(float(counted.mass[place]) * len(labels)),
            "said": round(float(bins.probability[place]), 4),
            "true": round(float(bins.rate[place]), 4),
        }
        for place in range(BINS)
        if bins.mass[place] > 0
    )
