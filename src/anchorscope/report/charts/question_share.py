"""The lead figure: the question share Λ per layer, with its controls, and of the items' held-out thirds.

The share is the part of the probe's evidence that needs the question's key words. Left, the share of all items beside
what random words, cutting nothing and permuted labels give: without these a high line says nothing. Right, the thirds
of the items, sorted by the share that their cut state predicts and measured on items that had no say in the sorting:
two lines that lie on each other mean that the items do not differ, which no ΔP chart can show.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import polars as pl

from anchorscope.report.charts.layer_chart import LayerChart
from anchorscope.report.findings import Findings
from anchorscope.report.looks import Look, share_line, share_looks
from anchorscope.report.shares import CONTROLS, LOWER, UPPER, share_layer, share_rows

COLUMNS = ("dataset", "intervention", "group", "layer", "share", "ci_low", "ci_high", "n", "n_groups")
LOWEST, HIGHEST = -0.2, 1.1
"""What the axis shows: in the first layers there is hardly any evidence to divide by, and a share can be anything."""
_NOTE = (
    "Λ: the share of the probe's evidence that needs the question's key words; 0 none, 1 all of it. Bands: 95 % "
    "intervals over groups of items. Thirds: items sorted by the share that the cut state predicts, out of fold. "
    "Where a line has a gap or leaves the axis (arrows) there is too little evidence to divide by."
)


@final
@dataclass(frozen=True)
class QuestionShareChart(LayerChart):
    """Λ per layer with its controls, and of the lower and upper third."""

    name: ClassVar[str] = "question_share"
    value: ClassVar[str] = "share"
    label: ClassVar[str] = "Question share Λ"
    ticks: ClassVar[str] = "layer that is tested"

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether the run measured the question share."""
        return bool(share_rows(findings, intervention="knockout", group="all", truth="all").height)

    @classmethod
    def from_findings(cls, findings: Findings) -> "QuestionShareChart":
        """Choose the rows to draw: all items under every intervention, and two of the knockout's thirds."""
        rows = share_rows(findings, truth="all")
        thirds = (pl.col("intervention") == "knockout") & pl.col("group").is_in([LOWER, UPPER])
        whole = (pl.col("group") == "all") & pl.col("intervention").is_in(["knockout", *CONTROLS])
        data = rows.filter(thirds | whole).select(COLUMNS).sort("dataset", "intervention", "group", "layer")
        tested = {name: share_layer(findings, name) for name in findings.datasets}
        layers = {name: layer for name, layer in tested.items() if layer is not None}
        title = f"{findings.model}: how much of the evidence needs the question's key words"
        return cls(
            data,
            (_NOTE,),
            title,
            findings.n_layers,
            findings.datasets,
            (LOWEST, HIGHEST),
            {name: (layer,) for name, layer in layers.items()},
            layers,
        )

    def looks(self) -> Mapping[str, Look]:
        """The knockout of every dataset, two thirds, and the controls."""
        return share_looks(self.datasets)

    def panels(self) -> Mapping[str, str]:
        """All items, and the thirds where there are some."""
        thirds = {"thirds": "thirds of the items, held out"} if (self.data["group"] != "all").any() else {}
        return {"all": "all items, with controls"} | thirds

    def keys(self) -> tuple[pl.Expr, pl.Expr]:
        """All items left, thirds right."""
        panel = pl.when(pl.col("group") == "all").then(pl.lit("all")).otherwise(pl.lit("thirds"))
        return panel, share_line(self.datasets)
