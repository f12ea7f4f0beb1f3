"""Numbers of whole curves that only the claims of earlier readers ask for.

Levels of datasets are means from a third of the depth on: before it all curves are near zero, and a mean is not misled
by one noisy layer as a lowest value is.
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from anchorscope.stats import curves as shape
from anchorscope.stats.curves import SIMULTANEOUS, Floats, SampledCurve, closing, side_by_side
from anchorscope.stats.estimate import Estimate


def layers_from(curve: SampledCurve, first: int) -> SampledCurve:
    """The curve from a layer on."""
    return SampledCurve(curve.value[first:], curve.samples[:, first:], curve.n)


def third(curve: SampledCurve) -> int:
    """The layer at a third of the depth."""
    return round((curve.n_layers - 1) / 3)


def two_thirds(curve: SampledCurve) -> int:
    """The layer at two thirds of the depth."""
    return round(2 * (curve.n_layers - 1) / 3)


def mean_from(curve: SampledCurve, first: int) -> Estimate:
    """The mean over all layers from one on."""
    rest = layers_from(curve, first)
    return rest.estimate(rest.value.mean(), rest.whole.mean(axis=1))


def level(curve: SampledCurve) -> Estimate:
    """The mean from a third of the depth on."""
    return mean_from(curve, third(curve))


def highest(curve: SampledCurve) -> Estimate:
    """The highest value at any layer, read off the band that holds for all of them."""
    low, high = curve.band
    return Estimate(float(curve.value.max()), float(low.max()), float(high.max()), curve.n, SIMULTANEOUS)


def lowest(curve: SampledCurve) -> Estimate:
    """The lowest value at any layer, read off the same band."""
    low, high = curve.band
    return Estimate(float(curve.value.min()), float(low.min()), float(high.min()), curve.n, SIMULTANEOUS)


def level_from(curve: SampledCurve, within: float) -> Estimate:
    """From which share of the depth on the curve keeps within some points of its end."""
    found, depth = shape.plateau(curve, within), max(1, curve.n_layers - 1)
    return Estimate(found.value / depth, found.ci_low / depth, found.ci_high / depth, found.n, found.method)


def change_from_middle(curve: SampledCurve) -> Estimate:
    """The last layer less the one in the middle of the depth."""
    return shape.last(curve.relative_to((curve.n_layers - 1) // 2))


def fall_per_layer(curve: SampledCurve) -> Estimate:
    """Points lost per layer on the layers from the first layer to the lowest.

    The ends are the least fall over the longest way and the greatest over the shortest: where the bottom is flat, the
    draws' own lowest layers jump about and cover too seldom.
    """
    lost, layers = shape.fall(curve), shape.lowest_layer(curve)
    value, low, high = lost.value / max(1, layers.value), lost.ci_low / max(1, layers.ci_high), lost.ci_high
    return Estimate(value, low, high / max(1, layers.ci_low), curve.n, SIMULTANEOUS)


def depth_below_zero(curve: SampledCurve) -> Estimate:
    """How far the lowest value lies below zero; nothing where it does not."""
    found = lowest(curve)
    value, low, high = (max(-end, 0.0) for end in (found.value, found.ci_high, found.ci_low))
    return Estimate(value, low, high, found.n, found.method)


def closing_to_the_end(curves: Sequence[SampledCurve]) -> Estimate:
    """How much closer together they are at the last layer than in the middle third."""
    return closing(list(curves), slice(third(curves[0]), two_thirds(curves[0]) + 1))


def widest_gap(curves: Sequence[SampledCurve]) -> Estimate:
    """The farthest that any two curves lie apart at any layer, read off a band over all pairs and layers at once."""
    value, drawn = side_by_side(curves)
    first, second = np.triu_indices(len(curves), 1)
    gaps = SampledCurve(
        (value[second] - value[first]).reshape(-1),
        (drawn[:, second] - drawn[:, first]).reshape(len(drawn), len(first) * value.shape[1]),
        min(curve.n for curve in curves),
    )
    return shape.range_within(gaps)


def gap_beyond_spread(below: Sequence[SampledCurve], above: Sequence[SampledCurve]) -> Estimate:
    """From a third of the depth on, in the mean: how much farther two groups lie apart than the datasets of the first.

    The mean gap less that of the datasets that lie farthest apart: the least over all pairs, so read off a band. The
    two curves of one dataset were drawn together and stay so.
    """
    first = third(below[0])
    pairs = [(layers_from(q, first), layers_from(a, first)) for q, a in zip(below, above, strict=True)]
    levels = [
        SampledCurve(
            np.array([q.value.mean(), a.value.mean()]),
            np.stack([q.samples.mean(axis=1), a.samples.mean(axis=1)], axis=1),
            min(q.n, a.n),
        )
        for q, a in pairs
    ]

    def beyond(values: Floats) -> Floats:
        """One number for each pair of datasets in each order, from [draw, dataset, group]."""
        gap = (values[..., 1] - values[..., 0]).mean(axis=1)
        found: Floats = np.stack(
            [gap - (values[:, i, 0] - values[:, j, 0]) for i, j in permutations(range(values.shape[1]), 2)], axis=1
        )
        return found

    value, drawn = side_by_side(levels)
    return lowest(SampledCurve(beyond(value[None])[0], beyond(drawn), min(one.n for one in levels)))
