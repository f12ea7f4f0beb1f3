"""AUC per layer: how well a probe tells true from false answers, and what is left of that when the question is cut.

A probe's AUC means little alone: the relation asked for, the words, or the model's own confidence may predict truth as
well. So every panel of the first chart carries these baselines as level lines, and the AUC within relations, where a
probe cannot gain by knowing which relations are easy.

The second chart needs no threshold and no groups. `transfer` asks the probe that was trained on untouched states; it
falls where the signal is lost and also where it is merely written differently. `refit` trains a new probe on the states
under the cut; what it still reads cannot come from the tokens that were cut. The random control shows what cutting
anything would do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import polars as pl

from anchorscope.report.charts.layer_chart import LayerChart
from anchorscope.report.findings import Findings
from anchorscope.report.looks import BASELINES, SURVIVING_LOOKS, WITHIN, Look, probe_looks
from anchorscope.report.palette import display_name
from anchorscope.report.result_rows import present
from anchorscope.stats.curves import FEWEST_GROUPS

SCORE_COLUMNS = ("dataset", "intervention", "kind", "site", "layer", "auc", "ci_low", "ci_high", "n", "line")
_NOTES = ("AUC = area under the ROC curve, out of fold; 0.5 is guessing. Bands: 95% intervals.",)


@dataclass(frozen=True)
class AucChart(LayerChart):
    """AUC over layers, a panel per dataset."""

    headline: str
    """The headline site."""

    value: ClassVar[str] = "auc"
    label: ClassVar[str] = "AUC"
    null: ClassVar[float] = 0.5
    inches: ClassVar[tuple[float, float]] = (4.35, 3.0)
    formats: ClassVar[tuple[str, ...]] = ("svg",)

    def panels(self) -> Mapping[str, str]:
        """One per dataset."""
        return {name: display_name(name) for name in self.datasets}

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """A panel per dataset."""
        return pl.col("dataset"), pl.col("line")

    def grid(self, panels: int) -> tuple[int, int]:
        """Three columns at most, so that a page can hold them."""
        columns = 2 if panels == 4 else min(3, panels)
        return math.ceil(panels / columns), columns


@final
@dataclass(frozen=True)
class ProbeAucChart(AucChart):
    """AUC per layer and site of the clean probes, with the baselines."""

    name: ClassVar[str] = "probe_auc"

    @classmethod
    def from_findings(cls, findings: Findings) -> "ProbeAucChart":
        """Choose the clean probes of all sites, the headline site's AUC within relations, and the baselines."""
        here = pl.col("position").is_null() | (pl.col("position") == findings.position)
        data = probe_scores(findings).filter(here).select(SCORE_COLUMNS)
        data = data.sort("dataset", "kind", "site", "layer", maintain_order=True)
        title = f"{findings.model}: telling true from false answers"
        return cls(data, _NOTES, title, findings.n_layers, findings.datasets, auc_span(findings), {}, {}, findings.site)

    def looks(self) -> Mapping[str, Look]:
        """Probes, then baselines."""
        return probe_looks(sorted(present(self.data.filter(pl.col("kind") == "transfer"), "site")), self.headline)


@final
@dataclass(frozen=True)
class SurvivingSignalChart(AucChart):
    """AUC per layer at the headline site: untouched, and under the cuts."""

    name: ClassVar[str] = "surviving_signal"

    @classmethod
    def from_findings(cls, findings: Findings) -> "SurvivingSignalChart":
        """Choose the four lines at the headline site and position."""
        here = (pl.col("site") == findings.site) & (pl.col("position") == findings.position)
        data = surviving_scores(findings).filter(here).select(SCORE_COLUMNS)
        data = data.sort("dataset", "intervention", "kind", "layer")
        title = f"{findings.model}: what survives the cut ({findings.site})"
        return cls(data, _NOTES, title, findings.n_layers, findings.datasets, auc_span(findings), {}, {}, findings.site)

    def looks(self) -> Mapping[str, Look]:
        """The untouched probe and three under cuts."""
        return SURVIVING_LOOKS


def probe_scores(findings: Findings) -> pl.DataFrame:
    """The clean probes, the headline site's within relations, and the baselines (no layer); `line` names the look."""
    clean, layered = pl.col("intervention") == "clean", pl.col("layer").is_not_null()
    within = (pl.col("kind") == WITHIN) & (pl.col("site").is_null() | (pl.col("site") == findings.site))
    levels = pl.col("kind").is_in(list(BASELINES)) & pl.col("layer").is_null()
    probes = (pl.col("kind") == "transfer") & layered
    line = pl.when(pl.col("kind") == "transfer").then(pl.col("site")).otherwise(pl.col("kind"))
    return _scores(findings).filter(levels | (clean & (probes | within))).with_columns(line=line)


def surviving_scores(findings: Findings) -> pl.DataFrame:
    """Untouched, and under the cuts; `line` names the look."""
    line = pl.concat_str("intervention", pl.lit("/"), "kind")
    found = _scores(findings).filter(pl.col("layer").is_not_null()).with_columns(line=line)
    return found.filter(pl.col("line").is_in(list(SURVIVING_LOOKS)))


def auc_span(findings: Findings) -> tuple[float, float]:
    """One y axis for both charts."""
    drawn = pl.concat([probe_scores(findings), surviving_scores(findings)])
    enough = drawn.filter(pl.col("n") >= FEWEST_GROUPS)  # lines of few items do not stretch it
    rows = enough if enough.height else drawn
    numbers = pl.concat([rows[name].cast(pl.Float64) for name in ("auc", "ci_low", "ci_high")]).drop_nulls().drop_nans()
    low, high = min([0.5, *numbers]), max([0.6, *numbers])
    return 0.05 * math.floor(low / 0.05 + 1e-9), min(1.0, 0.05 * math.ceil(high / 0.05 - 1e-9))


def _scores(findings: Findings) -> pl.DataFrame:
    return findings.probe_scores.filter(pl.col("dataset").is_in(findings.datasets) & pl.col("auc").is_finite())
