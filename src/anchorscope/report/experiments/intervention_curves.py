"""Interventions of one kind as curves over the layers: patching, answer only, direct edges, zeroing.

The lines of a panel compare the same groups of items; the knockout's curve, in black, is there to be compared with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from anchorscope.catalogue import CONTROLS, intervention_label
from anchorscope.report.assignment_rules import EXPERIMENT_TITLES, PANEL_TITLES
from anchorscope.report.charts.layout import Legend
from anchorscope.report.charts.line_chart import (
    CURVE_COLUMNS,
    POINTS_NOTE,
    Line,
    Panel,
    delta_p_axes,
    drawable,
    line_chart,
)
from anchorscope.report.experiments.experiment_rows import present
from anchorscope.report.experiments.interventions import effects_table
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, GROUPS, INK, LINE_STYLES, display_name

_PANEL_INCHES = {2: (4.35, 2.9), 3: (3.6, 2.7)}
_BLUE, _ORANGE, _GREEN = "#0072b2", "#d55e00", "#009e73"


@dataclass(frozen=True)
class InterventionCurves(ExperimentChart):
    """ΔP per layer of both groups under some interventions, a panel per rule."""

    title: ClassVar[str]
    lines: ClassVar[Mapping[str, tuple[str, str]]]
    """Intervention → colour and marker."""
    caption: ClassVar[str] = "Solid: Q-Anchored. Dashed: A-Anchored. Black: the knockout, for comparison."

    @classmethod
    def own(cls) -> tuple[str, ...]:
        """The interventions that the figure is about; the knockout is there to be compared with."""
        return tuple(name for name in cls.lines if name != "knockout")

    @property
    def panels(self) -> dict[str, str]:
        """Titles of the panels by rule; a run without probes on cut states has no retained one."""
        there = set(self.data["assignment"])
        return {rule: title for rule, title in EXPERIMENT_TITLES.items() if rule in PANEL_TITLES or rule in there}

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """The clean probe's curves, all answers together, of datasets that have the experiment."""
        wanted = (
            pl.col("assignment").is_in(list(EXPERIMENT_TITLES))
            & pl.col("variant").ne_missing("refit")  # only two interventions have it: nothing to compare them with
            & (pl.col("truth") == "all")
            & pl.col("intervention").is_in(list(cls.lines))
            & pl.col("group").is_in(list(GROUPS))
            & pl.col("dataset").is_in(list(findings.datasets))
        )
        data = drawable(findings.curves, findings.site, findings.position).filter(wanted).select(CURVE_COLUMNS)
        made = data.filter(pl.col("intervention").is_in(list(cls.own())))
        data = data.filter(pl.col("dataset").is_in(made["dataset"].unique().to_list()))
        return data.sort("dataset", "assignment", "intervention", "group", "layer")

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What ΔP is, and which lines have no band."""
        return (f"{POINTS_NOTE} Controls are drawn without.",)

    def draw(self) -> Figure:
        """A row per dataset, a column per rule."""
        names = present(self.data, "intervention", tuple(self.lines))
        handles = [Line2D([], [], label=intervention_label(name), **self._style(name, GROUPS[0])) for name in names]
        handles += [Line2D([], [], color=INK, linestyle=LINE_STYLES[group], label=group) for group in GROUPS]
        panels = [
            self._panel(dataset, rule, title, names) for dataset in self.datasets for rule, title in self.panels.items()
        ]
        return line_chart(
            f"{self.model}: {self.title}", panels, (max(1, len(self.datasets)), len(self.panels)),
            _PANEL_INCHES[len(self.panels)], delta_p_axes(self.n_layers), Legend(handles, 3, self.notes),
        )  # fmt: skip

    def _panel(self, dataset: str, rule: str, title: str, names: list[str]) -> Panel:
        table = self.data.filter((pl.col("dataset") == dataset) & (pl.col("assignment") == rule))
        lines = []
        for place, name in enumerate(names):
            for group in GROUPS:
                rows = table.filter((pl.col("intervention") == name) & (pl.col("group") == group))
                every = (place % 4, 4) if self.n_layers > 4 else 1
                style = {"markevery": every} | self._style(name, group)
                if rows.height and name not in CONTROLS:
                    lines.append(Line(rows, style | {"zorder": 3}))
                elif rows.height:  # bands around zero would hide each other
                    lines.append(Line(rows, style, band=False))
        return Panel(f"{display_name(dataset)}, {title}", lines, "" if table.height else "too few items to draw")

    def _style(self, name: str, group: str) -> dict[str, Any]:
        colour, marker = self.lines[name]
        style: dict[str, Any] = {"color": colour, "linestyle": LINE_STYLES[group], "linewidth": 1.6}
        return style | ({"marker": marker, "markersize": 4.0, "markeredgewidth": 0.0} if marker else {})


@final
@dataclass(frozen=True)
class PatchingChart(InterventionCurves):
    """Key words replaced by those of other items."""

    name: ClassVar[str] = "patching"
    title: ClassVar[str] = "key words of another item"
    alt: ClassVar[str] = f"ΔP per layer of both groups: {title}, a panel per rule"
    lines: ClassVar[Mapping[str, tuple[str, str]]] = {
        "knockout": (INK, ""), "patch-same": (_BLUE, "o"), "patch-random": (_ORANGE, "s"),
        "patch-control": (_GREEN, "^"), "patch-self": (CONTROL_GREY, "D"),
    }  # fmt: skip


@final
@dataclass(frozen=True)
class AnswerOnlyChart(InterventionCurves):
    """The question dropped altogether."""

    name: ClassVar[str] = "answer_only"
    title: ClassVar[str] = "the answer without its question"
    alt: ClassVar[str] = f"ΔP per layer of both groups: {title}, a panel per rule"
    lines: ClassVar[Mapping[str, tuple[str, str]]] = {
        "knockout": (INK, ""), "answer-template": (_BLUE, "o"), "answer-bare": (_ORANGE, "s"),
    }  # fmt: skip


@final
@dataclass(frozen=True)
class DirectEdgesChart(InterventionCurves):
    """Only the answer's own tokens lose the key words."""

    name: ClassVar[str] = "direct_edges"
    title: ClassVar[str] = "direct edges and all later positions"
    alt: ClassVar[str] = f"ΔP per layer of both groups: {title}, a panel per rule"
    lines: ClassVar[Mapping[str, tuple[str, str]]] = {"knockout": (INK, ""), "direct": (_BLUE, "o")}


@final
@dataclass(frozen=True)
class ZeroingChart(InterventionCurves):
    """Weights set to zero after the softmax, beside masking before it."""

    name: ClassVar[str] = "zeroing"
    title: ClassVar[str] = "zeroing after the softmax"
    alt: ClassVar[str] = f"ΔP per layer of both groups: {title}, a panel per rule"
    lines: ClassVar[Mapping[str, tuple[str, str]]] = {"knockout": (INK, ""), "zeroing": (_ORANGE, "s")}


def _section(chart: type[InterventionCurves], slug: str, title: str, text: tuple[str, ...]) -> SectionSpec:
    """A section with one table: what the interventions of the figure do at the reference layer."""
    own = chart.own()
    return SectionSpec(
        slug=slug,
        title=title,
        rows=lambda findings: findings.summary.filter(pl.col("intervention").is_in(list(own))),
        text=text,
        charts=(chart,),
        tables=(("", lambda findings, _: effects_table(findings, ("knockout", *own), own)),),
    )


PATCHING = _section(
    PatchingChart,
    "patching",
    "Patching: the key words of another item",
    (
        "Is it this question that the verdict needs, or just some question? The key words are replaced by those of "
        "another item, the answer stays, and the model reads the whole text afresh. Donors come from the same relation "
        "(another subject) or from any item.",
        "A verdict that hangs on the question should fall as under the knockout; here nothing is masked, so an "
        "artefact of masking cannot explain it. Own key words put in again must change nothing, and other words put "
        "in should change little. Donors whose question the kept answer does not fit are preferred, so a false answer "
        "stays false whatever is put in, and has nowhere to flip to: read the true ones. Only an answer that fits all "
        "donors looked at is run with those.",
    ),
)


ANSWER_ONLY = _section(
    AnswerOnlyChart,
    "answer-only",
    "Answer only",
    (
        "What does the answer say on its own? The question is dropped, once with the template around it kept and once "
        "with nothing but the answer, and the model reads what is left.",
        "A-Anchored verdicts should stay, Q-Anchored ones fall. But a text without its question is unlike anything "
        "that the probe was trained on, so all verdicts may move together: read the corrected rule first, and the "
        "difference between the groups before either of them.",
    ),
)


ZEROING = _section(
    ZeroingChart,
    "zeroing",
    "Zeroing instead of masking",
    (
        "Does the result hang on how an edge is cut? Masking before the softmax hands the lost attention to the other "
        "tokens; zeroing after it takes the weight away and leaves the sum below one.",
        "If both curves agree, the redistribution of attention is not what moves the probe. If only one of them falls, "
        "the effect belongs to the way of cutting as much as to the question.",
    ),
)
