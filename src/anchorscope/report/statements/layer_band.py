"""A number along the layers with intervals that hold for all of them at once.

A control that is asked at thirty layers has thirty chances to fail. So every interval is widened until all of them hold
together in 95 of 100 samples (Bonferroni, each end taken as normal): cautious where layers move together, as they do,
and in need of nothing but the table. Layers whose interval is wider than the whole scale are left out: there is too
little evidence to divide by.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.report.verdicts import WIDEST_SHARE
from anchorscope.report.wording import listing
from anchorscope.stats.estimate import LEVEL, Estimate

POINTWISE = "interval of one layer"
METHOD = "intervals of all layers widened to hold together (Bonferroni)"

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LayerBand:
    """A number at the layers where it can be measured."""

    layers: tuple[int, ...]
    """In order; those without an interval, or with a hopeless one, are not there."""
    value: Floats
    """The share, [layer]."""
    low: Floats
    """Lower end for all layers at once, [layer]."""
    high: Floats
    """Upper end."""
    n: int
    """Items that it rests on."""
    wider: float = 1.0
    """By how much an interval was widened to hold for all layers at once."""

    def at(self, layers: tuple[int, ...]) -> "LayerBand":
        """Only these layers; the band stays as wide as it is."""
        kept = [place for place, layer in enumerate(self.layers) if layer in layers]
        names = tuple(self.layers[place] for place in kept)
        return LayerBand(names, self.value[kept], self.low[kept], self.high[kept], self.n, self.wider)

    def estimate(self, place: int) -> Estimate:
        """One of its layers, by place."""
        return Estimate(float(self.value[place]), float(self.low[place]), float(self.high[place]), self.n, METHOD)

    def pointwise(self, place: int) -> Estimate:
        """One of its layers with the interval of that layer alone.

        Enough for "at every layer": each of them has to hold, so that no layer is picked.
        """
        value, low, high = (float(ends[place]) for ends in (self.value, self.low, self.high))
        ends = (value - (value - low) / self.wider, value + (high - value) / self.wider)
        return Estimate(value, *ends, self.n, POINTWISE)

    def surely_above(self, height: float) -> tuple[int, ...]:
        """The layers whose whole band lies above."""
        return tuple(layer for layer, low in zip(self.layers, self.low, strict=True) if low > height)


def band_of(rows: pl.DataFrame, widest: float = WIDEST_SHARE) -> LayerBand | None:
    """The band of the column `share` of rows; None where no layer can be measured.

    Intervals beyond `widest` are left out.
    """
    table = rows.drop_nulls(["layer", "share", "ci_low", "ci_high"]).sort("layer")
    share, low, high = (table[name].to_numpy().astype(np.float64) for name in ("share", "ci_low", "ci_high"))
    known = np.isfinite(share) & np.isfinite(low) & np.isfinite(high) & (high - low <= widest)
    if not known.any():
        return None
    wider = widening(int(known.sum()))
    share, low, high = share[known], low[known], high[known]
    layers = tuple(int(layer) for layer in table["layer"].to_numpy()[known])
    n = int(table["n"].max() or 0)  # type: ignore[arg-type]  # a column of whole numbers
    return LayerBand(layers, share, share - wider * (share - low), share + wider * (high - share), n, wider)


def widening(layers: int) -> float:
    """By how much an interval for one layer grows where so many have to hold together."""
    outside = (1 - LEVEL) / 2
    return NormalDist().inv_cdf(1 - outside / layers) / NormalDist().inv_cdf(1 - outside)


def layer_names(layers: tuple[int, ...]) -> str:
    """For example "layer 4", "layers 20–29", "layers 2, 5 and 20–29"."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    names = [str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return f"layer{'s' if len(layers) > 1 else ''} {listing(names)}"
