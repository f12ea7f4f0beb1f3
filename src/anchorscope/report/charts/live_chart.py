"""A chart to touch, as data: lines with the choices under which each is shown, menus, one y axis, marks.

The page draws every chart of lines over layers from such a specification (scripts/chart_view.js). A line says how it
looks and for which value of every menu it is there; whatever is chosen, the y axis stays the same, so that two rules or
sites can be compared by eye. The axis spans all lines that can be chosen, with their intervals. A line that rests on
few groups of items has no interval worth drawing and does not stretch the axis.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from anchorscope.report.looks import Look
from anchorscope.report.result_rows import present
from anchorscope.stats.curves import FEWEST_GROUPS

OWN = "own"
"""The choice that leaves every run at its own headline site or position, where these differ."""


@dataclass(frozen=True)
class Menu:
    """Something to choose."""

    name: str
    """Its key in the address, and by default the column of the tables that it chooses from."""
    label: str
    options: Sequence[tuple[str, str, str]]
    """Value, name on the button, and how a sentence names it."""
    folded: bool = False
    """Whether it stands among the further options."""
    column: str = ""
    start: str = ""
    """The first choice; else the first option."""

    @property
    def source(self) -> str:
        """The column of the tables that it chooses from."""
        return self.column or self.name

    def record(self) -> dict[str, Any]:
        """As the page reads it."""
        values = [value for value, _, _ in self.options]
        start = self.start if self.start in values else next(iter(values), "")
        return {
            "name": self.name,
            "label": self.label,
            "options": [list(one) for one in self.options],
            "folded": self.folded,
            "column": self.source,
            "start": start,
        }


@dataclass(frozen=True)
class Axis:
    """One y axis for everything that can be chosen."""

    label: str
    low: float
    high: float
    null: float
    """Where nothing happens: a line is drawn there."""
    digits: int


@dataclass(frozen=True)
class LivePanel:
    """One panel: lines of one model."""

    layers: int
    lines: Sequence[Sequence[Any]]
    """Per line: look, choices, items, whether they are few, headline layer, and three lists over the layers."""
    marks: Sequence[Sequence[Any]] = ()
    """Per row of ticks: choices, colour, row, layers."""
    title: str = ""
    run: str = ""
    """The run's name, where there are several."""


@dataclass(frozen=True)
class LiveChart:
    """One chart with its menus."""

    prefix: str
    """Of its keys in the address."""
    value: str
    """The column that is drawn; also the name of files."""
    title: str
    axis: Axis
    scale: int
    """What the whole numbers of the lines are divided by."""
    menus: Sequence[Menu]
    looks: Mapping[str, Look]
    panels: Sequence[LivePanel]
    mark_words: str = ""
    """What the ticks at the foot are."""
    point_words: str = ""
    """What the ringed points are."""
    note: str = ""
    """Said under the chart, whatever is chosen."""
    beyond: str = ""
    """What it means that a line leaves the axis; said where one does."""
    file: str = ""
    relative: bool = False
    """Whether x runs from 0 to 1 at first."""

    def record(self) -> dict[str, Any]:
        """As the page reads it."""
        axis = {
            "label": self.axis.label,
            "range": [self.axis.low, self.axis.high],
            "null": self.axis.null,
            "digits": self.axis.digits,
        }
        used = {line[0] for panel in self.panels for line in panel.lines}
        return {
            "prefix": self.prefix,
            "value": self.value,
            "file": self.file or self.value,
            "title": self.title,
            "axis": axis,
            "scale": self.scale,
            "menus": [menu.record() for menu in self.menus],
            "looks": {name: look.record() for name, look in self.looks.items() if name in used},
            "panels": [dict(panel.__dict__) for panel in self.panels],
            "mark_words": self.mark_words,
            "point_words": self.point_words,
            "note": self.note,
            "beyond": self.beyond,
            "relative": self.relative,
        }


def chart_menu(
    name: str,
    label: str,
    tables: Sequence[pl.DataFrame],
    order: Mapping[str, str],
    words: str = "{}",
    *,
    column: str = "",
    folded: bool = False,
    start: str = "",
    named: bool = False,
) -> Menu:
    """What all tables have of a column, in order, with words for each; `named`: buttons have the words too."""
    there = [present(table, column or name, tuple(order)) for table in tables if table.height] or [[]]
    values = [value for value in there[0] if all(value in other for other in there[1:])]
    said = {value: order.get(value, value) for value in values}
    options = [(value, said[value] if named else value, words.format(said[value])) for value in values]
    return Menu(name, label, options, folded, column, start)


def place_menus(tables: Sequence[pl.DataFrame], starts: Mapping[str, str]) -> list[Menu]:
    """Site and position; the latter is folded."""
    own = {OWN: "each run's own"}
    return [
        chart_menu("site", "Site", tables, own, "read at {}", start=starts["site"]),
        chart_menu("position", "Position", tables, own, "{} token", start=starts["position"], folded=True),
    ]


Row = Mapping[str, Any]


def live_lines(
    table: pl.DataFrame,
    menus: Sequence[Menu],
    value: str,
    scale: int,
    n_layers: int,
    *,
    anyway: Sequence[str] = (),
    point: Callable[[Row], int | None] = lambda row: None,
    by: Sequence[str] = (),
) -> list[list[Any]]:
    """The lines of a table, whose column `line` names the look, one per combination of menus and further columns.

    `anyway` are menus that do not matter to these lines; `point` tells the layer whose number the text quotes.
    """
    columns = (value, "ci_low", "ci_high")
    keys = [*dict.fromkeys(["line", *by, *(menu.source for menu in menus if menu.source in table.columns)])]
    groups = pl.coalesce("n_groups", "n") if "n_groups" in table.columns else pl.col("n")
    grouped = table.sort("layer").with_columns(groups.alias("groups")).group_by(keys, maintain_order=True)
    found = grouped.agg("layer", pl.col("n").max().alias("items"), pl.col("groups").max(), *columns)
    lines = []
    for row in found.iter_rows(named=True):
        choices = choices_of(menus, row, anyway)
        if choices is None:
            continue
        layer = point(row)
        lists = [by_layer(row["layer"], row[name], n_layers, scale) for name in columns]
        few = (row["groups"] or 0) < FEWEST_GROUPS
        lines.append([row["line"], choices, row["items"], few, -1 if layer is None else layer, *lists])
    return lines


def choices_of(menus: Sequence[Menu], row: Row, anyway: Iterable[str] = ()) -> list[int] | None:
    """The options of all menus under which a row is shown; −1 for all of a menu; None where a menu does not have it."""
    skipped, found = set(anyway), []
    for menu in menus:
        place = -1
        if menu.name not in skipped and menu.source in row:
            values = [value for value, _, _ in menu.options]
            if row[menu.source] not in values:
                return None
            place = values.index(row[menu.source])
        found.append(place)
    return found


def by_layer(layers: Iterable[int], values: Iterable[float | None], n_layers: int, scale: int) -> list[int | None]:
    """One whole number per layer."""
    placed: list[int | None] = [None] * n_layers
    for layer, value in zip(layers, values, strict=True):
        placed[layer] = whole(value, scale)
    return placed


def whole(value: float | None, scale: int) -> int | None:
    """In whole steps; JSON has no NaN."""
    return None if value is None or not math.isfinite(value) else round(value * scale)


def spanned(
    table: pl.DataFrame, value: str, step: float, always: Sequence[float], within: pl.Expr | None = None
) -> tuple[float, float]:
    """The range of all lines and of the intervals `within`, in whole steps; lines of few items do not stretch it."""
    enough = (pl.coalesce("n_groups", "n") if "n_groups" in table.columns else pl.col("n")) >= FEWEST_GROUPS
    kept = table.filter(enough)
    kept = kept if kept.height else table
    wide = kept if within is None else kept.filter(within)
    numbers = pl.concat([kept[value], wide["ci_low"], wide["ci_high"]]).cast(pl.Float64).drop_nulls().drop_nans()
    found = [*always, *([float(numbers.min()), float(numbers.max())] if len(numbers) else [])]  # type: ignore[arg-type]
    return math.floor(min(found) / step + 1e-9) * step, math.ceil(max(found) / step - 1e-9) * step
