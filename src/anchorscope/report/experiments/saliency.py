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

from anchorscope.report.assignment_rules import rule_name
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, rows_that_fit
from anchorscope.report.experiments.experiment_rows import (
    TRUTHS,
    datasets_in,
    estimate_of,
    present,
    rules_in,
    select,
    statistics,
)
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import A_ANCHORED, GROUPS, INK, Q_ANCHORED, display_name
from anchorscope.report.wording import (
    GROUP_HEAD,
    NOTHING,
    Show,
    Table,
    count,
    estimate,
    group_cells,
    p_value_cell,
    percent,
)
from anchorscope.stats.modes import density_grid, gaussian_density

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
class SaliencyChart(ExperimentChart):
    """Density over items of the saliency from question to answer."""

    name: ClassVar[str] = "saliency"

    alt: ClassVar[str] = "Density over items of the saliency from question to answer, by truth and by pathway"
    caption: ClassVar[str] = "Dotted: all items of the panel."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """The curves; each part's area is its share of the items, so that parts add up to the whole."""
        positive = _items(findings).filter(pl.col("value") > 0).with_columns(log=pl.col("value").log10())
        curves = [
            _curves(rows, str(dataset), str(variant))
            for (dataset, variant), rows in positive.group_by("dataset", "variant", maintain_order=True)
        ]
        return pl.concat(curves) if curves else pl.DataFrame(schema=_DRAWN)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What is summed, how it is smoothed, and what has no logarithm."""
        none = _items(findings).filter(pl.col("value") == 0).height
        return (
            "Saliency S = |A · ∂L/∂A|, summed over heads, layers up to l*, answer positions and key words. Densities "
            "over items (Gaussian kernel, Silverman's width); the area of a part is its share of the items in the "
            "panel. "
            f"Parts of fewer than {FEW} items are not drawn.",
            *([f"Not drawn: {none} values of exactly zero, which have no logarithm."] if none else []),
        )

    @classmethod
    def was_made(cls, findings: Findings) -> bool:
        """Whether an item has a saliency that can be drawn; the densities themselves cost more to ask."""
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


_AREAS = {"auc": "saliency", "auc_share": "share"}
_SHAPES = ("dip", "dip_within_folds", "bimodality_coefficient", "bimodality_coefficient_within_folds")


def _groups_table(findings: Findings, table: pl.DataFrame) -> Table:
    rows = []
    grouped = table.filter(pl.col("group").is_in(list(GROUPS)) & ~pl.col("quantity").is_in(list(_SHAPES)))
    for dataset in datasets_in(findings, grouped):
        here = select(table, dataset=dataset)
        for quantity in present(select(grouped, dataset=dataset), "quantity"):
            for variant in present(select(grouped, dataset=dataset, quantity=quantity), "variant", tuple(LOSSES)):
                for rule in rules_in(grouped):
                    for truth, words in TRUTHS.items():
                        mine = select(here, variant=variant, assignment=rule, truth=truth)
                        if select(mine, quantity=quantity).height:
                            about = (display_name(dataset), _words(quantity), _loss(variant), rule_name(rule), words)
                            rows.append((*about, *group_cells(mine, quantity, estimate)))
    return Table(("dataset", "quantity", "of", "rule", "answers", *GROUP_HEAD), tuple(rows), 5)


def _areas_table(findings: Findings, table: pl.DataFrame) -> Table:
    rows = []
    for dataset in datasets_in(findings, table):
        for quantity, words in _AREAS.items():
            areas = select(table, dataset=dataset, quantity=quantity)
            for variant in present(areas, "variant", tuple(LOSSES)):
                for rule in rules_in(areas):
                    mine = select(table, dataset=dataset, variant=variant, assignment=rule)
                    value, p, items = _tested(select(mine, quantity=quantity, truth="all"))
                    within = _tested(select(mine, quantity=f"{quantity}_within_truth"))[:2]
                    split = [_tested(select(mine, quantity=quantity, truth=truth))[0] for truth in ("true", "false")]
                    about = (display_name(dataset), words, _loss(variant), rule_name(rule))
                    rows.append((*about, value, p, items, *within, *split))
    head = ("dataset", "score", "of", "rule", "all answers", "p", "items", "within truth", "p")
    return Table((*head, "true answers", "false answers"), tuple(rows), 4)


def _shapes_table(findings: Findings, table: pl.DataFrame) -> Table:
    """Dip and coefficient of every part of the items, as they are and with each fold's median taken off."""
    shapes, rows = table.filter(pl.col("quantity").is_in(list(_SHAPES))), []
    keys = ("variant", "assignment", "group", "truth")
    for dataset in datasets_in(findings, shapes):
        here = select(shapes, dataset=dataset)
        for part in here.select(keys).unique(maintain_order=True).iter_rows():
            mine = here.filter(*(pl.col(name).eq_missing(value) for name, value in zip(keys, part, strict=True)))
            variant, rule, group, truth = part
            who = [f"{group}, {rule_name(rule)}" if group else "", TRUTHS.get(truth or "all", "")]
            cells: list[str] = []
            for quantity in _SHAPES:
                value, p, _ = _tested(select(mine, quantity=quantity))
                cells += [value, p] if quantity.startswith("dip") else [value]
            about = (display_name(dataset), _loss(variant), ", ".join(filter(None, who)))
            rows.append((*about, *cells, count(int(mine["n"][0]))))
    head = ("dataset", "of", "items of", "dip", "p", "dip within folds", "p", "coefficient", "coefficient within folds")
    return Table((*head, "items"), tuple(rows), 3)


def _confidence_table(findings: Findings, table: pl.DataFrame) -> Table:
    table, rows = select(table, quantity="confidence_variance_share"), []
    for dataset in datasets_in(findings, table):
        value, _, items = _tested(select(table, dataset=dataset), percent)
        rows.append((display_name(dataset), value, items))
    return Table(("dataset", "share of the variance", "items"), tuple(rows))


def _tested(rows: pl.DataFrame, show: Show = lambda found: estimate(found, 3)) -> tuple[str, str, str]:
    """A number, its p-value and its items."""
    if not rows.height:
        return (NOTHING, NOTHING, NOTHING)
    row = rows.row(0, named=True)
    return (show(estimate_of(row)), p_value_cell(row["p_value"], row["q_value"]), count(row["n"]))


def _words(quantity: str) -> str:
    return quantity.replace("log10_", "log10 ").replace("_", " ")


def _loss(variant: str | None) -> str:
    return LOSSES.get(variant, variant) if variant else NOTHING


SECTION = SectionSpec(
    slug="saliency",
    title="Saliency",
    rows=lambda findings: statistics(findings, "saliency"),
    text=(
        "How much does the probe's verdict lean on attention from the answer to the key words? Saliency multiplies "
        "each attention weight with the slope of the verdict by it, and is summed per item; nothing is cut. The "
        "share is what part of all that flows into the answer comes from the key words.",
        "The slope of the probe's loss vanishes where the probe is sure, whatever the pathway, so a hump near "
        "nothing may be mere confidence; the log-odds have no such factor. Two humps would speak for two kinds of "
        "items: the dip test asks whether one hump would do (a small p speaks against it), and a bimodality "
        "coefficient above 0.556 points to two, but also to a skew. Folds have probes of their own, which can make "
        "humps: hence the numbers within folds.",
        "A slope is what an infinitely small change would do. A cut is not small, so the two may disagree.",
    ),
    charts=(SaliencyChart,),
    tables=(
        ("The groups", _groups_table),
        ("How well it finds the Q-Anchored items (AUC, 0.5 is guessing)", _areas_table),
        ("One hump or two (of log10 S)", _shapes_table),
        ("How much of the spread of the loss's saliency is the probe's confidence", _confidence_table),
    ),
)
