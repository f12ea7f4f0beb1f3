"""The tables of `anchorscope detect`, read for its page: values, paired differences, curves and controls."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polars as pl

from anchorscope.artefacts.schema import (
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)
from anchorscope.catalogue import DETECTORS, DetectorEntry
from anchorscope.report.palette import display_name
from anchorscope.report.verdicts import difference
from anchorscope.stats.estimate import Estimate

AUROC, BALANCED, NATURAL = "auroc", "balanced", "natural"
PROBE, CONFIDENCE, BOTH, AUTO = "probe", "confidence", "probe+confidence", "auto"
_ALL_BUT = "all but "
_PROMPT = re.compile(r"(.+) \(prompt (.+)\)")


@dataclass(frozen=True)
class DatasetFacts:
    """The answers of one dataset that detectors were trained or tested on."""

    name: str
    n_used: int
    """Answers in the balanced sample."""
    n_true: int
    """True ones among them."""
    n_graded: int
    """All answers that could be graded: the natural prevalence is measured on these."""
    natural_prevalence: float
    """Share of true answers among them."""
    target_only: bool = False
    """Whether it has too few true answers to learn from."""


@dataclass(frozen=True)
class DetectionContext:
    """Everything that is not in the tables."""

    model: str
    runs: tuple[str, ...]
    """Folders of the runs, as the command named them."""
    datasets: tuple[DatasetFacts, ...]
    seeds: tuple[int, ...]
    """Of the folds."""
    seconds: float
    command: str
    """What repeats it."""
    bundles: Mapping[str, str] = field(default_factory=dict)
    """Detectors that were saved, each with its folder."""
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Detectors and datasets that are not in the tables, each with the reason."""


Cell = tuple[str, str]
"""What a detector learned from, and what it was tested on."""


def shown_dataset(name: str) -> str:
    """A dataset, `all but` one, or one under another prompt, in names that a reader knows."""
    if name.startswith(_ALL_BUT):
        return _ALL_BUT + display_name(name.removeprefix(_ALL_BUT))
    prompted = _PROMPT.fullmatch(name)
    return f"{display_name(prompted[1])} (prompt {prompted[2]})" if prompted else display_name(name)


@dataclass(frozen=True)
class DetectionResults:
    """detectors.csv, differences.csv, detector_curves.csv and controls.csv of one folder."""

    detectors: pl.DataFrame
    differences: pl.DataFrame
    curves: pl.DataFrame
    controls: pl.DataFrame
    datasets: tuple[str, ...]
    """In display order."""

    @classmethod
    def read(cls, folder: Path, datasets: Sequence[str] = ()) -> "DetectionResults":
        """Read the tables; `datasets` come first, others as they come."""
        detectors = pl.read_csv(folder / "detectors.csv", schema=DETECTOR_SCHEMA)
        differences = pl.read_csv(folder / "differences.csv", schema=DETECTOR_DIFFERENCE_SCHEMA)
        curves = pl.read_csv(folder / "detector_curves.csv", schema=DETECTOR_CURVE_SCHEMA)
        controls = pl.read_csv(folder / "controls.csv", schema=DETECTOR_CONTROL_SCHEMA)
        tested = [name for name in detectors["test"].unique(maintain_order=True) if not _PROMPT.fullmatch(name)]
        ordered = dict.fromkeys((*(name for name in datasets if name in tested), *tested))
        return cls(detectors, differences, curves, controls, tuple(ordered))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Detectors that have a number, in the catalogue's order; unknown ones last."""
        order = list(DETECTORS)
        measured = self.detectors["detector"].unique(maintain_order=True)
        return tuple(sorted(measured, key=lambda name: order.index(name) if name in order else len(order)))

    @cached_property
    def cells(self) -> list[Cell]:
        """Every pair of training and test data."""
        return self.detectors.select("train", "test").unique(maintain_order=True).rows()

    @cached_property
    def in_domain(self) -> list[Cell]:
        """Tested on the dataset that was learned from, on other folds."""
        return [(train, test) for train, test in self.cells if train == test]

    @cached_property
    def elsewhere(self) -> list[Cell]:
        """One dataset learned, another one tested."""
        return [pair for pair in self.cells if pair[0] != pair[1] and set(pair) <= set(self.datasets)]

    @cached_property
    def held_out(self) -> list[Cell]:
        """The tested dataset was the only one not learned from."""
        return [(train, test) for train, test in self.cells if train == f"{_ALL_BUT}{test}"]

    @cached_property
    def prompted(self) -> list[Cell]:
        """The tested questions were put another way."""
        return [(train, test) for train, test in self.cells if _PROMPT.fullmatch(test)]

    def value(self, detector: str, cell: Cell, metric: str = AUROC, prevalence: str = BALANCED) -> Estimate | None:
        """One number of detectors.csv."""
        return self._values.get((detector, *cell, metric, prevalence))

    def difference(self, detector: str, against: str, cell: Cell) -> Estimate | None:
        """AUROC of `detector` minus that of `against`, paired; or through a third one with which both are paired."""
        where, pairs = (*cell, AUROC, BALANCED), self._differences
        if (paired := pairs.get((detector, against, *where))) is not None:
            return paired
        if (turned := pairs.get((against, detector, *where))) is not None:
            return Estimate(-turned.value, -turned.ci_high, -turned.ci_low, turned.n, turned.method)
        gains = [[pairs.get((name, third, *where)) for name in (detector, against)] for third in (PROBE, BOTH)]
        ways = [difference(*gain) for gain in gains]
        return next((way for way in ways if way is not None), None)

    def mean(self, detector: str, cells: Iterable[Cell], against: str | None = None) -> Estimate | None:
        """The AUROC, or its difference to `against`, in the mean over the cells that have it.

        Datasets are independent. Pairs of datasets share answers, so that their mean has the mean of their intervals.
        """
        cells = list(cells)
        each = [self.difference(detector, against, one) if against else self.value(detector, one) for one in cells]
        independent = all(train == test for train, test in cells)
        return mean_estimate([value for value in each if value is not None], independent)

    @cached_property
    def passes(self) -> Mapping[str, int]:
        """Passes per answer, as measured here."""
        return dict(self.detectors.select("detector", "passes").drop_nulls().iter_rows())

    @cached_property
    def _values(self) -> Mapping[tuple[str, ...], Estimate]:
        return _estimates(self.detectors, ("detector", "train", "test", "metric", "prevalence"))

    @cached_property
    def _differences(self) -> Mapping[tuple[str, ...], Estimate]:
        table = self.differences.rename({"difference": "value"})
        return _estimates(table, ("detector", "against", "train", "test", "metric", "prevalence"))

    @cached_property
    def control_values(self) -> Mapping[tuple[str, ...], Estimate]:
        """Rows of controls.csv, by control, detector and dataset."""
        return _estimates(self.controls.rename({"low": "ci_low", "high": "ci_high"}), ("control", "detector", "train"))


def entry_of(detector: str) -> DetectorEntry:
    """What the catalogue says of a detector; one that it does not know is what it is called."""
    return DETECTORS.get(detector) or DetectorEntry(detector, "not in the catalogue", 0)


def mean_estimate(values: Sequence[Estimate], independent: bool) -> Estimate | None:
    """The mean of estimates that err independently, or of those that may err together; None of none."""
    if len(values) < 2:
        return values[0] if values else None
    mean = math.fsum(one.value for one in values) / len(values)
    under, over = [one.value - one.ci_low for one in values], [one.ci_high - one.value for one in values]
    low, high = (math.hypot(*ends) if independent else math.fsum(ends) for ends in (under, over))
    method = f"mean of {'independent datasets' if independent else 'pairs of datasets that share answers'}"
    return Estimate(mean, mean - low / len(values), mean + high / len(values), sum(one.n for one in values), method)


def _estimates(table: pl.DataFrame, keys: Sequence[str]) -> dict[tuple[str, ...], Estimate]:
    """Rows that have a value, by their keys."""
    estimates = {}
    for *key, value, low, high, n in table.select(*keys, "value", "ci_low", "ci_high", "n").iter_rows():
        low, high = (math.nan if end is None else float(end) for end in (low, high))
        if value is not None and math.isfinite(value):
            estimates[tuple(key)] = Estimate(float(value), low, high, n or 0, "bootstrap over groups")
    return estimates
