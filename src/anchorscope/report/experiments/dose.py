"""Dose: ΔP at l* as more of the key words are cut, beside as many random tokens."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.layout import Grid, Legend, canvas, rows_that_fit, zero_line
from anchorscope.report.experiments.experiment_rows import datasets_in, estimate_of, find, select, statistics
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, dataset_styles, display_name
from anchorscope.report.wording import NOTHING, Table, count, estimate, p_value_cell, percent, points, shown

DOSES = ("1 token", "25 %", "50 %", "75 %", "100 %")
"""In the order of the axis."""
KINDS = {"exact": "key words", "random": "as many random tokens"}
_COLUMNS = ("dataset", "kind", "dose", "value", "ci_low", "ci_high", "n", "p_value", "q_value")


@final
@dataclass(frozen=True)
class DoseChart(ExperimentChart):
    """ΔP at l* per dose: key words, and random tokens in grey."""

    name: ClassVar[str] = "dose"
    alt: ClassVar[str] = "ΔP at l* by the share of the key words that is cut, and of as many random tokens"
    caption: ClassVar[str] = "Doses are nested: each cuts what the smaller ones cut, and more."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """ΔP at l* of every dose, all answers together."""
        data = _with_doses(select(statistics(findings, "dose", "delta_p_reference"), truth="all"))
        return data.select(_COLUMNS)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What is measured."""
        return (
            "Mean ΔP at the reference layer over all items, in percentage points; bars: 95 % intervals. Random tokens: "
            "items with as many other tokens as the dose cuts.",
        )

    def draw(self) -> Figure:
        """A panel per dataset."""
        colours = {name: style.q_colour for name, style in dataset_styles(self.datasets).items()}
        first = next(iter(colours.values()), CONTROL_GREY) if len(colours) == 1 else CONTROL_GREY
        handles = [
            Line2D([], [], label=label, **_style(kind, first if kind == "exact" else CONTROL_GREY))
            for kind, label in KINDS.items()
        ]
        columns = min(3, len(self.datasets))
        grid = Grid([3.4] * columns, rows_that_fit(-(-len(self.datasets) // columns), 2.4, 0.78), gap_x=0.6)
        page = canvas(f"{self.model}: dose", grid, Legend(handles, 2, self.notes))
        for axes, dataset in zip(page.panels, self.datasets, strict=False):
            self._draw_panel(axes, select(self.data, dataset=dataset), colours[dataset])
            axes.set_title(display_name(dataset))
        for axes in page.panels[len(self.datasets) :]:
            axes.set_axis_off()
        page.panels[0].set_ylabel("ΔP at l*")
        return page.figure

    @staticmethod
    def _draw_panel(axes: Axes, table: pl.DataFrame, colour: str) -> None:
        zero_line(axes)
        for offset, kind in ((-0.06, "exact"), (0.06, "random")):
            mine = {row["dose"]: estimate_of(row | {"method": ""}) for row in select(table, kind=kind).to_dicts()}
            places = [(DOSES.index(dose) + offset, mine[dose]) for dose in DOSES if dose in mine]
            shade = colour if kind == "exact" else CONTROL_GREY
            for x, found in places:
                axes.plot([x, x], [found.ci_low, found.ci_high], color=shade, linewidth=1.3, zorder=2.5)
            axes.plot([x for x, _ in places], [found.value for _, found in places], zorder=3, **_style(kind, shade))
        axes.set_xticks(range(len(DOSES)), DOSES)
        axes.set_xlabel("Key words cut")


def _style(kind: str, colour: str) -> dict[str, Any]:
    exact = kind == "exact"
    return {"color": colour, "marker": "o" if exact else "s", "markersize": 4.4, "linewidth": 1.5,
            "linestyle": "-" if exact else (0, (1.0, 1.5)),
            "markerfacecolor": colour if exact else "white"}  # fmt: skip


def _with_doses(table: pl.DataFrame) -> pl.DataFrame:
    """The rows about doses, with what is cut and how much in columns of their own."""
    parts = pl.col("variant").str.splitn(" ", 2).struct
    found = table.with_columns(kind=parts.field("field_0"), dose=parts.field("field_1"))
    return found.filter(pl.col("kind").is_in(list(KINDS)) & pl.col("dose").is_in(DOSES))


def _dose_rows(findings: Findings) -> pl.DataFrame:
    return _with_doses(statistics(findings, "dose"))


def _clean_line(findings: Findings, table: pl.DataFrame) -> tuple[str, ...]:
    """What the clean probe reaches, and the floor of Λ, in a line per dataset."""
    lines = []
    for dataset in findings.datasets:
        here = select(table, dataset=dataset, variant="nothing cut")
        area, floor = (find(here, quantity=quantity) for quantity in ("auc_reference", "question_share"))
        if area is not None:
            told = f"; Λ, its floor, is {estimate(floor)}" if floor is not None else ""
            lines.append(f"{display_name(dataset)}, nothing cut: AUC {estimate(area)}{told}.")
    return tuple(lines)


def _doses_table(findings: Findings, table: pl.DataFrame) -> Table:
    rows = []
    for dataset in datasets_in(findings, table):
        for dose in DOSES:
            exact, random = (select(table, dataset=dataset, kind=kind, dose=dose, truth="all") for kind in KINDS)
            gap = select(exact, quantity="delta_p_reference_difference")
            p = p_value_cell(gap["p_value"][0]) if gap.height else NOTHING
            mean = find(exact, quantity="delta_p_reference")
            rows.append((
                display_name(dataset), dose, shown(find(exact, quantity="tokens_cut"), lambda one: estimate(one, 1)),
                shown(mean, points), count(mean.n) if mean else NOTHING,
                shown(find(exact, quantity="share_of_full"), percent),
                shown(find(random, quantity="delta_p_reference"), points), shown(find(gap), points), p,
                shown(find(exact, quantity="auc_reference"), estimate),
                shown(find(random, quantity="auc_reference"), estimate),
                shown(find(exact, quantity="question_share"), estimate),
                shown(find(random, quantity="question_share"), estimate),
            ))  # fmt: skip
    head = ("dataset", "dose", "tokens", "ΔP", "items", "share of the full dose", "random tokens", "difference", "p",
            "AUC after", "AUC after random", "Λ", "Λ, random")  # fmt: skip
    return Table(head, tuple(rows), 2)


SECTION = SectionSpec(
    slug="dose",
    title="Dose: how many of the key words",
    rows=_dose_rows,
    text=lambda findings, _: (
        "Does one token carry what the probe needs, or do all of them? The key words' tokens are cut in a random "
        "order, from a single one to all, each dose on top of the smaller ones; as many random tokens beside them.",
        "A line that falls at the first token and stays there says that any of the tokens is enough to break what is "
        "read; a steady fall says that every token carries its part. Means are over all items, whatever their pathway. "
        "AUC is that of the clean probe after the cut: unlike ΔP it does not move where all items move alike. Λ is the "
        "share of the evidence that needs the tokens that were cut (question share), in one layer.",
        *_clean_line(findings, statistics(findings, "dose")),
    ),
    charts=(DoseChart,),
    tables=(("ΔP at l* by dose, all answers", _doses_table),),
)
