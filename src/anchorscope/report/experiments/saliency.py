"""How much flows from the question into the answer, item by item: the density over items, by truth and by pathway.

If there are two pathways, one expects two humps in the whole and the groups under different ones. A hump near nothing
can also come from confidence: the probe's loss has no slope where the probe is sure. So the same is drawn for the
probe's log-odds, whose slope has no such factor.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.display import Display
from anchorscope.report.charts.drawing import Legend, empty_panel
from anchorscope.report.experiments.canvas import Grid, canvas, rows_that_fit
from anchorscope.report.experiments.records import absent_notes, datasets_in, present, select
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, INK, Q_ANCHORED, display_name
from anchorscope.stats.density import density_grid, gaussian_density

QUANTITY = "question_to_answer"
FEW = 10
"""Items below which a density is not drawn: it would show the kernel and not the items."""
LOSSES = {"loss": "probe's loss", "log_odds": "probe's log-odds"}
SPLITS = {"truth": "by truth", "plain": "by pathway, plain", "corrected": "by pathway, corrected"}
_STYLES: dict[str, dict[str, Any]] = {
    "all": {"color": INK, "linewidth": 1.0, "linestyle": (0, (1.0, 1.4))},
    "true": {"color": "#0072b2", "linestyle": "-"},
    "false": {"color": "#d55e00", "linestyle": (0, (5.0, 1.6, 1.0, 1.6))},
    Q_ANCHORED: {"color": "#6a3d9a", "linestyle": "-"},
    A_ANCHORED: {"color": "#b5871d", "linestyle": (0, (4.0, 1.8))},
}
_NAMES = {"all": "all items", "true": "true answers", "false": "false answers"}
_DRAWN = {"dataset": pl.String, "variant": pl.String, "split": pl.String, "part": pl.String, "n": pl.Int64,
          "log10_saliency": pl.Float64, "density": pl.Float64}  # fmt: skip


@final
@dataclass(frozen=True)
class SaliencyChart(Display):
    """Density over items of the saliency from question to answer."""

    model: str
    """Title of the chart."""
    datasets: tuple[str, ...]
    """One row of panels per dataset and loss."""

    name: ClassVar[str] = "saliency"

    @classmethod
    def from_findings(cls, findings: Findings) -> "SaliencyChart":
        """Compute the curves; each part's area is its share of the items, so that parts add up to the whole."""
        items = _items(findings)
        positive = items.filter(pl.col("value") > 0).with_columns(log=pl.col("value").log10())
        curves = [
            _curves(rows, str(dataset), str(variant))
            for (dataset, variant), rows in positive.group_by("dataset", "variant", maintain_order=True)
        ]
        data = pl.concat(curves) if curves else pl.DataFrame(schema=_DRAWN)
        none = items.filter(pl.col("value") == 0).height
        notes = (
            "Saliency S = |A · ∂L/∂A|, summed over heads, layers up to l*, answer positions and key words. Densities "
            "over items (Gaussian kernel, Silverman's width); the area of a part is its share of the items in the "
            "panel. "
            f"Parts of fewer than {FEW} items are not drawn.",
            *([f"Not drawn: {none} values of exactly zero, which have no logarithm."] if none else []),
            *absent_notes(findings, data),
        )
        return cls(data, notes, findings.model, datasets_in(findings, data))

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether there is something to draw."""
        return bool(_items(findings).filter(pl.col("value") > 0).height)

    def draw(self) -> Figure:
        """A row per dataset and loss, a column per way to split."""
        lines = [(dataset, loss) for dataset in self.datasets
                 for loss in present(select(self.data, dataset=dataset), "variant", tuple(LOSSES))]  # fmt: skip
        there = set(self.data["part"])
        handles = [
            Line2D([], [], label=_NAMES.get(part, part), **style) for part, style in _STYLES.items() if part in there
        ]
        grid = Grid([2.9] * len(SPLITS), rows_that_fit(len(lines), 1.9, 0.78), gap_x=0.4)
        page = canvas(f"{self.model}: saliency from question to answer", grid, Legend(handles, 5, self.notes))
        for panels, (dataset, loss) in zip(page.axes, lines, strict=True):
            rows = select(self.data, dataset=dataset, variant=loss)
            for axes, (split, words) in zip(panels, SPLITS.items(), strict=True):
                self._draw_panel(axes, select(rows, split=split))
                axes.set_title(f"{display_name(dataset)}, {LOSSES.get(loss, loss)}: {words}", fontsize=8.0)
                axes.set_xlabel("log10 S")
            panels[0].set_ylabel("density")
        return page.figure

    @staticmethod
    def _draw_panel(axes: Axes, table: pl.DataFrame) -> None:
        for part, style in _STYLES.items():
            rows = select(table, part=part)
            if rows.height:
                x, y = rows["log10_saliency"].to_numpy(), rows["density"].to_numpy()
                axes.plot(x, y, **style)
                if part != "all":
                    axes.fill_between(x, 0, y, color=style["color"], alpha=0.12, linewidth=0)
        if table.height:
            axes.set_ylim(bottom=0)
        else:
            empty_panel(axes, "too few items")


def _items(findings: Findings) -> pl.DataFrame:
    """The saliency of every item, with its truth and its pathways."""
    wanted = (pl.col("experiment") == "saliency") & (pl.col("quantity") == QUANTITY) & pl.col("value").is_finite()
    known = pl.col("dataset").is_in(list(findings.datasets))
    about = findings.items.select(
        "dataset", "item_id", truth=pl.when("truthful").then(pl.lit("true")).otherwise(pl.lit("false")),
        plain=pl.col("pathway"), corrected=pl.col("pathway_corrected"),
    )  # fmt: skip
    return findings.experiment_items.filter(wanted & known).join(about, on=["dataset", "item_id"], how="left")


def _curves(items: pl.DataFrame, dataset: str, variant: str) -> pl.DataFrame:
    """The density of all items and of the parts of every split, on one grid."""
    frames = [pl.DataFrame(schema=_DRAWN)]
    for split in SPLITS:
        inside = items.filter(pl.col(split).is_in(list(_STYLES)))
        if inside.height < FEW:
            continue
        grid = density_grid(inside["log"].to_numpy())
        for part in ("all", *present(inside, split)):
            values = inside["log"] if part == "all" else select(inside, **{split: part})["log"]
            heights = gaussian_density(values.to_numpy(), grid) * len(values) / inside.height
            if len(values) >= FEW and np.isfinite(heights).all():
                about = {"dataset": dataset, "variant": variant, "split": split, "part": part, "n": len(values)}
                frame = pl.DataFrame({"log10_saliency": grid, "density": heights})
                frame = frame.with_columns(pl.lit(value).alias(name) for name, value in about.items())
                frames.append(frame.select(pl.col(name).cast(kind) for name, kind in _DRAWN.items()))
    return pl.concat(frames)
