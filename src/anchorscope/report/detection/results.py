"""What the page of `anchorscope detect` says of how its tables came about."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polars as pl

from anchorscope.artefacts.schema import (
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
    empty,
)
from anchorscope.catalogue import DETECTORS, DetectorEntry
from anchorscope.errors import UserError
from anchorscope.report.palette import display_name
from anchorscope.report.verdicts import difference, has_interval
from anchorscope.stats.estimate import Estimate


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
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further lines of "What was run", in display order."""


AUROC = "auroc"
BALANCED, NATURAL = "balanced", "natural"
METRICS = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "brier": "Brier score",
    "ece": "ECE",
    "e-aurc": "E-AURC",
    "prr": "PRR",
    "accuracy@50": "accuracy at 50 % coverage",
    "accuracy@80": "accuracy at 80 % coverage",
    "accuracy@90": "accuracy at 90 % coverage",
    "auroc-spread": "spread of AUROC over seeds",
}
"""Names of the metrics, as a reader knows them."""
SMALLER_IS_BETTER = ("brier", "ece", "e-aurc", "auroc-spread")
PROBE, CONFIDENCE, BOTH, AUTO = "probe", "confidence", "probe+confidence", "auto"
_ALL_BUT = "all but "
_PROMPT = re.compile(r"(.+) \(prompt (.+)\)")


@dataclass(frozen=True)
class Cell:
    """What a detector learned from, and what it was tested on."""

    train: str
    test: str

    @property
    def in_domain(self) -> bool:
        """Whether both are the same dataset (on other folds)."""
        return self.train == self.test

    @property
    def held_out(self) -> bool:
        """Whether it learned from every dataset but the tested one."""
        return self.train == f"{_ALL_BUT}{self.test}"

    @property
    def words(self) -> str:
        """from → to, in names that a reader knows."""
        return f"{shown_place(self.train)} → {shown_place(self.test)}"


def shown_place(name: str) -> str:
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
        """Read the tables; curves and controls may be missing. `datasets` come first, others as they come."""
        detectors = _table(folder / "detectors.csv", DETECTOR_SCHEMA, required=True)
        differences = _table(folder / "differences.csv", DETECTOR_DIFFERENCE_SCHEMA, required=True)
        curves = _table(folder / "detector_curves.csv", DETECTOR_CURVE_SCHEMA)
        controls = _table(folder / "controls.csv", DETECTOR_CONTROL_SCHEMA)
        tested = [name for name in detectors["test"].unique(maintain_order=True) if not _PROMPT.fullmatch(name)]
        known = [name for name in datasets if name in tested]
        return cls(detectors, differences, curves, controls, (*known, *(one for one in tested if one not in known)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Detectors that have a number, in the catalogue's order; unknown ones last."""
        there = list(self.detectors["detector"].unique(maintain_order=True))
        return (*(name for name in DETECTORS if name in there), *(name for name in there if name not in DETECTORS))

    @cached_property
    def prevalence(self) -> str:
        """The one that headlines are about: balanced, where there is such a number."""
        there = self.detectors.filter(pl.col("metric") == AUROC)["prevalence"].unique(maintain_order=True).to_list()
        return BALANCED if BALANCED in there or not there else str(there[0])

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every pair of training and test data, by display order."""
        pairs = self.detectors.select("train", "test").unique(maintain_order=True).rows()
        return tuple(sorted((Cell(*pair) for pair in pairs), key=self._place))

    @cached_property
    def in_domain(self) -> tuple[Cell, ...]:
        """Cells of the diagonal."""
        return tuple(cell for cell in self.cells if cell.in_domain)

    @cached_property
    def elsewhere(self) -> tuple[Cell, ...]:
        """Cells off the diagonal: one dataset learned, another one tested."""
        return tuple(
            cell
            for cell in self.cells
            if not cell.in_domain and cell.train in self.datasets and cell.test in self.datasets
        )

    @cached_property
    def held_out(self) -> tuple[Cell, ...]:
        """Cells in which the tested dataset was the only one not learned from."""
        return tuple(cell for cell in self.cells if cell.held_out)

    @cached_property
    def prompted(self) -> tuple[Cell, ...]:
        """Cells in which the tested questions were put another way."""
        return tuple(cell for cell in self.cells if _PROMPT.fullmatch(cell.test))

    def value(self, detector: str, cell: Cell, metric: str = AUROC, prevalence: str | None = None) -> Estimate | None:
        """One number of detectors.csv."""
        return self._values.get((detector, cell.train, cell.test, metric, prevalence or self.prevalence))

    def difference(
        self, detector: str, against: str, cell: Cell, metric: str = AUROC, prevalence: str | None = None
    ) -> Estimate | None:
        """`detector` minus `against`: paired where the file has it.

        Otherwise through a third one with which both are paired, or from the two values themselves: the narrowest of
        the widest intervals that these allow.
        """
        place = (cell.train, cell.test, metric, prevalence or self.prevalence)
        found = self._paired(detector, against, place)
        if found is not None:
            return found
        ways = [
            difference(self._paired(detector, one, place), self._paired(against, one, place)) for one in (PROBE, BOTH)
        ]
        ways.append(difference(self._values.get((detector, *place)), self._values.get((against, *place))))
        return min((way for way in ways if way is not None), key=_width, default=None)

    def _paired(self, detector: str, against: str, place: tuple[str, ...]) -> Estimate | None:
        found = self._differences.get((detector, against, *place))
        turned = self._differences.get((against, detector, *place))
        if found is None and turned is not None:
            return Estimate(-turned.value, -turned.ci_high, -turned.ci_low, turned.n, turned.method)
        return found

    def passes(self, detector: str) -> int | None:
        """Passes per answer, as measured here."""
        return self._passes.get(detector)

    def n_tested(self, cell: Cell) -> int:
        """Answers that detectors were tested on in a cell; the most, where they differ."""
        counts = (found.n for name in self.names if (found := self.value(name, cell)) is not None)
        return max(counts, default=0)

    def control(self, control: str, detector: str, train: str) -> Estimate | None:
        """One row of controls.csv."""
        return self._controls.get((control, detector, train))

    @cached_property
    def _values(self) -> Mapping[tuple[str, ...], Estimate]:
        keys = ("detector", "train", "test", "metric", "prevalence")
        return _estimates(self.detectors, keys, ("value", "ci_low", "ci_high"), "")

    @cached_property
    def _differences(self) -> Mapping[tuple[str, ...], Estimate]:
        keys = ("detector", "against", "train", "test", "metric", "prevalence")
        return _estimates(self.differences, keys, ("difference", "ci_low", "ci_high"), "paired bootstrap over groups")

    @cached_property
    def _controls(self) -> Mapping[tuple[str, ...], Estimate]:
        return _estimates(self.controls, ("control", "detector", "train"), ("value", "low", "high"), "")

    @cached_property
    def _passes(self) -> Mapping[str, int]:
        rows: Iterable[tuple[str, int]] = self.detectors.select("detector", "passes").drop_nulls().iter_rows()
        return dict(rows)

    def _place(self, cell: Cell) -> tuple[int, str, int, str]:
        order = {name: place for place, name in enumerate(self.datasets)}
        last = len(order)
        return order.get(cell.train, last), cell.train, order.get(cell.test, last), cell.test


def entry_of(detector: str) -> DetectorEntry:
    """What the catalogue says of a detector; one that it does not know is what it is called."""
    return DETECTORS.get(detector) or DetectorEntry(detector, "not in the catalogue", 0)


def _width(found: Estimate) -> float:
    return found.ci_high - found.ci_low if has_interval(found) else math.inf


def _estimates(
    table: pl.DataFrame, keys: Sequence[str], numbers: Sequence[str], method: str
) -> dict[tuple[str, ...], Estimate]:
    """Rows that have a value, by their keys."""
    found = {}
    for row in table.select(*keys, *numbers, "n").iter_rows():
        value, low, high = (math.nan if one is None else float(one) for one in row[len(keys) : -1])
        if math.isfinite(value):
            found[row[: len(keys)]] = Estimate(value, low, high, row[-1] or 0, method)
    return found


def _table(path: Path, schema: Mapping[str, pl.DataType], *, required: bool = False) -> pl.DataFrame:
    if not path.is_file():
        if required:
            raise UserError(f"{path} is missing; a folder that `anchorscope detect` wrote has it. Run it again.")
        return empty(schema)
    try:
        table = pl.read_csv(path, schema_overrides=dict(schema), infer_schema_length=0)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be read: {reason}. Run `anchorscope detect` again.") from error
    missing = [name for name in schema if name not in table.columns]
    if missing:
        raise UserError(
            f"{path} has no column {missing[0]!r}; found: {', '.join(table.columns)}. Run `anchorscope detect` again."
        )
    return table.select(list(schema))


def mean_of_datasets(found: Sequence[Estimate]) -> Estimate | None:
    """The mean of independent estimates; None of none."""
    return _mean(found, lambda sizes: math.hypot(*sizes) / len(sizes), "mean of the datasets, ends as of independent")


def mean_of_cells(found: Sequence[Estimate]) -> Estimate | None:
    """The mean of estimates that may err together; None of none."""
    return _mean(found, lambda sizes: math.fsum(sizes) / len(sizes), "mean of the cells, ends as of dependent")


def mean_difference(
    results: DetectionResults, detector: str, against: str, cells: Iterable[Cell], *, independent: bool = True
) -> Estimate | None:
    """`detector` minus `against` in the mean over the cells that have both."""
    each = [one for cell in cells if (one := results.difference(detector, against, cell)) is not None]
    return (mean_of_datasets if independent else mean_of_cells)(each)


def mean_value(
    results: DetectionResults, detector: str, cells: Iterable[Cell], *, independent: bool = True
) -> Estimate | None:
    """The AUROC of a detector in the mean over the cells that have it."""
    each = [one for cell in cells if (one := results.value(detector, cell)) is not None]
    return (mean_of_datasets if independent else mean_of_cells)(each)


def _mean(found: Sequence[Estimate], combined: Callable[[Sequence[float]], float], method: str) -> Estimate | None:
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    value = math.fsum(one.value for one in found) / len(found)
    under = combined([one.value - one.ci_low for one in found])
    over = combined([one.ci_high - one.value for one in found])
    return Estimate(value, value - under, value + over, sum(one.n for one in found), method)
