"""How far the groups hang on choices: the layer that sorts, the rule that counts as a flip, the words cut, the seed."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from anchorscope.report.assignment_rules import rule_name
from anchorscope.report.charts.forest import Mark, draw_forest
from anchorscope.report.charts.layout import Grid, Legend, canvas, empty_panel, rows_that_fit, zero_line
from anchorscope.report.charts.line_chart import line_with_band
from anchorscope.report.experiments.experiment_rows import (
    datasets_in,
    estimate_of,
    find,
    present,
    rules_in,
    select,
    statistics,
)
from anchorscope.report.experiments.section import ExperimentChart, SectionSpec
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, INK, display_name
from anchorscope.report.wording import NOTHING, Table, count, estimate, p_value_cell, percent, points, shown

QUANTITIES: dict[str, tuple[str, dict[str, Any]]] = {
    "q_share": ("share of Q-Anchored", {"color": "#0072b2", "marker": "o", "markersize": 4.2, "markeredgewidth": 0.0}),
    "kappa": ("kappa with the run's own groups", {"color": "#d55e00", "marker": "s", "markersize": 4.0,
                                                   "markeredgewidth": 0.0}),
    "label_bias": ("Q share, true − false answers", {"color": "#009e73", "marker": "^", "markersize": 4.4,
                                                      "markeredgewidth": 0.0}),
}  # fmt: skip
"""What is drawn of every choice."""
_COLUMNS = ("dataset", "variant", "against", "assignment", "quantity", "value", "ci_low", "ci_high", "n", "method")
_DASHES = {"plain": "-", "retained": (0, (1.2, 1.4))}
_OTHER_DASHES = (0, (4.0, 1.8))
_FACES = {"corrected": "white", "retained": "#9a9a9a"}
_RULE = "rule: "


def moved_by(variant: str | None) -> int | None:
    """How far l* was moved, from "l* − 3"; None for other choices."""
    found = re.fullmatch(r"l\*(?: ([−+-]) (\d+))?", variant or "")
    if not found:
        return None
    return 0 if found[2] is None else int(found[2]) * (1 if found[1] == "+" else -1)


def seeds_in(table: pl.DataFrame) -> list[str]:
    """The variants that are seeds: one each, then all of them."""
    return [name for name in present(table, "variant") if re.fullmatch(r"seed \d+|seeds", name)]


def rules_tried(table: pl.DataFrame) -> list[str]:
    """The variants that are other rules, or the plain one after another cut."""
    return [name for name in present(table, "variant") if moved_by(name) is None and name not in seeds_in(table)]


def rule_words(variant: str) -> str:
    """A rule's name, as a label."""
    return variant.removeprefix(_RULE)


@final
@dataclass(frozen=True)
class SensitivityChart(ExperimentChart):
    """Shares and agreement for every choice that could have been made otherwise."""

    name: ClassVar[str] = "sensitivity"

    alt: ClassVar[str] = "Share of Q-Anchored items and agreement for other layers, rules and seeds"
    caption: ClassVar[str] = "The dotted line is the layer that the run used."

    @classmethod
    def rows(cls, findings: Findings) -> pl.DataFrame:
        """The shares and kappas, all answers together."""
        rows = select(statistics(findings, "sensitivity", *QUANTITIES), truth="all")
        return rows.filter(pl.col("group").is_null() | (pl.col("group") == "Q-Anchored")).select(_COLUMNS)

    @classmethod
    def explained(cls, findings: Findings) -> tuple[str, ...]:
        """What kappa is, and how the rules are told apart."""
        return (
            "Kappa: 1 is full agreement with the run's own groups, 0 is chance. Bands and lines: 95 % intervals; for "
            "all seeds together, the range. Left: solid plain, dashed corrected, dotted retained rule. Right: filled "
            "plain, open corrected, grey retained.",
        )

    def draw(self) -> Figure:
        """A row per dataset: the moved layer, the rules, the seeds."""
        there = set(self.data["quantity"])
        handles = [Line2D([], [], label=words, **style) for name, (words, style) in QUANTITIES.items() if name in there]
        longest = max(len(rules_tried(self.data)), len(seeds_in(self.data)), 4)
        heights = rows_that_fit(len(self.datasets), 0.6 + 0.3 * longest, 0.78)
        grid = Grid([3.0, 2.7, 2.0], heights, gap_x=[1.6, 0.95])
        page = canvas(f"{self.model}: how far the groups hang on choices", grid, Legend(handles, 3, self.notes))
        for panels, dataset in zip(page.axes, self.datasets, strict=True):
            table = select(self.data, dataset=dataset)
            self._draw_moved(panels[0], table)
            self._draw_rules(panels[1], table)
            self._draw_seeds(panels[2], table)
            for axes, what in zip(panels, ("sorting layer moved", "rule or cut", "seed"), strict=True):
                axes.set_title(f"{display_name(dataset)}: {what}")
        return page.figure

    @staticmethod
    def _draw_moved(axes: Axes, table: pl.DataFrame) -> None:
        offsets = pl.Series("layer", [moved_by(variant) for variant in table["variant"]], dtype=pl.Int64)
        moved = table.with_columns(offsets).filter(pl.col("layer").is_not_null())
        zero_line(axes)
        axes.axvline(0, color=INK, linewidth=0.8, linestyle=":", zorder=1)
        for quantity, (_, style) in QUANTITIES.items():
            for rule in rules_in(moved):
                rows = select(moved, quantity=quantity, assignment=rule).unique("layer", keep="first").sort("layer")
                line = style | {"linestyle": _DASHES.get(rule, _OTHER_DASHES), "linewidth": 1.5}
                # Agreement with itself is no finding: that line has a gap at zero.
                for _, piece in rows.group_by(pl.col("layer") - pl.int_range(pl.len()), maintain_order=True):
                    line_with_band(axes, piece, "value", markevery=max(1, piece.height // 3), zorder=3, **line)
        if not moved.height:
            empty_panel(axes, "not available")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes.set_xlabel("Layers that l* is moved by")

    @staticmethod
    def _draw_rules(axes: Axes, table: pl.DataFrame) -> None:
        names = rules_tried(table)
        _draw_choices(axes, table.filter(pl.col("variant").is_in(names)), names, [rule_words(name) for name in names])

    @staticmethod
    def _draw_seeds(axes: Axes, table: pl.DataFrame) -> None:
        names = seeds_in(table)
        labels = ["all of them" if name == "seeds" else name for name in names]
        _draw_choices(axes, table.filter(pl.col("variant").is_in(names)), names, labels, by_rule=True)


def _draw_choices(
    axes: Axes, table: pl.DataFrame, names: list[str], labels: list[str], *, by_rule: bool = False
) -> None:
    """One line per choice; the rules that a seed was tried with stand beside each other."""
    quantities = list(QUANTITIES)
    marks = []
    for row in table.to_dicts():
        style, offset = dict(QUANTITIES[row["quantity"]][1]), (quantities.index(row["quantity"]) - 1) * 0.22
        if by_rule and row["assignment"] != "plain":
            face = _FACES.get(row["assignment"], "white")
            style |= {"markerfacecolor": face, "markeredgecolor": style["color"], "markeredgewidth": 1.0}
            offset += 0.14 if row["assignment"] == "retained" else 0.07
        marks.append(Mark(names.index(row["variant"]), offset, estimate_of(row), style | {"linewidth": 1.2}))
    draw_forest(axes, labels, marks)
    axes.locator_params(axis="x", nbins=5)
    if not marks:
        axes.set_xticks([])
        empty_panel(axes, "not available")


_HEAD = ("Q share", "items", "true among Q", "true among A", "Q share, true − false", "p", "kappa")


def _choices_table(findings: Findings, table: pl.DataFrame, kind: str) -> Table:
    rows = []
    for dataset in datasets_in(findings, table):
        mine = select(table, dataset=dataset)
        for name in rules_tried(mine) if kind == "rule" else seeds_in(mine):
            tried = select(mine, variant=name)
            # A rule is an assignment of its own; a seed was tried with several.
            for rule in [None] if kind == "rule" else rules_in(tried):
                here = tried if rule is None else select(tried, assignment=rule)
                words = rule_words(name) if rule is None else f"{name}, {rule_name(rule)}"
                rows.append((display_name(dataset), words, *_choice_cells(here)))
    return Table(("dataset", kind, *_HEAD), tuple(row for row in rows if set(row[2:]) != {NOTHING}), 2)


def _choice_cells(rows: pl.DataFrame) -> tuple[str, ...]:
    share = find(rows, quantity="q_share", truth="all")
    true = [find(rows, quantity="true_share", group=group) for group in GROUPS]
    bias = select(rows, quantity="label_bias")
    gap = find(bias) if bias.height else None
    p = p_value_cell(bias.row(0, named=True)["p_value"]) if bias.height else NOTHING
    cells = (shown(share, percent), count(share.n) if share else NOTHING, *(shown(one, percent) for one in true))
    return (*cells, shown(gap, percent), p, shown(find(rows, quantity="kappa", truth="all"), estimate))


def _seeds_table(findings: Findings, table: pl.DataFrame) -> Table:
    table, rows = select(table.filter(pl.col("quantity").str.starts_with("delta_p_reference")), truth="all"), []
    for dataset in datasets_in(findings, table):
        for name in seeds_in(select(table, dataset=dataset)):
            mine = select(table, dataset=dataset, variant=name)
            both = [find(mine, quantity="delta_p_reference", group=group) for group in GROUPS]
            gap = find(mine, quantity="delta_p_reference_difference")
            label = "all of them: mean [range]" if name == "seeds" else name
            rows.append((display_name(dataset), label, *(shown(one, points) for one in (*both, gap))))
    return Table(("dataset", "seed", *GROUPS, "Q − A"), tuple(rows), 2)


def _moved_table(findings: Findings, table: pl.DataFrame) -> Table:
    near = findings.n_layers // 4
    offsets = pl.Series("offset", [moved_by(variant) for variant in table["variant"]], dtype=pl.Int64)
    moved = table.with_columns(offsets).filter(pl.col("offset").abs() <= near)
    rows = []
    for dataset in datasets_in(findings, moved):
        for rule in rules_in(moved):
            mine = select(moved, dataset=dataset, assignment=rule)
            kappas = select(mine, quantity="kappa", truth="all").sort("value")
            shares = select(mine, quantity="q_share", truth="all").sort("value")
            cells = [f"{estimate(estimate_of(row))} at {row['variant']}" for row in kappas.head(1).to_dicts()]
            cells += [percent(estimate_of(row)) for one in (shares.head(1), shares.tail(1)) for row in one.to_dicts()]
            if len(cells) == 3:
                tried = len(present(mine, "variant"))
                rows.append((display_name(dataset), rule_name(rule), str(tried), *cells))
    head = ("dataset", "rule", "layers tried", "lowest kappa", "smallest Q share", "largest Q share")
    return Table(head, tuple(rows), 2)


SECTION = SectionSpec(
    slug="sensitivity",
    title="Sensitivity",
    rows=lambda findings: statistics(findings, "sensitivity"),
    text=(
        "Would other choices have made other groups? The sorting layer is moved, other rules decide what counts as a "
        "flip, other words are cut, and folds and probes are drawn again with other seeds. No new pass of the model is "
        "needed for that.",
        "Kappa says how far the same items are called Q-Anchored; the share of true answers among Q and A says "
        "whether a rule sorts by label. Groups that change with the seed are made by the probes and not by the "
        "model. That two rules agree does not make either of them right.",
    ),
    charts=(SensitivityChart,),
    tables=(
        (
            "Other rules, and the plain rule after other cuts; kappa with the plain rule",
            lambda findings, rows: _choices_table(findings, rows, "rule"),
        ),
        ("Other seeds; kappa with the run's own seed", lambda findings, rows: _choices_table(findings, rows, "seed")),
        ("ΔP at l* with other seeds, plain rule", _seeds_table),
        ("The sorting layer moved: the lowest agreement within a quarter of the depth", _moved_table),
    ),
)
