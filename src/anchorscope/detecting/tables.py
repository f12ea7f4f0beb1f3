"""The tables of `detect`: every detector, where it was trained and elsewhere; differences, curves and controls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import t

from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.evaluation import (
    COMPARED,
    Dataset,
    Judge,
    Measured,
    Plan,
    Scored,
    TrainedOn,
    balanced_weights,
)
from anchorscope.progress import Progress
from anchorscope.stats.detection_metrics import reliability_bins, risk_coverage_curve, roc_curve

AGAINST = ("probe", "probe+confidence")
"""What every detector is compared with."""
DRAWN = ("confidence", "probe", "probe+confidence", "mop", "pr-attention", "counterfactual", "auto")
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
        examples = dataset.examples
        weights = dataset.natural if natural else balanced_weights(examples.labels, list(examples.relations))
        return Judge(examples.labels, examples.groups, weights, self.resamples, self.plan.seed, dataset.name)

    def in_domain(self, trained: TrainedOn, tables: Tables) -> None:
        """The nested evaluation, with curves and controls."""
        dataset = trained.dataset
        names = [name for name in trained.names if name in self.names]
        self.progress.start(f"detectors {dataset.name}", len(names))
        measured: dict[str, dict[str, Mapping[str, Measured]]] = {"balanced": {}, "natural": {}}
        judges = {prevalence: self.judge(dataset, prevalence == "natural") for prevalence in measured}
        for name in names:
            variant = DETECTORS[name].variant_of is not None
            for prevalence, of in measured.items():
                if variant and prevalence == "natural":
                    continue
                judge, scored = judges[prevalence], trained.in_domain(name, prevalence == "natural")
                of[name] = judge.metrics(scored, only_auroc=variant)
                if prevalence == "balanced":
                    spread = Measured(judge.spread(scored), np.full(1, np.nan), len(judge.labels))
                    tables.detectors.append(
                        self._row(name, dataset.name, dataset.name, "auroc-spread", prevalence, spread)
                    )
                if name in DRAWN:
                    tables.curves += curve_rows(name, dataset.name, prevalence, judge, scored)
            self.progress.advance(1)
        for prevalence, of in measured.items():
            self._add(tables, of, dataset.name, dataset.name, prevalence)
        tables.controls += list(self._controls(trained, measured["balanced"]))
        self.progress.finish()

    def elsewhere(self, trained: TrainedOn, others: Sequence[Dataset], tables: Tables) -> None:
        """The same detectors on other data."""
        names = [name for name in trained.names if name in self.names and DETECTORS[name].variant_of is None]
        self.progress.start(f"{trained.dataset.name} elsewhere", len(names) * len(others))
        for other in others:
            for prevalence in ("balanced", "natural"):
                judge = self.judge(other, prevalence == "natural")
                found: dict[str, Mapping[str, Measured]] = {}
                for name in names:
                    scored = trained.elsewhere(name, other, prevalence == "natural")
                    if scored is not None:
                        found[name] = judge.metrics(scored)
                    if prevalence == "balanced":
                        self.progress.advance(1)
                self._add(tables, found, trained.dataset.name, other.name, prevalence)
        self.progress.finish()

    def _add(self, tables: Tables, found: Measures, train: str, test: str, prevalence: str) -> None:
        for name, metrics in found.items():
            for metric, one in metrics.items():
                tables.detectors.append(self._row(name, train, test, metric, prevalence, one))
            against = [other for other in (*AGAINST, f"{name}-random-cut") if other in found and other != name]
            for other in against:
                for metric in (one for one in COMPARED if one in metrics and one in found[other]):
                    apart = (metrics[metric] - found[other][metric]).estimate
                    tables.differences.append(
                        {
                            "detector": name,
                            "against": other,
                            "train": train,
                            "test": test,
                            "metric": metric,
                            "prevalence": prevalence,
                            "difference": apart.value,
                            "ci_low": apart.ci_low,
                            "ci_high": apart.ci_high,
                            "n": apart.n,
                        }
                    )

    def _row(self, name: str, train: str, test: str, metric: str, prevalence: str, one: Measured) -> Row:
        told = one.estimate
        return {
            "detector": name,
            "train": train,
            "test": test,
            "metric": metric,
            "prevalence": prevalence,
            "value": told.value,
            "ci_low": told.ci_low,
            "ci_high": told.ci_high,
            "n": told.n,
            "passes": DETECTORS[name].passes,
        }

    def _controls(self, trained: TrainedOn, found: Measures) -> Iterator[Row]:
        """Tossed labels, a random cut in place of the knockout, and the band of the grader's errors."""
        train = trained.dataset.name
        for name in found:
            if self.plan.tosses:
                areas = trained.tossed_areas(name)
                error = areas.std(ddof=1) / len(areas) ** 0.5 if len(areas) > 1 else np.nan
                # Every detector of every dataset is a test: intervals hold for all of them together.
                reach = error * t.isf(0.025 / (len(found) * self.n_datasets), max(1, len(areas) - 1))
                yield _control(
                    "permuted-labels", name, train, areas.mean(), areas.mean() - reach, areas.mean() + reach, len(areas)
                )
            area = found[name]["auroc"].value
            other = f"{name}-random-cut"
            if other in found:
                apart = (found[name]["auroc"] - found[other]["auroc"]).estimate
                yield _control("random-cut", name, train, apart.value, apart.ci_low, apart.ci_high, apart.n)
            if DETECTORS[name].variant_of is None:
                best = min(1.0, 0.5 + (area - 0.5) / (1 - sum(GRADER_ERRORS)))
                yield _control(
                    "label-noise", name, train, area, min(area, best), max(area, best), found[name]["auroc"].n
                )


def _control(control: str, name: str, train: str, value: float, low: float, high: float, n: int) -> Row:
    return {
        "control": control,
        "detector": name,
        "train": train,
        "value": float(value),
        "low": float(low),
        "high": float(high),
        "n": n,
    }


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
