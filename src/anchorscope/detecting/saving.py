"""Fitted detectors as bundles: calibration, thresholds, training range, card, and a probe of every layer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorscope.catalogue import DETECTORS, KNOCKOUT
from anchorscope.detectors.evaluation import TrainedOn
from anchorscope.detectors.features import CLEAN, Features
from anchorscope.detectors.fitted import LayerProbes, TrainingRange, WithFallback, probability_of
from anchorscope.detectors.trained import Card, DetectorSetting, TrainedDetector
from anchorscope.detectors.training import INNER_FOLDS, Dataset
from anchorscope.errors import UserError
from anchorscope.probes.crossfit import Scorer, fit_final_probes, fit_probes, make_splits, score_states
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.results import versions
from anchorscope.stats.auc import auc
from anchorscope.stats.calibration import Calibration, Threshold, threshold_at_coverage, threshold_at_risk
from anchorscope.stats.detection_metrics import BINS, reliability_bins
from anchorscope.stats.streams import priorities

LIMITS = (
    "The probability is calibrated for questions like those of the training data, at their natural share of true "
    "answers; on other questions it is a score.",
    "A threshold keeps its risk for exchangeable answers only: drawn as the training answers were.",
    "Truth is what the grader calls true.",
)
CUT_LIMIT = (
    "Where a question comes without its subject, rules find the key words that are cut; in training the dataset named "
    "them where it could."
)
RISKS = (0.1, 0.05, 0.2, 0.3)
"""Risks that bundles have thresholds for where none are named."""
LEADING_COVERAGE = 0.3
"""Answers that are accepted where no risk is named; the risk is what was measured on these."""
LAYER_PROBE_FOLDS = 5
"""Folds that are left out in turn, for what is reported of the probes of every layer."""


def trained_detector(
    trained: TrainedOn,
    name: str,
    setting: DetectorSetting,
    about: str,
    longest: int,
    rows: Sequence[dict[str, Any]],
    risks: Sequence[float],
    layer_probes: LayerProbes | None = None,
) -> TrainedDetector:
    """One detector, ready for use; `about` describes its data, `longest` is the longest prompt with its answer, `rows`
    are those of `detectors.csv` about it, `layer_probes` those of the same training data."""
    build = trained.fits.fit(name).build
    if build is None:
        raise UserError(f"The baseline {name!r} is there to compare with, and cannot be saved; choose a detector.")
    scale = trained.calibration(name, natural=True)
    number, dataset = trained.whole, trained.dataset
    labels, natural, groups = dataset.labels, dataset.natural, dataset.groups
    prevalence = float(natural[labels].sum() / natural.sum())
    calibration = Calibration(
        float(scale.weight[number, INNER_FOLDS, 0]), float(scale.bias[number, INNER_FOLDS]), prevalence
    )
    probability = probability_of(scale.scores[number].cpu().numpy())
    one_each = _one_of_each_group(dataset, trained.plan.seed)
    fitted = build(number)
    if isinstance(fitted, WithFallback) and isinstance(fitted.range, TrainingRange):
        span = replace(fitted.range, longest=longest)
    else:
        key = trained.fits.data.probe.keys[int(trained.fits.data.probe.best[number])]
        span = TrainingRange.fit(key, dataset.features.states[key].float(), longest, groups)
    card = Card(
        f"{DETECTORS[name].about}; trained on {dataset.features.n_items} answers ({about})",
        tuple(map(_without_nan, rows)),
        tuple(sorted({str(row["test"]) for row in rows if row["test"] != row["train"]})),
        (*LIMITS, CUT_LIMIT) if DETECTORS[name].passes > 1 else LIMITS,
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
        range=span,
        layer_probes=layer_probes,
    )


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


def _one_of_each_group(dataset: Dataset, seed: int) -> Int[np.ndarray, " group"]:
    """An item of every group, drawn by lot: those of one group are not independent, and files have an order."""
    by_lot = np.argsort(priorities(seed, "threshold items", dataset.item_ids), kind="stable")
    return by_lot[np.unique(dataset.groups[by_lot], return_index=True)[1]]


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


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """A row without numbers that are missing: JSON has none."""
    return {name: value for name, value in row.items() if not (isinstance(value, float) and np.isnan(value))}


def fit_layer_probes(dataset: Dataset, site: str, seed: int = 0, device: str | torch.device = "cpu") -> LayerProbes:
    """Probes of every layer whose clean states are there; raises UserError where items are too few for the folds."""
    features, labels, groups, names = dataset.features, dataset.labels, dataset.groups, dataset.item_ids
    layers = tuple(sorted(layer for run, place, layer in features.states if run == CLEAN and place == site))
    strata = truth_strata(labels, dataset.relations)
    outer = grouped_folds(groups, strata, LAYER_PROBE_FOLDS, priorities(seed, "layer probes folds", names))
    splits = make_splits(labels, groups, outer, seed, ("full",), names, dataset.relations)
    clean = _stacked(features, CLEAN, site, layers)
    (crossed,) = fit_probes(clean, splits, [site], device)
    scorer = Scorer([[crossed]], outer, torch.device(device))
    before = score_states(scorer, clean[None])[:, 0, 0, 0].T.astype(np.float64)
    (final,) = fit_final_probes(clean, strata, groups, [site], priorities(seed, "layer probes", names), device)
    moved = None
    if all((KNOCKOUT, site, layer) in features.states for layer in layers):
        after = score_states(scorer, _stacked(features, KNOCKOUT, site, layers)[None])[:, 0, 0, 0].T.astype(np.float64)
        change = 100 * (probability_of(after) - probability_of(before))
        moved = tuple(change[:, ~labels].mean(axis=1).tolist()), tuple(change[:, labels].mean(axis=1).tolist())
    return LayerProbes(
        site,
        layers,
        final.weight.float(),
        tuple(final.bias.double().tolist()),
        tuple(auc(before, labels, outer).tolist()),
        len(labels),
        int(labels.sum()),
        moved,
    )


def _stacked(features: Features, run: str, site: str, layers: Sequence[int]) -> Float[Tensor, "1 layer item d_model"]:
    return torch.stack([features.states[run, site, layer] for layer in layers])[None]
