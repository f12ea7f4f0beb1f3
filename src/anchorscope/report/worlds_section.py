"""The worlds on the page of the calibration: which rule may be believed when, and from how many items on."""

from collections.abc import Mapping

import polars as pl

from anchorscope.report.page_sections import Section, filled
from anchorscope.report.result_rows import present, select
from anchorscope.report.wording import NOTHING, Table, count, number

WORLDS_SCHEMA: dict[str, type[pl.DataType]] = {
    "world": pl.String,
    "rule": pl.String,
    "items": pl.Int64,
    "quantity": pl.String,
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "replicas": pl.Int64,
    "passes": pl.Boolean,
    "method": pl.String,
}
"""Columns of worlds.csv. Rows whose rule is `TRUTH` say what is so in a world; they have no number of items."""
TRUTH = "truth"
_PERCENT = (
    "false_alarms",
    "power",
    "covered",
    "items_covered",
    "called_items",
    "wrong_question_calls",
    "wrong_answer_calls",
)
_COLUMNS = {
    "auc_true": "AUC within true",
    "auc_false": "within false",
    "share_bias": "share bias",
    "false_alarms": "false alarms",
    "power": "two kinds seen",
    "covered": "coverage",
}
_ITEM_COLUMNS = {
    "called_items": "items called",
    "wrong_question_calls": "called question, wrong",
    "wrong_answer_calls": "called answer, wrong",
    "items_covered": "item intervals that hold the planted share",
}
_TEXT = (
    "The planted model is an easy test: the kind of an item can be read off its cut state without a mistake. These "
    "worlds are harder. They have no model: states are drawn, with evidence for the label in a question part and an "
    "answer part, each with noise of its own, among directions that tell nothing; the cut redraws the question part.",
    "A rule passes where its AUC for the pathway is at least 0.8 within true and within false answers (where whoever "
    "knows the whole world would reach that), its share is off by at most 0.05, and it claims two groups in at most "
    "5% of the replicas of the world's twin, which looks the same and has one pathway. Where single items are called, "
    "at most a tenth of either call may be wrong.",
    "A sorting rule claims two groups where the interval of Q less A lies below zero, the question share where its "
    "upper third is more than 1.96 deviations above its lower one, the item posterior where it calls anybody. Of few "
    "replicas a single false alarm is more than 5%: look at their number, and ask for more with --replicas.",
    "Share bias: of sorting rules the share of Q-Anchored items less the planted share, of the others the share of the "
    "evidence less what an endless sample gives. Coverage: how often the 95% interval of the question share holds "
    "the share that an endless sample of the same cut gives. Rates come from few replicas; their intervals are in "
    "worlds.csv.",
)


def worlds_section(table: pl.DataFrame, about: Mapping[str, str], shown_at: int) -> Section:
    """Tables of all worlds; details are those at `shown_at` items."""
    rules = table.filter(pl.col("rule") != TRUTH)
    here = select(rules, items=shown_at)
    return Section(
        "worlds",
        "Harder worlds",
        _TEXT,
        filled(
            ("The smallest number of items from which on a rule passes", _smallest_table(rules)),
            (f"In detail, {count(shown_at)} items", _detail_table(here, _COLUMNS)),
            (
                f"Calls of single items, {count(shown_at)} items",
                _detail_table(here.filter(pl.col("rule") == "item posterior"), _ITEM_COLUMNS),
            ),
            ("The worlds", _truth_table(select(table, rule=TRUTH), about)),
        ),
    )


def smallest_sizes(rules: pl.DataFrame) -> dict[tuple[str, str], int | None]:
    """Per world and rule the smallest number of items from which on it passes; None where it does not at the most."""
    found: dict[tuple[str, str], int | None] = {}
    marks = rules.select("world", "rule", "items", "passes").unique(maintain_order=True)
    for (world, rule), mine in marks.group_by("world", "rule", maintain_order=True):
        smallest = None
        for items, passes in mine.sort("items", descending=True).select("items", "passes").iter_rows():
            if not passes:
                break
            smallest = int(items)
        found[str(world), str(rule)] = smallest
    return found


def _smallest_table(rules: pl.DataFrame) -> Table:
    smallest = smallest_sizes(rules)
    names, worlds = present(rules, "rule"), present(rules, "world")
    cell = {key: "no" if size is None else f"from {count(size)}" for key, size in smallest.items()}
    rows = tuple((world, *(cell.get((world, rule), NOTHING) for rule in names)) for world in worlds)
    return Table(("world", *names), rows)


def _detail_table(rules: pl.DataFrame, columns: Mapping[str, str]) -> Table:
    rows = []
    for (world, rule), mine in rules.group_by("world", "rule", maintain_order=True):
        at = {row["quantity"]: row for row in mine.to_dicts()}
        cells = (_cell(name, at.get(name)) for name in columns)
        most = max(row["replicas"] for row in at.values())
        rows.append((str(world), str(rule), *cells, count(most), "yes" if mine["passes"][0] else "no"))
    return Table(("world", "rule", *columns.values(), "replicas", "passes"), tuple(rows), 2)


def _cell(quantity: str, row: Mapping[str, float] | None) -> str:
    if row is None:
        return NOTHING
    if quantity in _PERCENT:
        return f"{number(100 * row['value'], 0)}%"
    return number(row["value"], 2)


def _truth_table(truths: pl.DataFrame, about: Mapping[str, str]) -> Table:
    columns = {
        "whole_share": "question share",
        "share": "of the cut as made",
        "probe_auc": "AUC of the probe",
        "label_ceiling": "reachable from the label alone",
        "ceiling_true": "reachable within true",
        "ceiling_false": "within false",
    }
    rows = []
    for world in present(truths, "world"):
        at = {row["quantity"]: row for row in select(truths, world=world).to_dicts()}
        rows.append((world, about.get(world, NOTHING), *(_cell(name, at.get(name)) for name in columns)))
    return Table(("world", "what makes it hard", *columns.values()), tuple(rows), 2)
