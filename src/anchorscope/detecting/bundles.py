"""Detectors as they are handed over: fitted on all training items, calibrated, with thresholds and a card."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from anchorscope.answers.template import Template
from anchorscope.catalogue import DETECTORS
from anchorscope.detecting.read_runs import RunDataset
from anchorscope.detectors.evaluation import Dataset, TrainedOn
from anchorscope.detectors.features import CLEAN, StateKey
from anchorscope.detectors.fitted import Fitted
from anchorscope.detectors.fitted_parts import WithFallback
from anchorscope.detectors.layer_probes import LayerProbes, fit_layer_probes
from anchorscope.detectors.trained import Card, DetectorSetting, TrainedDetector
from anchorscope.detectors.training import INNER_FOLDS
from anchorscope.detectors.training_range import TrainingRange
from anchorscope.errors import UserError
from anchorscope.models.language_model import ModelIdentity
from anchorscope.results import versions
from anchorscope.stats.calibration import Calibration, threshold_at_risk
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


def trained_detector(
    trained: TrainedOn,
    name: str,
    sources: Sequence[RunDataset],
    rows: Sequence[dict[str, Any]],
    risks: Sequence[float],
    layer_probes: LayerProbes | None = None,
) -> TrainedDetector:
    """One detector, ready for use; `rows` are those of `detectors.csv` that speak of it, `layer_probes` those of the
    same training data."""
    build = trained.fits.fit(name).build
    if build is None:
        raise UserError(f"The baseline {name!r} is there to compare with, and cannot be saved; choose a detector.")
    scale = trained.calibration(name, natural=True)
    number, dataset = trained.whole, trained.dataset
    labels, natural = dataset.examples.labels, dataset.natural
    prevalence = float(natural[labels].sum() / natural.sum())
    calibration = Calibration(
        float(scale.weight[number, INNER_FOLDS, 0]), float(scale.bias[number, INNER_FOLDS]), prevalence
    )
    probability = 1 / (1 + np.exp(-scale.scores[number].cpu().numpy()))
    one_each = _one_of_each_group(dataset, trained.plan.seed)
    both = 0 < labels[one_each].sum() < len(one_each)  # from answers of one kind no risk can be told
    thresholds = tuple(
        threshold_at_risk(probability[one_each], labels[one_each], risk, weights=natural[one_each])
        for risk in (risks if both else ())
    )
    data, fitted = trained.fits.data, build(number)
    key = (CLEAN, data.site, data.layers[int(data.best[number])])
    return TrainedDetector(
        name=name,
        fitted=fitted,
        calibration=calibration,
        setting=setting(sources[0]),
        card=_card(name, dataset.features.n_items, sources, rows, calibration_rows(probability, labels, natural)),
        thresholds=thresholds,
        range=_range(fitted, key, dataset, max(map(_longest, sources))),
        layer_probes=layer_probes,
    )


def _one_of_each_group(dataset: Dataset, seed: int) -> Int[np.ndarray, " group"]:
    """An item of every group, drawn by lot: those of one group are not independent, and files have an order."""
    lots = priorities(seed, "threshold items", dataset.examples.item_ids)
    by_lot = np.argsort(lots, kind="stable")
    return by_lot[np.unique(dataset.examples.groups[by_lot], return_index=True)[1]]


def setting(source: RunDataset) -> DetectorSetting:
    """The model and the prompt of a run."""
    manifest, recipe = source.run.manifest, source.run.recipe
    if "template" not in manifest:
        raise UserError(
            f"The run {str(source.run.path)!r} did not write down its prompt: it was made by an older version. Run the "
            f"same command again into the same folder (only what is new is done)."
        )
    model = {name: value for name, value in manifest["model"].items() if name != "files"}  # the fingerprint says enough
    return DetectorSetting.of(
        ModelIdentity(**model),
        Template(**manifest["template"]),
        recipe.position,
        edges=recipe.edges,
        exact_tokens=recipe.exact_tokens,
        max_new_tokens=recipe.max_new_tokens,
    )


def _longest(source: RunDataset) -> int:
    """Tokens of the longest used prompt with its answer."""
    items = source.run.parquet("items")
    used = items.filter((pl.col("dataset") == source.own_name) & (pl.col("status") == "used"))
    return int(used["input_ids"].list.len().max())  # type: ignore[arg-type]


def calibration_rows(
    probability: Float[np.ndarray, " item"], labels: Bool[np.ndarray, " item"], weights: Float[np.ndarray, " item"]
) -> tuple[dict[str, Any], ...]:
    """What was so where it said so: bins of equal width that hold answers, as `Card.calibration` has them."""
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


def layer_probes_of(trained: TrainedOn, warnings: list[str]) -> LayerProbes | None:
    """Probes of every layer, on the data that the detectors learn from; where items are too few, that is told."""
    data = trained.fits.data
    try:
        return fit_layer_probes(data.features, trained.dataset.examples, data.site, trained.plan.seed, trained.device)
    except UserError as error:
        warnings.append(f"bundles have no probes of every layer: {error}")
        return None


def _card(
    name: str,
    n: int,
    sources: Sequence[RunDataset],
    rows: Sequence[dict[str, Any]],
    calibration: tuple[dict[str, Any], ...],
) -> Card:
    about = "; ".join(
        f"{one.data.name}: {one.data.features.n_items} answers, {one.n_true} true, {one.natural_prevalence:.1%} true "
        f"among all that were graded"
        for one in sources
    )
    shifts = tuple(sorted({str(row["test"]) for row in rows if row["test"] != row["train"]}))
    data = f"{DETECTORS[name].about}; trained on {n} answers ({about})"
    limits = (*LIMITS, CUT_LIMIT) if DETECTORS[name].passes > 1 else LIMITS
    return Card(data, tuple(map(_plain, rows)), shifts, limits, versions(), calibration)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row without numbers that are not there: JSON has none."""
    return {name: value for name, value in row.items() if not (isinstance(value, float) and np.isnan(value))}


def _range(fitted: Fitted, key: StateKey, dataset: Dataset, longest: int) -> TrainingRange:
    """The range of the training states: the detector's own where it has one."""
    if isinstance(fitted, WithFallback) and isinstance(fitted.range, TrainingRange):
        return replace(fitted.range, longest=longest)
    return TrainingRange.fit(key, dataset.features.states[key].float(), longest, dataset.examples.groups)
