"""The tables of `detect`: every detector, where it was trained and elsewhere; differences, curves and controls."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import t

from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.evaluation import COMPARED, Judge, Measured, Plan, Scored, TrainedOn, balanced_weights
from anchorscope.detectors.training import Dataset
from anchorscope.progress import Progress
from anchorscope.stats.detection_metrics import reliability_bins, risk_coverage_curve, roc_curve

AGAINST = ("probe", "probe+confidence")
"""What every detector is compared with."""
DRAWN = ("confidence", "probe", "probe+confidence", "mop", "pr-attention", "auto")
"""Detectors whose curves are drawn."""
GRADER_ERRORS = (5 / 114, 10 / 291)
"""Shares of answers called true that are false, and called false that are true, by the grader, on the sample of answers
that its rules had not seen (docs/grading.md)."""

Row = dict[str, Any]
Measures = Mapping[str, Mapping[str, Measured]]
"""By detector, then by metric."""


@dataclass
class Tables:
    """Rows of the result files."""

    detectors: list[Row] = field(default_factory=list)
    differences: list[Row] = field(default_factory=list)
    curves: list[Row] = field(default_factory=list)
    controls: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluation:
    """How detectors are judged."""

    plan: Plan
    resamples: int
    names: Sequence[str]
    """The detectors that are wanted."""
    progress: Progress
    n_datasets: int = 1
    """Datasets that detectors are trained on, over which the control of permuted labels is corrected."""

    def judge(self, dataset: Dataset, natural: bool) -> Judge:
        """Judges a dataset's items, balanced or as they come."""
        weights = dataset.natural if natural else balanced_weights(dataset)
        return Judge(dataset.labels, dataset.groups, weights, self.resamples, self.plan.seed, dataset.name)

    def in_domain(self, trained: TrainedOn, tables: Tables) -> None:
        """The nested evaluation, with curves and controls."""
        dataset = trained.dataset
        names = [name for name in trained.names if name in self.names]
        self.progress.start(f"detectors {dataset.name}", len(names))
        measures: dict[str, dict[str, Mapping[str, Measured]]] = {"balanced": {}, "natural": {}}
        judges = {prevalence: self.judge(dataset, prevalence == "natural") for prevalence in measures}
        for name in names:
            variant = DETECTORS[name].variant_of is not None
            for prevalence in ("balanced",) if variant else ("balanced", "natural"):
                judge, scored = judges[prevalence], trained.in_domain(name, prevalence == "natural")
                measures[prevalence][name] = judge.metrics(scored, only_auroc=variant)
                if name in DRAWN:
                    tables.curves += curve_rows(name, dataset.name, prevalence, judge, scored)
            self.progress.advance(1)
        for prevalence, by_detector in measures.items():
            _add_rows(tables, by_detector, dataset.name, dataset.name, prevalence)
        tables.controls += self._controls(trained, measures["balanced"])
        self.progress.finish()

    def elsewhere(self, trained: TrainedOn, others: Sequence[Dataset], tables: Tables) -> None:
        """The same detectors on other data."""
        names = [name for name in trained.names if name in self.names and DETECTORS[name].variant_of is None]
        self.progress.start(f"{trained.dataset.name} elsewhere", len(names) * len(others))
        for other in others:
            for prevalence in ("balanced", "natural"):
                judge = self.judge(other, prevalence == "natural")
                by_detector: dict[str, Mapping[str, Measured]] = {}
                for name in names:
                    scored = trained.elsewhere(name, other, prevalence == "natural")
                    if scored is not None:
                        by_detector[name] = judge.metrics(scored)
                    if prevalence == "balanced":
                        self.progress.advance(1)
                _add_rows(tables, by_detector, trained.dataset.name, other.name, prevalence)
        self.progress.finish()

    def _controls(self, trained: TrainedOn, measures: Measures) -> Iterator[Row]:
        """Permuted labels, and the band of the grader's errors."""
        for name, metrics in measures.items():
            control = {"detector": name, "train": trained.dataset.name}
            if self.plan.tosses:
                areas = trained.tossed_areas(name)
                mean, n = float(areas.mean()), len(areas)
                error = float(areas.std(ddof=1)) / n**0.5 if n > 1 else math.nan
                # Every detector of every dataset is a test: intervals hold for all of them together.
                reach = error * float(t.isf(0.025 / (len(measures) * self.n_datasets), max(1, n - 1)))
                ends = {"value": mean, "low": mean - reach, "high": mean + reach, "n": n}
                yield {"control": "permuted-labels", **control, **ends}
            auroc = metrics["auroc"]
            if DETECTORS[name].variant_of is None:
                corrected = min(1.0, 0.5 + (auroc.value - 0.5) / (1 - sum(GRADER_ERRORS)))
                low, high = sorted((auroc.value, corrected))
                ends = {"value": auroc.value, "low": low, "high": high, "n": auroc.n}
                yield {"control": "label-noise", **control, **ends}


def _add_rows(tables: Tables, measures: Measures, train: str, test: str, prevalence: str) -> None:
    """Values of all detectors in one cell, and their differences to those to beat."""
    for name, metrics in measures.items():
        for metric, measured in metrics.items():
            tables.detectors.append(_value_row(name, (train, test, metric, prevalence), measured))
        for other in AGAINST:
            if other == name or other not in measures:
                continue
            for metric in COMPARED:
                if metric in metrics and metric in measures[other]:
                    gain = (metrics[metric] - measures[other][metric]).estimate
                    tables.differences.append(
                        {"detector": name, "against": other}
                        | _cell((train, test, metric, prevalence))
                        | {"difference": gain.value, "ci_low": gain.ci_low, "ci_high": gain.ci_high, "n": gain.n}
                    )


def _cell(cell: tuple[str, str, str, str]) -> Row:
    return dict(zip(("train", "test", "metric", "prevalence"), cell, strict=True))


def _value_row(name: str, cell: tuple[str, str, str, str], measured: Measured) -> Row:
    value = measured.estimate
    ends = {"value": value.value, "ci_low": value.ci_low, "ci_high": value.ci_high, "n": value.n}
    return {"detector": name, **_cell(cell), **ends, "passes": DETECTORS[name].passes}


def curve_rows(name: str, dataset: str, prevalence: str, judge: Judge, scored: Scored) -> list[Row]:
    """Points of the ROC, risk–coverage and reliability curves, of the first fold seed."""
    scores, labels, weights = scored.log_odds[0], judge.labels, judge.weights
    flagged_true, flagged_false = roc_curve(scores, labels, weights, points=100)
    coverage, risk = risk_coverage_curve(scores, labels, weights)
    bins = reliability_bins(expit(scores), labels, weights)
    # The table's ROC curve is that of accepted answers: what is not flagged.
    curves = {
        "roc": (1 - np.asarray(flagged_false)[::-1], 1 - np.asarray(flagged_true)[::-1], np.ones(len(flagged_true))),
        "risk-coverage": (coverage, risk, np.ones(len(coverage))),
        "reliability": (bins.probability, bins.rate, bins.mass),
    }
    return [
        {
            "detector": name,
            "train": dataset,
            "test": dataset,
            "prevalence": prevalence,
            "curve": curve,
            "x": float(x),
            "y": float(y),
            "weight": float(weight),
        }
        for curve, points in curves.items()
        for x, y, weight in zip(*points, strict=True)
        if np.isfinite(x) and np.isfinite(y)
    ]
