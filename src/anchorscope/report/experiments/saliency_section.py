"""The words and tables about saliency."""

import polars as pl

from anchorscope.report.experiments.cells import GROUP_HEAD, NOTHING, Show, chance, group_cells
from anchorscope.report.experiments.records import (
    TRUTHS,
    datasets_in,
    estimate_of,
    present,
    rule_name,
    rules_in,
    select,
    statistics,
)
from anchorscope.report.experiments.saliency import LOSSES, SaliencyChart
from anchorscope.report.experiments.section import Plate, Section, filled
from anchorscope.report.findings import Findings
from anchorscope.report.palette import GROUPS, display_name
from anchorscope.report.tables import Table
from anchorscope.report.wording import count, estimate, percent

_AREAS = {"auc": "saliency", "auc_share": "share"}
_SHAPES = ("dip", "dip_within_folds", "bimodality_coefficient", "bimodality_coefficient_within_folds")


def saliency_section(findings: Findings) -> Section | None:
    """What flows from the question into the answer."""
    table = statistics(findings, "saliency")
    if not table.height and not SaliencyChart.was_made(findings):
        return None
    text = (
        "How much does the probe's verdict lean on attention from the answer to the key words? Saliency multiplies "
        "each attention weight with the slope of the verdict by it, and is summed per item; nothing is cut. The "
        "share is what part of all that flows into the answer comes from the key words.",
        "The slope of the probe's loss vanishes where the probe is sure, whatever the pathway, so a hump near "
        "nothing may be mere confidence; the log-odds have no such factor. Two humps would speak for two kinds of "
        "items: the dip test asks whether one hump would do (a small p speaks against it), and a bimodality "
        "coefficient above 0.556 points to two, but also to a skew. Folds have probes of their own, which can make "
        "humps: hence the numbers within folds.",
        "A slope is what an infinitely small change would do. A cut is not small, so the two may disagree.",
    )
    plate = Plate("saliency", "Density over items of the saliency from question to answer, by truth and by pathway",
                  "Dotted: all items of the panel.")  # fmt: skip
    return Section("saliency", "Saliency", text, filled(
        ("The groups", _groups_table(findings, table)),
        ("How well it finds the Q-Anchored items (AUC, 0.5 is guessing)", _areas_table(findings, table)),
        ("One hump or two (of log10 S)", _shapes_table(findings, table)),
        ("How much of the spread of the loss's saliency is the probe's confidence", _confidence_table(findings, table)),
    ), (plate,) if SaliencyChart.was_made(findings) else ())  # fmt: skip


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
    return (show(estimate_of(row)), chance(row["p_value"], row["q_value"]), count(row["n"]))


def _words(quantity: str) -> str:
    return quantity.replace("log10_", "log10 ").replace("_", " ")


def _loss(variant: str | None) -> str:
    return LOSSES.get(variant, variant) if variant else NOTHING
