"""Detectors of one training dataset, judged where they were trained (nested) and on other data, with intervals.

In-domain, an item is scored by fits that never saw its group, for every fold seed. On other data it is scored by the
fit on the whole training dataset; where its group is in the training data too (the same question under another prompt,
or in two datasets), by the fit that left that group's fold out. A resample draws groups and one of the fold seeds; all
detectors see the same resamples, so that differences are paired.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import expit
from scipy.stats import t
from torch import Tensor

from anchorscope.answers.label import joined_groups
from anchorscope.artefacts.schema import (
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)
from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.data import TrainingData
from anchorscope.detectors.features import Features
from anchorscope.detectors.fits import DetectorFits, missing_feature
from anchorscope.detectors.training import (
    Dataset,
    Stacked,
    Training,
    calibrated,
    nested_sets,
    tossed,
    whole_set,
)
from anchorscope.models.process_settings import workers_of_one_thread
from anchorscope.progress import Progress
from anchorscope.stats.auc import auc
from anchorscope.stats.detection_metrics import (
    CPU,
    all_metrics,
    auroc_interval,
    risk_coverage_curve,
)
from anchorscope.stats.estimate import group_weights, percentile_interval
from anchorscope.stats.streams import stream

SPREAD = "auroc-spread"
"""The standard deviation of the AUROC over the fold seeds."""
COMPARED = ("auroc", "auprc", "e-aurc", "brier")
AGAINST = ("confidence", "probe", "probe+confidence")
"""What every detector is compared with; a control is also compared with the detector whose control it is."""
DRAWN = ("confidence", "probe", "probe+confidence", "mop", "pr-attention", "auto")
NATURAL = "natural"
PREVALENCES = ("balanced", NATURAL)

Row = dict[str, Any]


@dataclass(frozen=True)
class Scored:
    """Calibrated log-odds of one detector, by as many fold seeds as there are."""

    log_odds: Float[np.ndarray, "seed item"]
    strata: Int[np.ndarray, "seed item"]
    """Items of one stratum were scored by one fit: only they are compared in the AUROC."""


Values = Float[np.ndarray, " sample"]
"""One metric of one detector: its value, then that of every resample."""


@dataclass(frozen=True)
class Judge:
    """Items that detectors are judged on, and the resamples of them."""

    dataset: Dataset
    weights: Float[np.ndarray, " item"]
    """How much each item counts: what makes the sample balanced, or brings back the natural share of true answers."""
    resamples: int
    seed: int
    device: torch.device = CPU

    @cached_property
    def drawn(self) -> Float[np.ndarray, "resample item"]:
        draws = stream(self.seed, "detector resamples", self.dataset.name)
        return group_weights(
            self.dataset.groups, self.resamples, draws
        ) * self.weights.astype(np.float32)

    def metrics(self, scored: Scored, only_auroc: bool = False) -> dict[str, Values]:
        n_seeds, labels = len(scored.log_odds), self.dataset.labels
        points: dict[str, list[float]] = {}
        values: dict[str, Values] = {}
        for seed, (scores, strata) in enumerate(
            zip(scored.log_odds, scored.strata, strict=True)
        ):
            mine = np.arange(seed, self.resamples, n_seeds)
            rows = np.concatenate([self.weights[None], self.drawn[mine]])
            of_seed = {"auroc": auc(scores, labels, strata, rows.T)}
            if not only_auroc:
                of_seed |= all_metrics(expit(scores), labels, rows, scores, self.device)
            for name, of_rows in of_seed.items():
                points.setdefault(name, []).append(float(of_rows[0]))
                values.setdefault(name, np.empty(1 + self.resamples))[1 + mine] = (
                    of_rows[1:]
                )
        for name, of_seeds in points.items():
            values[name][0] = np.mean(of_seeds)
        if n_seeds > 1:
            values[SPREAD] = np.array([np.std(points["auroc"], ddof=1), np.nan])
        return values


def row_of(name: str, values: Values, spread: float | None = None) -> Row:
    """The cells of a value with its 95 % interval; that of an AUROC takes its spread over fold seeds."""
    low, high = (
        percentile_interval(values[1:])
        if spread is None
        else auroc_interval(values[0], values[1:], spread)
    )
    return {name: float(values[0]), "ci_low": float(low), "ci_high": float(high)}


def balanced_weights(dataset: Dataset) -> Float[np.ndarray, " item"]:
    """Weights under which every relation has as many true as false answers; 0 where it has one kind only."""
    _, relation = np.unique(
        [name or "" for name in dataset.relations], return_inverse=True
    )
    answers = np.stack(
        [np.bincount(relation, dataset.labels == kind) for kind in (False, True)]
    )
    return (answers.min(axis=0) / answers.clip(1))[dataset.labels.astype(int), relation]


TOSS_FOLDS = 2


@dataclass(frozen=True)
class Plan:
    folds: int = 5
    seeds: int = 5
    tosses: int = 20
    seed: int = 0


@dataclass(frozen=True)
class TrainedOn:
    dataset: Dataset
    site: str
    plan: Plan
    device: torch.device
    _calibrations: dict[tuple[str, bool], Stacked] = field(default_factory=dict)

    @cached_property
    def fits(self) -> DetectorFits:
        """The detectors, over every seed's folds, then all items, then the folds of every toss."""
        plan, dataset = self.plan, self.dataset
        sets = [
            nested_sets(dataset, plan.folds, plan.seed + seed, dataset.name)
            for seed in range(plan.seeds)
        ]
        sets.append(whole_set(dataset, plan.seed, dataset.name))
        for toss in range(plan.tosses):
            lot = tossed(dataset, plan.seed, toss)
            sets.append(
                nested_sets(lot, TOSS_FOLDS, plan.seed, f"{dataset.name} toss {toss}")
            )
        return DetectorFits(
            TrainingData(
                dataset.features, Training.together(sets), self.site, self.device
            ),
            dataset,
        )

    @property
    def whole(self) -> int:
        return self.plan.seeds * self.plan.folds

    @cached_property
    def names(self) -> list[str]:
        """The detectors that can be fitted here, in the catalogue's order."""
        return [name for name in DETECTORS if name not in self.left_out]

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        reasons = {
            name: missing_feature(name, self.dataset.features, self.site)
            for name in DETECTORS
        }
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def calibration(self, name: str, natural: bool) -> Stacked:
        """Slope and intercept of every training set, fitted on members by fits that never saw them."""
        if (name, natural) not in self._calibrations:
            # tossed labels are not calibrated
            training = self.fits.data.training.take(slice(0, self.whole + 1))
            # A run need not be balanced, and is judged as if it were: probabilities have to be of the same prevalence.
            weights = (
                self.dataset.natural if natural else balanced_weights(self.dataset)
            )
            training = replace(
                training, weights=np.broadcast_to(weights, training.members.shape)
            )
            self._calibrations[name, natural] = calibrated(
                self.fits.fit(name).scores[: self.whole + 1], training
            )
        return self._calibrations[name, natural]

    def in_domain(self, name: str, natural: bool = False) -> Scored:
        """Every item by the fits that left its outer fold out, one for every fold seed."""
        sets = slice(0, self.whole)
        return self._left_out_scores(
            self.calibration(name, natural).scores[sets], sets, self.plan.folds
        )

    def _left_out_scores(
        self, scores: Float[Tensor, "set item"], sets: slice, folds: int
    ) -> Scored:
        """Every item's score by the one of each block of training sets that left it out."""
        members = self.fits.data.training.members[sets].reshape(
            -1, folds, len(self.dataset.labels)
        )
        outer = members.argmin(axis=1)
        chosen = np.take_along_axis(
            scores.cpu().numpy().reshape(members.shape), outer[:, None], axis=1
        )
        return Scored(chosen[:, 0], outer)

    def elsewhere(self, name: str, other: Dataset) -> dict[str, Scored]:
        """The items of another dataset, at both prevalences; nothing of a baseline that cannot be taken along, or reads
        what is not there."""
        build, sets = self.fits.fit(name).build, self._sets_for(other)
        if build is None:
            return {}
        scales = {
            prevalence: self.calibration(name, prevalence == NATURAL)
            for prevalence in PREVALENCES
        }
        log_odds = {
            prevalence: np.empty(other.features.n_items) for prevalence in PREVALENCES
        }
        for number in np.unique(sets).tolist():
            fitted, items = build(number), np.flatnonzero(sets == number)
            try:
                features = other.features.only(fitted.needs).take(items)
            except KeyError:
                return {}
            raw = fitted.log_odds(features)
            for prevalence, scale in scales.items():
                (slope,), bias = scale.of_set(number)
                log_odds[prevalence][items] = slope * raw + bias
        return {
            prevalence: Scored(scores[None], sets[None])
            for prevalence, scores in log_odds.items()
        }

    def _sets_for(self, other: Dataset) -> Int[np.ndarray, " item"]:
        """The training set that may score each item of another dataset: the whole one, or one without its group."""
        left_out_by = (
            self.fits.data.training.members[: self.plan.folds].argmin(axis=0).tolist()
        )
        sets = zip(self.dataset.group_keys, left_out_by, strict=True)
        set_of = {key: number for keys, number in sets for key in keys}
        return np.array(
            [
                next((set_of[key] for key in sorted(keys) if key in set_of), self.whole)
                for keys in other.group_keys
            ]
        )

    def tossed_areas(self, name: str) -> Float[np.ndarray, " toss"]:
        sets = slice(self.whole + 1, None)
        scored = self._left_out_scores(
            self.fits.fit(name).scores[sets], sets, TOSS_FOLDS
        )
        labels = self.fits.data.training.labels[sets][::TOSS_FOLDS]
        tosses = zip(scored.log_odds, labels, scored.strata, strict=True)
        return np.array(
            [float(auc(scores, own, outer)) for scores, own, outer in tosses]
        )


def pooled(datasets: Sequence[Dataset], name: str) -> Dataset:
    """Several datasets as one; groups that share a question or a subject become one group."""
    features = [dataset.features for dataset in datasets]
    keys = [
        key
        for key in features[0].states
        if all(key in other.states for other in features)
    ]
    columns = [
        column
        for column in features[0].columns
        if all(column in other.columns for other in features)
    ]
    group_keys = [keys for dataset in datasets for keys in dataset.group_keys]
    return Dataset(
        name,
        Features(
            sum(part.n_items for part in features),
            {key: torch.cat([part.states[key] for part in features]) for key in keys},
            {
                column: np.concatenate([part.columns[column] for part in features])
                for column in columns
            },
        ),
        np.concatenate([dataset.labels for dataset in datasets]),
        joined_groups(group_keys),
        [
            f"{dataset.name} {relation}"
            for dataset in datasets
            for relation in dataset.relations
        ],
        [f"{dataset.name} {item}" for dataset in datasets for item in dataset.item_ids],
        np.concatenate([dataset.natural for dataset in datasets]),
        group_keys,
    )


TABLES = {
    "detectors": DETECTOR_SCHEMA,
    "differences": DETECTOR_DIFFERENCE_SCHEMA,
    "detector_curves": DETECTOR_CURVE_SCHEMA,
    "controls": DETECTOR_CONTROL_SCHEMA,
}
"""The result files and their columns."""


@dataclass(frozen=True)
class Evaluation:
    """How detectors are judged, and the rows of the result files."""

    plan: Plan
    resamples: int
    names: Sequence[str]
    progress: Progress
    n_datasets: int = 1
    """Datasets that detectors are trained on, over which the control of permuted labels is corrected."""
    device: torch.device = CPU
    tables: dict[str, list[Row]] = field(
        default_factory=lambda: {name: [] for name in TABLES}
    )

    def judge(self, dataset: Dataset, natural: bool) -> Judge:
        """Judges a dataset's items, balanced or as they come."""
        weights = dataset.natural if natural else balanced_weights(dataset)
        return Judge(dataset, weights, self.resamples, self.plan.seed, self.device)

    def in_domain(self, trained: TrainedOn) -> None:
        """The nested evaluation, with curves and controls."""
        dataset = trained.dataset
        names = [name for name in trained.names if name in self.names]
        self.progress.start(f"detectors {dataset.name}", len(names))
        balanced, natural = {}, {}
        for name in names:
            balanced[name] = trained.in_domain(name)
            if DETECTORS[name].variant_of is None:
                natural[name] = trained.in_domain(name, natural=True)
            self.progress.advance(1)
        self._add_cell(dataset.name, dataset, "balanced", balanced)
        self._add_cell(dataset.name, dataset, NATURAL, natural)
        for name in DRAWN:
            if name in natural:
                points = risk_coverage_curve(
                    natural[name].log_odds[0], dataset.labels, dataset.natural
                )
                self.tables["detector_curves"] += [
                    {
                        "detector": name,
                        "dataset": dataset.name,
                        "coverage": float(coverage),
                        "risk": float(risk),
                    }
                    for coverage, risk in zip(*points, strict=True)
                    if math.isfinite(risk)
                ]
        self.tables["controls"] += self._controls(trained, names)
        self.progress.finish()

    def elsewhere(self, trained: TrainedOn, others: Sequence[Dataset]) -> None:
        """The same detectors on other data."""
        names = [
            name
            for name in trained.names
            if name in self.names and DETECTORS[name].variant_of is None
        ]
        self.progress.start(
            f"{trained.dataset.name} elsewhere", len(names) * len(others)
        )
        for other in others:
            each = {
                name: scored
                for name in names
                if (scored := trained.elsewhere(name, other))
            }
            for prevalence in PREVALENCES:
                of_cell = {name: scored[prevalence] for name, scored in each.items()}
                self._add_cell(trained.dataset.name, other, prevalence, of_cell)
            self.progress.advance(len(names))
        self.progress.finish()

    def _add_cell(
        self,
        train: str,
        dataset: Dataset,
        prevalence: str,
        scored: Mapping[str, Scored],
    ) -> None:
        """Values of all detectors on one dataset at one prevalence, and their differences to those to beat."""
        judge = self.judge(dataset, prevalence == NATURAL)
        judge.drawn  # noqa: B018 - once, before the threads share it

        def measure(name: str) -> dict[str, Values]:
            return judge.metrics(
                scored[name], only_auroc=DETECTORS[name].variant_of is not None
            )

        with workers_of_one_thread(torch.get_num_threads()) as pool:
            measures = dict(zip(scored, pool.map(measure, scored), strict=True))
        cell = {
            "train": train,
            "test": dataset.name,
            "prevalence": prevalence,
            "n": len(dataset.labels),
        }
        for name, metrics in measures.items():
            for metric, values in metrics.items():
                row = {
                    "detector": name,
                    "metric": metric,
                    **cell,
                    "passes": DETECTORS[name].passes,
                }
                spread = (
                    float(metrics.get(SPREAD, [0.0])[0]) if metric == "auroc" else None
                )
                self.tables["detectors"].append(row | row_of("value", values, spread))
            for other in (*AGAINST, DETECTORS[name].variant_of or ""):
                for metric in COMPARED if other in measures and other != name else ():
                    if metric in metrics and metric in measures[other]:
                        row = {
                            "detector": name,
                            "against": other,
                            "metric": metric,
                            **cell,
                        }
                        gain = metrics[metric] - measures[other][metric]
                        self.tables["differences"].append(
                            row | row_of("difference", gain)
                        )

    def _controls(self, trained: TrainedOn, names: Sequence[str]) -> Iterator[Row]:
        """Permuted labels. Every detector of every dataset is a test: intervals hold for all of them together."""
        for name in names if self.plan.tosses else ():
            areas = trained.tossed_areas(name)
            mean, n = float(areas.mean()), len(areas)
            error = float(areas.std(ddof=1)) / n**0.5 if n > 1 else math.nan
            reach = error * float(
                t.isf(0.025 / (len(names) * self.n_datasets), max(1, n - 1))
            )
            ends = {"value": mean, "low": mean - reach, "high": mean + reach, "n": n}
            yield {
                "control": "permuted-labels",
                "detector": name,
                "train": trained.dataset.name,
                **ends,
            }
