"""The tables of `detect`: every detector, where it was trained and elsewhere; differences, curves and controls."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import torch
from scipy.stats import t

from anchorscope.artefacts.schema import (
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)
from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.evaluation import COMPARED, Judge, Measured, Plan, Scored, TrainedOn, balanced_weights
from anchorscope.detectors.training import Dataset
from anchorscope.models.process_settings import workers_of_one_thread
from anchorscope.progress import Progress
from anchorscope.stats.detection_metrics import risk_coverage_curve

AGAINST = ("confidence", "probe", "probe+confidence")
"""What every detector is compared with; a control is also compared with the detector whose control it is."""
DRAWN = ("confidence", "probe", "probe+confidence", "mop", "pr-attention", "auto")
"""Detectors that have a risk–coverage curve."""
NATURAL = "natural"

Row = dict[str, Any]


@dataclass
class Tables:
    """Rows of the result files."""

    detectors: list[Row] = field(default_factory=list)
    differences: list[Row] = field(default_factory=list)
    curves: list[Row] = field(default_factory=list)
    controls: list[Row] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write the four files."""
        for name, rows, schema in (
            ("detectors", self.detectors, DETECTOR_SCHEMA),
            ("differences", self.differences, DETECTOR_DIFFERENCE_SCHEMA),
            ("detector_curves", self.curves, DETECTOR_CURVE_SCHEMA),
            ("controls", self.controls, DETECTOR_CONTROL_SCHEMA),
        ):
            pl.DataFrame(rows, schema=schema, orient="row").write_csv(folder / f"{name}.csv")


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
        balanced, natural = {}, {}
        for name in names:
            balanced[name] = trained.in_domain(name)
            if DETECTORS[name].variant_of is None:
                natural[name] = trained.in_domain(name, natural=True)
            self.progress.advance(1)
        self._add_cell(tables, dataset.name, dataset, "balanced", balanced)
        self._add_cell(tables, dataset.name, dataset, NATURAL, natural)
        for name in DRAWN:
            if name in natural:
                points = risk_coverage_curve(natural[name].log_odds[0], dataset.labels, dataset.natural)
                tables.curves += [
                    {"detector": name, "dataset": dataset.name, "coverage": float(coverage), "risk": float(risk)}
                    for coverage, risk in zip(*points, strict=True)
                    if math.isfinite(risk)
                ]
        tables.controls += self._controls(trained, names)
        self.progress.finish()

    def elsewhere(self, trained: TrainedOn, others: Sequence[Dataset], tables: Tables) -> None:
        """The same detectors on other data."""
        names = [name for name in trained.names if name in self.names and DETECTORS[name].variant_of is None]
        self.progress.start(f"{trained.dataset.name} elsewhere", len(names) * len(others))
        for other in others:
            for prevalence in ("balanced", NATURAL):
                each = {name: trained.elsewhere(name, other, prevalence == NATURAL) for name in names}
                scored = {name: scores for name, scores in each.items() if scores is not None}
                self._add_cell(tables, trained.dataset.name, other, prevalence, scored)
            self.progress.advance(len(names))
        self.progress.finish()

    def _add_cell(
        self, tables: Tables, train: str, dataset: Dataset, prevalence: str, scored: Mapping[str, Scored]
    ) -> None:
        """Values of all detectors on one dataset at one prevalence, and their differences to those to beat."""
        judge = self.judge(dataset, prevalence == NATURAL)
        judge.drawn  # noqa: B018 - once, before the threads share it

        def measure(name: str) -> Mapping[str, Measured]:
            return judge.metrics(scored[name], only_auroc=DETECTORS[name].variant_of is not None)

        with workers_of_one_thread(torch.get_num_threads()) as pool:
            measures = dict(zip(scored, pool.map(measure, scored), strict=True))
        cell = {"train": train, "test": dataset.name, "prevalence": prevalence}
        for name, metrics in measures.items():
            for metric, measured in metrics.items():
                row = {"detector": name, "metric": metric, **cell, "passes": DETECTORS[name].passes}
                tables.detectors.append(row | _with_interval("value", measured))
            for other in (*AGAINST, DETECTORS[name].variant_of or ""):
                for metric in COMPARED if other in measures and other != name else ():
                    if metric in metrics and metric in measures[other]:
                        row = {"detector": name, "against": other, "metric": metric, **cell}
                        gain = metrics[metric] - measures[other][metric]
                        tables.differences.append(row | _with_interval("difference", gain))

    def _controls(self, trained: TrainedOn, names: Sequence[str]) -> Iterator[Row]:
        """Permuted labels. Every detector of every dataset is a test: intervals hold for all of them together."""
        for name in names if self.plan.tosses else ():
            areas = trained.tossed_areas(name)
            mean, n = float(areas.mean()), len(areas)
            error = float(areas.std(ddof=1)) / n**0.5 if n > 1 else math.nan
            reach = error * float(t.isf(0.025 / (len(names) * self.n_datasets), max(1, n - 1)))
            ends = {"value": mean, "low": mean - reach, "high": mean + reach, "n": n}
            yield {"control": "permuted-labels", "detector": name, "train": trained.dataset.name, **ends}


def _with_interval(name: str, measured: Measured) -> Row:
    value = measured.estimate
    return {name: value.value, "ci_low": value.ci_low, "ci_high": value.ci_high, "n": value.n}
