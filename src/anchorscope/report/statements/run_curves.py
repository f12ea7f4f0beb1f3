"""The chart's curves of one run under one rule, each with its bootstrap draws, and numbers of them that claims need."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np
import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED
from anchorscope.stats.curve_order import side_by_side
from anchorscope.stats.curve_shape import fall, lowest_layer, range_within
from anchorscope.stats.estimate import Estimate
from anchorscope.stats.sampled_curve import FEWEST_GROUPS, SIMULTANEOUS, Floats, SampledCurve


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
        rows = self.findings.curves.filter(
            (pl.col("dataset") == dataset)
            & (pl.col("group") == group)
            & (pl.col("assignment") == self.assignment)
            & (pl.col("site") == self.findings.site)
            & (pl.col("position") == self.findings.position)
            & (pl.col("intervention") == "knockout")
            & (pl.col("truth") == "all")
        )
        return (int(rows["n"][0] or 0), int(rows["n_groups"][0] or 0)) if rows.height else (0, 0)


def measurable(runs: Sequence[RunCurves], datasets: Sequence[str]) -> tuple[str, ...]:
    """The datasets on which every run has both curves with intervals; all of them where there is no such dataset.

    One dataset with too few items must not keep the others from being compared; who uses this names what is left out.
    """

    def known(run: RunCurves, dataset: str) -> bool:
        return all(curve is not None and curve.known for curve in (run.q(dataset), run.a(dataset)))

    kept = tuple(name for name in datasets if all(known(run, name) for run in runs))
    return kept or tuple(datasets)


def layers_from(curve: SampledCurve, first: int) -> SampledCurve:
    """The curve from a layer on."""
    return SampledCurve(curve.value[first:], curve.samples[:, first:], curve.n)


def third(curve: SampledCurve) -> int:
    """The layer at a third of the depth."""
    return round((curve.n_layers - 1) / 3)


def two_thirds(curve: SampledCurve) -> int:
    """The layer at two thirds of the depth."""
    return round(2 * (curve.n_layers - 1) / 3)


def middle(curve: SampledCurve) -> int:
    """The layer in the middle of the depth."""
    return (curve.n_layers - 1) // 2


def mean_from(curve: SampledCurve, first: int) -> Estimate:
    """The mean over all layers from one on."""
    rest = layers_from(curve, first)
    return rest.estimate(rest.value.mean(), rest.whole.mean(axis=1))


def highest(curve: SampledCurve) -> Estimate:
    """The highest value at any layer, read off the band that holds for all of them."""
    low, high = curve.band
    return Estimate(float(curve.value.max()), float(low.max()), float(high.max()), curve.n, SIMULTANEOUS)


def lowest(curve: SampledCurve) -> Estimate:
    """The lowest value at any layer, read off the same band."""
    low, high = curve.band
    return Estimate(float(curve.value.min()), float(low.min()), float(high.min()), curve.n, SIMULTANEOUS)


def fall_per_layer(curve: SampledCurve) -> Estimate:
    """Points lost per layer on the layers from the first layer to the lowest.

    The ends are the least fall over the longest way and the greatest over the shortest: where the bottom is flat, the
    draws' own lowest layers jump about and cover too seldom.
    """
    lost, layers = fall(curve), lowest_layer(curve)
    value, low, high = lost.value / max(1, layers.value), lost.ci_low / max(1, layers.ci_high), lost.ci_high
    return Estimate(value, low, high / max(1, layers.ci_low), curve.n, SIMULTANEOUS)


def depth_below_zero(curve: SampledCurve) -> Estimate:
    """How far the lowest value lies below zero; nothing where it does not."""
    found = lowest(curve)
    value, low, high = (max(-end, 0.0) for end in (found.value, found.ci_high, found.ci_low))
    return Estimate(value, low, high, found.n, found.method)


def widest_gap(curves: Sequence[SampledCurve]) -> Estimate:
    """The farthest that any two curves lie apart at any layer, read off a band over all pairs and layers at once."""
    value, drawn = side_by_side(curves)
    first, second = np.triu_indices(len(curves), 1)
    gaps = SampledCurve(
        (value[second] - value[first]).reshape(-1),
        (drawn[:, second] - drawn[:, first]).reshape(len(drawn), len(first) * value.shape[1]),
        min(curve.n for curve in curves),
    )
    return range_within(gaps)


def gap_beyond_spread(below: Sequence[SampledCurve], above: Sequence[SampledCurve]) -> Estimate:
    """From a third of the depth on, in the mean: how much farther two groups lie apart than the datasets of the first.

    The mean gap less that of the datasets that lie farthest apart: the least over all pairs, so read off a band. The
    two curves of one dataset were drawn together and stay so.
    """
    first = third(below[0])
    pairs = [(layers_from(q, first), layers_from(a, first)) for q, a in zip(below, above, strict=True)]
    levels = [SampledCurve(np.array([q.value.mean(), a.value.mean()]),
                           np.stack([q.samples.mean(axis=1), a.samples.mean(axis=1)], axis=1), min(q.n, a.n))
              for q, a in pairs]  # fmt: skip

    def beyond(values: Floats) -> Floats:
        """One number for each pair of datasets in each order, from [draw, dataset, group]."""
        gap = (values[..., 1] - values[..., 0]).mean(axis=1)
        found: Floats = np.stack([gap - (values[:, i, 0] - values[:, j, 0])
                                  for i, j in permutations(range(values.shape[1]), 2)], axis=1)  # fmt: skip
        return found

    value, drawn = side_by_side(levels)
    return lowest(SampledCurve(beyond(value[None])[0], beyond(drawn), min(level.n for level in levels)))
