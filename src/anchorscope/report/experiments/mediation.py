"""Mediation: which share of a pair's difference follows the key words' states, layer by layer, both ways."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.report.charts.layout import (
    Grid,
    Legend,
    canvas,
    empty_panel,
    layer_axis,
    rows_that_fit,
    zero_line,
)
from anchorscope.report.experiments.experiment_rows import datasets_in, estimate_of, find, select, statistics
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, dataset_styles, display_name
from anchorscope.report.verdicts import DISCOVERY_RATE
from anchorscope.report.wording import NOTHING, Table, count, estimate, shown

DIRECTIONS = {"necessity": "true answers get false ones' states: lost", "sufficiency": "the other way round: gained"}
KINDS = {"opposite truth": "partner of opposite truth", "same truth": "donor of the same truth",
         "other tokens": "the partner's other tokens"}  # fmt: skip
_COLUMNS = ("dataset", "quantity", "variant", "layer", "value", "ci_low", "ci_high", "n", "p_value", "q_value")


@final
@dataclass(frozen=True)
class MediationChart(ExperimentChart):
    """Necessity and sufficiency per layer, with both controls."""

    name: ClassVar[str] = "mediation"
    alt: ClassVar[str] = "Share of the pairs' difference that follows the key words' states, per layer, both ways"
    caption: ClassVar[str] = "States are replaced at the entry of one layer; the probe reads at l*."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """The shares of all kinds of donors."""
        data = statistics(findings, "mediation", *DIRECTIONS)
        return data.filter(pl.col("variant").is_in(list(KINDS)) & pl.col("layer").is_not_null()).select(_COLUMNS)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What is measured."""
        return (
            "Share of the difference in log-odds at l* between the members of a pair; bands: 95 % intervals. Grey: "
            "controls. A layer counts the pairs whose l* is not below it.",
        )

    def draw(self) -> Figure:
        """A row per dataset, a column per direction."""
        colours = {name: style.q_colour for name, style in dataset_styles(self.datasets).items()}
        shown_as = next(iter(colours.values())) if len(colours) == 1 else CONTROL_GREY
        handles = [Line2D([], [], label=label, **_style(kind, shown_as)) for kind, label in KINDS.items()]
        grid = Grid([4.3] * len(DIRECTIONS), rows_that_fit(len(self.datasets), 2.3, 0.78), gap_x=0.6)
        page = canvas(f"{self.model}: mediation", grid, Legend(handles, 3, self.notes))
        for panels, dataset in zip(page.axes, self.datasets, strict=True):
            for axes, (quantity, words) in zip(panels, DIRECTIONS.items(), strict=True):
                self._draw_panel(axes, select(self.data, dataset=dataset, quantity=quantity), colours[dataset])
                axes.set_title(f"{display_name(dataset)}: {words}")
            panels[0].set_ylabel("share of the difference")
        return page.figure

    def _draw_panel(self, axes: Axes, table: pl.DataFrame, colour: str) -> None:
        zero_line(axes)
        if not table.height:
            empty_panel(axes, "too few pairs")
        for kind in KINDS:
            mine = select(table, variant=kind).sort("layer")
            if mine.height:
                style = _style(kind, colour)
                axes.fill_between(mine["layer"], mine["ci_low"], mine["ci_high"], color=style["color"], alpha=0.15,
                                  linewidth=0)  # fmt: skip
                axes.plot(mine["layer"], mine["value"], zorder=3, **style)
        layer_axis(axes, self.n_layers)


def _style(kind: str, colour: str) -> dict[str, Any]:
    lines: dict[str, Any] = {"opposite truth": "-", "same truth": (0, (4.0, 1.8)), "other tokens": (0, (1.0, 1.5))}
    return {"color": colour if kind == "opposite truth" else CONTROL_GREY, "linestyle": lines[kind], "linewidth": 1.6}


def _largest_table(findings: Findings, table: pl.DataFrame) -> Table:
    """Of each direction the layer at which most follows the states, and the controls there."""
    rows = []
    for dataset in datasets_in(findings, table):
        for quantity in DIRECTIONS:
            mine = select(table, dataset=dataset, quantity=quantity, variant="opposite truth").sort("value")
            if not mine.height:
                continue
            best = mine.row(-1, named=True)
            layer, here = int(best["layer"]), select(table, dataset=dataset, layer=int(best["layer"]))
            controls = [shown(find(here, quantity=quantity, variant=kind), estimate) for kind in list(KINDS)[1:]]
            gaps = [
                shown(find(here, quantity=f"{quantity}_difference", against=kind), estimate) for kind in list(KINDS)[1:]
            ]
            beyond = select(table, dataset=dataset, quantity=f"{quantity}_difference", against="same truth")
            last = beyond.filter((pl.col("q_value") < DISCOVERY_RATE) & (pl.col("ci_low") > 0))["layer"].max()
            rows.append((
                display_name(dataset), quantity, str(layer), estimate(estimate_of(best)), count(best["n"]), *controls,
                *gaps, NOTHING if last is None else str(last),
            ))  # fmt: skip
    head = ("dataset", "", "layer", "share", "pairs", "same truth", "other tokens", "minus same truth",
            "minus other tokens", "last layer above same truth")  # fmt: skip
    return Table(head, tuple(rows), 2)


SECTION = SectionSpec(
    slug="mediation",
    title="Mediation: the key words' states exchanged",
    rows=lambda findings: statistics(findings, "mediation"),
    text=(
        "Until which layer do the states of the key words carry what the probe reads? At the entry of one layer they "
        "are replaced by those of a partner: an item of the same relation with as many key tokens and an answer of the "
        "opposite truth. Text, answer and everything below that layer stay. (Patching, above, writes other words into "
        "the text instead.)",
        "Necessity: the share of the pair's difference in log-odds that the true member loses with the false one's "
        "states. Sufficiency: the share that the false member gains with the true one's. Compare with a donor of the "
        "same truth: putting in anybody's states disturbs a run, and lowers what was high. What exceeds it follows "
        "truth.",
    ),
    charts=(MediationChart,),
    tables=(
        ("The layer at which most follows the states, and the controls there (chosen among all layers: read it with "
         "the figure)", _largest_table),
    ),
)  # fmt: skip
