"""The chart's curves of one run under one rule, each with its bootstrap draws."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.stats.curves import FEWEST_GROUPS, SampledCurve


@dataclass(frozen=True)
class RunCurves:
    """What is drawn in one panel of the chart."""

    findings: Findings
    assignment: str

    @property
    def model(self) -> str:
        """Whose curves these are."""
        return self.findings.model

    @property
    def datasets(self) -> tuple[str, ...]:
        """All datasets of the run, also those without a curve."""
        return self.findings.datasets

    def curve(self, dataset: str, group: str) -> SampledCurve | None:
        """One curve; None where the run has no draws of it, or the group no items. Of too few items, none is known."""
        return self._curves.get((dataset, group))

    def q(self, dataset: str) -> SampledCurve | None:
        """The Q-Anchored curve."""
        return self.curve(dataset, Q_ANCHORED)

    def a(self, dataset: str) -> SampledCurve | None:
        """The A-Anchored curve."""
        return self.curve(dataset, A_ANCHORED)

    @cached_property
    def _curves(self) -> dict[tuple[str, str], SampledCurve]:
        wanted = (
            (pl.col("site") == self.findings.site)
            & (pl.col("position") == self.findings.position)
            & (pl.col("assignment") == self.assignment)
        )
        found = {}
        for (dataset, group), rows in self.findings.curve_samples.filter(wanted).group_by("dataset", "group"):
            draws = np.array(rows.sort("layer")["delta_p"].to_list(), dtype=np.float64).T
            if draws.size and np.isfinite(draws[0]).all():
                key = str(dataset), str(group)
                items, groups = self._counts(*key)
                enough = groups >= FEWEST_GROUPS
                found[key] = SampledCurve(draws[0], draws[1:] if enough else np.full_like(draws[1:], np.nan), items)
        return found

    def _counts(self, dataset: str, group: str) -> tuple[int, int]:
        """Items of a curve, and the groups that they are drawn in."""
        rows = self.findings.drawn_curves(dataset, self.assignment, group)
        return (int(rows["n"][0] or 0), int(rows["n_groups"][0] or 0)) if rows.height else (0, 0)
